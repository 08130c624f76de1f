// Package taskstatetest is the conformance suite that every taskstate.Database passes, whatever database is behind it.
//
// It uses the standard library only. Time is moved by writing to the rows, so that it runs on servers with clocks of their own.
package taskstatetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Features says what a store can do; what it cannot is asserted too.
type Features struct {
	// RowLocks: transactions lock rows, so that two can be open at once. Without, they wait for one another as a whole.
	RowLocks bool
}

// OpenFunc opens a store on an empty, migrated database of its own; a second call of reopen opens the same database anew.
type OpenFunc func(t *testing.T) (first taskstate.Database, reopen func(t *testing.T) taskstate.Database)

// Run runs every test of the suite.
func Run(t *testing.T, f Features, open OpenFunc) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, b *bench)
	}{
		{"SubmitWritesTasksAndLog", testSubmit},
		{"SubmitRefusesWhatCannotBeKept", testSubmitInvalid},
		{"SubmitKeepsKeysUnique", testDuplicateKey},
		{"SubmitRunsPrepareInTheTransaction", testPrepare},
		{"ClaimIsWonOnce", testClaim},
		{"MixedOutcomesInOneBatch", testMixed},
		{"BatchesOfAnySize", testLarge},
		{"DelaysAreExactToTheMicrosecond", testExact},
		{"StaleFenceNeverWrites", testStale},
		{"HandBackCountsNothing", testHandBack},
		{"TakeoverOnlyAfterExpiry", testTakeover},
		{"CrashLimitEndsInDead", testCrashLimit},
		{"LastChanceIsReservedAndReleased", testReserve},
		{"ThrottlesDouble", testThrottle},
		{"DLQDebtIsMarkedOrCancelled", testDLQ},
		{"PromisesMoveToTheBack", testEnqueue},
		{"PersonsActInTheirScope", testScope},
		{"HeartbeatRenewsRevivesAndLoses", testHeartbeat},
		{"HookErrorsUndoEverything", testAlsoFails},
		{"OneBadRowFailsAlone", testOneBadRow},
		{"LongAndOddTexts", testTexts},
		{"SweepOrderLimitAndExclude", testSweep},
		{"HoldIsFenced", testWithClaim},
		{"InTxCommitsAndRollsBack", testInTx},
		{"ListsPageInEveryOrder", testLists},
		{"ListsFilter", testFilters},
		{"FailuresAreGrouped", testFailures},
		{"FailuresAreCountedOnce", testFailuresCounted},
		{"CountsDueAndNextWake", testCounts},
		{"CountsOfFilters", testCountsOfFilters},
		{"Pace", testPace},
		{"LogOfManyTasks", testLogs},
		{"ChangesByCalls", testChanges},
		{"ClockSetBack", testClockSetBack},
		{"RacingClaimsAreWonOnce", testRacingClaims},
		{"RacingSweepsAreDisjoint", testRacingSweeps},
		{"SweepsDoNotWaitForOneAnother", testParallelSweeps},
		{"DeadlocksAreRetried", testDeadlock},
		{"WaitsEndWithTheContext", testContext},
		{"EveryChangeIsInTheLog", testLogComplete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, reopen := open(t)
			tt.run(t, &bench{t: t, ctx: t.Context(), s: s, reopen: reopen, features: f, p: policy()})
		})
	}
}

// policy is what the tests decide by. Its times are far above what a busy machine is held up for.
func policy() taskstate.Policy {
	return taskstate.Policy{
		BaseBackoff: 61234567 * time.Microsecond, MaxBackoff: time.Hour, Lease: time.Minute,
		MaxCrashes: 3, Slack: 2 * time.Second, DLQ: true,
	}
}

// worker is the actor of the tests.
var worker = taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w1"}

// bench is one test's store with helpers.
type bench struct {
	t        *testing.T
	ctx      context.Context
	s        taskstate.Database
	reopen   func(t *testing.T) taskstate.Database
	features Features
	p        taskstate.Policy
}

// fatalIf ends the test on an error.
func (b *bench) fatalIf(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// equal compares with ==.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// newID is a random id in the shape of a UUID.
func newID() string {
	var r [16]byte
	_, _ = rand.Read(r[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", r[:4], r[4:6], r[6:8], r[8:10], r[10:])
}

// newTask is a task of user u1.
func newTask() taskstate.NewTask {
	return taskstate.NewTask{
		Task:  taskstate.Task{ID: newID(), UserID: "u1", Type: "document", Channel: "http", MaxAttempts: 3},
		Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "u1"},
	}
}

// submit stores tasks.
func (b *bench) submit(tasks ...taskstate.NewTask) []taskstate.Task {
	b.t.Helper()
	out, err := b.s.Submit(b.ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return tasks, nil
	})
	b.fatalIf(err)
	return out
}

// queued stores n plain tasks and returns their ids.
func (b *bench) queued(n int) []string {
	b.t.Helper()
	tasks := make([]taskstate.NewTask, n)
	ids := make([]string, n)
	for i := range tasks {
		tasks[i] = newTask()
		ids[i] = tasks[i].ID
	}
	b.submit(tasks...)
	return ids
}

// apply asks f for each of ids, in the system's scope.
func (b *bench) apply(f func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision, ids ...string) []taskstate.Outcome {
	b.t.Helper()
	out, err := b.s.Apply(b.ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(f)})
	b.fatalIf(err)
	equal(b.t, "outcomes", len(out), len(ids))
	for i, o := range out {
		equal(b.t, "order of outcomes", o.TaskID, ids[i])
	}
	return out
}

// one is apply for one task, whose outcome it checks against the row.
func (b *bench) one(id string, f func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) taskstate.Outcome {
	b.t.Helper()
	o := b.apply(f, id)[0]
	b.fatalIf(o.Err)
	b.same(o.After)
	return o
}

// claimTrace is the span that every claim of the suite notes.
const claimTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// claiming claims as a worker does, with its trace.
func (b *bench) claiming(owner string) func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
	return func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		d := taskstate.Claim(b.p, m, t, taskstate.ClaimRequest{
			Owner: owner + "/1", Process: owner, Actor: worker, Delivery: "1-0", Takeover: true,
		})
		if d.Answer == taskstate.AnswerClaimed {
			d.Change.AttemptTrace = claimTrace
		}
		return d
	}
}

// claimed stores a task and claims it.
func (b *bench) claimed() taskstate.Task {
	b.t.Helper()
	o := b.one(b.queued(1)[0], b.claiming("p1"))
	equal(b.t, "answer", o.Answer, taskstate.AnswerClaimed)
	return o.After
}

// holder is the authority of the last claim of t.
func (b *bench) holder(t taskstate.Task) taskstate.Holder {
	b.t.Helper()
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	return taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}
}

// get reads a task.
func (b *bench) get(id string) taskstate.Task {
	b.t.Helper()
	t, err := b.s.Get(b.ctx, taskstate.System(), id)
	b.fatalIf(err)
	return t
}

// same checks that the row says exactly what an outcome said.
func (b *bench) same(want taskstate.Task) {
	b.t.Helper()
	if got := b.get(want.ID); fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		b.t.Fatalf("row and outcome differ:\nrow     %+v\noutcome %+v", got, want)
	}
}

// log reads the whole log of a task.
func (b *bench) log(id string) []taskstate.Transition {
	b.t.Helper()
	out, err := b.s.Transitions(b.ctx, taskstate.System(), id, 0, 1000)
	b.fatalIf(err)
	return out
}

// set writes columns of one task's state, to move time; calls may wake early.
func (b *bench) set(id, assignments string, args ...any) {
	b.t.Helper()
	b.write("UPDATE ingest_task_state SET "+assignments+" WHERE id = ?", append(args, b.key(id))...)
	b.fatalIf(b.s.InTx(b.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ? WHERE wake_at < ?", time.Unix(1e9, 0).UTC(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		return err
	}))
}

// changedAt lets a task have been changed at a time, by a call without a transition.
func (b *bench) changedAt(id string, at time.Time) {
	b.t.Helper()
	b.set(id, "updated_at = ?", at)
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	b.fatalIf(err)
	status := string(b.get(id).Status)
	b.write(`INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, tasks, ids, created_at)
		VALUES (?, ?, ?, 'SILENT', 1, 'system:test', 1, ?, ?)`, raw, status, status, raw, at)
}

// key is a task's id as its state has it.
func (b *bench) key(id string) any {
	if b.s.Dialect() != "mysql" {
		return id
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", ""))
	b.fatalIf(err)
	return raw
}

// write runs a statement that must change one row.
func (b *bench) write(query string, args ...any) {
	b.t.Helper()
	b.fatalIf(b.s.InTx(b.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d rows, %w", n, err)
		}
		return nil
	}))
}

// expire ends the lease of a running or reserved task. It becomes one of an earlier start of its process.
func (b *bench) expire(id string) {
	b.t.Helper()
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	past := m.Now.Add(-time.Second)
	if t := b.get(id); t.Status == taskstate.StatusRunning && t.LeaseOwner != "" {
		b.write(`INSERT INTO ingest_worker (name, lease_until, created_at)
			SELECT w.name, ?, ? FROM ingest_worker w JOIN ingest_task_state t ON t.lease_owner >> 36 = w.no WHERE t.id = ?`, past, past, b.key(id))
		b.set(id, "lease_owner = (SELECT MAX(no) FROM ingest_worker) * 68719476736 + (lease_owner & 68719476735)")
		return
	}
	b.set(id, "wake_at = ?", past)
}
