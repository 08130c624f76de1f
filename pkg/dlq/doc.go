// Package dlq is the operators' desk for the dead letters of the ingest queue: it lists them with what their rows say now,
// replays them and drops them (contract §4, design D11).
//
// A dead letter is an entry of the dead letter stream (Redis, also with partitions, which write the same stream), or a row with
// status DEAD: on the Kafka transport, and wherever the stream is off, the rows are the dead letters, since they are the truth anyway.
//
// A replay is one transaction on the row, which must be DEAD with the dead letter's very fence; the entry is removed after it.
//
//	died after …   left                                      mended by
//	the row        the task QUEUED, its entry still there    the next replay of the entry finds another state or fence: 409, and
//	                                                         removes it; a list shows it as not replayable meanwhile
//
// On Kafka the list has the records of the DLQ topic that could not be read among the rows, by time: they name no row, and a drop
// takes them back with a record of its own.
//
// A drop removes an entry only: the row stays DEAD and can still be replayed by its task. It is noted in the audit log before
// the entry goes, by which fsck knows why the dead letter is missing.
//
// Topic is the same for one of streammq's topics: those have dead letters of their own, each a message with its payload.
package dlq
