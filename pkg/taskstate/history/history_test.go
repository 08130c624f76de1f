package history

import (
	"strings"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// start is the first instant of every test's log.
var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const (
	base  = time.Second
	most  = 3 * time.Second
	lease = 10 * time.Second
	limit = 3 // of crashes
)

// rule options of the tests.
func options() *Options {
	return &Options{Policy: &taskstate.Policy{BaseBackoff: base, MaxBackoff: most, Lease: lease, MaxCrashes: limit}}
}

// tape writes a log: each step is so many seconds after the one before.
type tape struct {
	log []taskstate.Transition
	at  time.Time
}

// add appends a step that is derived from the last one and then changed by edit.
func (t *tape) add(after time.Duration, to taskstate.Status, reason taskstate.Reason, actor string, edit func(*taskstate.Transition)) *tape {
	t.at = t.at.Add(after)
	tr := taskstate.Transition{ID: int64(len(t.log) + 1), TaskID: "t", To: to, Reason: reason, Actor: actor, CreatedAt: t.at, Epoch: 7}
	if n := len(t.log); n > 0 {
		last := t.log[n-1]
		tr.From, tr.Fence, tr.AttemptCount, tr.CrashCount = last.To, last.Fence, last.AttemptCount, last.CrashCount
	}
	if to == running {
		tr.Fence++
		tr.LeaseExpiresAt = t.at.Add(lease)
	}
	if edit != nil {
		edit(&tr)
	}
	t.log = append(t.log, tr)
	return t
}

func failed(wait time.Duration) func(*taskstate.Transition) {
	return func(tr *taskstate.Transition) {
		tr.AttemptCount++
		tr.NextRetryAt = tr.CreatedAt.Add(wait)
	}
}

func crashed(tr *taskstate.Transition) { tr.CrashCount++ }

func fresh(tr *taskstate.Transition) { tr.AttemptCount, tr.CrashCount = 0, 0 }

// whole is a legal log that every rule of the log judges: failures, a throttle, RETRY_NOW, takeovers, a hand-back,
// the crash limit, a replay, a suspension, a cancellation and a success.
func whole() []taskstate.Transition {
	t := &tape{at: start}
	t.add(0, queued, taskstate.ReasonAccepted, "user:u", nil)
	t.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(time.Second, retrying, taskstate.ReasonFailed, "worker:a", failed(base)) // 3
	t.add(2*time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(time.Second, retrying, taskstate.ReasonThrottled, "worker:a", func(tr *taskstate.Transition) { tr.NextRetryAt = tr.CreatedAt.Add(time.Minute) })
	t.add(time.Second, retrying, taskstate.ReasonRetryNow, "user:u", func(tr *taskstate.Transition) { tr.NextRetryAt = tr.CreatedAt })
	t.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(lease+time.Second, running, taskstate.ReasonTakeover, "worker:b", crashed) // 8
	t.add(time.Second, queued, taskstate.ReasonHandedBack, "worker:b", nil)
	t.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(time.Second, retrying, taskstate.ReasonStalled, "worker:a", failed(2*base))
	t.add(2*time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(lease, running, taskstate.ReasonTakeover, "worker:b", crashed)
	t.add(lease, dead, taskstate.ReasonCrashLimit, "worker:a", crashed) // 14
	t.add(time.Second, queued, taskstate.ReasonReplayed, "user:u", fresh)
	t.add(time.Second, suspended, taskstate.ReasonSuspended, "operator:o", nil)
	t.add(time.Second, queued, taskstate.ReasonResumed, "operator:o", fresh)
	t.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(time.Second, dead, taskstate.ReasonPermanent, "worker:a", func(tr *taskstate.Transition) { tr.AttemptCount++ })
	t.add(time.Second, queued, taskstate.ReasonReplayed, "user:u", fresh) // 20
	t.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
	t.add(time.Second, cancelled, taskstate.ReasonDeleted, "user:u", nil)
	t.add(time.Second, queued, taskstate.ReasonReplayed, "user:u", fresh)
	t.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil) // 24
	t.add(time.Second, succeeded, taskstate.ReasonDone, "worker:a", nil)
	return t.log
}

// rowOf is the row that ends a log.
func rowOf(log []taskstate.Transition) taskstate.Task {
	last := log[len(log)-1]
	return taskstate.Task{
		ID: "t", UserID: "u", Status: last.To, AttemptCount: last.AttemptCount, CrashCount: last.CrashCount, Fence: last.Fence,
		NextRetryAt: last.NextRetryAt, MaxAttempts: 5,
	}
}

// judge runs a checker over one task.
func judge(log []taskstate.Transition, row taskstate.Task) Report {
	c := New(*options())
	for _, tr := range log {
		c.Add(tr)
	}
	c.Row(row)
	return c.Report()
}

func TestALegalLogIsJudgedByEveryRule(t *testing.T) {
	t.Parallel()
	log := whole()
	r := judge(log, rowOf(log))
	if err := r.Err(); err != nil {
		t.Fatalf("a legal log: %v", err)
	}
	var ids []string
	for _, rule := range Rules() {
		ids = append(ids, rule.ID)
	}
	if err := r.RequireJudged(ids...); err != nil {
		t.Fatal(err)
	}
	if err := r.RequireJudged("I99"); err == nil || !strings.Contains(err.Error(), "I99") {
		t.Fatalf("an unknown rule was judged: %v", err)
	}
	if err := New(*options()).Report().RequireJudged(ids...); err == nil {
		t.Fatal("nothing was judged, and RequireJudged is content")
	}
}

// find is the first step for that reason.
func find(log []taskstate.Transition, reason taskstate.Reason) *taskstate.Transition {
	for i := range log {
		if log[i].Reason == reason {
			return &log[i]
		}
	}
	return nil
}

func TestEachRuleCatchesItsOwnBreach(t *testing.T) {
	t.Parallel()
	type logOf = []taskstate.Transition
	// Each breach is of one rule; when others see it too, the first violation is still that rule's.
	for name, c := range map[string]struct {
		rule  string
		spoil func(log logOf, row *taskstate.Task) logOf
		want  string
	}{
		"first is not an acceptance": {"I1", func(l logOf, _ *taskstate.Task) logOf { return l[1:] }, "the one before ended in –"},
		"a step is missing":          {"I1", func(l logOf, _ *taskstate.Task) logOf { return append(l[:8:8], l[9:]...) }, "goes from QUEUED, the one before ended in RUNNING"},
		"move not in the table": {"I1", func(l logOf, _ *taskstate.Task) logOf {
			find(l, taskstate.ReasonFailed).Reason = taskstate.ReasonDone
			return l
		}, "in no row of the table"},
		"a user resumes":          {"I1", func(l logOf, _ *taskstate.Task) logOf { find(l, taskstate.ReasonResumed).Actor = "user:u"; return l }, "RESUMED by user:u"},
		"time runs back":          {"I1", func(l logOf, _ *taskstate.Task) logOf { l[8].CreatedAt = start; return l }, "older than the one before"},
		"row in another state":    {"I2", func(l logOf, r *taskstate.Task) logOf { r.Status = dead; return l }, "its row says DEAD"},
		"row with another fence":  {"I2", func(l logOf, r *taskstate.Task) logOf { r.Fence++; return l }, "its log ends in"},
		"row with a retry time":   {"I2", func(l logOf, r *taskstate.Task) logOf { r.NextRetryAt = start; return l }, "next retry"},
		"row without a log":       {"I2", func(logOf, *taskstate.Task) logOf { return nil }, "log is empty"},
		"claim without a fence":   {"I3", func(l logOf, _ *taskstate.Task) logOf { l[1].Fence--; return l }, "fence is 0, must be 1"},
		"fence moves at a finish": {"I3", func(l logOf, _ *taskstate.Task) logOf { l[24].Fence++; return l }, "must be"},
		"zombie finishes": {"I4", func(l logOf, _ *taskstate.Task) logOf {
			find(l, taskstate.ReasonHandedBack).Actor = "worker:a"
			return l
		}, "worker:a ended the run that worker:b held"},
		"finish on another timeline": {"I4", func(l logOf, _ *taskstate.Task) logOf { l[24].Epoch = 8; return l }, "claimed on timeline 7"},
		"run ended twice": {"I5", func(l logOf, r *taskstate.Task) logOf {
			l[24].Fence = l[21].Fence // the run that the deletion ended
			*r = rowOf(l)
			return l
		}, "had ended before"},
		"takeover of a live lease": {"I6", func(l logOf, _ *taskstate.Task) logOf {
			l[7].CreatedAt = l[7].CreatedAt.Add(-2 * time.Second)
			return l
		}, "before the lease of worker:a ended"},
		"crash limit on a live lease": {"I6", func(l logOf, _ *taskstate.Task) logOf {
			l[13].CreatedAt = l[13].CreatedAt.Add(-time.Second)
			return l
		}, "before the lease of worker:b ended"},
		"claim without a lease":  {"I6", func(l logOf, _ *taskstate.Task) logOf { l[1].LeaseExpiresAt = time.Time{}; return l }, "does not lie ahead"},
		"lease that stays":       {"I6", func(l logOf, _ *taskstate.Task) logOf { l[24].LeaseExpiresAt = start; return l }, "keeps a lease"},
		"failure not counted":    {"I7", func(l logOf, _ *taskstate.Task) logOf { l[2].AttemptCount = 0; return l }, "attempt count is 0, must be 1"},
		"hand-back counted":      {"I7", func(l logOf, _ *taskstate.Task) logOf { l[8].AttemptCount++; return l }, "must be 1 after HANDED_BACK"},
		"replay keeps attempts":  {"I7", func(l logOf, _ *taskstate.Task) logOf { l[14].AttemptCount = 2; return l }, "must be 0 after REPLAYED"},
		"waits beyond its limit": {"I7", func(l logOf, r *taskstate.Task) logOf { r.MaxAttempts = 2; return l }, "its limit is 2"},
		"crash not counted":      {"I8", func(l logOf, _ *taskstate.Task) logOf { l[7].CrashCount = 0; return l }, "crash count is 0, must be 1"},
		"replay keeps crashes":   {"I8", func(l logOf, _ *taskstate.Task) logOf { l[14].CrashCount = 3; return l }, "must be 0 after REPLAYED"},
		"limit taken over": {"I8", func(l logOf, _ *taskstate.Task) logOf {
			l[13].To, l[13].Reason, l[13].Fence = running, taskstate.ReasonTakeover, l[12].Fence+1
			l[13].LeaseExpiresAt = l[13].CreatedAt.Add(lease)
			return l
		}, "the limit is 3"},
		"too short a wait": {"I9", func(l logOf, _ *taskstate.Task) logOf {
			l[2].NextRetryAt = l[2].NextRetryAt.Add(-2 * time.Microsecond)
			return l
		}, "must be between 1s and 1s"},
		"wait not doubled":        {"I9", func(l logOf, _ *taskstate.Task) logOf { l[10].NextRetryAt = l[10].CreatedAt.Add(base); return l }, "must be between 2s and 2s"},
		"throttle below a second": {"I9", func(l logOf, _ *taskstate.Task) logOf { l[4].NextRetryAt = l[4].CreatedAt; return l }, "THROTTLED"},
		"DEAD with a retry time":  {"I9", func(l logOf, _ *taskstate.Task) logOf { l[13].NextRetryAt = start; return l }, "DEAD and has a next retry"},
		"starts early": {"I10", func(l logOf, _ *taskstate.Task) logOf {
			l[3].CreatedAt = l[2].CreatedAt.Add(base - time.Microsecond)
			return l
		}, "started 1µs early"},
		"SUCCEEDED runs again": {"I11", func(l logOf, r *taskstate.Task) logOf {
			t := &tape{log: l, at: l[24].CreatedAt}
			t.add(time.Second, queued, taskstate.ReasonReplayed, "user:u", nil)
			*r = rowOf(t.log)
			return t.log
		}, "nothing SUCCEEDED"},
		"a worker replays": {"I11", func(l logOf, _ *taskstate.Task) logOf { l[14].Actor = "worker:a"; return l }, "only a person's replay"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := whole()
			row := rowOf(log)
			log = c.spoil(log, &row)
			trail, first := Trail{}, Violation{}
			for _, tr := range log {
				var v Verdict
				if trail, v = trail.Step(options(), tr); len(v.Violations) > 0 && first.Rule == "" {
					first = v.Violations[0]
				}
			}
			if v := trail.Row(row); len(v.Violations) > 0 && first.Rule == "" {
				first = v.Violations[0]
			}
			if first.Rule != c.rule || !strings.Contains(first.Problem, c.want) {
				t.Fatalf("got %s: %s; want %s: …%s…", first.Rule, first.Problem, c.rule, c.want)
			}
			if err := judge(log, row).Err(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the report says %v", err)
			}
		})
	}
}

func TestWithoutSettingsOnlyWhatAlwaysHoldsIsJudged(t *testing.T) {
	t.Parallel()
	log := whole()
	log[2].NextRetryAt = log[2].CreatedAt.Add(time.Minute)
	log[3].CreatedAt = log[2].NextRetryAt // not early
	for name, o := range map[string]Options{"unknown": {}, "later": {Policy: options().Policy, Since: log[2].CreatedAt.Add(time.Microsecond)}} {
		trail := Trail{}
		for _, tr := range log[:3] {
			var v Verdict
			if trail, v = trail.Step(&o, tr); len(v.Violations) > 0 {
				t.Fatalf("%s: %v", name, v.Violations)
			}
		}
	}
	jitter := options()
	jitter.Policy.Jitter = func() float64 { return 0.5 }
	log[2].NextRetryAt = log[2].CreatedAt.Add(base / 2)
	trail := Trail{}
	for _, tr := range log[:3] {
		var v Verdict
		if trail, v = trail.Step(jitter, tr); len(v.Violations) > 0 {
			t.Fatalf("jitter: %v", v.Violations)
		}
	}
}

func TestEpochRenewalEndsLeases(t *testing.T) {
	t.Parallel()
	log := whole()[:8]
	log[7].CreatedAt, log[7].Epoch = log[6].CreatedAt.Add(time.Second), 8
	log[7].LeaseExpiresAt = log[7].CreatedAt.Add(lease)
	if err := judge(log, rowOf(log)).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestHistoryInWordsShowsBothEnds(t *testing.T) {
	t.Parallel()
	tape := &tape{at: start}
	tape.add(0, queued, taskstate.ReasonAccepted, "user:u", nil)
	for range 20 {
		tape.add(time.Second, running, taskstate.ReasonClaimed, "worker:a", nil)
		tape.add(time.Second, queued, taskstate.ReasonHandedBack, "worker:a", nil)
	}
	tape.log[40].Fence = 99
	c := New(*options())
	for _, tr := range tape.log {
		c.Add(tr)
	}
	c.Missing("t")
	words := c.Report().Rule("I3").Examples[0].History
	lines := strings.Split(strings.TrimSpace(words), "\n")
	if len(lines) != headLines+1+tailLines || !strings.HasPrefix(lines[0], "1 ") || lines[headLines] != "… 17 more …" ||
		!strings.HasPrefix(lines[headLines+1], "22 ") || !strings.HasPrefix(lines[len(lines)-1], "41 ") {
		t.Fatalf("%d lines:\n%s", len(lines), words)
	}
	if got := c.Report().Rule("I2"); got.Violations != 1 || len(c.Tasks()) != 0 {
		t.Fatalf("a log without a row: %+v, left %v", got, c.Tasks())
	}
}
