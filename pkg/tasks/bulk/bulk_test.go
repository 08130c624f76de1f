package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

func TestMain(m *testing.M) { ingesttest.Main(m) }

// bench is an application with operations.
type bench struct {
	*ingesttest.World
	t    *testing.T
	ops  *bulk.Operations
	wait func(ctx context.Context, d time.Duration) bool
	now  func() time.Time
	door *door
}

// door is the application's with a hook behind every page.
type door struct {
	bulk.Door
	after func()
	alone bool // a page cannot be written as a whole: its tasks are tried one by one
}

func (d *door) OperateAlso(ctx context.Context, c tasks.Caller, ids []string, wish tasks.Wish, also tasks.AlsoFunc) ([]taskstate.Outcome, error) {
	out, err := d.Door.OperateAlso(ctx, c, ids, wish, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, decided []taskstate.Decision) error {
		err := also(ctx, tx, m, decided)
		if d.alone && len(decided) > 1 {
			return errors.New("one of them cannot be written")
		}
		return err
	})
	if d.after != nil {
		d.after()
	}
	return out, err
}

func onEach(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) {
			d.Tasks = map[string]tasks.Type{workflow.Type: workflow.NewRecords(w.Store.Dialect())}
		}})
		b := &bench{World: w, t: t, door: &door{Door: w.App.Service}}
		deps := workflows.BulkDeps(w.App, w.Store)
		deps.Door = b.door
		deps.Wait = func(ctx context.Context, d time.Duration) bool {
			if b.wait != nil {
				return b.wait(ctx, d)
			}
			return ctx.Err() == nil
		}
		deps.Now = func() time.Time {
			if b.now != nil {
				return b.now()
			}
			return time.Now()
		}
		b.ops = bulk.New(deps)
		test(t, b)
	})
}

// dead uploads n documents that cannot be read.
func (b *bench) dead(n int) (ids []string) {
	b.t.Helper()
	for i := range n {
		a := b.Upload(fmt.Sprintf("!corrupt\n%d of %s\n", i, b.t.Name()))
		require.Equal(b.t, taskstate.StatusDead, b.Process(a.Task.ID).Status)
		ids = append(ids, a.Task.ID)
	}
	return ids
}

// request is one of a caller.
func (b *bench) request(a bulk.Action, expression string) bulk.Request {
	b.t.Helper()
	f, err := filter.Parse(expression, time.Now())
	require.NoError(b.t, err)
	return bulk.Request{Action: a, Filter: f, Reason: "it is mended"}
}

// ask asks for an operation and claims its task.
func (b *bench) ask(c tasks.Caller, r bulk.Request) taskstate.Task {
	b.t.Helper()
	op, err := b.ops.Ask(b.t.Context(), c, r, "")
	require.NoError(b.t, err)
	require.EqualValues(b.t, -1, op.Matched)
	return b.claim(op.ID, "p1")
}

// claim takes an operation's task, over from its holder if there is one.
func (b *bench) claim(id, process string) taskstate.Task {
	b.t.Helper()
	policy := taskstate.Policy{BaseBackoff: time.Second, MaxBackoff: time.Second, Lease: time.Minute, MaxCrashes: 9}
	outs, err := b.Store.Apply(b.t.Context(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		if t.Status == taskstate.StatusRunning {
			t.WakeAt = m.Now.Add(-time.Second) // its lease has ended
		}
		return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{
			Owner: process + "/1", Process: process, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}, Takeover: true,
		})
	})})
	require.NoError(b.t, err)
	require.NoError(b.t, outs[0].Err)
	require.Equal(b.t, taskstate.AnswerClaimed, outs[0].Answer)
	return outs[0].After
}

// replays counts how often tasks were put back.
func (b *bench) replays(ids []string) map[string]int {
	b.t.Helper()
	out := map[string]int{}
	for _, id := range ids {
		log, err := b.Store.Transitions(b.t.Context(), taskstate.System(), id, 0, 100)
		require.NoError(b.t, err)
		for _, c := range log {
			if c.Reason == taskstate.ReasonReplayed {
				out[id]++
			}
		}
	}
	return out
}

func quiet(taskstate.Progress) {}

func TestAnOperationIsDone(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := b.dead(3)
		good := b.Upload("good\n")
		require.NoError(t, b.App.DeleteDocument(t.Context(), b.Caller, b.Document(b.Task(ids[2]).DocumentID).ID))
		r := b.request(bulk.Retry, `status:DEAD,SUCCEEDED,QUEUED,CANCELLED`)
		p, err := b.ops.Preview(t.Context(), b.Caller, r)
		require.NoError(t, err)
		require.EqualValues(t, 4, p.Matched)
		require.EqualValues(t, 3, p.Eligible)
		require.Equal(t, map[string]int64{"TASK_NOT_REPLAYABLE": 1}, p.Skipped)
		require.Equal(t, 3, p.Looked)
		require.Equal(t, map[string]int64{"DOCUMENT_DELETED": 1}, p.Refused)
		require.Len(t, p.Sample, 4)
		require.Empty(t, b.replays(ids), "a preview changes nothing")

		var told []taskstate.Progress
		task := b.ask(b.Caller, r)
		got, err := b.ops.Run(t.Context(), task, func(p taskstate.Progress) { told = append(told, p) })
		require.NoError(t, err)
		require.Equal(t, bulk.Result{Matched: 4, Done: 2, Skipped: map[string]int64{"TASK_NOT_REPLAYABLE": 1, "DOCUMENT_DELETED": 1}}, got)
		require.Equal(t, map[string]int{ids[0]: 1, ids[1]: 1}, b.replays(ids))
		log, err := b.Store.Transitions(t.Context(), taskstate.System(), ids[0], 0, 100)
		require.NoError(t, err)
		require.Contains(t, log[len(log)-1].Message, "bulk operation "+task.ID+": it is mended")
		require.Equal(t, b.Caller.Scope.Actor().String(), log[len(log)-1].Actor)
		require.Equal(t, 4, told[len(told)-1].Total)
		require.Equal(t, 4, told[len(told)-1].Processed)
		require.Equal(t, taskstate.StatusSucceeded, b.Process(good.Task.ID).Status)

		list, err := b.ops.List(t.Context(), b.Caller.Scope, nil, 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.EqualValues(t, 2, list[0].Done)
		other := taskstate.Scope{UserID: "bob", Role: taskstate.RoleUser}
		list, err = b.ops.List(t.Context(), other, nil, 10)
		require.NoError(t, err)
		require.Empty(t, list)
		_, err = b.ops.Get(t.Context(), other, task.ID)
		require.ErrorIs(t, err, bulk.ErrNotFound)
		b.CheckInvariants()
	})
}

// A page whose tasks are tried one by one counts each once, also those that refuse beside one that changes.
func TestAPageThatFailsAsAWholeIsCountedOnce(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := b.dead(3)
		_, err := b.App.Retry(t.Context(), b.Caller, ids[1]) // QUEUED: a replay refuses it
		require.NoError(t, err)
		b.door.alone = true
		got, err := b.ops.Run(t.Context(), b.ask(b.Caller, b.request(bulk.Replay, "type:document")), quiet)
		require.NoError(t, err)
		require.Equal(t, bulk.Result{Matched: 3, Done: 2, Skipped: map[string]int64{"TASK_NOT_REPLAYABLE": 1}}, got)
		require.Equal(t, map[string]int{ids[0]: 1, ids[1]: 1, ids[2]: 1}, b.replays(ids))
	})
}

// Whoever holds the operation dies behind any page, or lives on: each task is put back once, and all are counted.
func TestAnOperationThatBreaksOffGoesOn(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := b.dead(7)
		r := b.request(bulk.Replay, "status:DEAD")
		r.PerSecond = 2 // tasks of a page
		task := b.ask(b.Caller, r)
		ctx, die := context.WithCancel(t.Context())
		pages := 0
		b.door.after = func() {
			if pages++; pages == 2 {
				die() // the page is committed, and nobody hears of it
			}
		}
		_, err := b.ops.Run(ctx, task, quiet)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, b.replays(ids), 4)
		for id := range b.replays(ids) { // they fail again, as what the operation is about did
			require.Equal(t, taskstate.StatusDead, b.Process(id).Status)
		}

		// the process is paused before a page; another takes over; the page of the first is refused
		next := b.claim(task.ID, "p2")
		b.door.after = nil
		_, err = b.ops.Run(t.Context(), task, quiet)
		require.ErrorIs(t, err, taskstate.ErrLost)
		require.Len(t, b.replays(ids), 4, "nothing is done without the claim")
		got, err := b.ops.Run(t.Context(), next, quiet)
		require.NoError(t, err)
		require.Equal(t, bulk.Result{Matched: 7, Done: 7, Skipped: map[string]int64{}}, got)
		for id, n := range b.replays(ids) {
			require.Equal(t, 1, n, id)
		}
		require.Len(t, b.replays(ids), 7)
	})
}

func TestTasksThatChangeMeanwhileAreJudgedAgain(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		ids := b.dead(3)
		r := b.request(bulk.Replay, "status:DEAD")
		r.PerSecond = 1
		task := b.ask(b.Caller, r)
		b.Advance(time.Second)
		late := b.dead(1)
		once := false
		b.door.after = func() {
			if !once {
				once = true
				_, err := b.App.Retry(t.Context(), b.Caller, ids[1]) // by hand
				require.NoError(t, err)
			}
		}
		got, err := b.ops.Run(t.Context(), task, quiet)
		require.NoError(t, err)
		require.EqualValues(t, 2, got.Done)
		require.EqualValues(t, 3, got.Matched)
		require.Equal(t, map[string]int{ids[0]: 1, ids[1]: 1, ids[2]: 1}, b.replays(ids))
		require.Empty(t, b.replays(late), "it came after the operation was asked for")
	})
}

func TestTheRateIsKept(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		b.dead(5)
		var waits []time.Duration
		now := time.Now()
		b.now = func() time.Time { return now }
		b.wait = func(_ context.Context, d time.Duration) bool {
			waits, now = append(waits, d), now.Add(d)
			return true
		}
		b.door.after = func() { now = now.Add(400 * time.Millisecond) } // so long a page takes
		r := b.request(bulk.Replay, "status:DEAD")
		r.PerSecond = 1
		_, err := b.ops.Run(t.Context(), b.ask(b.Caller, r), quiet)
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]time.Duration{600 * time.Millisecond}, 5), waits)
	})
}

func TestOperationsOnDocuments(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		a, other := b.Upload("a\n"), b.Upload("b\n")
		b.Process(a.Task.ID)
		b.Process(other.Task.ID)
		got, err := b.ops.Run(t.Context(), b.ask(b.Caller, b.request(bulk.Reindex, "status:SUCCEEDED")), quiet)
		require.NoError(t, err)
		require.Equal(t, bulk.Result{Matched: 2, Done: 2, Skipped: map[string]int64{}}, got)
		require.EqualValues(t, 2, b.Number("SELECT COUNT(*) FROM ingest_task WHERE workflow_id = 'ingest.document'"))
		task := b.ask(b.Caller, b.request(bulk.Delete, "age>0s"))
		got, err = b.ops.Run(t.Context(), task, quiet)
		require.NoError(t, err)
		require.EqualValues(t, 2, got.Done)
		require.Equal(t, map[string]int64{"NO_DOCUMENT": 3}, got.Skipped, "two of ingest.document, and the operation before")
		require.Zero(t, b.Number("SELECT COUNT(*) FROM knowledge_document WHERE deleted_at IS NULL"))
	})
}

func TestWhatCannotBeAsked(t *testing.T) {
	onEach(t, func(t *testing.T, b *bench) {
		for want, r := range map[string]bulk.Request{
			`action: "burn" is none of`:            b.request("burn", "status:DEAD"),
			"filter: is empty":                     b.request(bulk.Retry, "  "),
			"ratePerSecond: is -1, allowed is 0":   {Action: bulk.Retry, Filter: filter.Filter{Text: "x"}, PerSecond: -1},
			"ratePerSecond: is 10001":              {Action: bulk.Retry, Filter: filter.Filter{Text: "x"}, PerSecond: 10001},
			"suspend and resume are for operators": b.request(bulk.Suspend, "status:DEAD"),
		} {
			_, err := b.ops.Ask(t.Context(), b.Caller, r, "")
			require.ErrorContains(t, err, want)
			_, err = b.ops.Preview(t.Context(), b.Caller, r)
			require.ErrorContains(t, err, want)
		}
		// a task of the workflow that nobody asked for by Ask
		got, errs := b.App.Submit(t.Context(), b.Caller, tasks.Request{Type: workflow.Type, WorkflowID: bulk.Workflow, ChatID: "x", Payload: []byte(`{"payload":{}}`)})
		require.NoError(t, errs[0])
		_, err := b.ops.Run(t.Context(), b.claim(got[0].Task.ID, "p1"), quiet)
		require.ErrorIs(t, err, bulk.ErrGone)
		// the same key twice is one operation
		r := b.request(bulk.Retry, "status:DEAD")
		first, err := b.ops.Ask(t.Context(), b.Caller, r, "k")
		require.NoError(t, err)
		again, err := b.ops.Ask(t.Context(), b.Caller, r, "k")
		require.NoError(t, err)
		require.Equal(t, first.ID, again.ID)
		require.EqualValues(t, 1, b.Number("SELECT COUNT(*) FROM bulk_operation"))
		r.Reason = "another"
		_, err = b.ops.Ask(t.Context(), b.Caller, r, "k")
		require.ErrorIs(t, err, tasks.ErrKeyReused)
	})
}
