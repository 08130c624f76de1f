package tasks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	explainLog     = 2000 // changes that are read
	explainChanges = 20   // the last ones, which an explanation shows
)

// Explanation is a task in words.
type Explanation struct {
	Task        taskstate.Task
	Words       string // some sentences
	Holder      string // who holds it; empty: nobody
	HeldUntil   time.Time
	Delivery    string // what carries it
	Next        string // what happens next
	NextAt      time.Time
	Now         time.Time // the database's clock
	LastChanges []taskstate.Transition
	Event       *outbox.Event // carries the delivery of a QUEUED task; nil: none, or there is no outbox
}

// Events reads the outbox for explanations. *outbox.Reader implements it.
type Events interface {
	// Delivery returns the newest event that carries a task's delivery; nil: there is none.
	Delivery(ctx context.Context, taskID string) (*outbox.Event, error)
}

// Explainer says in words where tasks are. It is safe for concurrent use.
type Explainer struct {
	store  taskstate.Store
	events Events // nil: deliveries are not events
	about  map[string]taskrun.Description
}

// NewExplainer makes an Explainer; about describes types of task, events may be nil.
func NewExplainer(store taskstate.Store, events Events, about map[string]taskrun.Description) *Explainer {
	return &Explainer{store: store, events: events, about: about}
}

// Explain says in words where the task is, who holds it until when, which delivery carries it and what happens next.
func (s *Explainer) Explain(ctx context.Context, c Caller, id string) (Explanation, error) {
	t, err := s.store.Get(ctx, c.Scope, id)
	if err != nil {
		return Explanation{}, err
	}
	m, err := s.store.Moment(ctx)
	if err != nil {
		return Explanation{}, err
	}
	log, err := s.store.Transitions(ctx, c.Scope, id, 0, explainLog)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Task: t, Now: m.Now, Delivery: t.Delivery, LastChanges: log[max(0, len(log)-explainChanges):]}
	explainState(&e, t, m.Now)
	if t.Status == taskstate.StatusQueued && s.events != nil {
		if e.Event, err = s.events.Delivery(ctx, t.ID); err != nil {
			return Explanation{}, err
		}
		explainEvent(&e)
	}
	e.Words = words(e, log, s.about[t.Type])
	return e, nil
}

// explainState fills in holder, next step and its time.
func explainState(e *Explanation, t taskstate.Task, now time.Time) {
	if t.LeaseOwner != "" && !t.LeaseExpiresAt().IsZero() {
		e.Holder, _, _ = strings.Cut(t.LeaseOwner, "/") // the process
		e.HeldUntil = t.LeaseExpiresAt()
	}
	switch t.Status {
	case taskstate.StatusQueued:
		e.Next, e.NextAt = "a worker with a free slot claims it", now
		if t.Reserved(now) {
			e.Next = "the process that reserved it runs it alone, once its other tasks have ended"
		}
	case taskstate.StatusRunning:
		e.Next, e.NextAt = "its holder ends it or renews the lease; after the lease another worker takes it over", t.LeaseExpiresAt()
		if t.LeaseOwner == "" {
			e.Next = "its process has given it up; another worker takes it over when the lease would have ended"
		}
	case taskstate.StatusRetrying:
		e.Next, e.NextAt = fmt.Sprintf("attempt %d of %d starts", t.AttemptCount+1, t.MaxAttempts), t.NextRetryAt
	case taskstate.StatusSuspended:
		e.Next = "nothing until an operator resumes it"
	case taskstate.StatusDead, taskstate.StatusCancelled:
		e.Next = "nothing until somebody retries it"
	case taskstate.StatusSucceeded, taskstate.StatusNone:
		e.Next = "nothing: it is done"
	}
}

// explainEvent says what happens next to a task whose delivery is an event that was not sent.
func explainEvent(e *Explanation) {
	if e.Event == nil || e.Task.Reserved(e.Now) {
		return
	}
	switch e.Event.Status {
	case outbox.StatusNew:
		e.Next = "a relay sends its delivery, and a worker with a free slot claims it"
	case outbox.StatusRetrying:
		e.Next, e.NextAt = "a relay tries again to send its delivery", e.Event.NextRetryAt
	case outbox.StatusDead:
		e.NextAt = time.Time{}
		e.Next = "nothing until an operator puts its delivery back (requeue)"
		if e.Event.Cause == outbox.CauseUnavailable {
			e.Next = "a relay sends its delivery as soon as a broker answers"
		}
	case outbox.StatusSent:
	}
}

// deliveryWords names a delivery; with INGEST_STREAM_PARTITIONS above 1 its id is "partition:entry".
func deliveryWords(id string) string {
	partition, entry, ok := strings.Cut(id, ":")
	if _, err := strconv.ParseUint(partition, 10, 16); !ok || err != nil {
		return "delivery " + id
	}
	return fmt.Sprintf("delivery %s of partition %s", entry, partition)
}

// eventWords says where the event is that carries the delivery.
func eventWords(e *outbox.Event) string {
	failed := ""
	if e.AttemptCount > 0 {
		failed = fmt.Sprintf(" after %d failed attempts", e.AttemptCount)
	}
	where := ""
	switch e.Status {
	case outbox.StatusNew:
		where = "Its delivery waits in the outbox since " + stamp(e.CreatedAt) + failed
	case outbox.StatusRetrying:
		where = "Its delivery waits in the outbox" + failed + " for the next one at " + stamp(e.NextRetryAt)
	case outbox.StatusSent:
		where = "Its delivery was sent at " + stamp(e.SentAt) + failed
	case outbox.StatusDead:
		where = "Its delivery could not be sent" + failed
		if e.Cause != outbox.CauseNone {
			where += " (" + string(e.Cause) + ")"
		}
	}
	if e.LastError != "" {
		where += ": " + strings.TrimSuffix(e.LastError, ".")
	}
	return where + "."
}

// words puts the explanation into sentences.
func words(e Explanation, log []taskstate.Transition, about taskrun.Description) string {
	t := e.Task
	var s []string
	say := func(format string, args ...any) { s = append(s, fmt.Sprintf(format, args...)) }
	since := t.CreatedAt
	if len(log) > 0 {
		since = log[len(log)-1].CreatedAt
	}
	say("The task is %s since %s (%s).", t.Status, stamp(since), ago(e.Now.Sub(since)))
	if t.Status == taskstate.StatusRunning {
		counted := ""
		if about.Unit != "" {
			counted = fmt.Sprintf(" %d of %d %s,", t.Progress.Processed, t.Progress.Total, about.Unit)
		}
		say("It is at stage %s,%s %d %%.", t.Progress.Stage, counted, t.Progress.Percent)
	}
	if e.Holder != "" {
		state := "until"
		if !e.HeldUntil.After(e.Now) {
			state = "but its lease expired at"
		}
		say("%s holds it %s %s.", e.Holder, state, stamp(e.HeldUntil))
	}
	if t.AttemptCount > 0 {
		say("%d of %d attempts failed.", t.AttemptCount, t.MaxAttempts)
	}
	if t.CrashCount > 0 {
		say("%d of its holders stopped answering.", t.CrashCount)
	}
	if t.LastError != "" {
		say("Last error: %s.", strings.TrimSuffix(t.LastError, "."))
	}
	if e.Delivery != "" {
		say("Its last claim came by %s.", deliveryWords(e.Delivery))
	}
	if t.Status == taskstate.StatusQueued {
		say("It was last promised to the queue at %s (%d times again); a lost delivery is noticed and made again.", stamp(t.EnqueuedAt), t.EnqueueCount)
	}
	if e.Event != nil {
		s = append(s, eventWords(e.Event))
	}
	if t.DLQ == taskstate.DLQOwed {
		say("Its dead letter has still to be written.")
	}
	next := "Next: " + e.Next
	if !e.NextAt.IsZero() && e.NextAt.After(e.Now) {
		next += fmt.Sprintf(" at %s (in %s)", stamp(e.NextAt), e.NextAt.Sub(e.Now).Round(time.Millisecond))
	}
	return strings.Join(append(s, next+"."), " ")
}

// stamp renders a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// ago renders an age for people.
func ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return d.Round(time.Second).String() + " ago"
}
