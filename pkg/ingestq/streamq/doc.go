// Package streamq implements the queue port on a partitioned topic of pkg/streammq (contract §6, INGEST_STREAM_PARTITIONS
// above 1): topic ingest-tasks, the key is the document's id, so that the versions of one document come in their order to
// one process; dead letters go to the stream of the single queue.
//
// Who reads is decided by streammq's leases: each partition has one owner among the members that read. All else is done for a
// row and by whoever has the row, owner or not, as on the single stream (design D4): redisq's commands and scripts on the
// partition's stream, with entries in streammq's form. That needs no fence, since a delivery carries no authority (D1), and
// streammq's own reads only ever add deliveries. A delivery's id is "partition:entry", as "3:1700000000000-0".
//
// Who writes what, and what is left when a process dies between two steps:
//
//   - Publish: one XADD. Died before it: the row's promise (D5) adds it again.
//   - Read: the owner's script (XREADGROUP or XCLAIM under its epoch) makes entries pending for the member. Died after it, or
//     the partition was lost: the next owner is given all that is pending, in the order of the ids, whoever has it, and the
//     claim returns: QUEUED runs, RUNNING elsewhere is busy and RETRYING not due, both left alone as the row's own entry.
//   - Rebalance while a task runs: as that. The old owner still acknowledges the entry when its task ends.
//   - Adopt (retry or takeover by any process): XCLAIM to it. Died after it: the entry is pending with a member that does not
//     own the partition, and comes to the next owner, or is settled by its idle time.
//   - Ack, Requeue, Unpin, Quarantine: one script or command each, by any process; Quarantine on a cluster is two, the dead letter
//     first, and once. Died before or between: settled later.
//   - Run writes one heartbeat for all partitions, on a cluster one for each in the slot of its stream. Died: it expires, and
//     reconciling may take what QUEUED rows have there.
//
// A member takes part from its first Read on; one that has not read for a while, because all its slots are busy or because it
// stops (Yield), leaves its partitions to others. The single stream is read and settled too as long as it is there, so that
// a switch to partitions loses and delays nothing. Partitions only grow; by growth a document may change its partition, and
// only its versions from then on are in order.
package streamq
