package kafka

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Sizes of the largest world.
const (
	maxTasks   = 2
	maxEvents  = 6
	maxRecords = 5
	numOf      = 2 // consumers, and relays
)

// Config says how large a world is and what may happen in it.
type Config struct {
	Name    string
	Tasks   int  // 1 or 2
	Relays  int  // 1 or 2
	Fails   bool // runs may fail
	Faults  Faults
	Without Rule
}

// Faults is a budget of what may go wrong, and of what people do.
type Faults struct {
	Crashes    uint8 // of a consumer or a relay
	Pauses     uint8 // the same, past every lease
	Rebalances uint8 // the partition goes to the other consumer
	Outages    uint8 // no broker answers
	Refusals   uint8 // the broker refuses an event for good: it waits for an operator
	Replies    uint8 // the broker has taken an event and its answer is lost
	Tails      uint8 // the broker loses its last record that was not read
	Stops      uint8 // SIGTERM of a consumer: it hands back
	Cancels    uint8
	Replays    uint8
}

// Rule is one rule of the design that a model can go without; bits.
type Rule uint16

// The rules.
const (
	MarkAfterAck       Rule = 1 << iota // SENT is written after the broker's answer
	MarkComparesLease                   // and by the relay that holds the event's lease
	SentAtAfterAck                      // sent_at is the time of the mark, not of the sending
	EventInTransaction                  // an event is written with its row
	OffsetAfterOutcome                  // the offset moves when the outcome is committed
	FenceInFinish
	WatermarkSweep        // lost deliveries are found
	NowBeforeBroker       // now, where the log has ended, was read before the broker was asked
	UnsentIsNotLost       // a row whose event waits, or is DEAD, is not enqueued again
	OldDeathsDoNotCount   // but a DEAD event older than the last one sent says nothing
	RetentionSparesQueued // SENT events of QUEUED rows stay
	Revive                // DEAD events are tried again when a broker answers
	RecoverySweep         // due retries and expired leases are found in the table
	numRules              = iota
)

var ruleNames = [numRules]string{
	"MarkAfterAck", "MarkComparesLease", "SentAtAfterAck", "EventInTransaction", "OffsetAfterOutcome", "FenceInFinish", "HorizonSweep",
	"NowBeforeBroker", "UnsentIsNotLost", "OldDeathsDoNotCount", "RetentionSparesQueued", "Revive", "RecoverySweep",
}

// String names the rule.
func (r Rule) String() string {
	for i, name := range ruleNames {
		if r == 1<<i {
			return name
		}
	}
	return "none"
}

// age is an instant, as distinct instants before now; only order and whether two of them are one or more apart matter.
type age = int8

// World is one state: a comparable value without pointers.
type World struct {
	Rows      [maxTasks]Row
	Events    [maxEvents]Event // in the order of their numbers
	Log       [maxRecords]Record
	Consumers [numOf]Consumer
	Relays    [numOf]Relay
	Sweep     Sweep
	Assigned  uint8 // the consumer that has the partition
	Down      bool  // no broker answers
	Left      Faults
}

// State is a status in one byte.
type State uint8

// The states, in the order of statusOf.
const (
	stNone State = iota
	stQueued
	stRunning
	stRetrying
	stSucceeded
	stDead
	stSuspended
	stCancelled
)

// Row is a task's row.
type Row struct {
	State       State
	Fence       uint8
	Attempts    uint8
	Crashes     uint8
	Expired     bool  // the lease is over
	Due         bool  // a retry's time has come
	Enqueued    age   // of a QUEUED row
	Count       uint8 // promises in vain: 0, or 1 for more
	Owes        bool  // only without EventInTransaction: its event is not written yet
	DeadLetters uint8 // fences of the dead letters that the broker has, as bits
}

// EventState is where an event is.
type EventState uint8

// The states of an event.
const (
	evNone EventState = iota
	evNew
	evRetrying
	evSent
	evDead
)

// Event is a row of the outbox.
type Event struct {
	State      EventState
	DeadLetter bool // of the dead letter topic
	Task       uint8
	Fence      uint8 // of a dead letter
	Attempts   uint8
	Lease      uint8 // relay + 1; goneRelay: of one that is no more
	Expired    bool
	Sent       age
	Refused    bool // DEAD for good
	Acked      bool // ghost: the broker has answered some sending of it
}

// Record is an entry of the partition at or after the group's offset.
type Record struct {
	Used, Read, Done bool
	Task             uint8
	At               age // LogAppendTime
}

// Pause is what happens to a process.
type Pause uint8

// The states of a process; one that was killed is started anew at once.
const (
	alive Pause = iota
	paused
	stopping
)

// Step is where a consumer stands.
type Step uint8

// The steps of a consumer with one slot.
const (
	idle     Step = iota
	hasRead       // it has a record and has not claimed
	running       // it runs a task
	finished      // the outcome is committed, its record is not
)

// Consumer is a member of the group.
type Consumer struct {
	Pause Pause
	At    Step
	Task  uint8
	Fence uint8
	Rec   uint8 // its record's place + 1; 0: none, or its partition is another's by now
}

// RelayStep is where a relay stands.
type RelayStep uint8

// The steps of a relay.
const (
	rests RelayStep = iota
	leased
	answered
)

// Answer is what a relay heard.
type Answer uint8

// The returns.
const (
	acked Answer = iota
	unavailable
	refused
)

// Relay sends events.
type Relay struct {
	Pause  Pause
	At     RelayStep
	Event  uint8 // place + 1; 0: the event is gone
	Answer Answer
	Began  age
}

// goneRelay is the lease of a relay that was killed.
const goneRelay = numOf + 1

// Sweep looks for lost deliveries.
type Sweep struct {
	At uint8 // 1: it has read the database's clock; 2: it knows the read watermark
	H  age
	// End: the log had ended where it looked.
	End bool
}

// Times of the model.
const (
	tick       = time.Hour
	modelSlack = tick / 2
	maxApart   = 2 // further apart is the same as this
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

var statusOf = [...]taskstate.Status{
	taskstate.StatusNone, taskstate.StatusQueued, taskstate.StatusRunning, taskstate.StatusRetrying,
	taskstate.StatusSucceeded, taskstate.StatusDead, taskstate.StatusSuspended, taskstate.StatusCancelled,
}

// terminal reports whether nothing more happens to the row by itself.
func (r *Row) terminal() bool {
	return r.State == stSucceeded || r.State == stDead || r.State == stCancelled
}

func instant(a age) time.Time { return epoch.Add(time.Duration(a) * tick) }

// times calls f for every instant that somebody can still see.
func (w *World) times(f func(a *age)) {
	for i := range w.Rows {
		if r := &w.Rows[i]; r.State == stQueued {
			f(&r.Enqueued)
		} else {
			r.Enqueued, r.Count = 0, 0
		}
	}
	for i := range w.Events {
		if e := &w.Events[i]; e.State == evSent {
			f(&e.Sent)
		} else {
			e.Sent = 0
		}
	}
	for i := range w.Log {
		if w.Log[i].Used {
			f(&w.Log[i].At)
		}
	}
	for i := range w.Relays {
		if w.Relays[i].At != rests {
			f(&w.Relays[i].Began)
		} else {
			w.Relays[i].Began = 0
		}
	}
	if w.Sweep.At > 0 {
		f(&w.Sweep.H)
	} else {
		w.Sweep = Sweep{}
	}
}

// canon forgets what nobody can see any more, so that equal worlds look equal.
func (m *Model) canon(w *World) {
	w.forgetEvents()
	w.trimLog()
	present := [128]bool{}
	w.times(func(a *age) { present[-*a] = true })
	var to [128]age
	last, value := 0, age(0)
	for i := 1; i < len(present); i++ {
		if present[i] {
			value -= age(min(i-last, maxApart))
			last = i
		}
		to[i] = value
	}
	w.times(func(a *age) { *a = to[-*a] })
}

// forgetEvents is retention, and leaves out events that no decision looks at again.
func (w *World) forgetEvents() {
	last := [maxTasks]int{-1, -1}
	for i, e := range w.Events {
		if e.State == evSent && !e.DeadLetter {
			last[e.Task] = i
		}
	}
	for i := maxEvents - 1; i >= 0; i-- {
		e := &w.Events[i]
		r := &w.Rows[e.Task]
		switch {
		case e.State == evSent && (e.DeadLetter || r.State != stQueued || last[e.Task] != i):
		case e.State != evNone && e.State != evSent && !e.DeadLetter && r.terminal() && (e.Lease == 0 || e.Expired):
		default:
			continue
		}
		w.dropEvent(i)
	}
}

// dropEvent removes an event; a relay that had it finds no row.
func (w *World) dropEvent(i int) {
	copy(w.Events[i:], w.Events[i+1:])
	w.Events[maxEvents-1] = Event{}
	for r := range w.Relays {
		switch at := int(w.Relays[r].Event) - 1; {
		case at == i:
			w.Relays[r].Event = 0
		case at > i:
			w.Relays[r].Event--
		}
	}
}

// addEvent appends an event; false: the world has no room.
func (w *World) addEvent(e Event) bool {
	for i := range w.Events {
		if w.Events[i].State == evNone {
			w.Events[i] = e
			return true
		}
	}
	return false
}

// trimLog moves the group's offset over what is done.
func (w *World) trimLog() {
	for w.Log[0].Used && w.Log[0].Done {
		w.dropRecord(0)
	}
}

// dropRecord removes a record, and whoever had it has none.
func (w *World) dropRecord(i int) {
	copy(w.Log[i:], w.Log[i+1:])
	w.Log[maxRecords-1] = Record{}
	for c := range w.Consumers {
		switch at := int(w.Consumers[c].Rec) - 1; {
		case at == i:
			w.Consumers[c].Rec = 0
		case at > i:
			w.Consumers[c].Rec--
		}
	}
}
