package spec_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/spec"
)

var (
	noon   = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	policy = taskstate.Policy{BaseBackoff: time.Second, MaxBackoff: time.Minute, Lease: time.Minute, MaxCrashes: 3, Slack: time.Second, DLQ: true}
	holder = taskstate.Holder{Token: taskstate.Token{Epoch: 1, Fence: 1}}
)

// decideFunc is a pure decision.
type decideFunc = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision

// claim claims as a worker does.
func claim(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
	return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "p/1", Process: "p", Takeover: true})
}

// fail ends an attempt.
func fail(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
	return taskstate.Fail(policy, m, t, holder, taskstate.Failure{Cause: "it broke"})
}

// at is a call at an instant.
func at(now time.Time, decide decideFunc) spec.Call {
	return spec.Call{
		Scope: taskstate.System(), Decide: decide,
		Locked:  func(string) taskstate.DBClock { return taskstate.DBClock{Now: now, Epoch: 1} },
		Written: func(string) time.Time { return now },
	}
}

// table holds two tasks of one user.
func table(t *testing.T) *spec.Table {
	t.Helper()
	x := spec.NewTable(1)
	if _, err := x.Submit(noon, []taskstate.NewTask{task("a", ""), task("b", "k")}); err != nil {
		t.Fatal(err)
	}
	return x
}

// task is a new task with a key.
func task(id, key string) taskstate.NewTask {
	return taskstate.NewTask{Task: taskstate.Task{ID: id, UserID: "u", MaxAttempts: 2, IdempotencyKey: key}}
}

func TestTableKeepsKeysUnique(t *testing.T) {
	t.Parallel()
	x := table(t)
	if _, err := x.Submit(noon, []taskstate.NewTask{task("c", ""), task("d", "k")}); !errors.Is(err, taskstate.ErrDuplicateKey) {
		t.Errorf("got %v, want ErrDuplicateKey", err)
	}
	if _, err := x.Submit(noon, []taskstate.NewTask{{Task: taskstate.Task{ID: "e", UserID: "u"}}}); !errors.Is(err, spec.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if got := x.IDs(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("tasks %v, want a and b", got)
	}
}

func TestTableLivesATask(t *testing.T) {
	t.Parallel()
	x := table(t)
	out, ok := x.Apply([]string{"a", "nobody"}, at(noon, claim))
	if !ok || out[0].Answer != taskstate.AnswerClaimed || out[1].Answer != taskstate.AnswerSkipped {
		t.Fatalf("got %v, %v", out, ok)
	}
	if !x.Held("a", holder.Token) || x.Held("b", holder.Token) {
		t.Error("held: want a and not b")
	}
	beat := taskstate.Beat{TaskID: "a", Status: taskstate.StatusRunning, Token: holder.Token, Owner: "p/1", Progress: &taskstate.Progress{Percent: 5}}
	foreign := beat
	foreign.TaskID = "b"
	later := noon.Add(time.Second)
	if lost := x.Heartbeat(later, time.Minute, []taskstate.Beat{beat, foreign}); !slices.Equal(lost, []string{"b"}) {
		t.Errorf("lost %v, want b", lost)
	}
	x.Renew("p", later.Add(time.Minute))
	if got := x.Get("a"); !got.LeaseExpiresAt().Equal(later.Add(time.Minute)) || got.Progress.Percent != 5 || !got.UpdatedAt.Equal(later) {
		t.Errorf("after the heartbeat: %+v", got)
	}
	x.Apply([]string{"a"}, at(later, fail))
	row := x.Get("a")
	if row.Status != taskstate.StatusRetrying || !row.NextRetryAt.Equal(later.Add(time.Second)) {
		t.Errorf("after the failure: %+v", row)
	}
	due := func(until time.Time, inclusive bool, exclude ...string) []string {
		return x.Due(taskstate.StatusRetrying, until, inclusive, 5, exclude)
	}
	if len(due(row.WakeAt, false)) != 0 || len(due(row.WakeAt, true)) != 1 || len(due(row.WakeAt, true, "a")) != 0 {
		t.Error("due: want it at its instant, unless it is left out")
	}
	if got := x.Age("a", noon); !got.NextRetryAt.Equal(noon) || !got.LeaseExpiresAt().IsZero() {
		t.Errorf("aged: %+v", got)
	}
	log := x.Log("a")
	if len(log) != 3 || log[2].To != taskstate.StatusRetrying || !log[2].CreatedAt.Equal(later) {
		t.Errorf("log %+v", log)
	}
	if got := x.Counts(taskstate.Scope{UserID: "u"}); got[taskstate.StatusRetrying] != 1 || got[taskstate.StatusQueued] != 1 {
		t.Errorf("counts %v", got)
	}
}

func TestTableScopeHookAndEpoch(t *testing.T) {
	t.Parallel()
	x := table(t)
	foreign := at(noon, claim)
	foreign.Scope = taskstate.Scope{UserID: "other"}
	if out, _ := x.Apply([]string{"a"}, foreign); out[0].Answer != taskstate.AnswerSkipped || out[0].Before.ID != "" {
		t.Errorf("foreign: %+v", out[0])
	}
	refused := at(noon, claim)
	refused.Refuse = "a"
	if _, ok := x.Apply([]string{"a"}, refused); ok {
		t.Error("a refused change alone must fail the call")
	}
	out, ok := x.Apply([]string{"a", "b"}, refused)
	if !ok || out[0].Change != nil || out[1].Answer != taskstate.AnswerClaimed {
		t.Errorf("one refused of two: %+v", out)
	}
	if leases := x.RenewEpoch(2, noon); leases != 1 || x.Held("b", holder.Token) {
		t.Errorf("%d leases ended, want 1 and a token that holds no more", leases)
	}
}

// Enabled, Apply and Check are enough to walk a world by hand.
func TestModelStepByStep(t *testing.T) {
	t.Parallel()
	m := spec.New(config("walk", spec.Faults{}, alwaysWell))
	w := m.Start()
	for range 200 {
		ops := m.Enabled(w)
		if len(ops) == 0 {
			break
		}
		o := ops[len(ops)-1]
		next, res := m.Apply(w, o)
		if v := m.Check(w, o, res, next); len(v) > 0 {
			t.Fatalf("%s: %v", o.Words(res), v)
		}
		w = next
	}
	if w == m.Start() {
		t.Error("nothing ever happened")
	}
}
