package history

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Options say what the log is judged by besides itself.
type Options struct {
	// Policy holds the settings that were in force; nil: not known, and I8 and I9 judge only what holds for all settings.
	Policy *taskstate.Policy
	// Since is when Policy came into force: older transitions are judged as if it were not known. Zero: always.
	Since time.Time
}

// policy returns the settings in force at an instant, or nil.
func (o *Options) policy(at time.Time) *taskstate.Policy {
	if o.Policy == nil || at.Before(o.Since) {
		return nil
	}
	return o.Policy
}

// Instant is a time in microseconds since 1970; 0 stands for none. It keeps a Trail comparable.
type Instant int64

// At is the Instant of a time.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMicro())
}

// Time is the reverse of At.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(i)).UTC()
}

// Trail is all that has to be remembered of one task's log to judge what comes next. The zero Trail is that of a task
// without a log. It is a small comparable value: a model checker can keep it in its state.
type Trail struct {
	Status    taskstate.Status
	Attempts  int
	Crashes   int
	Fence     int64
	Epoch     int64
	At        Instant // of the last transition
	NextRetry Instant // as the last transition has it

	// the last claim
	Holder     string // actor that made it
	ClaimEpoch int64
	Lease      Instant // as the claim recorded it

	// what has happened so far
	Left      int64 // highest fence whose hold has ended, plus one; 0: none
	Waited    int   // highest attempt count of a RETRYING row after a failure
	Exhausted int   // attempt count at the last EXHAUSTED; 0: none
	ID        int64 // of the last transition
}

// Violation is a rule that was broken.
type Violation struct {
	Rule    string // its ID
	Problem string // what is wrong, in words
}

// Verdict is what was judged of one event.
type Verdict struct {
	Judged     Set
	Violations []Violation // in the order of the rules
}

// Set is a set of the rules of this package.
type Set uint16

// Has reports whether a rule is in the set.
func (s Set) Has(r *Rule) bool { return s&r.bit() != 0 }

// Step judges the next transition of the task and returns the Trail that includes it, whether or not it is legal.
func (t Trail) Step(o *Options, tr taskstate.Transition) (Trail, Verdict) {
	e := event{o: o, prev: t, tr: tr}
	var v Verdict
	for i := range rules {
		r := &rules[i]
		if r.step == nil {
			continue
		}
		judged, problem := r.step(&e)
		v.add(r, judged, problem)
	}
	return t.next(tr), v
}

// Row judges the task's row against its log; both must be of one moment.
func (t Trail) Row(task taskstate.Task) Verdict {
	var v Verdict
	v.add(&rules[1], true, rowAgrees(t, task))
	judged, problem := attemptsWithin(t, task)
	v.add(&rules[6], judged, problem)
	return v
}

// add notes one rule's word.
func (v *Verdict) add(r *Rule, judged bool, problem string) {
	if judged {
		v.Judged |= r.bit()
	}
	if problem != "" {
		v.Judged |= r.bit()
		v.Violations = append(v.Violations, Violation{r.ID, problem})
	}
}

// next is the Trail with tr at its end.
func (t Trail) next(tr taskstate.Transition) Trail {
	if tr.From == running && tr.To != running {
		t.Left = max(t.Left, tr.Fence+1)
	}
	switch {
	case tr.To == running:
		t.Holder, t.ClaimEpoch, t.Lease = tr.Actor, tr.Epoch, At(tr.LeaseExpiresAt)
	case tr.Reason == taskstate.ReasonFailed || tr.Reason == taskstate.ReasonStalled:
		t.Waited = max(t.Waited, tr.AttemptCount)
	case tr.Reason == taskstate.ReasonExhausted:
		t.Exhausted = tr.AttemptCount
	}
	t.Status, t.Attempts, t.Crashes, t.Fence, t.Epoch = tr.To, tr.AttemptCount, tr.CrashCount, tr.Fence, tr.Epoch
	t.At, t.NextRetry, t.ID = At(tr.CreatedAt), At(tr.NextRetryAt), tr.ID
	return t
}
