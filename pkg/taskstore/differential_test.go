package taskstore_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/spec"
	"github.com/millweir/millweir/pkg/taskstore"
)

const (
	// A run ends after so many sequences if every kind of call was accepted and refused by then; otherwise it goes on.
	// With the flag -rapid.checks it runs as many as that says.
	enoughSequences = 25
	mostSequences   = 1000 // the rarest answers come in one sequence of forty
	mostTasks       = 8    // of one sequence
	stretches       = 3    // of about -rapid.steps calls each, in one sequence
)

// The tests' times are far from now, so that no decision depends on how fast a machine is.
var farPolicy = taskstate.Policy{
	BaseBackoff: time.Hour, MaxBackoff: 3 * time.Hour, Lease: time.Hour, MaxCrashes: 3, Slack: 10 * time.Minute, DLQ: true,
}

// wanted are the answers that every run must have seen, by kind of call.
var wanted = []string{
	"submit ok", "submit duplicate", "submit invalid",
	"claim claimed", "claim takeover", "claim not_due", "claim skipped", "claim busy", "claim solo", "claim reserved", "claim dead",
	"heartbeat held", "heartbeat lost", "hold held", "hold lost",
	"succeed applied", "succeed lost", "fail applied", "fail lost", "hand back applied", "hand back lost",
	"held applied", "held lost", "withdraw applied", "withdraw lost", "suspend held applied", "suspend held lost",
	"cancel applied", "cancel refused", "cancel skipped", "suspend applied", "suspend refused", "resume applied", "resume refused",
	"replay applied", "replay refused", "retry applied", "retry refused",
	"promise applied", "promise kept", "renew applied", "renew kept", "mark applied", "mark kept", "release applied", "release kept", "abandon applied", "abandon kept", "held nothing",
	"sweep claimed", "sweep none", "sweep promise", "timeline ok", "hook refused alone", "hook refused one", "time passes", "get ok", "get unknown",
}

// differential runs the same calls on a database and on the specification's table.
type differential struct {
	t     *testing.T
	s     *taskstore.Store
	seen  map[string]int
	began int  // sequences
	wrong bool // one has failed: every sequence is run now, to shrink it
	calls int
}

// The same calls, legal and illegal, are answered alike by the specification and by every database, and leave the same rows and log.
func TestDatabasesDoWhatTheSpecificationSays(t *testing.T) {
	t.Parallel()
	for name, config := range differentialDatabases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Outbox = outbox.NewWriter(dialectOf(name), outboxTopic, "ingest-workers").Write
			d := &differential{t: t, s: migrated(t, cfg), seen: map[string]int{}}
			rapid.Check(t, d.sequence)
			for !asked() && len(d.missing()) > 0 && d.began < mostSequences && !t.Failed() {
				rapid.Check(t, d.sequence)
			}
			if !asked() || d.began >= enoughSequences { // fewer, by the flag, are a short look
				require.Empty(t, d.missing(), "never seen in %d sequences", d.began)
			}
			t.Logf("%d sequences, %d calls: %v", d.began, d.calls, d.seen)
		})
	}
}

// differentialDatabases are all dialects, and MariaDB with the snapshot isolation that newer servers have by default.
func differentialDatabases() map[string]func(t *testing.T) taskstore.Config {
	out := map[string]func(t *testing.T) taskstore.Config{
		"mysql-snapshot": func(t *testing.T) taskstore.Config {
			t.Helper()
			return taskstore.Config{MySQLDSN: withSnapshots(t, labserver.MySQLDatabase(t)), MaxOpen: 8}
		},
	}
	for name, config := range labserver.Databases(databases) {
		out[name] = config
	}
	return out
}

// withSnapshots turns innodb_snapshot_isolation on in every session, where the server knows it.
func withSnapshots(t *testing.T, dsn string) string {
	t.Helper()
	s := open(t, taskstore.Config{MySQLDSN: dsn})
	var on string
	err := s.Reader().QueryRowContext(t.Context(), "SELECT @@innodb_snapshot_isolation").Scan(&on)
	if err != nil {
		t.Log("the server has no innodb_snapshot_isolation: this run is like the other on MySQL")
		return dsn
	}
	mark := "?"
	if strings.Contains(dsn, "?") {
		mark = "&"
	}
	return dsn + mark + "innodb_snapshot_isolation=ON"
}

// missing are the answers that were wanted and not seen.
func (d *differential) missing() []string {
	var out []string
	for _, w := range wanted {
		if d.seen[w] == 0 {
			out = append(out, w)
		}
	}
	return out
}

// asked reports whether the flag says how many sequences to run.
func asked() bool {
	checks := flag.Lookup("rapid.checks")
	return checks.Value.String() != checks.DefValue
}

// enough reports whether a sequence needs not be run.
func (d *differential) enough() bool {
	return !asked() && !d.wrong && d.began >= enoughSequences && len(d.missing()) == 0
}

// sequence is one random history on empty tables.
func (d *differential) sequence(rt *rapid.T) {
	if d.enough() {
		return
	}
	d.began++
	done := false
	defer func() { d.wrong = d.wrong || !done }()
	q := d.start(rt)
	calls := map[string]func(*rapid.T){
		"": q.compare, "submit": q.submit, "submit again": q.submit, "claim": q.claim, "claim again": q.claim, "claim more": q.claim,
		"finish": q.finish, "finish again": q.finish, "person": q.person, "person again": q.person,
		"keep": q.keep, "keep again": q.keep, "heartbeat": q.heartbeat, "hold": q.hold, "sweep": q.sweep, "sweep again": q.sweep, "promise": q.enqueue,
		"time": q.time, "time again": q.time, "renew": q.renew, "timeline": q.epoch, "get": q.get,
	}
	for range stretches {
		rt.Repeat(calls)
	}
	done = true
}

// sequenceRun is a sequence's state.
type sequenceRun struct {
	*differential
	ctx    context.Context
	spec   *spec.Table
	lines  []int64 // epochs so far
	owners int
	claims map[string]heldClaim   // the last one of each task, as its holder knows it
	events map[string][]time.Time // deliveries that must be in the outbox, by task: when each was promised
}

// heldClaim is a claim as its holder knows it.
type heldClaim struct {
	task  taskstate.Task
	token taskstate.Token
}

// start empties the database.
func (d *differential) start(rt *rapid.T) *sequenceRun {
	q := &sequenceRun{differential: d, ctx: d.t.Context()}
	require.NoError(rt, d.s.InTx(q.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM ingest_task_log")
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM outbox_event"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM ingest_task_state"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM ingest_task_call"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE ingest_task_count SET n = 0"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "DELETE FROM ingest_task_owner"); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "DELETE FROM ingest_task_body")
		return err
	}))
	q.events, q.claims = map[string][]time.Time{}, map[string]heldClaim{}
	m := q.moment(rt)
	q.spec, q.lines = spec.NewTable(m.Epoch), []int64{m.Epoch}
	return q
}

// moment is the database's clock.
func (q *sequenceRun) moment(rt *rapid.T) taskstate.DBClock {
	m, err := q.s.Moment(q.ctx)
	require.NoError(rt, err)
	return m
}

// saw notes an answer of a kind of call.
func (q *sequenceRun) saw(kind, answer string) {
	q.calls++
	q.seen[kind+" "+answer]++
}

// compare checks every row, the whole log, the counts and the events.
func (q *sequenceRun) compare(rt *rapid.T) {
	ids := q.spec.IDs()
	rows, err := q.s.GetMany(q.ctx, taskstate.System(), ids)
	require.NoError(rt, err)
	require.Len(rt, rows, len(ids))
	for _, row := range rows {
		require.Equal(rt, q.spec.Get(row.ID), row)
	}
	after := make(map[string]int64, len(ids))
	for _, id := range ids {
		after[id] = 0
	}
	var log []taskstate.Transition
	if len(ids) > 0 {
		log, err = q.s.TransitionsOf(q.ctx, after, 100_000)
		require.NoError(rt, err)
	}
	byTask, last := map[string][]taskstate.Transition{}, taskstate.Transition{}
	for _, tr := range log {
		require.Positive(rt, cmp.Or(cmp.Compare(tr.ID, last.ID), cmp.Compare(tr.TaskID, last.TaskID)), "order of the log")
		last, tr.ID = tr, 0
		byTask[tr.TaskID] = append(byTask[tr.TaskID], tr)
	}
	for _, id := range ids {
		require.Equal(rt, q.spec.Log(id), byTask[id])
	}
	for _, user := range append([]string{""}, users...) {
		for _, base := range bases {
			scope, want := taskstate.System(), map[taskstate.Status]int64{}
			if user != "" {
				scope = taskstate.Scope{UserID: user, Role: taskstate.RoleUser}
			}
			for _, row := range rows {
				if (user == "" || user == row.UserID) && (base == "" || base == row.KnowledgeBase) {
					want[row.Status]++
				}
			}
			counts, err := q.s.Counts(q.ctx, scope, base)
			require.NoError(rt, err)
			require.Equal(rt, want, counts, "%s %s", user, base)
		}
	}
	require.Equal(rt, q.events, eventTimes(rt, q.s))
}

// apply makes one call of Apply on both sides and compares the answers.
func (q *sequenceRun) apply(rt *rapid.T, kind string, scope taskstate.Scope, ids []string, decide decideFunc, held ...taskstate.Task) []taskstate.Outcome {
	refuse := ""
	if rapid.IntRange(0, 9).Draw(rt, "hook refuses") == 0 {
		refuse = ids[0]
	}
	locked := map[string]taskstate.DBClock{}
	outs, err := q.s.Apply(q.ctx, taskstate.Batch{
		IDs: ids, Scope: scope, Decide: remember(locked, decide), OnTransition: refusing(refuse), Held: held,
	})
	q.leases(rt)
	for i, o := range outs {
		if len(held) > 0 && o.Err == nil {
			q.refresh(&outs[i])
		}
	}
	want, ok := q.spec.Apply(ids, spec.Call{
		Scope: scope, Decide: decide, Refuse: refuse,
		Locked: func(id string) taskstate.DBClock { return locked[id] }, Written: writtenAt(outs),
	})
	if !ok {
		require.ErrorIs(rt, err, errRefused)
		q.saw("hook", "refused alone")
		return nil
	}
	require.NoError(rt, err)
	q.same(rt, want, outs, refuse)
	for _, o := range outs {
		if o.Err == nil {
			q.saw(kind, string(o.Answer))
		}
	}
	return outs
}

// refresh brings what a holder's copy does not know into an outcome: what heartbeats and the test's clock have written since
// the claim, and a change leaves alone. compare looks at the rows themselves.
func (q *sequenceRun) refresh(o *taskstate.Outcome) {
	o.Before = q.spec.Get(o.TaskID)
	if o.Change == nil {
		o.After = o.Before
		return
	}
	o.After.Progress = o.Before.Progress
	if o.Change.To == taskstate.StatusSucceeded {
		o.After.Progress.Stage, o.After.Progress.Percent = o.Change.Progress.Stage, o.Change.Progress.Percent
	}
	if o.Change.Wake.Kind == taskstate.DelayKeep {
		o.After.WakeAt = o.Before.WakeAt
	}
	if o.Change.Enqueue.Kind == taskstate.DelayKeep {
		o.After.EnqueuedAt = o.Before.EnqueuedAt
	}
}

// same compares the outcomes of a call.
func (q *sequenceRun) same(rt *rapid.T, want, got []taskstate.Outcome, refuse string) {
	require.Len(rt, got, len(want))
	for i, o := range got {
		w := want[i]
		require.Equal(rt, w.TaskID, o.TaskID, "wanted %+v, got %+v", w.Before, o.Before)
		if o.Err != nil {
			require.ErrorIs(rt, o.Err, errRefused)
			require.Equal(rt, refuse, o.TaskID)
			require.Equal(rt, w.Answer, o.Answer)
			q.saw("hook", "refused one")
			continue
		}
		require.Equal(rt, w.Answer, o.Answer, "task %s, before %+v", o.TaskID, w.Before)
		require.Equal(rt, w.Decision.Err, o.Decision.Err)
		require.Equal(rt, w.Before, o.Before)
		require.Equal(rt, w.After, o.After)
		if o.Answer == taskstate.AnswerClaimed {
			q.claims[o.TaskID] = heldClaim{o.After, taskstate.Token{Epoch: q.spec.Epoch, Fence: o.After.Fence}}
		}
		if w.Change != nil && w.Change.Deliver {
			q.events[w.TaskID] = append(q.events[w.TaskID], w.After.UpdatedAt)
		}
	}
}

// errRefused is what the hook of a call returns.
var errRefused = errors.New("the hook refuses")

// refusing is a hook that refuses a change of one task.
func refusing(id string) taskstate.TransitionFunc {
	return func(_ context.Context, _ taskstate.Tx, _ taskstate.DBClock, changed []taskstate.Decision) error {
		for _, c := range changed {
			if c.TaskID == id {
				return fmt.Errorf("task %s: %w", id, errRefused)
			}
		}
		return nil
	}
}

// remember notes when the database locked each row.
func remember(locked map[string]taskstate.DBClock, decide func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) taskstate.DecideFunc {
	return taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		locked[t.ID] = m
		return decide(m, t)
	})
}

// writtenAt returns when the database wrote each row, as the outcomes say; compare reads the rows themselves.
func writtenAt(outs []taskstate.Outcome) func(id string) time.Time {
	return func(id string) time.Time {
		i := slices.IndexFunc(outs, func(o taskstate.Outcome) bool { return o.TaskID == id })
		if i < 0 {
			return time.Time{}
		}
		return outs[i].After.UpdatedAt
	}
}
