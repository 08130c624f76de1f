package ingest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// explainChanges is how many of the last changes an explanation shows.
const explainChanges = 20

// Explain says in words where the task is, who holds it until when, which delivery carries it and what happens next.
func (r *Reads) Explain(ctx context.Context, c Caller, id string) (Explanation, error) {
	t, err := r.store.Get(ctx, c.Scope, id)
	if err != nil {
		return Explanation{}, err
	}
	m, err := r.store.Moment(ctx)
	if err != nil {
		return Explanation{}, err
	}
	log, err := r.store.Transitions(ctx, c.Scope, id, 0, watchLog)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{Task: t, Now: m.Now, Delivery: t.Delivery, LastChanges: log[max(0, len(log)-explainChanges):]}
	explainState(&e, t, m.Now)
	e.Words = words(e, log)
	return e, nil
}

// explainState fills in holder, next step and its time.
func explainState(e *Explanation, t taskstate.Task, now time.Time) {
	if t.LeaseOwner != "" {
		e.Holder, e.HeldUntil = holderName(t.LeaseOwner), t.LeaseExpiresAt
	}
	switch t.Status {
	case taskstate.StatusQueued:
		e.Next, e.NextAt = "a worker with a free slot claims it", now
		if t.Reserved(now) {
			e.Next = "the process that reserved it runs it alone, once its other tasks have ended"
		}
	case taskstate.StatusRunning:
		e.Next, e.NextAt = "its holder ends it or renews the lease; after the lease another worker takes it over", t.LeaseExpiresAt
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

// words puts the explanation into sentences.
func words(e Explanation, log []taskstate.Transition) string {
	t := e.Task
	var s []string
	say := func(format string, args ...any) { s = append(s, fmt.Sprintf(format, args...)) }
	since := t.CreatedAt
	if len(log) > 0 {
		since = log[len(log)-1].CreatedAt
	}
	say("The task is %s since %s (%s).", t.Status, stamp(since), ago(e.Now.Sub(since)))
	if t.Status == taskstate.StatusRunning {
		say("It is at stage %s, %d of %d segments, %d %%.", t.Progress.Stage, t.Progress.Processed, t.Progress.Total, t.Progress.Percent)
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
		say("Its last claim came by delivery %s.", e.Delivery)
	}
	if t.Status == taskstate.StatusQueued {
		say("It was last promised to the queue at %s (%d times again); a lost delivery is noticed and made again.", stamp(t.PromisedAt), t.PromiseCount)
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

// holderName is the process part of a lease owner.
func holderName(owner string) string {
	name, _, _ := strings.Cut(owner, "/")
	return name
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
