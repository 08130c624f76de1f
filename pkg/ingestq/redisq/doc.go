// Package redisq implements the queue port on a Redis Stream with one consumer group, over rueidis (contract §5).
//
// It is no task store and no retry queue: a delivery only names a task, retries and takeovers are found in the table
// (design D4), and what Redis loses comes back from there (design D5). So every method heals a missing stream or group,
// none of them trusts an entry to be there, and nothing here is ever trimmed by length.
//
// Start with NewClient and New; a process that only publishes uses NewPublisher. One Redis, with or without Sentinel,
// or a Redis Cluster: there the stream, its heartbeats and all that scripts touch with it lie in one slot, on one node, and the
// dead letter stream in its own, so that Quarantine is two steps. Package embedded serves the same in process for `millweir dev`.
package redisq
