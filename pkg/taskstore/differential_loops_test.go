package taskstore_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/spec"
)

// sweepable are the states that a sweep is drawn from: those that it can claim come often.
var sweepable = append(taskstate.Statuses(), taskstate.StatusQueued, taskstate.StatusRetrying, taskstate.StatusRunning, taskstate.StatusRunning)

// sweep claims what is due of one status, leaving out what it knows.
func (q *sequenceRun) sweep(rt *rapid.T) {
	w := taskstate.Sweep{
		Status:     rapid.SampledFrom(sweepable).Draw(rt, "status"),
		WakeBefore: taskstate.In(rapid.SampledFrom([]time.Duration{0, 0, -30 * time.Minute, 24 * time.Hour}).Draw(rt, "wake")),
		Limit:      rapid.IntRange(1, 3).Draw(rt, "limit"),
	}
	if ids := q.spec.IDs(); len(ids) > 0 && rapid.Bool().Draw(rt, "exclude") {
		w.Exclude = []string{rapid.SampledFrom(ids).Draw(rt, "excluded"), "nobody"}
	}
	for _, o := range q.swept(rt, w, q.claiming(rt)) {
		if o.Answer == taskstate.AnswerClaimed {
			q.saw("sweep", "claimed")
		}
	}
}

// enqueue adds lost deliveries again, as the read watermark sweep does.
func (q *sequenceRun) enqueue(rt *rapid.T) {
	watermark := q.watermark(rt)
	w := taskstate.Sweep{Status: taskstate.StatusQueued, Before: watermark.Add(-farPolicy.Slack), Limit: rapid.IntRange(1, 3).Draw(rt, "limit")}
	decide := func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Enqueue(farPolicy, m, t, watermark)
	}
	for _, o := range q.swept(rt, w, decide) {
		if o.Answer == taskstate.AnswerApplied {
			q.saw("sweep", "promise")
		}
	}
}

// swept makes one call of Sweep on both sides: the same rows in the same order with the same answers. Any of those that wake at
// the same moment may come first.
func (q *sequenceRun) swept(rt *rapid.T, w taskstate.Sweep, decide decideFunc) []taskstate.Outcome {
	now := q.moment(rt).Now // what was due then is due in the sweep; with rows found, they say when that was
	locked := map[string]taskstate.DBClock{}
	w.Decide = remember(locked, decide)
	outs, err := q.s.Sweep(q.ctx, w)
	require.NoError(rt, err)
	for _, m := range locked {
		now = m.Now
	}
	until, inclusive := now.Add(w.WakeBefore.In), true
	if !w.Before.IsZero() {
		until, inclusive = w.Before, false
	}
	due := q.spec.Due(w.Status, until, inclusive, len(q.spec.IDs()), w.Exclude)
	ids := slices.Clone(due[:min(len(due), w.Limit)])
	for i, o := range outs {
		if i < len(ids) && slices.Contains(due, o.TaskID) && !slices.Contains(ids[:i], o.TaskID) && q.spec.Get(o.TaskID).WakeAt.Equal(q.spec.Get(due[i]).WakeAt) {
			ids[i] = o.TaskID
		}
	}
	want, _ := q.spec.Apply(ids, spec.Call{
		Scope: taskstate.System(), Decide: decide,
		Locked: func(id string) taskstate.DBClock { return locked[id] }, Written: writtenAt(outs),
	})
	q.same(rt, want, outs, "")
	if len(outs) == 0 {
		q.saw("sweep", "none")
	}
	return outs
}

// time lets a row's times be past: leases expire, retries come due, promises age.
func (q *sequenceRun) time(rt *rapid.T) {
	ids := q.spec.IDs()
	if len(ids) == 0 {
		rt.Skip("no task yet")
	}
	id := rapid.SampledFrom(ids).Draw(rt, "id")
	past := q.moment(rt).Now.Add(-time.Hour)
	before := q.spec.Get(id)
	var columns []string
	var args []any
	for _, c := range []struct {
		name string
		at   time.Time
	}{
		{"next_retry_at", before.NextRetryAt},
		{"wake_at", before.WakeAt}, {"promised_at", before.EnqueuedAt},
	} {
		if !c.at.IsZero() {
			columns, args = append(columns, c.name+" = ?"), append(args, past)
		}
	}
	require.NoError(rt, q.s.InTx(q.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET "+strings.Join(columns, ", ")+" WHERE id = ?", append(args, sqldb.RawID(q.s.Dialect(), id))...)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ? WHERE wake_at < ?", past, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		return err
	}))
	q.spec.Age(id, past)
	q.saw("time", "passes")
}

// epoch starts a new history, seldom.
func (q *sequenceRun) epoch(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "renew") != 0 {
		rt.Skip("not now")
	}
	var running []string
	for _, id := range q.spec.IDs() {
		if q.spec.Get(id).Status == taskstate.StatusRunning {
			running = append(running, id)
		}
	}
	before := q.moment(rt)
	epoch, leases, err := q.s.RenewEpoch(q.ctx)
	require.NoError(rt, err)
	after := q.moment(rt)
	require.NotEqual(rt, before.Epoch, epoch)
	require.Equal(rt, epoch, after.Epoch)
	at := before.Now
	if len(running) > 0 {
		row, err := q.s.Get(q.ctx, taskstate.System(), running[0])
		require.NoError(rt, err)
		at = row.LeaseExpiresAt()
		require.False(rt, at.Before(before.Now) || at.After(after.Now), "leases ended at %s, between %s and %s", at, before.Now, after.Now)
	}
	require.Equal(rt, q.spec.RenewEpoch(epoch, at), leases)
	q.lines = append(q.lines, epoch)
	q.saw("timeline", "ok")
}

// get reads one task in a scope: foreign and unknown look the same.
func (q *sequenceRun) get(rt *rapid.T) {
	id := q.ids(rt, 1)[0]
	scope := taskstate.Scope{UserID: rapid.SampledFrom(users).Draw(rt, "user"), Role: taskstate.RoleUser}
	want := q.spec.Get(id)
	row, err := q.s.Get(q.ctx, scope, id)
	if want.UserID != scope.UserID {
		require.ErrorIs(rt, err, taskstate.ErrNotFound)
		q.saw("get", "unknown")
		return
	}
	require.NoError(rt, err)
	require.Equal(rt, want, row)
	counts, err := q.s.Counts(q.ctx, scope, "")
	require.NoError(rt, err)
	require.Equal(rt, q.spec.Counts(scope), counts)
	q.saw("get", "ok")
}
