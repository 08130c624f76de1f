// Package embedded is a vector store inside the process: an exact scan over vectors held in memory, kept on disk in
// one append-only file per knowledge base. One process at a time; pure Go.
//
// Why a log of our own and not rows in SQLite: what is needed is "append a batch durably, load all at start". A log
// does that with one write and one fsync per group of callers, loads at the disk's speed, and has one failure mode
// (a torn last record) that is cut off at opening. SQLite would add a page cache, a WAL and a checkpoint to the same
// rows, and the vectors would still have to be in memory to be scanned.
//
// Durability: Upsert and Delete return after fsync. Concurrent callers share one record and one fsync, so at most one
// record is ever not yet durable, and it is the last: after kill -9 or a power cut at any instruction each call is
// there as a whole or not at all, and every call that returned nil is there. A damaged record that is not the last
// cannot come from a crash; it is reported, never skipped.
//
// Space: a file is rewritten (temporary file, fsync, rename, fsync of the directory) when more than half of its rows
// are dead. Memory: 4 bytes a dimension plus about 250 bytes a row, over all bases that were used since the start:
// 100,000 rows of 384 dimensions are about 180 MB. Options.MaxBytes bounds it; above that Chroma is the store to use.
package embedded
