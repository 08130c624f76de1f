package taskstore_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/spec"
)

// decideFunc is a pure decision.
type decideFunc = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision

// users, processes and keys of the sequences.
var (
	users     = []string{"u1", "u2"}
	processes = []string{"p1", "p2", "p3"}
	keys      = []string{"", "", "k", "K"}
	bases     = []string{"", "base-1", "base-2"}
)

// submit makes one to three tasks, sometimes with a key that is taken, sometimes one that no store keeps.
func (q *sequenceRun) submit(rt *rapid.T) {
	if len(q.spec.IDs()) >= mostTasks {
		rt.Skip("enough tasks")
	}
	var tasks []taskstate.NewTask
	for range rapid.IntRange(1, 3).Draw(rt, "tasks") {
		user := rapid.SampledFrom(users).Draw(rt, "user")
		tasks = append(tasks, taskstate.NewTask{
			Task: taskstate.Task{
				ID: uuid.Must(uuid.NewV7()).String(), UserID: user, Type: "document", Channel: "http",
				KnowledgeBase: rapid.SampledFrom(bases).Draw(rt, "base"),
				MaxAttempts:   rapid.IntRange(1, 3).Draw(rt, "max attempts"), IdempotencyKey: rapid.SampledFrom(keys).Draw(rt, "key"),
			},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: user},
		})
	}
	if rapid.IntRange(0, 9).Draw(rt, "invalid") == 0 {
		tasks[len(tasks)-1].MaxAttempts = 0
	}
	out, err := q.s.Submit(q.ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return tasks, nil })
	var at time.Time
	if err == nil {
		at = out[0].CreatedAt
	}
	want, wantErr := q.spec.Submit(at, tasks)
	switch {
	case errors.Is(wantErr, spec.ErrInvalid):
		require.Error(rt, err)
		q.saw("submit", "invalid")
	case wantErr != nil:
		require.ErrorIs(rt, err, taskstate.ErrDuplicateKey)
		q.saw("submit", "duplicate")
	default:
		require.NoError(rt, err)
		require.Equal(rt, want, out)
		for _, t := range want {
			q.events[t.ID] = append(q.events[t.ID], t.UpdatedAt)
		}
		q.saw("submit", "ok")
	}
}

// ids draws tasks for one call: known ones, and now and then one that nobody knows.
func (q *sequenceRun) ids(rt *rapid.T, most int) []string {
	known := q.spec.IDs()
	if len(known) == 0 {
		rt.Skip("no task yet")
	}
	out := rapid.SliceOfNDistinct(rapid.SampledFrom(known), 1, min(most, len(known)), rapid.ID).Draw(rt, "ids")
	if rapid.IntRange(0, 7).Draw(rt, "unknown") == 0 {
		out = append(out, "01900000-0000-7000-8000-00000000ffff")
	}
	return out
}

// inStatus is ids, mostly of tasks in a status.
func (q *sequenceRun) inStatus(rt *rapid.T, most int, status taskstate.Status) []string {
	var found []string
	for _, id := range q.spec.IDs() {
		if q.spec.Get(id).Status == status {
			found = append(found, id)
		}
	}
	if len(found) == 0 || rapid.IntRange(0, 3).Draw(rt, "any status") == 0 {
		return q.ids(rt, most)
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(found), 1, min(most, len(found)), rapid.ID).Draw(rt, "ids")
}

// owner is a lease owner's text that was never used.
func (q *sequenceRun) owner(process string) string {
	q.owners++
	return fmt.Sprintf("%s/%d", process, q.owners)
}

// token draws a claim's authority over a task: mostly the right one, else of an older fence or timeline.
func (q *sequenceRun) token(rt *rapid.T, id string) taskstate.Token {
	out := taskstate.Token{Epoch: q.spec.Epoch, Fence: q.spec.Get(id).Fence}
	switch rapid.IntRange(0, 5).Draw(rt, "token") {
	case 0:
		out.Fence--
	case 1:
		out.Fence++
	case 2:
		out.Epoch = rapid.SampledFrom(q.lines).Draw(rt, "timeline")
	}
	return out
}

// claim claims in every way that there is.
func (q *sequenceRun) claim(rt *rapid.T) {
	status := rapid.SampledFrom([]taskstate.Status{taskstate.StatusQueued, taskstate.StatusRetrying, taskstate.StatusRunning}).Draw(rt, "status")
	ids := q.inStatus(rt, 4, status)
	decide := q.claiming(rt)
	for _, o := range q.apply(rt, "claim", taskstate.System(), ids, decide) {
		if o.Answer == taskstate.AnswerClaimed && o.Before.Status == taskstate.StatusRunning {
			q.saw("claim", "takeover")
		}
	}
}

// claiming draws a claim.
func (q *sequenceRun) claiming(rt *rapid.T) decideFunc {
	flag := func(name string) bool { return rapid.Bool().Draw(rt, name) }
	process := rapid.SampledFrom(processes).Draw(rt, "process")
	req := taskstate.ClaimRequest{
		Owner: q.owner(process), Process: process, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: process},
		Delivery: rapid.SampledFrom([]string{"", "1-0", "2-0"}).Draw(rt, "delivery"),
		Takeover: flag("takeover"), Alone: flag("alone"), Reserve: flag("reserve"), Mine: flag("mine"), Held: flag("held"),
	}
	return func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Claim(farPolicy, m, t, req)
	}
}

// finish ends runs, by their holders and by those who are not.
func (q *sequenceRun) finish(rt *rapid.T) {
	ids := q.inStatus(rt, 3, taskstate.StatusRunning)
	tokens := map[string]taskstate.Token{}
	for _, id := range ids {
		tokens[id] = q.token(rt, id)
	}
	held := q.held(rt, ids)
	for _, t := range held {
		tokens[t.ID] = q.claims[t.ID].token
	}
	holder := func(t taskstate.Task) taskstate.Holder {
		return taskstate.Holder{Token: tokens[t.ID], Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p1"}}
	}
	failure := taskstate.Failure{
		Code: "X", Cause: "it broke", Message: "broken", RetryAfter: 30 * time.Minute,
		Permanent: rapid.IntRange(0, 3).Draw(rt, "permanent") == 0, Throttled: rapid.IntRange(0, 3).Draw(rt, "throttled") == 0,
		Stalled: rapid.Bool().Draw(rt, "stalled"),
	}
	ends := map[string]decideFunc{
		"succeed": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Succeed(m, t, holder(t), json.RawMessage(`{"n":1}`), "fine")
		},
		"fail": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Fail(farPolicy, m, t, holder(t), failure)
		},
		"hand back": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.HandBack(m, t, holder(t), "stop")
		},
		"withdraw": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Withdraw(m, t, holder(t), taskstate.ReasonSuperseded, "too late")
		},
		"suspend held": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Fail(farPolicy, m, t, holder(t), taskstate.Failure{Suspend: true, Code: "LOOK", Cause: "look"})
		},
	}
	end := rapid.SampledFrom([]string{"succeed", "fail", "fail", "fail", "hand back", "withdraw", "suspend held"}).Draw(rt, "end")
	for _, o := range q.apply(rt, end, taskstate.System(), ids, ends[end], held...) {
		if len(held) > 0 {
			q.saw("held", string(o.Answer))
		}
	}
}

// held are the copies that holders have of tasks, sometimes: of all or none. It sorts the ids.
func (q *sequenceRun) held(rt *rapid.T, ids []string) (out []taskstate.Task) {
	slices.Sort(ids)
	for _, id := range ids {
		c, known := q.claims[id]
		if !known {
			return nil
		}
		out = append(out, c.task)
	}
	if rapid.Bool().Draw(rt, "by their copies") {
		return out
	}
	return nil
}

// person does what users and operators ask for, in their scope.
func (q *sequenceRun) person(rt *rapid.T) {
	scope := rapid.SampledFrom([]taskstate.Scope{
		{UserID: "u1", Role: taskstate.RoleUser}, {UserID: "u2", Role: taskstate.RoleUser}, {UserID: "op", Role: taskstate.RoleOperator},
	}).Draw(rt, "scope")
	actor := scope.Actor()
	acts := map[string]decideFunc{
		"cancel": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Cancel(m, t, actor, taskstate.ReasonCancelled, "not wanted")
		},
		"suspend": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Suspend(m, t, actor, "look")
		},
		"resume": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Resume(m, t, actor, "on")
		},
		"replay": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Replay(m, t, actor, "again")
		},
		"retry": func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision { return taskstate.Retry(m, t, actor) },
	}
	act := rapid.SampledFrom([]string{"cancel", "suspend", "resume", "replay", "retry"}).Draw(rt, "act")
	ids := q.ids(rt, 3)
	if act == "resume" { // seldom answered well by chance
		ids = q.inStatus(rt, 3, taskstate.StatusSuspended)
	}
	q.apply(rt, act, scope, ids, acts[act])
}

// keep does what the loops do with single rows: promises, marks, reservations.
func (q *sequenceRun) keep(rt *rapid.T) {
	kind := rapid.SampledFrom([]string{"promise", "renew", "mark", "mark", "release"}).Draw(rt, "kind")
	status := map[string]taskstate.Status{
		"promise": taskstate.StatusQueued, "renew": taskstate.StatusQueued, "mark": taskstate.StatusDead, "release": taskstate.StatusRunning,
	}[kind]
	ids := q.inStatus(rt, 3, status)
	var decide decideFunc
	switch kind {
	case "promise":
		watermark := q.watermark(rt)
		decide = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Enqueue(farPolicy, m, t, watermark)
		}
	case "renew":
		decide = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Renew(farPolicy, m, t)
		}
	case "mark":
		tokens := map[string]taskstate.Token{}
		for _, id := range ids {
			tokens[id] = q.token(rt, id)
		}
		decide = func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.MarkDLQ(m, t, tokens[t.ID])
		}
	case "release":
		decide = q.releasing(rt)
	}
	q.apply(rt, kind, taskstate.System(), ids, decide)
}

// releasing draws a release: mostly of the reservation that is there.
func (q *sequenceRun) releasing(rt *rapid.T) decideFunc {
	right := rapid.IntRange(0, 2).Draw(rt, "owner") > 0
	return func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		owner := "p9/0"
		if right && t.LeaseOwner != "" {
			owner = t.LeaseOwner
		}
		return taskstate.Release(farPolicy, m, t, owner)
	}
}

// watermark draws a read watermark: before or after everything that has not aged.
func (q *sequenceRun) watermark(rt *rapid.T) time.Time {
	by := rapid.SampledFrom([]time.Duration{-30 * time.Minute, 30 * time.Minute}).Draw(rt, "horizon")
	return q.moment(rt).Now.Add(by)
}

// heartbeat renews leases and writes progress, of claims that hold and of others.
func (q *sequenceRun) heartbeat(rt *rapid.T) {
	var beats []taskstate.Beat
	for _, id := range q.inStatus(rt, 4, taskstate.StatusRunning) {
		t := q.spec.Get(id)
		b := taskstate.Beat{TaskID: id, Status: t.Status, Token: q.token(rt, id), Owner: t.LeaseOwner, Renew: rapid.Bool().Draw(rt, "renew")}
		if t.LeaseOwner == "" || rapid.IntRange(0, 4).Draw(rt, "stranger") == 0 {
			b.Owner = "p9/0"
		}
		waits := b.Status == taskstate.StatusQueued || b.Status == taskstate.StatusRetrying // a reservation
		if !waits || rapid.IntRange(0, 7).Draw(rt, "status") == 0 {
			b.Status = taskstate.StatusRunning
		}
		if rapid.Bool().Draw(rt, "progress") {
			b.Progress = &taskstate.Progress{Stage: "embed", Percent: rapid.IntRange(0, 99).Draw(rt, "percent"), Processed: 1, Total: 4}
		}
		beats = append(beats, b)
	}
	before := q.moment(rt).Now
	q.leases(rt)
	lost, err := q.s.Heartbeat(q.ctx, farPolicy.Lease, beats)
	require.NoError(rt, err)
	after := q.moment(rt).Now
	at := q.beatenAt(rt, beats, lost)
	if !at.IsZero() {
		require.False(rt, at.Before(before) || at.After(after), "it was written at %s, between %s and %s", at, before, after)
	}
	slices.Sort(lost)
	require.Equal(rt, q.spec.Heartbeat(at, farPolicy.Lease, beats), lost)
	if len(lost) > 0 {
		q.saw("heartbeat", "lost")
	}
	if len(lost) < len(beats) {
		q.saw("heartbeat", "held")
	}
}

// beatenAt is when the database wrote the beats, by what they changed; zero when they changed nothing.
func (q *sequenceRun) beatenAt(rt *rapid.T, beats []taskstate.Beat, lost []string) time.Time {
	for _, b := range beats {
		if slices.Contains(lost, b.TaskID) {
			continue
		}
		row, err := q.s.Get(q.ctx, taskstate.System(), b.TaskID)
		require.NoError(rt, err)
		if b.Renew && row.Status != taskstate.StatusRunning {
			return row.LeaseExpiresAt().Add(-farPolicy.Lease)
		}
		if !row.UpdatedAt.Equal(q.spec.Get(b.TaskID).UpdatedAt) {
			return row.UpdatedAt
		}
	}
	return time.Time{}
}

// hold opens the holder's transaction.
func (q *sequenceRun) hold(rt *rapid.T) {
	id := q.ids(rt, 1)[0]
	token := q.token(rt, id)
	err := taskstate.WithClaim(q.ctx, q.s, id, token, func(context.Context, taskstate.Tx, taskstate.DBClock) error { return nil })
	if q.spec.Held(id, token) {
		require.NoError(rt, err)
		q.saw("hold", "held")
		return
	}
	require.ErrorIs(rt, err, taskstate.ErrLost)
	q.saw("hold", "lost")
}
