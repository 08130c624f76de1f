package tasks

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	explainLog     = 2000 // changes that are read
	explainChanges = 20   // the last ones, which an explanation shows, and the last attempts
)

// Explanation is a task in words.
type Explanation struct {
	Task        taskstate.Task
	Sentences   []Sentence // what is so; the next step is not among them
	Holder      string     // who holds it; empty: nobody
	HeldUntil   time.Time
	Delivery    string         // what carries it
	Place       *ingestq.Place // where the queue has that; nil: nowhere, or nobody can say
	Next        Sentence       // what happens next, without a capital and a stop
	NextAt      time.Time
	Now         time.Time // the database's clock
	LastChanges []taskstate.Transition
	Attempts    []Attempt     // the last runs, the oldest first
	Event       *outbox.Event // carries the delivery of a QUEUED task; nil: none, or there is no outbox
}

// Sentence is a template of package fmt, of %s alone, and what stands in it: a reader of another language has the template in their own.
type Sentence struct {
	Template string
	Args     []string
}

func sentence(template string, args ...any) Sentence {
	s := Sentence{Template: template, Args: []string{}}
	for _, a := range args {
		s.Args = append(s.Args, fmt.Sprint(a))
	}
	return s
}

// String is the sentence in English.
func (s Sentence) String() string {
	args := make([]any, len(s.Args))
	for i, a := range s.Args {
		args[i] = a
	}
	return fmt.Sprintf(s.Template, args...)
}

// Words is the explanation in English, with the next step and its time.
func (e Explanation) Words() string {
	var out []string
	for _, s := range e.Sentences {
		out = append(out, s.String())
	}
	next := "Next: " + e.Next.String()
	if !e.NextAt.IsZero() && e.NextAt.After(e.Now) {
		next += fmt.Sprintf(" at %s (in %s)", stamp(e.NextAt), e.NextAt.Sub(e.Now).Round(time.Millisecond))
	}
	return strings.Join(append(out, next+"."), " ")
}

// Attempt is one run of a task, as its log tells it.
type Attempt struct {
	Began    time.Time
	Ended    time.Time        // zero: it runs
	Actor    string           // who claimed it: worker:process
	Reason   taskstate.Reason // how it ended; empty: it runs
	Code     string           // of the error; empty: none
	Message  string           // why it ended
	Delivery string           // what brought it; empty: the table
}

// attemptsOf are the runs that a log tells.
func attemptsOf(log []taskstate.Transition) (out []Attempt) {
	for _, c := range log {
		if n := len(out); n > 0 && out[n-1].Ended.IsZero() && c.From == taskstate.StatusRunning {
			out[n-1].Ended, out[n-1].Reason, out[n-1].Code, out[n-1].Message = c.CreatedAt, c.Reason, c.ErrorCode, c.Message
		}
		if c.To == taskstate.StatusRunning {
			out = append(out, Attempt{Began: c.CreatedAt, Actor: c.Actor, Delivery: c.Delivery})
		}
	}
	return out[max(0, len(out)-explainChanges):]
}

// Events reads the outbox for explanations. *outbox.Reader implements it.
type Events interface {
	// Delivery returns the newest event that carries a task's delivery; nil: there is none.
	Delivery(ctx context.Context, taskID string) (*outbox.Event, error)
}

// Explainer says in words where tasks are. It is safe for concurrent use.
type Explainer struct {
	store  taskstate.Store
	events Events          // nil: deliveries are not events
	queue  ingestq.Locator // nil: nobody can say where deliveries are
	about  map[string]taskrun.Description
}

// NewExplainer makes an Explainer; about describes types of task, events and publisher may be nil.
func NewExplainer(store taskstate.Store, events Events, publisher ingestq.Publisher, about map[string]taskrun.Description) *Explainer {
	queue, _ := publisher.(ingestq.Locator)
	return &Explainer{store: store, events: events, queue: queue, about: about}
}

// locateTime is how long an explanation waits for what the queue knows: it goes without that when the queue is away.
const locateTime = 500 * time.Millisecond

// place asks the queue for the delivery of a task that has not ended.
func (s *Explainer) place(ctx context.Context, t taskstate.Task) *ingestq.Place {
	if s.queue == nil || t.Delivery == "" || t.Status.Terminal() {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, locateTime)
	defer cancel()
	place, err := s.queue.Locate(short, t.Delivery)
	if err != nil {
		return nil
	}
	return place
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
	e := Explanation{Task: t, Now: m.Now, Delivery: t.Delivery, LastChanges: log[max(0, len(log)-explainChanges):], Attempts: attemptsOf(log)}
	e.Place = s.place(ctx, t)
	explainState(&e, t, m.Now)
	if t.Status == taskstate.StatusQueued && s.events != nil {
		if e.Event, err = s.events.Delivery(ctx, t.ID); err != nil {
			return Explanation{}, err
		}
		explainEvent(&e)
	}
	e.Sentences = sentences(e, log, s.about[t.Type])
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
		e.Next, e.NextAt = sentence("a worker with a free slot claims it"), now
		if t.Reserved(now) {
			e.Next = sentence("the process that reserved it runs it alone, once its other tasks have ended")
		}
	case taskstate.StatusRunning:
		e.Next, e.NextAt = sentence("its holder ends it or renews the lease; after the lease another worker takes it over"), t.LeaseExpiresAt()
		if t.LeaseOwner == "" {
			e.Next = sentence("its process has given it up; another worker takes it over when the lease would have ended")
		}
	case taskstate.StatusRetrying:
		e.Next, e.NextAt = sentence("attempt %s of %s starts", t.AttemptCount+1, t.MaxAttempts), t.NextRetryAt
	case taskstate.StatusSuspended:
		e.Next = sentence("nothing until an operator resumes it")
	case taskstate.StatusDead, taskstate.StatusCancelled:
		e.Next = sentence("nothing until somebody retries it")
	case taskstate.StatusSucceeded, taskstate.StatusNone:
		e.Next = sentence("nothing: it is done")
	}
}

// explainEvent says what happens next to a task whose delivery is an event that was not sent.
func explainEvent(e *Explanation) {
	if e.Event == nil || e.Task.Reserved(e.Now) {
		return
	}
	switch e.Event.Status {
	case outbox.StatusNew:
		e.Next = sentence("a relay sends its delivery, and a worker with a free slot claims it")
	case outbox.StatusRetrying:
		e.Next, e.NextAt = sentence("a relay tries again to send its delivery"), e.Event.NextRetryAt
	case outbox.StatusDead:
		e.NextAt = time.Time{}
		e.Next = sentence("nothing until an operator puts its delivery back (requeue)")
		if e.Event.Cause == outbox.CauseUnavailable {
			e.Next = sentence("a relay sends its delivery as soon as a broker answers")
		}
	case outbox.StatusSent:
	}
}

// broughtBy names the delivery of the last claim; with INGEST_STREAM_PARTITIONS above 1 its id is "partition:entry", of Kafka
// "k:partition:offset".
func broughtBy(id string) Sentence {
	if record, ok := strings.CutPrefix(id, "k:"); ok {
		partition, offset, _ := strings.Cut(record, ":")
		return sentence("Its last claim came by the record at offset %s of partition %s.", offset, partition)
	}
	partition, entry, ok := strings.Cut(id, ":")
	if _, err := strconv.ParseUint(partition, 10, 16); !ok || err != nil {
		return sentence("Its last claim came by delivery %s.", id)
	}
	return sentence("Its last claim came by delivery %s of partition %s.", entry, partition)
}

// carriedBy says where the event is that carries the delivery.
func carriedBy(e *outbox.Event) (out []Sentence) {
	say := func(template string, args ...any) { out = append(out, sentence(template, args...)) }
	switch e.Status {
	case outbox.StatusNew:
		say("Its delivery waits in the outbox since %s.", stamp(e.CreatedAt))
	case outbox.StatusRetrying:
		say("Its delivery waits in the outbox for the next attempt at %s.", stamp(e.NextRetryAt))
	case outbox.StatusSent:
		say("Its delivery was sent at %s.", stamp(e.SentAt))
	case outbox.StatusDead:
		if e.Cause == outbox.CauseNone {
			say("Its delivery could not be sent.")
		} else {
			say("Its delivery could not be sent (%s).", e.Cause)
		}
	}
	if e.AttemptCount > 0 {
		say("%s attempts to send it failed.", e.AttemptCount)
	}
	if e.LastError != "" {
		say("The last error of sending: %s.", strings.TrimSuffix(e.LastError, "."))
	}
	return out
}

// sentences say what is so of a task.
func sentences(e Explanation, log []taskstate.Transition, about taskrun.Description) (out []Sentence) {
	t := e.Task
	say := func(template string, args ...any) { out = append(out, sentence(template, args...)) }
	since := t.CreatedAt
	if len(log) > 0 {
		since = log[len(log)-1].CreatedAt
	}
	say("The task is %s since %s (%s ago).", t.Status, stamp(since), span(e.Now.Sub(since)))
	if t.Status == taskstate.StatusRunning {
		if about.Unit != "" {
			say("It is at stage %s, %s of %s %s, %s %%.", t.Progress.Stage, t.Progress.Processed, t.Progress.Total, about.Unit, t.Progress.Percent)
		} else {
			say("It is at stage %s, %s %%.", t.Progress.Stage, t.Progress.Percent)
		}
	}
	switch {
	case e.Holder == "":
	case e.HeldUntil.After(e.Now):
		say("%s holds it until %s.", e.Holder, stamp(e.HeldUntil))
	default:
		say("%s holds it but its lease expired at %s.", e.Holder, stamp(e.HeldUntil))
	}
	if t.AttemptCount > 0 {
		say("%s of %s attempts failed.", t.AttemptCount, t.MaxAttempts)
	}
	if t.CrashCount > 0 {
		say("%s of its holders stopped answering.", t.CrashCount)
	}
	if t.LastError != "" {
		say("Last error: %s.", strings.TrimSuffix(t.LastError, "."))
	}
	if e.Delivery != "" {
		out = append(out, broughtBy(e.Delivery))
	}
	switch p := e.Place; {
	case p == nil:
	case p.Consumer == "":
		say("Nobody holds that delivery.")
	default:
		say("%s was given that delivery %s ago and has not acknowledged it (given %s times).", p.Consumer, span(p.Idle), p.Deliveries)
	}
	if t.Status == taskstate.StatusQueued {
		say("It was last promised to the queue at %s (%s times again); a lost delivery is noticed and made again.", stamp(t.EnqueuedAt), t.EnqueueCount)
	}
	if e.Event != nil {
		out = append(out, carriedBy(e.Event)...)
	}
	if t.DLQ == taskstate.DLQOwed {
		say("Its dead letter has still to be written.")
	}
	return out
}

// stamp renders a time for people.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000 UTC") }

// span renders an age for people.
func span(d time.Duration) string { return d.Round(time.Second).String() }
