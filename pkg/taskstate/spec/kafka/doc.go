// Package kafka searches the Kafka transport of deliveries whole: the event that a transaction writes with its row, relays that
// lease, send and mark it, the broker's log with the group's offset, consumers, and the sweep that finds lost deliveries.
//
// Decisions on rows are those of package taskstate, and spec.Write writes them, as in package spec, whose search is that of the
// Redis transport. The world here is another one, and so is what can go wrong in it. What it leaves out is in deploy/docs/model.md.
package kafka
