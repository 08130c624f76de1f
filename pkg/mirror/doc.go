// Package mirror keeps a copy of every unfinished task in a quorum queue of RabbitMQ (design D19). The row is the truth: the mirror
// compares rows with copies and is known to no door, worker, table or transaction.
//
// One Mirror acts: the one that has the lease, the row of mirror_lease. Its publisher copies unfinished tasks that it knows no copy of.
// Its drainer goes through the queue in rounds: a copy whose row, read after the copy was taken, has ended is acknowledged; every other
// copy is published anew at the tail and acknowledged once that is confirmed. So it learns which copies there are, and none stays at the
// head. Two that act for a moment, since one did not see that its lease had ended, make second copies, which go when their tasks end.
//
// Beside them, where it is asked for, an auditor appends every change of every task to a stream.
//
// What a crash leaves, and who mends it:
//
//	died after …         left                                           mended by
//	the publish          a copy that no mirror knows                    the first round of the next mirror meets it
//	the take             a copy that goes back to the head              the next round; the delivery is counted
//	the republish        two copies of one task                         both go when the task ends
//	the acknowledgement  nothing
//	the append           changes in the stream, maybe not all           the next mirror appends their batch once more
//	a failure's row      a row of mirror_failure                        the next mirror removes it with a confirm or the end
//	the lease            up to 6 s in which no mirror acts              the lease ends
package mirror
