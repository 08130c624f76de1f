// Package streammq is a partitioned message queue on Redis Streams: topics with partitions, consumer groups in which
// each partition has one owner at a time, retries, dead letters and their replay, on nothing but Redis.
//
// An MQ, made by New over a rueidis client, creates topics and publishes; a Subscriber consumes one topic for one group.
//
// Delivery is at least once, and first deliveries of one key come in the order of publishing. What makes it so:
// a member owns a partition by a lease whose every taking has a new epoch, and each script that reads, acknowledges,
// puts off or gives up an entry compares the epoch, and the consumer and delivery count that Redis names for the entry.
// A member that was paused, cut off or replaced can therefore still run a handler, but it can write nothing.
//
// This package names what the packages below internal/ make; their own pages say more of each type. Package stream is the
// engine below them: the scripts, and what reads their answers, for any stream and group.
//
// The package imports rueidis and the standard library. It starts no goroutine but inside Run, and reads no environment.
package streammq
