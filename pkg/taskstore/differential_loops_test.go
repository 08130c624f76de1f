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
	"github.com/millweir/millweir/pkg/taskstore"
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
	q.leases(rt)
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
		if before.Status == taskstate.StatusRunning && before.LeaseOwner != "" {
			leave(rt, q.ctx, q.s, tx, id, past)
		}
		_, err = tx.ExecContext(ctx, "UPDATE ingest_task_call SET wake_at = ? WHERE wake_at < ? AND wake_at > ?", past, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), past) // none later than it was
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
	before := q.moment(rt)
	epoch, leases, err := q.s.RenewEpoch(q.ctx)
	require.NoError(rt, err)
	after := q.moment(rt)
	require.NotEqual(rt, before.Epoch, epoch)
	require.Equal(rt, epoch, after.Epoch)
	var at taskstate.DBTime // of the leases that had not ended
	require.NoError(rt, q.s.Reader().QueryRowContext(q.ctx, "SELECT MAX(lease_until) FROM ingest_worker").Scan(&at))
	require.False(rt, at.After(after.Now), "a lease ends at %s, later than %s", at, after.Now)
	require.Equal(rt, q.spec.RenewEpoch(epoch, at.Time), leases)
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

// leave makes a claim one of an earlier start of its process, whose lease has ended.
func leave(t require.TestingT, ctx context.Context, s *taskstore.Store, tx taskstate.Tx, id string, at time.Time) {
	key := sqldb.RawID(s.Dialect(), id)
	for _, statement := range []struct {
		text string
		args []any
	}{
		{"INSERT INTO ingest_worker (name, lease_until, created_at) SELECT w.name, ?, ? FROM ingest_worker w JOIN ingest_task_state t ON t.lease_owner >> 36 = w.no WHERE t.id = ?", []any{at, at, key}},
		{"UPDATE ingest_task_state SET lease_owner = (SELECT MAX(no) FROM ingest_worker) * 68719476736 + (lease_owner & 68719476735) WHERE id = ?", []any{key}},
	} {
		_, err := tx.ExecContext(ctx, statement.text, statement.args...)
		require.NoError(t, err)
	}
}

// renew lets a process's lease last anew, and looks at what the process holds: it gives some of that up.
func (q *sequenceRun) renew(rt *rapid.T) {
	process := rapid.SampledFrom(processes).Draw(rt, "process")
	require.NoError(rt, q.s.Renew(q.ctx, process, farPolicy.Lease, 8))
	q.leases(rt)
	held, err := q.s.Held(q.ctx, process, 24*time.Hour)
	require.NoError(rt, err)
	require.Equal(rt, q.spec.HeldBy(process), held)
	if len(held) == 0 {
		q.saw("held", "nothing")
		return
	}
	one := rapid.SampledFrom(held).Draw(rt, "held")
	if rapid.Bool().Draw(rt, "stale") {
		one.Fence--
	}
	q.apply(rt, "abandon", taskstate.System(), []string{one.TaskID}, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Abandon(m, t, one)
	})
}

// leases tells the specification until when processes have their leases: a claim may have renewed one.
func (q *sequenceRun) leases(rt *rapid.T) {
	for _, process := range processes {
		var until taskstate.DBTime
		query := "SELECT MAX(lease_until) FROM ingest_worker WHERE name = ?"
		err := q.s.Reader().QueryRowContext(q.ctx, sqldb.Rebind(sqldb.Dialect(q.s.Dialect()), query), process).Scan(&until)
		require.NoError(rt, err)
		if !until.IsZero() {
			q.spec.Renew(process, until.Time)
		}
	}
}
