package history

import (
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// exact is how far a recorded time may be from its formula: databases keep microseconds.
	exact = time.Microsecond
	// A throttled task waits between these, whatever the service said (contract §2).
	throttleLeast = time.Second
	throttleMost  = time.Hour
)

// event is one transition with what came before it.
type event struct {
	o    *Options
	prev Trail
	tr   taskstate.Transition
}

// Rule is one sentence that every log must keep.
type Rule struct {
	ID       string // as in deploy/docs/rules.md
	Sentence string
	index    int
	// step judges one transition: whether the rule has a say in it, and what is wrong ("": nothing).
	step func(e *event) (judged bool, problem string)
}

// bit is the rule's place in a Set.
func (r *Rule) bit() Set { return 1 << r.index }

// Rules lists the rules of this package in their order.
func Rules() []*Rule {
	out := make([]*Rule, len(rules))
	for i := range rules {
		out[i] = &rules[i]
	}
	return out
}

// rules are in the order of their numbers: Row names two of them by place.
var rules = []Rule{
	{"I1", "a log begins with an acceptance, each step starts where the one before ended, and contract §2 has the move for that party", 0, chain},
	{"I2", "status, attempts, crashes, fence and next retry of the row are those of its last transition", 1, nil},
	{"I3", "the fence rises by one at every claim and takeover and changes at nothing else", 2, fence},
	{"I4", "only the holder, with its fence and timeline, ends a run; persons may cancel and suspend, the crash limit may end it", 3, holderOnly},
	{"I5", "at most one transition ends the run of a fence", 4, oneWinner},
	{"I6", "a takeover comes after the lease of the claim before it, and every claim has a lease", 5, takeover},
	{"I7", "an attempt counts exactly at a failure, never beyond the task's limit, and starts at 0 at a replay or resume", 6, attempts},
	{"I8", "a crash counts exactly at a takeover, the one that reaches the limit is DEAD, and a replay or resume starts at 0", 7, crashes},
	{"I9", "a failed task waits exactly min(base·2^(attempt−1), max); nothing but RETRYING has a next retry", 8, backoff},
	{"I10", "a retry does not start before its time", 9, notEarly},
	{"I11", "after SUCCEEDED comes nothing, after DEAD and CANCELLED only a replay by a person", 10, sticks},
}

// chain is I1. What leaves a terminal state is I11's.
func chain(e *event) (bool, string) {
	tr := &e.tr
	switch {
	case tr.From != e.prev.Status:
		return true, fmt.Sprintf("it goes from %s, the one before ended in %s", named(tr.From), named(e.prev.Status))
	case e.prev.At != 0 && At(tr.CreatedAt) < e.prev.At:
		return true, fmt.Sprintf("it is %s older than the one before", e.prev.At.Time().Sub(tr.CreatedAt))
	case tr.From.Terminal():
		return false, ""
	case !legal(*tr):
		return true, fmt.Sprintf("%s→%s, %s by %s, is in no row of the table", named(tr.From), named(tr.To), tr.Reason, tr.Actor)
	}
	return true, ""
}

// fence is I3. A second end of one fence is I5's.
func fence(e *event) (bool, string) {
	if e.endsAgain() {
		return false, ""
	}
	want := e.prev.Fence
	if e.tr.To == running {
		want++
	}
	if e.tr.Fence != want {
		return true, fmt.Sprintf("its fence is %d, must be %d", e.tr.Fence, want)
	}
	return true, ""
}

// holderOnly is I4.
func holderOnly(e *event) (bool, string) {
	tr := &e.tr
	if tr.From != running || tr.To == running || tr.Reason == taskstate.ReasonCrashLimit {
		return false, ""
	}
	if kindOf(tr.Actor) != taskstate.ActorWorker {
		return false, "" // a person, or the document's own life: I1 says which of them may do what
	}
	switch {
	case tr.Actor != e.prev.Holder:
		return true, fmt.Sprintf("%s ended the run that %s held", tr.Actor, e.prev.Holder)
	case tr.Epoch != e.prev.ClaimEpoch:
		return true, fmt.Sprintf("it was claimed on timeline %d and ended on %d", e.prev.ClaimEpoch, tr.Epoch)
	case tr.Fence != e.prev.Fence && !e.endsAgain():
		return true, fmt.Sprintf("the run of fence %d was ended with fence %d", e.prev.Fence, tr.Fence)
	}
	return true, ""
}

// oneWinner is I5.
func oneWinner(e *event) (bool, string) {
	if e.tr.From != running || e.tr.To == running {
		return false, ""
	}
	if e.endsAgain() {
		return true, fmt.Sprintf("the run of fence %d had ended before", e.tr.Fence)
	}
	return true, ""
}

// endsAgain reports whether the transition ends a run that had ended before.
func (e *event) endsAgain() bool {
	return e.tr.From == running && e.tr.To != running && e.tr.Fence < e.prev.Left
}

// takeover is I6; what it cannot know stands in the package comment.
func takeover(e *event) (bool, string) {
	tr := &e.tr
	taken := tr.From == running && (tr.To == running || tr.Reason == taskstate.ReasonCrashLimit)
	lease := At(tr.LeaseExpiresAt)
	switch {
	case tr.To == running && lease <= At(tr.CreatedAt):
		return true, fmt.Sprintf("its lease (%s) does not lie ahead", clock(lease))
	case tr.To != running && lease != 0:
		return true, "it keeps a lease and is not RUNNING"
	case !taken || tr.Epoch != e.prev.ClaimEpoch:
		return false, "" // a new epoch ends all leases (design D2)
	case At(tr.CreatedAt) < e.prev.Lease:
		return true, fmt.Sprintf("it was taken over %s before the lease of %s ended", e.prev.Lease.Time().Sub(tr.CreatedAt), e.prev.Holder)
	}
	return true, ""
}

// attempts is I7; the limit is the row's to say.
func attempts(e *event) (bool, string) {
	want := e.prev.Attempts
	switch e.tr.Reason {
	case taskstate.ReasonFailed, taskstate.ReasonStalled, taskstate.ReasonExhausted, taskstate.ReasonPermanent:
		want++
	case taskstate.ReasonReplayed, taskstate.ReasonResumed:
		want = 0
	default:
	}
	if e.tr.AttemptCount != want {
		return true, fmt.Sprintf("its attempt count is %d, must be %d after %s", e.tr.AttemptCount, want, e.tr.Reason)
	}
	return true, ""
}

// crashes is I8.
func crashes(e *event) (bool, string) {
	tr := &e.tr
	want := e.prev.Crashes
	switch tr.Reason {
	case taskstate.ReasonTakeover, taskstate.ReasonCrashLimit:
		want++
	case taskstate.ReasonReplayed, taskstate.ReasonResumed:
		want = 0
	default:
	}
	if tr.CrashCount != want {
		return true, fmt.Sprintf("its crash count is %d, must be %d after %s", tr.CrashCount, want, tr.Reason)
	}
	p := e.o.policy(tr.CreatedAt)
	switch {
	case p == nil:
	case tr.Reason == taskstate.ReasonTakeover && tr.CrashCount >= p.MaxCrashes:
		return true, fmt.Sprintf("crash %d was taken over, the limit is %d", tr.CrashCount, p.MaxCrashes)
	case tr.Reason == taskstate.ReasonCrashLimit && tr.CrashCount < p.MaxCrashes:
		return true, fmt.Sprintf("it died of the crash limit at crash %d, the limit is %d", tr.CrashCount, p.MaxCrashes)
	}
	return true, ""
}

// backoff is I9.
func backoff(e *event) (bool, string) {
	tr := &e.tr
	if tr.To != retrying {
		if !tr.NextRetryAt.IsZero() {
			return true, fmt.Sprintf("it is %s and has a next retry", tr.To)
		}
		return tr.To == dead, ""
	}
	if tr.NextRetryAt.IsZero() {
		return true, "it is RETRYING without a next retry"
	}
	wait := tr.NextRetryAt.Sub(tr.CreatedAt)
	least, most, known := e.wait()
	if !known {
		return false, ""
	}
	if wait < least-exact || wait > most+exact {
		return true, fmt.Sprintf("attempt %d (%s) waits %s, must be between %s and %s", tr.AttemptCount, tr.Reason, wait, least, most)
	}
	return true, ""
}

// wait is the range in which the pause of a RETRYING transition must lie.
func (e *event) wait() (least, most time.Duration, known bool) {
	switch e.tr.Reason {
	case taskstate.ReasonThrottled:
		return throttleLeast, throttleMost, true
	case taskstate.ReasonRetryNow:
		return 0, 0, true
	default:
	}
	p := e.o.policy(e.tr.CreatedAt)
	if p == nil {
		return 0, 0, false
	}
	most = formula(p.BaseBackoff, p.MaxBackoff, e.tr.AttemptCount)
	if p.Jitter != nil {
		return 0, most, true
	}
	return most, most, true
}

// formula is min(base·2^(attempt−1), limit).
func formula(base, limit time.Duration, attempt int) time.Duration {
	for n := 1; n < attempt && base > 0 && base < limit; n++ {
		base *= 2
	}
	if base > limit || base < 0 {
		return limit
	}
	return base
}

// notEarly is I10.
func notEarly(e *event) (bool, string) {
	if e.tr.From != retrying || e.tr.To != running {
		return false, ""
	}
	if early := e.prev.NextRetry.Time().Sub(e.tr.CreatedAt); early > 0 {
		return true, fmt.Sprintf("it started %s early", early)
	}
	return true, ""
}

// sticks is I11. It has a say in every arrival at a terminal state, for what comes after it is judged, and in every leaving.
func sticks(e *event) (bool, string) {
	tr := &e.tr
	if !tr.From.Terminal() {
		return tr.To.Terminal(), ""
	}
	if !legal(*tr) {
		return true, fmt.Sprintf("%s→%s, %s by %s: only a person's replay leaves DEAD or CANCELLED, and nothing SUCCEEDED", tr.From, named(tr.To), tr.Reason, tr.Actor)
	}
	return true, ""
}

// rowAgrees is I2.
func rowAgrees(t Trail, row taskstate.Task) string {
	switch {
	case t.Status == none:
		return fmt.Sprintf("its row says %s and its log is empty", row.Status)
	case row.Status != t.Status || row.AttemptCount != t.Attempts || row.CrashCount != t.Crashes || row.Fence != t.Fence:
		return fmt.Sprintf("its row says %s, attempt %d, crashes %d, fence %d; its log ends in %s, attempt %d, crashes %d, fence %d",
			row.Status, row.AttemptCount, row.CrashCount, row.Fence, t.Status, t.Attempts, t.Crashes, t.Fence)
	case At(row.NextRetryAt) != t.NextRetry:
		return fmt.Sprintf("its row's next retry is %s, its log's %s", clock(At(row.NextRetryAt)), clock(t.NextRetry))
	}
	return ""
}

// attemptsWithin is the part of I7 that needs the task's own limit.
func attemptsWithin(t Trail, row taskstate.Task) (bool, string) {
	limit := row.MaxAttempts
	switch {
	case limit <= 0 || (t.Waited == 0 && t.Exhausted == 0):
		return false, ""
	case t.Waited >= limit:
		return true, fmt.Sprintf("it waited for another try after failure %d, its limit is %d", t.Waited, limit)
	case t.Exhausted != 0 && t.Exhausted != limit:
		return true, fmt.Sprintf("its attempts were used up at %d, its limit is %d", t.Exhausted, limit)
	}
	return true, ""
}

// named shows the state before the first as a dash.
func named(s taskstate.Status) taskstate.Status {
	if s == none {
		return "–"
	}
	return s
}

// clock shows an instant, none as a dash.
func clock(i Instant) string {
	if i == 0 {
		return "–"
	}
	return i.Time().Format("15:04:05.000000")
}
