package taskstate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

var (
	now    = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	moment = DBClock{Now: now, Epoch: 7}
	actor  = Actor{Kind: ActorWorker, Name: "w"}
	rules  = Policy{BaseBackoff: time.Second, MaxBackoff: time.Minute, Lease: 30 * time.Second, MaxCrashes: 3, Slack: 2 * time.Second, DLQ: true}
)

// row is a plausible task in one state.
func row(s Status) Task {
	t := Task{ID: "t", UserID: "u", Status: s, MaxAttempts: 3, Fence: 4, EnqueuedAt: now.Add(-time.Hour), WakeAt: now.Add(-time.Hour), DLQ: DLQNone}
	switch s {
	case StatusRunning:
		t.LeaseOwner, t.WakeAt = "p1/1", now.Add(time.Second)
	case StatusRetrying:
		t.NextRetryAt = now.Add(-time.Second)
	case StatusDead:
		t.DLQ = DLQOwed
	}
	return t
}

// held is the authority that row(StatusRunning) accepts.
func held() Holder { return Holder{Token: Token{Epoch: 7, Fence: 4}, Actor: actor} }

// request is a worker's claim.
func request(process string) ClaimRequest {
	return ClaimRequest{Owner: process + "/9", Process: process, Actor: actor, Takeover: true, Delivery: "d"}
}

func TestLegalIsExactlyTheContract(t *testing.T) {
	t.Parallel()
	legal := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(`
 >QUEUED ACCEPTED
QUEUED>RUNNING CLAIMED
QUEUED>SUSPENDED SUSPENDED
QUEUED>CANCELLED CANCELLED DELETED SUPERSEDED
RETRYING>RUNNING CLAIMED
RETRYING>RETRYING RETRY_NOW
RETRYING>SUSPENDED SUSPENDED
RETRYING>CANCELLED CANCELLED DELETED SUPERSEDED
RUNNING>RUNNING TAKEOVER
RUNNING>SUCCEEDED DONE
RUNNING>RETRYING FAILED STALLED THROTTLED
RUNNING>DEAD EXHAUSTED PERMANENT crash_limit
RUNNING>SUSPENDED SUSPENDED
RUNNING>QUEUED HANDED_BACK
RUNNING>CANCELLED CANCELLED DELETED SUPERSEDED
SUSPENDED>QUEUED RESUMED
SUSPENDED>CANCELLED CANCELLED DELETED SUPERSEDED
DEAD>QUEUED REPLAYED
CANCELLED>QUEUED REPLAYED`), "\n") {
		move, reasons, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, r := range strings.Fields(reasons) {
			legal[move+" "+r] = true
		}
	}
	reasons := []Reason{
		ReasonAccepted, ReasonClaimed, ReasonTakeover, ReasonDone, ReasonFailed, ReasonExhausted, ReasonPermanent, ReasonStalled,
		ReasonThrottled, ReasonHandedBack, ReasonRetryNow, ReasonCancelled, ReasonDeleted, ReasonSuperseded, ReasonSuspended,
		ReasonResumed, ReasonReplayed, ReasonCrashLimit, "", "claimed",
	}
	found := 0
	for _, from := range append(Statuses(), StatusNone, "LOST") {
		for _, to := range append(Statuses(), StatusNone, "LOST") {
			for _, r := range reasons {
				key := string(from) + ">" + string(to) + " " + string(r)
				if got := Legal(from, to, r); got != legal[key] {
					t.Errorf("Legal(%s) = %v", key, got)
				}
				if legal[key] {
					found++
				}
			}
		}
	}
	if found != len(legal) {
		t.Errorf("%d of %d legal moves were tried", found, len(legal))
	}
}

// acts are all functions that decide on one row.
func acts() map[string]func(t Task) Decision {
	return map[string]func(t Task) Decision{
		"claim":    func(t Task) Decision { return Claim(rules, moment, t, request("p2")) },
		"succeed":  func(t Task) Decision { return Succeed(moment, t, held(), json.RawMessage(`1`), "m") },
		"fail":     func(t Task) Decision { return Fail(rules, moment, t, held(), Failure{Cause: "c"}) },
		"stall":    func(t Task) Decision { return Fail(rules, moment, t, held(), Failure{Stalled: true}) },
		"throttle": func(t Task) Decision { return Fail(rules, moment, t, held(), Failure{Throttled: true}) },
		"die": func(t Task) Decision {
			return Fail(rules, moment, t, held(), Failure{Permanent: true, Throttled: true})
		},
		"hand back":    func(t Task) Decision { return HandBack(moment, t, held(), "m") },
		"withdraw":     func(t Task) Decision { return Withdraw(moment, t, held(), ReasonSuperseded, "m") },
		"suspend held": func(t Task) Decision { return Fail(rules, moment, t, held(), Failure{Suspend: true, Cause: "m"}) },
		"retry":        func(t Task) Decision { return Retry(moment, t, actor) },
		"replay":       func(t Task) Decision { return Replay(moment, t, actor, "m") },
		"resume":       func(t Task) Decision { return Resume(moment, t, actor, "m") },
		"cancel":       func(t Task) Decision { return Cancel(moment, t, actor, ReasonDeleted, "m") },
		"suspend":      func(t Task) Decision { return Suspend(moment, t, actor, "m") },
		"promise":      func(t Task) Decision { return Enqueue(rules, moment, t, now) },
		"renew":        func(t Task) Decision { return Renew(rules, moment, t) },
		"mark":         func(t Task) Decision { return MarkDLQ(moment, t, held().Token) },
		"release":      func(t Task) Decision { return Release(rules, moment, t, "p1/1") },
	}
}

func TestEveryFunctionOnEveryStatus(t *testing.T) {
	t.Parallel()
	// Answer, and for a change the status it leads to; "=" for a silent one. What is not named is the function's default.
	want := map[string]map[Status]string{
		"claim":        {"": "skipped", StatusQueued: "claimed RUNNING", StatusRetrying: "claimed RUNNING", StatusRunning: "busy"},
		"succeed":      {"": "lost", StatusRunning: "applied SUCCEEDED"},
		"fail":         {"": "lost", StatusRunning: "applied RETRYING"},
		"stall":        {"": "lost", StatusRunning: "applied RETRYING"},
		"throttle":     {"": "lost", StatusRunning: "applied RETRYING"},
		"die":          {"": "lost", StatusRunning: "applied DEAD"},
		"hand back":    {"": "lost", StatusRunning: "applied QUEUED"},
		"withdraw":     {"": "lost", StatusRunning: "applied CANCELLED"},
		"suspend held": {"": "lost", StatusRunning: "applied SUSPENDED"},
		"retry": {"": "refused TASK_NOT_REPLAYABLE", StatusRetrying: "applied RETRYING", StatusDead: "applied QUEUED",
			StatusCancelled: "applied QUEUED", StatusSuspended: "refused TASK_SUSPENDED"},
		"replay": {"": "refused TASK_NOT_REPLAYABLE", StatusDead: "applied QUEUED", StatusCancelled: "applied QUEUED"},
		"resume": {"": "refused TASK_NOT_REPLAYABLE", StatusSuspended: "applied QUEUED"},
		"cancel": {"": "refused TASK_NOT_CANCELLABLE", StatusQueued: "applied CANCELLED", StatusRetrying: "applied CANCELLED",
			StatusRunning: "applied CANCELLED", StatusSuspended: "applied CANCELLED"},
		"suspend": {"": "refused TASK_NOT_REPLAYABLE", StatusQueued: "applied SUSPENDED", StatusRetrying: "applied SUSPENDED",
			StatusRunning: "applied SUSPENDED"},
		"promise": {"": "kept", StatusQueued: "applied ="},
		"renew":   {"": "kept", StatusQueued: "applied ="},
		"mark":    {"": "kept", StatusDead: "applied ="},
		"release": {"": "kept", StatusRunning: "applied ="},
	}
	for name, act := range acts() {
		for _, s := range append(Statuses(), StatusNone) {
			before := row(s)
			d := act(before)
			expected, ok := want[name][s]
			if !ok || s == StatusNone {
				expected = want[name][""]
			}
			got := string(d.Answer)
			var refused *RefusedError
			if errors.As(d.Err, &refused) {
				got += " " + refused.Code
				if refused.Status != s || !strings.Contains(refused.Error(), string(s)) {
					t.Errorf("%s on %s: refusal %v names another state", name, s, refused)
				}
			}
			if c := d.Change; c != nil {
				checkChange(t, name, before, c)
				if c.Silent {
					got += " ="
				} else {
					got += " " + string(c.To)
				}
			}
			if got != expected || d.TaskID != "t" {
				t.Errorf("%s on %q: got %q, want %q", name, s, got, expected)
			}
		}
	}
}

// checkChange is what must hold for every change of any function.
func checkChange(t *testing.T, name string, before Task, c *Change) {
	t.Helper()
	claim := c.Reason == ReasonClaimed || c.Reason == ReasonTakeover
	wantFence := before.Fence
	if claim && !c.Silent {
		wantFence++
	}
	restarted := c.Reason == ReasonReplayed || c.Reason == ReasonResumed
	switch {
	case c.From != before.Status || c.Fence != before.Fence || c.TaskID != before.ID || c.Epoch != moment.Epoch:
		t.Errorf("%s: the change does not name the row: %+v", name, c)
	case c.Silent && c.To != c.From:
		t.Errorf("%s: a silent change of status", name)
	case !c.Silent && !Legal(c.From, c.To, c.Reason):
		t.Errorf("%s: %s to %s for %q is not legal", name, c.From, c.To, c.Reason)
	case c.NewFence != wantFence:
		t.Errorf("%s: fence %d, want %d", name, c.NewFence, wantFence)
	case !restarted && (c.AttemptCount < before.AttemptCount || c.CrashCount < before.CrashCount):
		t.Errorf("%s: a count was lost", name)
	case restarted && (c.AttemptCount != 0 || c.CrashCount != 0 || c.DLQ != DLQNone):
		t.Errorf("%s: a restart keeps counts: %+v", name, c)
	case !c.Silent && (c.To == StatusRetrying) != (c.NextRetry.Kind == DelayIn):
		t.Errorf("%s: next retry %+v in %s", name, c.NextRetry, c.To)
	case !c.Silent && c.To == StatusRunning && c.Wake.Kind != DelayLease:
		t.Errorf("%s: lease %+v in %s", name, c.Wake, c.To)
	case !c.Silent && c.To == StatusRunning && c.LeaseOwner == "":
		t.Errorf("%s: running without a holder", name)
	case c.To == StatusSucceeded && (c.Progress.Percent != 100 || c.LastError != ""):
		t.Errorf("%s: a success that says %+v", name, c)
	case !c.Silent && c.To.Terminal() && c.DLQ != DLQOwed && c.To != StatusSucceeded && c.Wake.Kind != DelayNever:
		t.Errorf("%s: wakes after its end", name)
	case !c.Silent && c.To == StatusQueued && (c.Enqueue.Kind != DelayIn || c.EnqueueCount != 0 || c.Wake != In(0)):
		t.Errorf("%s: queued without a promise", name)
	}
}

func TestOnlyTheHolderFinishes(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]Holder{
		"older fence":   {Token: Token{Epoch: 7, Fence: 3}},
		"newer fence":   {Token: Token{Epoch: 7, Fence: 5}},
		"other history": {Token: Token{Epoch: 8, Fence: 4}},
		"nobody":        {},
	} {
		r := row(StatusRunning)
		for i, d := range []Decision{
			Succeed(moment, r, h, nil, ""), Fail(rules, moment, r, h, Failure{}), HandBack(moment, r, h, ""),
			Withdraw(moment, r, h, ReasonDeleted, ""), Fail(rules, moment, r, h, Failure{Suspend: true}),
		} {
			if d.Answer != AnswerLost || d.Change != nil {
				t.Errorf("%s, function %d: got %+v", name, i, d)
			}
		}
	}
}

func TestFailureCountsUpToTheLimit(t *testing.T) {
	t.Parallel()
	r := row(StatusRunning)
	for n, want := range []struct {
		to   Status
		why  Reason
		wait time.Duration
	}{{StatusRetrying, ReasonFailed, time.Second}, {StatusRetrying, ReasonFailed, 2 * time.Second}, {StatusDead, ReasonExhausted, 0}} {
		r.AttemptCount = n
		c := Fail(rules, moment, r, held(), Failure{Code: "C", Cause: "why", Message: "sorry"}).Change
		if c.To != want.to || c.Reason != want.why || c.AttemptCount != n+1 || c.NextRetry.In != want.wait ||
			c.LastError != "why" || c.ErrorMessage != "sorry" || c.ErrorCode != "C" {
			t.Errorf("failure %d: got %+v", n+1, c)
		}
	}
	off := rules
	off.DLQ = false
	c := Fail(off, moment, row(StatusRunning), held(), Failure{Permanent: true}).Change
	if c.DLQ != DLQNone || c.Wake.Kind != DelayNever || c.Reason != ReasonPermanent {
		t.Errorf("without a dead letter stream: got %+v", c)
	}
	if c := Fail(rules, moment, row(StatusRunning), held(), Failure{Stalled: true}).Change; c.Reason != ReasonStalled || c.AttemptCount != 1 {
		t.Errorf("stalled: got %+v", c)
	}
	c = Fail(rules, moment, row(StatusRunning), held(), Failure{Suspend: true, Permanent: true, Throttled: true, Code: "X", Cause: "why"}).Change
	if c.To != StatusSuspended || c.Reason != ReasonSuspended || c.AttemptCount != 0 || c.DLQ != DLQNone || c.ErrorCode != "X" || c.LastError != "why" {
		t.Errorf("suspended: got %+v", c)
	}
}

func TestThrottleDelay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n           int
		named, want time.Duration
	}{
		{1, 0, time.Second}, {2, 0, 2 * time.Second}, {6, 0, 32 * time.Second}, {7, 0, time.Minute}, {1000, 0, time.Minute},
		{1, 90 * time.Second, 90 * time.Second}, {3, time.Second, 4 * time.Second}, {1, 2 * time.Hour, time.Hour}, {1, -5, time.Second},
	} {
		if got := throttleDelay(tt.n, tt.named); got != tt.want {
			t.Errorf("throttle %d named %s: got %s, want %s", tt.n, tt.named, got, tt.want)
		}
	}
	r := row(StatusRunning)
	r.ThrottleCount = 3
	if c := Fail(rules, moment, r, held(), Failure{}).Change; c.ThrottleCount != 0 {
		t.Error("a failure does not end the row of throttles")
	}
}
