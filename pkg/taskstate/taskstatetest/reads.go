package taskstatetest

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

func testSweep(t *testing.T, b *bench) {
	ids := b.queued(6)
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	for i, id := range ids {
		b.set(id, "wake_at = ?", m.Now.Add(-time.Duration(len(ids)-i)*time.Hour))
	}
	kept := taskstate.Each(func(_ taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
	})
	found := func(s taskstate.Sweep) []string {
		t.Helper()
		s.Status, s.Decide = taskstate.StatusQueued, kept
		out, err := b.s.Sweep(b.ctx, s)
		b.fatalIf(err)
		var got []string
		for _, o := range out {
			got = append(got, o.TaskID)
		}
		return got
	}
	equal(t, "all, oldest first", fmt.Sprint(found(taskstate.Sweep{Limit: 10, WakeBefore: taskstate.In(0)})), fmt.Sprint(ids))
	equal(t, "limit", fmt.Sprint(found(taskstate.Sweep{Limit: 2, WakeBefore: taskstate.In(0)})), fmt.Sprint(ids[:2]))
	equal(t, "looking back", fmt.Sprint(found(taskstate.Sweep{Limit: 9, WakeBefore: taskstate.In(-150 * time.Minute)})), fmt.Sprint(ids[:4]))
	equal(t, "before", fmt.Sprint(found(taskstate.Sweep{Limit: 9, Before: m.Now.Add(-5 * time.Hour)})), fmt.Sprint(ids[:1]))
	equal(t, "exclude", fmt.Sprint(found(taskstate.Sweep{Limit: 2, Exclude: ids[:3], WakeBefore: taskstate.In(0)})), fmt.Sprint(ids[3:5]))
	equal(t, "no limit, no rows", len(found(taskstate.Sweep{})), 0)

	out, err := b.s.Sweep(b.ctx, taskstate.Sweep{
		Status: taskstate.StatusQueued, Limit: 3, WakeBefore: taskstate.In(0), Decide: taskstate.Each(b.claiming("p1")),
	})
	b.fatalIf(err)
	for i, o := range out {
		equal(t, "claimed in order", o.TaskID, ids[i])
		equal(t, "answer", o.Answer, taskstate.AnswerClaimed)
		b.same(o.After)
	}
	equal(t, "the rest", fmt.Sprint(found(taskstate.Sweep{Limit: 10, WakeBefore: taskstate.In(0)})), fmt.Sprint(ids[3:]))
}

func testLists(t *testing.T, b *bench) {
	ids := b.queued(25)
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	for i, id := range ids {
		at := m.Now.Add(-time.Duration(i/3) * time.Second) // ties in threes
		b.write("UPDATE ingest_task_body SET created_at = ? WHERE id = ?", at, id)
		b.changedAt(id, at.Add(time.Duration(i%2)*time.Minute))
	}
	all, err := b.s.GetMany(b.ctx, taskstate.System(), ids)
	b.fatalIf(err)
	keys := map[taskstate.Sort]func(t taskstate.Task) time.Time{
		taskstate.SortCreated:     func(t taskstate.Task) time.Time { return t.CreatedAt },
		taskstate.SortCreatedDesc: func(t taskstate.Task) time.Time { return t.CreatedAt },
		taskstate.SortUpdated:     func(t taskstate.Task) time.Time { return t.UpdatedAt },
		taskstate.SortUpdatedDesc: func(t taskstate.Task) time.Time { return t.UpdatedAt },
	}
	for order, key := range keys {
		want := append([]taskstate.Task(nil), all...)
		sort.Slice(want, func(i, j int) bool {
			a, z := want[i], want[j]
			if order[0] == '-' {
				a, z = z, a
			}
			return key(a).Before(key(z)) || (key(a).Equal(key(z)) && a.ID < z.ID)
		})
		for _, scope := range []taskstate.Scope{taskstate.System(), {UserID: "u1", Role: taskstate.RoleUser}} {
			var got []taskstate.Task
			q := taskstate.Query{Sort: order, Limit: 4}
			for {
				page, err := b.s.List(b.ctx, scope, q)
				b.fatalIf(err)
				got = append(got, page.Tasks...)
				if len(page.Tasks) < q.Limit {
					break
				}
				last := page.Tasks[len(page.Tasks)-1]
				q.After = &taskstate.Cursor{At: key(last), ID: last.ID}
			}
			equal(t, string(order)+" rows", len(got), len(want))
			for i := range want {
				equal(t, string(order), got[i].ID, want[i].ID)
			}
		}
	}
	for _, bad := range []taskstate.Query{{Limit: 0}, {Limit: 201}, {Limit: 5, Sort: "id; DROP TABLE ingest_task"}} {
		if _, err := b.s.List(b.ctx, taskstate.System(), bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

func testFilters(t *testing.T, b *bench) {
	a, c := newTask(), newTask()
	named := newID() // of no task
	a.KnowledgeBase, a.DocumentID, a.FilePath = newID(), newID(), "Reports/100%_Done!"+named+".pdf"
	c.KnowledgeBase, c.FilePath = newID(), "other/1000 done.pdf"
	c.Payload = []byte(`{"n":1,"fileName":"R\u0026D \"Übersicht\".txt","mediaType":"text/x-special"}`)
	b.submit(a, c)
	now := b.one(a.ID, b.claiming("p1")).After
	b.one(a.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(b.p, m, t, b.holder(now), taskstate.Failure{Code: "DOWN", Cause: "Connection REFUSED by peer"})
	})
	now = b.get(a.ID)
	past, future := now.CreatedAt.Add(-time.Hour), now.UpdatedAt.Add(time.Hour)
	for name, tt := range map[string]struct {
		q    taskstate.Query
		want string
	}{
		"status":          {taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusRetrying, taskstate.StatusDead}}, a.ID},
		"other status":    {taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusQueued}}, c.ID},
		"base":            {taskstate.Query{KnowledgeBase: c.KnowledgeBase}, c.ID},
		"document":        {taskstate.Query{DocumentID: a.DocumentID}, a.ID},
		"stage":           {taskstate.Query{Stage: "embed"}, ""},
		"user":            {taskstate.Query{UserID: "u1", Statuses: []taskstate.Status{taskstate.StatusQueued}}, c.ID},
		"other user":      {taskstate.Query{UserID: "é"}, ""},
		"type":            {taskstate.Query{Type: "document", Text: "other"}, c.ID},
		"other type":      {taskstate.Query{Type: "ünknown"}, ""},
		"workflow":        {taskstate.Query{Workflow: "w"}, ""},
		"code":            {taskstate.Query{Code: "DOWN"}, a.ID},
		"no code":         {taskstate.Query{Code: "É"}, ""},
		"error":           {taskstate.Query{Error: "connection refused"}, a.ID},
		"error wildcard":  {taskstate.Query{Error: "%"}, ""},
		"file":            {taskstate.Query{FileName: "ÜBERS"}, c.ID},
		"file name alone": {taskstate.Query{FileName: `R&D "Üb`}, c.ID},
		"attempts":        {taskstate.Query{AttemptsFrom: 1, AttemptsBelow: 2}, a.ID},
		"no attempts":     {taskstate.Query{AttemptsBelow: 1}, c.ID},
		"failure group":   {taskstate.Query{FailureGroup: taskstate.CauseOf("DOWN", "Connection REFUSED by peer").Group()}, a.ID},
		"other group":     {taskstate.Query{FailureGroup: taskstate.CauseOf("", "Connection REFUSED by peer").Group()}, ""},
		"text in path":    {taskstate.Query{Text: "100%_done!"}, a.ID},
		"file name":       {taskstate.Query{Text: `r&d "Üb`}, c.ID},
		"beside a name":   {taskstate.Query{Text: "x-special"}, ""},
		"text in error":   {taskstate.Query{Text: "refused"}, a.ID},
		"text in id":      {taskstate.Query{Text: c.ID[4:20]}, c.ID},
		"an id":           {taskstate.Query{Text: strings.ToUpper(c.ID)}, c.ID},
		"an id elsewhere": {taskstate.Query{Text: c.ID, KnowledgeBase: a.KnowledgeBase}, ""},
		"an id in a path": {taskstate.Query{Text: named}, a.ID},
		"wildcard alone":  {taskstate.Query{Text: "%_"}, a.ID},
		"injection":       {taskstate.Query{Text: "' OR 1=1 --"}, ""},
		"created after":   {taskstate.Query{CreatedAfter: past, Text: "other"}, c.ID},
		"created later":   {taskstate.Query{CreatedAfter: future}, ""},
		"created before":  {taskstate.Query{CreatedBefore: past}, ""},
		"updated after":   {taskstate.Query{UpdatedAfter: now.UpdatedAt.Add(-time.Microsecond)}, a.ID},
		"updated before":  {taskstate.Query{UpdatedBefore: now.UpdatedAt}, c.ID},
		"all of them":     {taskstate.Query{KnowledgeBase: a.KnowledgeBase, Text: "refused", UpdatedAfter: past, CreatedBefore: future}, a.ID},
		"nothing matches": {taskstate.Query{KnowledgeBase: a.KnowledgeBase, DocumentID: c.ID}, ""},
	} {
		tt.q.Limit = 10
		got, err := b.s.List(b.ctx, taskstate.System(), tt.q)
		b.fatalIf(err)
		ids := ""
		for _, g := range got.Tasks {
			ids += g.ID
		}
		equal(t, name, ids, tt.want)
		if got.More != nil {
			t.Errorf("%s: few tasks, and the list has more", name)
		}
	}
}

// testPace follows the tasks of a base beside those of another, before and after their calls are counted.
func testPace(t *testing.T, b *bench) {
	base, other := newID(), newID()
	var ids []string
	for n := range 7 {
		one := newTask()
		if one.KnowledgeBase = base; n == 0 || n > 4 {
			one.KnowledgeBase = other
		}
		b.submit(one)
		ids = append(ids, one.ID)
	}
	pace := func(s taskstate.Scope, base string) taskstate.Pace {
		t.Helper()
		p, err := b.s.Pace(b.ctx, s, base, time.Hour)
		b.fatalIf(err)
		return p
	}
	stages := func(want string) {
		t.Helper()
		equal(t, "stages", fmt.Sprint(pace(taskstate.System(), base).Stages), want)
	}
	p := pace(taskstate.System(), base)
	equal(t, "the oldest of the base", p.Oldest.Equal(b.get(ids[1]).CreatedAt), true)
	equal(t, "ended", p.Ended, 0)
	equal(t, "nobody can say", p.Left(4), 0)
	equal(t, "took", p.TookAt(95), 0)
	var held []taskstate.Task
	for _, id := range ids[:4] {
		held = append(held, b.one(id, b.claiming("p1")).After)
	}
	stages("map[none:3]")
	h := b.holder(held[2])
	lost, err := b.s.Heartbeat(b.ctx, b.p.Lease, []taskstate.Beat{{
		TaskID: held[2].ID, Status: taskstate.StatusRunning, Token: h.Token, Owner: held[2].LeaseOwner, Progress: &taskstate.Progress{Stage: "embed", Percent: 40, Processed: 4, Total: 10},
	}})
	b.fatalIf(err)
	equal(t, "lost", len(lost), 0)
	stages("map[embed:1 none:2]")
	equal(t, "stages of all", fmt.Sprint(pace(taskstate.System(), "").Stages), "map[embed:1 none:3]")
	equal(t, "stages of nobody", len(pace(taskstate.Scope{UserID: "nobody", Role: taskstate.RoleUser}, base).Stages), 0)
	for n, id := range ids[:2] {
		b.one(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Succeed(m, t, b.holder(held[n]), nil, "done")
		})
	}
	for _, when := range []string{"at once", "counted"} {
		p = pace(taskstate.System(), base)
		equal(t, "the oldest left, "+when, p.Oldest.Equal(b.get(ids[2]).CreatedAt), true)
		equal(t, "ended of the base, "+when, p.Ended, 1)
		equal(t, "ended of all, "+when, pace(taskstate.System(), "").Ended, 2)
		equal(t, "a pace, "+when, p.PerMinute(), 6)
		equal(t, "left, "+when, p.Left(3), 30*time.Second)
		equal(t, "took, "+when, len(p.Took), 1)
		done := b.get(ids[1])
		equal(t, "took, "+when, p.TookAt(50), done.UpdatedAt.Sub(done.CreatedAt))
		equal(t, "all took, "+when, len(pace(taskstate.System(), "").Took), 2)
		_, _, err := b.s.Due(b.ctx, 100)
		b.fatalIf(err)
	}
	stages("map[embed:1 none:1]")
	for _, id := range ids[1:] {
		b.one(id, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "x"}, taskstate.ReasonCancelled, "")
		})
	}
	p = pace(taskstate.System(), base)
	equal(t, "none is left", p.Oldest.IsZero() && len(p.Stages) == 0, true)
	equal(t, "who was cancelled did not end by itself", p.Ended, 1)
}

// countHostile counts the tasks of users whose names are parts of each other, or would be read as something else, before their calls
// are counted and after.
func countHostile(t *testing.T, b *bench, base string) {
	users := []string{"hostile", "Hostile", "hostile%", "host_le", `host\ile`, `host"ile`, `x","base":"`, "höstile", "<hostile>", "'; --", strings.Repeat("𝄞", 190)}
	var tasks []taskstate.NewTask
	for n, user := range users {
		for i := range n + 1 {
			one := newTask()
			if one.UserID = user; i == 0 {
				one.KnowledgeBase = base
			}
			tasks = append(tasks, one)
		}
	}
	b.submit(tasks...)
	check := func(what, want, inBase string) {
		t.Helper()
		for n, user := range users {
			scope := taskstate.Scope{UserID: user, Role: taskstate.RoleUser}
			all, err := b.s.Counts(b.ctx, scope, "")
			b.fatalIf(err)
			equal(t, what+" of "+user, fmt.Sprint(all), fmt.Sprintf(want, n+1))
			among, err := b.s.Count(b.ctx, taskstate.System(), taskstate.Query{UserID: user, KnowledgeBase: base})
			b.fatalIf(err)
			equal(t, what+" in a base of "+user, fmt.Sprint(among), inBase)
		}
	}
	check("waking", "map[QUEUED:%d]", "map[QUEUED:1]")
	for _, one := range tasks {
		b.one(one.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, taskstate.Actor{Kind: taskstate.ActorUser, Name: "x"}, taskstate.ReasonCancelled, "")
		})
	}
	check("cancelled", "map[CANCELLED:%d]", "map[CANCELLED:1]")
	_, _, err := b.s.Due(b.ctx, 100) // which counts calls that wake no more
	b.fatalIf(err)
	check("counted", "map[CANCELLED:%d]", "map[CANCELLED:1]")
}

// testCountsOfFilters compares counts with what lists have, while tasks of a status are few, some and nearly all: a store may count them
// in different ways.
func testCountsOfFilters(t *testing.T, b *bench) {
	statuses := []taskstate.Status{taskstate.StatusDead, taskstate.StatusRetrying, taskstate.StatusSuspended}
	for round, n := range []int{1, 12, 80} {
		var tasks []taskstate.NewTask
		for i := range n {
			one := newTask()
			one.UserID = []string{"u1", "u2"}[i%2]
			tasks = append(tasks, one)
		}
		b.submit(tasks...)
		for i, task := range tasks {
			held := b.one(task.ID, b.claiming("p1")).After
			by, failure := b.holder(held), taskstate.Failure{Cause: []string{"refused", "broken", "Refused again"}[i%3]}
			failure.Permanent, failure.Suspend = round == 0, round == 1
			b.one(task.ID, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Fail(b.p, m, t, by, failure)
			})
		}
		for _, of := range [][]taskstate.Status{nil, statuses[:1], statuses[1:2], statuses[2:], statuses[:2], statuses} {
			for _, q := range []taskstate.Query{{Error: "REFUSED"}, {Error: "nowhere"}, {Error: "refused", UserID: "u2"}, {AttemptsFrom: 1}, {Stage: "x"}, {Type: "document"}} {
				for _, scope := range []taskstate.Scope{taskstate.System(), {UserID: "u1", Role: taskstate.RoleUser}} {
					q.Statuses, q.Sort, q.Limit = of, taskstate.SortCreated, 200
					page, err := b.s.List(b.ctx, scope, q)
					b.fatalIf(err)
					want := map[taskstate.Status]int64{}
					for _, one := range page.Tasks {
						want[one.Status]++
					}
					got, err := b.s.Count(b.ctx, scope, q)
					b.fatalIf(err)
					equal(t, fmt.Sprintf("count of %+v in %+v after round %d", q, scope, round), fmt.Sprint(got), fmt.Sprint(want))
				}
			}
		}
	}
}

func testCounts(t *testing.T, b *bench) {
	n, oldest, err := b.s.Due(b.ctx, 100)
	b.fatalIf(err)
	equal(t, "due of nothing", n, 0)
	equal(t, "age of nothing", oldest, 0)
	next, err := b.s.NextWake(b.ctx, taskstate.StatusRunning, time.Minute)
	b.fatalIf(err)
	equal(t, "no row", next, time.Minute)

	ids := b.queued(4)
	withBase := newTask()
	withBase.KnowledgeBase = newID()
	b.submit(withBase)
	running := b.one(ids[0], b.claiming("p1")).After
	h := b.holder(b.one(ids[1], b.claiming("p1")).After)
	b.one(ids[1], func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Fail(b.p, m, t, h, taskstate.Failure{Cause: "x"})
	})
	counts, err := b.s.Counts(b.ctx, taskstate.System(), "")
	b.fatalIf(err)
	equal(t, "counts", fmt.Sprint(counts), "map[QUEUED:3 RETRYING:1 RUNNING:1]")
	counts, err = b.s.Counts(b.ctx, taskstate.System(), withBase.KnowledgeBase)
	b.fatalIf(err)
	equal(t, "counts of a base", fmt.Sprint(counts), "map[QUEUED:1]")
	countHostile(t, b, withBase.KnowledgeBase)

	due := func(limit int) int64 {
		t.Helper()
		n, _, err := b.s.Due(b.ctx, limit)
		b.fatalIf(err)
		return n
	}
	equal(t, "queued only", due(100), 3)
	equal(t, "bounded", due(2), 2)
	b.expire(running.ID)
	equal(t, "an expired lease", due(100), 4)
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	b.set(ids[1], "next_retry_at = ?, wake_at = ?", m.Now.Add(-time.Hour), m.Now.Add(-time.Hour))
	equal(t, "a due retry", due(100), 5)
	_, oldest, err = b.s.Due(b.ctx, 100)
	b.fatalIf(err)
	if oldest < time.Hour || oldest > time.Hour+5*time.Minute {
		t.Fatalf("oldest is %s, want about an hour", oldest)
	}
	next, err = b.s.NextWake(b.ctx, taskstate.StatusRetrying, time.Minute)
	b.fatalIf(err)
	if next > -time.Hour {
		t.Fatalf("next wake in %s, want an hour ago", next)
	}
	b.set(ids[1], "wake_at = ?", m.Now.Add(30*time.Minute))
	next, err = b.s.NextWake(b.ctx, taskstate.StatusRetrying, time.Hour)
	b.fatalIf(err)
	if next > 30*time.Minute || next < 0 {
		t.Fatalf("next wake in %s, want at most 30m", next)
	}
	b.fatalIf(b.s.Ping(b.ctx))
}

func testLogs(t *testing.T, b *bench) {
	ids := b.queued(3)
	b.apply(b.claiming("p1"), ids...)
	first := b.log(ids[0])
	after := map[string]int64{ids[0]: first[0].ID, ids[1]: 0, newID(): 0, "no id\x00": 0}
	got, err := b.s.TransitionsOf(b.ctx, after, 100)
	b.fatalIf(err)
	equal(t, "rows", len(got), 3)
	for i := 1; i < len(got); i++ {
		if got[i].ID < got[i-1].ID || got[i].ID == got[i-1].ID && got[i].TaskID <= got[i-1].TaskID {
			t.Fatal("not oldest first")
		}
	}
	got, err = b.s.TransitionsOf(b.ctx, after, 2)
	b.fatalIf(err)
	equal(t, "limit", len(got), 2)
	got, err = b.s.TransitionsOf(b.ctx, nil, 10)
	b.fatalIf(err)
	equal(t, "none", len(got), 0)
	page, err := b.s.Transitions(b.ctx, taskstate.System(), ids[0], first[0].ID, 1)
	b.fatalIf(err)
	equal(t, "page", page[0].ID, first[1].ID)
}

// testChanges reads the log of all tasks by calls.
func testChanges(t *testing.T, b *bench) {
	none, err := b.s.FirstCall(b.ctx, time.Time{})
	b.fatalIf(err)
	equal(t, "no call", none, 0)
	ids := b.queued(600) // more than one statement reads
	b.apply(b.claiming("p1"), ids...)
	last := b.queued(1)[0]
	first, err := b.s.FirstCall(b.ctx, time.Time{})
	b.fatalIf(err)
	all, err := b.s.CallNumbers(b.ctx, []taskstate.Span{{First: 0, Last: math.MaxInt64}}, 10_000)
	b.fatalIf(err)
	equal(t, "the first call", all[0], first)
	equal(t, "calls are sorted", slices.IsSorted(all), true)
	got, err := b.s.Changes(b.ctx, all)
	b.fatalIf(err)
	equal(t, "changes", len(got), 2*len(ids)+1)
	for i := 1; i < len(got); i++ {
		if got[i].ID < got[i-1].ID || got[i].ID == got[i-1].ID && got[i].TaskID <= got[i-1].TaskID {
			t.Fatal("not in the order of the calls and tasks")
		}
	}
	logs := map[string][]taskstate.Transition{}
	for _, one := range got {
		logs[one.TaskID] = append(logs[one.TaskID], one)
	}
	for _, id := range append(ids, last) {
		if !slices.Equal(logs[id], b.log(id)) {
			t.Fatalf("task %s: %v is not its log", id, logs[id])
		}
	}
	end := got[len(got)-1]
	two, err := b.s.CallNumbers(b.ctx, []taskstate.Span{{First: first, Last: first}, {First: end.ID, Last: end.ID + 5}}, 10)
	b.fatalIf(err)
	equal(t, "calls of two spans", fmt.Sprint(two), fmt.Sprint([]int64{first, end.ID}))
	two, err = b.s.CallNumbers(b.ctx, []taskstate.Span{{First: first, Last: end.ID}}, 1)
	b.fatalIf(err)
	equal(t, "limit", fmt.Sprint(two), fmt.Sprint([]int64{first}))
	two, err = b.s.CallNumbers(b.ctx, nil, 10)
	b.fatalIf(err)
	equal(t, "no span", len(two), 0)
	got, err = b.s.Changes(b.ctx, []int64{end.ID, end.ID + 5})
	b.fatalIf(err)
	equal(t, "of a call that is there and one that is not", len(got), 1)
	equal(t, "its task", got[0].TaskID, last)
	no, err := b.s.FirstCall(b.ctx, end.CreatedAt)
	b.fatalIf(err)
	equal(t, "the call of a time", no, end.ID)
	no, err = b.s.FirstCall(b.ctx, end.CreatedAt.Add(time.Microsecond))
	b.fatalIf(err)
	equal(t, "no later call", no, 0)
}
