package taskstatetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// failing claims tasks and fails them, all in one call each.
func (b *bench) failing(f taskstate.Failure, ids ...string) {
	b.t.Helper()
	b.failingAt(taskstate.Progress{}, f, ids...)
}

// failingAt is failing of runs that came so far.
func (b *bench) failingAt(at taskstate.Progress, f taskstate.Failure, ids ...string) {
	b.t.Helper()
	held := map[string]taskstate.Holder{}
	for _, o := range b.apply(b.claiming("p1"), ids...) {
		b.fatalIf(o.Err)
		h := b.holder(o.After)
		h.Progress = at
		held[o.TaskID] = h
	}
	for _, o := range b.apply(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(b.p, m, t, held[t.ID], f)
	}, ids...) {
		b.fatalIf(o.Err)
	}
}

// groups are all failure groups of a scope, by pattern, as "failures/tasks".
func (b *bench) groups(scope taskstate.Scope) map[string]string {
	b.t.Helper()
	all, err := b.s.FailureGroups(b.ctx, scope, taskstate.GroupQuery{Limit: 200})
	b.fatalIf(err)
	out := map[string]string{}
	for _, g := range all {
		out[g.Cause.Pattern] = fmt.Sprintf("%d/%d", g.Failures, g.Tasks)
		equal(b.t, "group id", g.ID, g.Cause.Group())
	}
	return out
}

// sameGroups compares groups.
func (b *bench) sameGroups(what string, want map[string]string) {
	b.t.Helper()
	equal(b.t, what, fmt.Sprint(b.groups(taskstate.System())), fmt.Sprint(want))
}

// due makes RETRYING tasks due.
func (b *bench) due(ids ...string) {
	b.t.Helper()
	b.apply(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Retry(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "u1"})
	}, ids...)
}

// Every way into a group of failures and out of it.
func testFailures(t *testing.T, b *bench) {
	base, other := newID(), newID()
	tasks := make([]taskstate.NewTask, 4)
	ids := make([]string, len(tasks))
	for i := range tasks {
		tasks[i] = newTask()
		tasks[i].KnowledgeBase, ids[i] = base, tasks[i].ID
	}
	tasks[2].KnowledgeBase, tasks[3].UserID = other, "u2"
	b.submit(tasks...)
	b.sameGroups("at first", map[string]string{})

	b.failing(taskstate.Failure{Code: "DOWN", Cause: "dial 10.0.0.1:80: refused", Message: "Wait."}, ids...)
	b.sameGroups("all failed", map[string]string{"dial <n>: refused": "4/4"})
	list, err := b.s.FailureGroups(b.ctx, taskstate.System(), taskstate.GroupQuery{Limit: 1})
	b.fatalIf(err)
	g := list[0]
	equal(t, "bases", len(g.Bases), 2)
	equal(t, "code and words", g.Cause.Code+": "+g.Sample+" "+g.Message, "DOWN: dial 10.0.0.1:80: refused Wait.")
	equal(t, "permanent", g.Permanent, false)
	if g.FirstAt.IsZero() || !g.FirstAt.Equal(g.LastAt) {
		t.Fatalf("times of the group: %s, %s", g.FirstAt, g.LastAt)
	}
	equal(t, "a user's", fmt.Sprint(b.groups(taskstate.Scope{UserID: "u2", Role: taskstate.RoleUser})), "map[dial <n>: refused:1/1]")
	for q, want := range map[taskstate.GroupQuery]int64{
		{KnowledgeBase: other, Limit: 5}: 1, {KnowledgeBase: newID(), Limit: 5}: 0, {KnowledgeBase: "é", Limit: 5}: 0, {ID: g.ID, Limit: 5}: 4, {ID: "00", Limit: 5}: 0,
	} {
		found, err := b.s.FailureGroups(b.ctx, taskstate.System(), q)
		b.fatalIf(err)
		var n int64
		for _, one := range found {
			n += one.Failures
		}
		equal(t, fmt.Sprint("groups of ", q), n, want)
	}

	b.due(ids...)
	b.failingAt(taskstate.Progress{Stage: "embed", Percent: 40, Processed: 2, Total: 5}, taskstate.Failure{Code: "DOWN", Cause: "dial 10.0.0.2:81: refused"}, ids[0])
	equal(t, "where it failed", b.get(ids[0]).Progress, taskstate.Progress{Stage: "embed", Percent: 40, Processed: 2, Total: 5})
	list, err = b.s.FailureGroups(b.ctx, taskstate.System(), taskstate.GroupQuery{Limit: 1})
	b.fatalIf(err)
	slices.Sort(list[0].Stages)
	equal(t, "stages of the group", fmt.Sprint(list[0].Stages), "[embed none]")
	b.sameGroups("the same again", map[string]string{"dial <n>: refused": "5/4"})
	b.failing(taskstate.Failure{Code: "ENCRYPTED", Cause: "it is encrypted", Permanent: true}, ids[1])
	b.sameGroups("for another reason", map[string]string{"dial <n>: refused": "5/3", "it is encrypted": "1/1"})
	list, err = b.s.FailureGroups(b.ctx, taskstate.System(), taskstate.GroupQuery{Limit: 1})
	b.fatalIf(err)
	equal(t, "the latest first", list[0].Cause.Code, "ENCRYPTED")
	equal(t, "permanent", list[0].Permanent, true)
	next, err := b.s.FailureGroups(b.ctx, taskstate.System(), taskstate.GroupQuery{Limit: 1, After: &taskstate.Cursor{At: list[0].LastAt, ID: list[0].ID}})
	b.fatalIf(err)
	equal(t, "the next page", len(next), 1)
	equal(t, "the next page", next[0].Cause.Code, "DOWN")

	held := b.one(ids[2], b.claiming("p1")).After
	b.sameGroups("a claim tells nothing", map[string]string{"dial <n>: refused": "5/3", "it is encrypted": "1/1"})
	b.one(ids[2], func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, t, b.holder(held), nil, "")
	})
	b.sameGroups("one was done", map[string]string{"dial <n>: refused": "5/2", "it is encrypted": "1/1"})
	user := taskstate.Actor{Kind: taskstate.ActorUser, Name: "u1"}
	b.one(ids[3], func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Cancel(m, t, user, taskstate.ReasonCancelled, "")
	})
	b.sameGroups("one was withdrawn", map[string]string{"dial <n>: refused": "5/1", "it is encrypted": "1/1"})
	for _, id := range []string{ids[1], ids[3]} {
		b.one(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Replay(m, t, user, "")
		})
	}
	b.sameGroups("both are replayed", map[string]string{"dial <n>: refused": "5/1", "it is encrypted": "1/0"})
	b.one(ids[0], func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Suspend(m, t, user, "wait")
	})
	b.sameGroups("a suspension by a person is no failure", map[string]string{"dial <n>: refused": "5/1", "it is encrypted": "1/0"})
	b.one(ids[0], func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Resume(m, t, user, "")
	})
	b.failing(taskstate.Failure{Code: "NO_MODEL", Cause: "no model", Suspend: true}, ids[0])
	b.failing(taskstate.Failure{Code: "SLOW", Cause: "429", Throttled: true}, ids[1])
	b.sameGroups("in the end", map[string]string{"dial <n>: refused": "5/0", "it is encrypted": "1/0", "no model": "1/1", "<n>": "1/1"})
	b.fatalIf(b.s.ForgetFailures(b.ctx, time.Hour))
	b.sameGroups("they are young", map[string]string{"dial <n>: refused": "5/0", "it is encrypted": "1/0", "no model": "1/1", "<n>": "1/1"})
	b.fatalIf(b.s.ForgetFailures(b.ctx, -time.Hour))
	b.sameGroups("those with a task stay", map[string]string{"no model": "1/1", "<n>": "1/1"})
}

// A failure whose transaction is undone is not counted, and many at once are counted each.
func testFailuresCounted(t *testing.T, b *bench) {
	ids := b.queued(64)
	var held []taskstate.Task
	for _, o := range b.apply(b.claiming("p1"), ids...) {
		held = append(held, o.After)
	}
	fail := func(of []taskstate.Task, hook taskstate.TransitionFunc) error {
		by := map[string]taskstate.Holder{}
		var names []string
		for _, h := range of {
			by[h.ID], names = b.holder(h), append(names, h.ID)
		}
		outs, err := b.s.Apply(b.ctx, taskstate.Batch{
			IDs: names, Scope: taskstate.System(), OnTransition: hook,
			Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Fail(b.p, m, t, by[t.ID], taskstate.Failure{Cause: "it is " + map[bool]string{true: "odd", false: "even"}[t.ID[35]%2 == 1]})
			}),
		})
		for _, o := range outs {
			err = errors.Join(err, o.Err)
		}
		return err
	}
	no := errors.New("no")
	if err := fail(held[:1], func(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision) error { return no }); !errors.Is(err, no) {
		t.Fatal(err)
	}
	b.sameGroups("nothing was written", map[string]string{})
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() { errs[i] = fail(held[8*i:8*i+8], nil) })
	}
	all.Wait()
	b.fatalIf(errors.Join(errs...))
	var failures, tasks int64
	list, err := b.s.FailureGroups(b.ctx, taskstate.System(), taskstate.GroupQuery{Limit: 10})
	b.fatalIf(err)
	for _, g := range list {
		failures, tasks = failures+g.Failures, tasks+g.Tasks
	}
	equal(t, "failures", failures, 64)
	equal(t, "tasks", tasks, 64)

	// the list of a group, its pages and filters
	for _, g := range list {
		for _, order := range []taskstate.Sort{taskstate.SortCreated, taskstate.SortCreatedDesc} {
			var got []taskstate.Task
			q := taskstate.Query{FailureGroup: g.ID, Sort: order, Limit: 7}
			for {
				page, err := b.s.List(b.ctx, taskstate.System(), q)
				b.fatalIf(err)
				got = append(got, page.Tasks...)
				if len(page.Tasks) < q.Limit {
					break
				}
				last := page.Tasks[len(page.Tasks)-1]
				q.After = &taskstate.Cursor{At: last.CreatedAt, ID: last.ID}
			}
			equal(t, "tasks of a group", int64(len(got)), g.Tasks)
			for i := 1; i < len(got); i++ {
				if up := got[i-1].ID < got[i].ID; got[i-1].CreatedAt.Equal(got[i].CreatedAt) && up != (order == taskstate.SortCreated) {
					t.Fatalf("order %s: %s before %s", order, got[i-1].ID, got[i].ID)
				}
			}
		}
		for q, want := range map[*taskstate.Query]int64{
			{FailureGroup: g.ID}: g.Tasks, {FailureGroup: g.ID, Statuses: []taskstate.Status{taskstate.StatusDead}}: 0, {FailureGroup: g.ID, UserID: "u1"}: g.Tasks,
			{FailureGroup: g.ID, UserID: "u2"}: 0, {FailureGroup: "é"}: 0, {FailureGroup: g.ID, CreatedBefore: held[0].CreatedAt.Add(-time.Hour)}: 0,
			{Error: "IT IS"}: 64, {AttemptsFrom: 1}: 64, {AttemptsFrom: 2}: 0, {AttemptsBelow: 2}: 64, {AttemptsBelow: 1}: 0, {}: 64,
		} {
			counts, err := b.s.Count(b.ctx, taskstate.System(), *q)
			b.fatalIf(err)
			var n int64
			for _, c := range counts {
				n += c
			}
			equal(t, fmt.Sprintf("count of %+v", *q), n, want)
			counts, err = b.s.Count(b.ctx, taskstate.Scope{UserID: "nobody", Role: taskstate.RoleUser}, *q)
			b.fatalIf(err)
			equal(t, "another user's count", len(counts), 0)
		}
	}
	if _, err := b.s.List(b.ctx, taskstate.System(), taskstate.Query{FailureGroup: list[0].ID, Sort: taskstate.SortUpdated, Limit: 1}); err == nil {
		t.Error("accepted an order by updatedAt")
	}
}
