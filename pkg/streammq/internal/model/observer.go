package model

import "time"

// EventKind says what an Event counts.
type EventKind string

// The kinds of events.
const (
	EventProduced    EventKind = "produced"     // messages added by a producer; Err tells a failure
	EventConsumed    EventKind = "consumed"     // messages read for a handler
	EventHandled     EventKind = "handled"      // a handler ended: Outcome, Took
	EventAcked       EventKind = "acked"        // entries acknowledged
	EventRetried     EventKind = "retried"      // entries put off
	EventDead        EventKind = "dead"         // entries that became dead letters
	EventDropped     EventKind = "dropped"      // failed entries that the policy keeps no dead letter of
	EventRefused     EventKind = "refused"      // writes refused because another owner, or a later delivery, has the entry; Of: what they were
	EventFailed      EventKind = "failed"       // writes that failed, for Err; Of: what they were
	EventLost        EventKind = "lost"         // pending entries whose data was removed from the stream
	EventMoved       EventKind = "moved"        // retry items added to their stream again
	EventQuarantined EventKind = "quarantined"  // malformed retry items put aside
	EventTrimmed     EventKind = "trimmed"      // finished entries removed by retention
	EventOwned       EventKind = "owned"        // Count is the number of partitions that the member owns now
	EventLeft        EventKind = "left"         // the member's Run ended: nothing more comes from it
	EventUnowned     EventKind = "unowned"      // Count is the number of partitions that the caps of all members leave over
	EventPinConflict EventKind = "pin_conflict" // Count is the number of partitions that more than one live member has pinned
	EventZombie      EventKind = "zombie"       // names of dead consumers removed, or in a dry run found
	EventReplied     EventKind = "replied"      // replies written; Err tells those that found nobody to read them
	EventLateReply   EventKind = "late_reply"   // replies that came when nobody waited for them any more
	EventOverdue     EventKind = "overdue"      // requests acknowledged without a run: nobody waits for their reply any more
	EventHealed      EventKind = "healed"       // a topic, stream or group that was lost was made again
)

// Event is something that happened, for metrics. Only the fields that its kind names are set beside Topic and Count.
type Event struct {
	Kind      EventKind
	Topic     string
	Partition int // -1: the whole topic
	Group     string
	Member    string // the stable name, not the one of this start
	Count     int
	Outcome   Outcome
	Took      time.Duration
	Err       error
	Of        EventKind // of EventRefused and EventFailed: EventAcked, EventRetried or EventDead
}

// Observer receives events. It is called from many goroutines, often, and must not block.
type Observer interface {
	Observe(Event)
}

type noObserver struct{}

func (noObserver) Observe(Event) {}
