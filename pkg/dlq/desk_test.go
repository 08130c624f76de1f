package dlq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestDeadLettersAreListedWithWhatTheirRowsSay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.service(nil)
	first, firstID := w.dead("embed: connection refused")
	raw := w.raw()
	unknown := w.deadLetter("0190a6e0-0000-7000-8000-999999999999", 3, "gone", time.Now())
	replayed, replayedID := w.dead("extract: corrupt")
	_, err := w.app.Retry(t.Context(), w.caller, replayed.ID)
	require.NoError(t, err)
	deleted, deletedID := w.dead("extract: corrupt")
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, deleted.DocumentID))
	again, againID := w.dead("first death")
	_, err = w.app.Retry(t.Context(), w.caller, again.ID)
	require.NoError(t, err)
	w.kill(again.ID, "second death")

	deadLetters, next, err := d.List(t.Context(), dlq.Query{}, nil, 50)
	require.NoError(t, err)
	require.Nil(t, next)
	got := map[string]dlq.DeadLetter{}
	var order []string
	for _, l := range deadLetters {
		got[l.ID] = l
		order = append(order, l.ID)
		require.Equal(t, dlq.SourceRedis, l.Source)
	}
	require.Equal(t, []string{againID, deletedID, replayedID, unknown, raw, firstID}, order, "the newest first")
	require.Empty(t, got[firstID].Why)
	require.Equal(t, taskstate.StatusDead, got[firstID].Status)
	require.Equal(t, first.Fence, got[firstID].RowFence)
	for id, want := range map[string]dlq.Reason{
		raw: dlq.ReasonUnreadable, unknown: dlq.ReasonGone, replayedID: dlq.ReasonState, deletedID: dlq.ReasonDeleted, againID: dlq.ReasonState,
	} {
		require.Equal(t, want, got[id].Reason, id)
		require.NotEmpty(t, got[id].Why, id)
		one, err := d.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, got[id], one)
	}
	require.Contains(t, got[againID].Why, "died again")
	require.Equal(t, map[string]string{"what": "ever"}, got[raw].Raw)

	for name, c := range map[string]struct {
		q    dlq.Query
		want []string
	}{
		"task":     {dlq.Query{Task: first.ID}, []string{firstID}},
		"text":     {dlq.Query{Text: "CORRUPT"}, []string{deletedID, replayedID}},
		"after":    {dlq.Query{FailedAfter: deleted.UpdatedAt}, []string{againID}},
		"before":   {dlq.Query{FailedBefore: first.UpdatedAt.Add(time.Microsecond)}, []string{firstID}},
		"no match": {dlq.Query{Text: "nothing of that"}, nil},
	} {
		deadLetters, _, err := d.List(t.Context(), c.q, nil, 50)
		require.NoError(t, err, name)
		var ids []string
		for _, l := range deadLetters {
			ids = append(ids, l.ID)
		}
		require.Equal(t, c.want, ids, name)
	}
	stats, err := d.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, dlq.Stats{Source: dlq.SourceRedis, Entries: 6, Dead: 3}, stats)
	_, err = d.Get(t.Context(), "1-1")
	require.ErrorIs(t, err, dlq.ErrNotFound)
}

// A page is never more than its limit, none comes twice, and what a call may look at is bounded.
func TestListsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 4203 {
		w.deadLetter("0190a6e0-0000-7000-8000-999999999999", int64(i), "gone", time.Now())
	}
	d := w.service(nil)
	seen := map[string]bool{}
	pages := 0
	for after, more := (*dlq.Cursor)(nil), true; more; pages++ {
		page, next, err := d.List(t.Context(), dlq.Query{}, after, 100)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 100)
		for _, l := range page {
			require.False(t, seen[l.ID])
			seen[l.ID] = true
		}
		after, more = next, next != nil
	}
	require.Len(t, seen, 4203)
	require.Equal(t, 43, pages)
	page, next, err := d.List(t.Context(), dlq.Query{Text: "nothing of that"}, nil, 100)
	require.NoError(t, err)
	require.Empty(t, page)
	require.NotNil(t, next, "4,000 are enough for one call")
	_, next, err = d.List(t.Context(), dlq.Query{Text: "nothing of that"}, next, 100)
	require.NoError(t, err)
	require.Nil(t, next)
}

func TestAReplayIsDoneOnceAndRemovesItsEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.service(nil)
	task, id := w.dead("refused")
	after, err := d.Replay(t.Context(), w.caller, id)
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusQueued, after.Status)
	require.Zero(t, after.AttemptCount)
	require.Zero(t, w.entries())
	_, err = d.Replay(t.Context(), w.caller, id)
	require.ErrorIs(t, err, dlq.ErrNotFound)

	// The same by the row's name, which is no entry: the second asks in vain.
	row := dlq.RowID(task.ID, task.Fence)
	_, err = d.Replay(t.Context(), w.caller, row)
	var state *dlq.StateError
	require.ErrorAs(t, err, &state)
	require.Equal(t, taskstate.StatusQueued, state.Status)
	require.Equal(t, taskstate.StatusQueued, w.status(task.ID))
	log, err := w.store.Transitions(t.Context(), taskstate.System(), task.ID, 0, 50)
	require.NoError(t, err)
	require.Equal(t, "replayed from the dead letter queue", log[len(log)-1].Message[:len("replayed from the dead letter queue")])
	require.Equal(t, taskstate.ReasonReplayed, log[len(log)-1].Reason)
}

// The entry is all that is left of a death until its row says QUEUED: it goes after that, never before.
func TestAnEntryGoesAfterItsRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	task, id := w.dead("refused")
	var found []taskstate.Status
	reader := &rebook{DeadLetterReader: w.reader, drop: func() error { found = append(found, w.status(task.ID)); return nil }}
	_, err := w.service(func(deps *dlq.Deps) { deps.Reader = reader }).Replay(t.Context(), w.caller, id)
	require.NoError(t, err)
	require.Equal(t, []taskstate.Status{taskstate.StatusQueued}, found)
}

// The process may die, or Redis go away, between the row and the entry: the repeat answers 409 and tidies up.
func TestAnEntryThatStayedIsRemovedByTheRepeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	down := errors.New("redis is away")
	reader := &rebook{DeadLetterReader: w.reader, drop: func() error { return down }}
	task, id := w.dead("refused")
	d := w.service(func(deps *dlq.Deps) { deps.Reader = reader })
	_, err := d.Replay(t.Context(), w.caller, id)
	require.NoError(t, err, "the row was replayed: that is what counts")
	require.EqualValues(t, 1, w.entries())
	reader.drop = func() error { return nil }
	_, err = d.Replay(t.Context(), w.caller, id)
	var state *dlq.StateError
	require.ErrorAs(t, err, &state)
	require.Zero(t, w.entries())
	require.Equal(t, taskstate.StatusQueued, w.status(task.ID))
}

// A dead letter of a fence that the row has not reached is of another life of the database: it is kept.
func TestDeadLettersThatCannotBeReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.service(nil)
	task, id := w.dead("refused")
	later := w.deadLetter(task.ID, task.Fence+4, "after a restore", time.Now())
	var state *dlq.StateError
	_, err := d.Replay(t.Context(), w.caller, later)
	require.ErrorAs(t, err, &state)
	require.EqualValues(t, 2, w.entries())
	_, err = d.Replay(t.Context(), w.caller, w.raw())
	require.ErrorIs(t, err, dlq.ErrUnreadable)
	_, err = d.Replay(t.Context(), w.caller, w.deadLetter("0190a6e0-0000-7000-8000-999999999999", 1, "gone", time.Now()))
	require.ErrorIs(t, err, taskstate.ErrNotFound)
	require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, task.DocumentID))
	_, err = d.Replay(t.Context(), w.caller, id)
	require.ErrorIs(t, err, ingest.ErrDocumentDeleted)
	require.EqualValues(t, 4, w.entries(), "none of them is gone")
	for _, bad := range []string{"", "x", "1-1", dlq.RowID(task.ID, task.Fence+1), dlq.RowID("0190a6e0-0000-7000-8000-999999999999", 1)} {
		_, err = d.Replay(t.Context(), w.caller, bad)
		require.ErrorIs(t, err, dlq.ErrNotFound, bad)
	}
}

func TestBulkReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.service(nil)
	var tasks []taskstate.Task
	for range 7 {
		task, _ := w.dead("refused")
		tasks = append(tasks, task)
	}
	w.raw()
	w.deadLetter(tasks[3].ID, tasks[3].Fence, "the same death, written twice", time.Now())
	w.deadLetter("0190a6e0-0000-7000-8000-999999999999", 1, "gone", time.Now())
	_, err := w.app.Retry(t.Context(), w.caller, tasks[0].ID)
	require.NoError(t, err)
	skipped := map[dlq.Reason]int{dlq.ReasonUnreadable: 1, dlq.ReasonState: 2, dlq.ReasonGone: 1}

	dry, err := d.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{Limit: 100, PerSecond: 100, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, 7, dry.Done, "it counts the second letter of a death")
	require.EqualValues(t, 10, w.entries())
	require.Equal(t, taskstate.StatusDead, w.status(tasks[1].ID))

	// In steps of four dead letters, two a second.
	total := dlq.Result{Skipped: map[dlq.Reason]int{}}
	calls := 0
	for b := (dlq.Bulk{Limit: 4, PerSecond: 2}); ; calls++ {
		r, err := d.ReplayAll(t.Context(), w.caller, dlq.Query{}, b)
		require.NoError(t, err)
		total.Done += r.Done
		for why, n := range r.Skipped {
			total.Skipped[why] += n
		}
		if b.After = r.Next; b.After == nil {
			break
		}
	}
	require.Equal(t, 6, total.Done)
	require.Equal(t, skipped, total.Skipped)
	require.Equal(t, 2, calls)
	require.Equal(t, 2*time.Second, w.waited, "the second two of four come a second later")
	require.EqualValues(t, 2, w.entries(), "raw and unknown stay")
	for _, task := range tasks {
		require.Equal(t, taskstate.StatusQueued, w.status(task.ID))
	}
	r, err := d.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{Limit: 100, PerSecond: 100})
	require.NoError(t, err)
	require.Zero(t, r.Done, "never twice")
}

// A slow replay hands out a cursor before a proxy gives up, and a failure half-way says what is left.
func TestBulkReplayEndsInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 20 {
		w.dead("refused")
	}
	d := w.service(nil)
	r, err := d.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{Limit: 100, PerSecond: 1})
	require.NoError(t, err)
	require.Equal(t, 16, r.Done, "at 0 s, 1 s … 15 s")
	require.NotNil(t, r.Next)

	broken := w.service(func(deps *dlq.Deps) {
		deps.App = &failing{Application: w.app, after: 1}
	})
	r, err = broken.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{After: r.Next, Limit: 100, PerSecond: 2})
	require.NoError(t, err)
	require.Equal(t, 2, r.Done)
	require.Equal(t, 2, r.Failed)
	require.ErrorIs(t, r.Err, taskstate.ErrUnavailable)
	r, err = d.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{After: r.Next, Limit: 100, PerSecond: 2})
	require.NoError(t, err)
	require.Equal(t, 2, r.Done, "from where it failed")
	require.Nil(t, r.Next)
	require.Zero(t, w.entries())
	_, err = broken.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{Limit: 100, PerSecond: 2})
	require.NoError(t, err, "there is nothing to fail on")
}

// failing lets Operate fail after some calls.
type failing struct {
	dlq.Application
	after int
}

func (f *failing) Operate(ctx context.Context, c ingest.Caller, ids []string, decide func(taskstate.DBClock, taskstate.Task) taskstate.Decision) ([]taskstate.Outcome, error) {
	if f.after--; f.after < 0 {
		return nil, fmt.Errorf("operate: %w", taskstate.ErrUnavailable)
	}
	return f.Application.Operate(ctx, c, ids, decide)
}

// On the Kafka transport, and where the stream is off, the rows are the dead letters.
func TestRowsAreDeadLetters(t *testing.T) {
	t.Parallel()
	for name, kafka := range map[string]bool{"kafka": true, "table": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.service(func(deps *dlq.Deps) { deps.Kafka, deps.Reader = kafka, nil })
			one, two := w.kill(w.upload().ID, "embed: refused"), w.kill(w.upload().ID, "extract: corrupt")
			w.upload()
			deadLetters, next, err := d.List(t.Context(), dlq.Query{}, nil, 1)
			require.NoError(t, err)
			require.NotNil(t, next)
			require.Equal(t, dlq.RowID(two.ID, two.Fence), deadLetters[0].ID)
			require.Equal(t, dlq.Source(name), deadLetters[0].Source)
			require.Equal(t, "extract: corrupt", deadLetters[0].LastError)
			require.Empty(t, deadLetters[0].Why)
			deadLetters, next, err = d.List(t.Context(), dlq.Query{}, next, 1)
			require.NoError(t, err)
			require.Nil(t, next)
			require.Equal(t, one.ID, deadLetters[0].TaskID)
			deadLetters, _, err = d.List(t.Context(), dlq.Query{Task: one.ID}, nil, 9)
			require.NoError(t, err)
			require.Len(t, deadLetters, 1)
			_, _, err = d.List(t.Context(), dlq.Query{Source: dlq.SourceRedis}, nil, 9)
			require.ErrorIs(t, err, dlq.ErrNoStream)

			id := dlq.RowID(one.ID, one.Fence)
			require.ErrorIs(t, d.Drop(t.Context(), nil, id), dlq.ErrNoEntry)
			_, err = d.DropAll(t.Context(), nil, dlq.Query{}, dlq.Bulk{Limit: 9})
			require.ErrorIs(t, err, dlq.ErrNoEntry)
			_, err = d.Replay(t.Context(), w.caller, id)
			require.NoError(t, err)
			_, err = d.Replay(t.Context(), w.caller, id)
			var state *dlq.StateError
			require.ErrorAs(t, err, &state, "once")
			l, err := d.Get(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, dlq.ReasonState, l.Reason)
			r, err := d.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{Limit: 9, PerSecond: 9})
			require.NoError(t, err)
			require.Equal(t, 1, r.Done)
			require.Equal(t, taskstate.StatusQueued, w.status(two.ID))
		})
	}
}

// A drop is noted before the entry goes, and not done when it cannot be noted.
func TestDrops(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.service(nil)
	task, id := w.dead("refused")
	w.dead("corrupt")
	w.raw()
	var noted []string
	refuse := errors.New("no room for notes")
	note := func(l dlq.DeadLetter) taskstate.TxFunc {
		return func(context.Context, taskstate.Tx, taskstate.DBClock) error {
			noted = append(noted, l.ID)
			return refuse
		}
	}
	require.ErrorIs(t, d.Drop(t.Context(), note, id), refuse)
	require.EqualValues(t, 3, w.entries())
	refuse, noted = nil, nil
	require.NoError(t, d.Drop(t.Context(), note, id))
	require.Equal(t, []string{id}, noted)
	require.Equal(t, taskstate.StatusDead, w.status(task.ID), "the row is untouched")
	require.ErrorIs(t, d.Drop(t.Context(), note, id), dlq.ErrNotFound)

	r, err := d.DropAll(t.Context(), note, dlq.Query{Text: "corrupt"}, dlq.Bulk{Limit: 9, DryRun: true})
	require.NoError(t, err)
	require.Equal(t, 1, r.Done)
	require.EqualValues(t, 2, w.entries())
	r, err = d.DropAll(t.Context(), note, dlq.Query{}, dlq.Bulk{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, 1, r.Done)
	require.NotNil(t, r.Next)
	r, err = d.DropAll(t.Context(), note, dlq.Query{}, dlq.Bulk{Limit: 9, After: r.Next})
	require.NoError(t, err)
	require.Equal(t, 1, r.Done)
	require.Nil(t, r.Next)
	require.Zero(t, w.entries())
	require.Len(t, noted, 3)
}

// On Kafka a delivery that could not be read is a record of the topic of dead letters: it is listed among the rows, by time,
// cannot be replayed, and can be dropped; a row can be replayed and not dropped.
func TestUnreadableRecordsOfKafkaAreListedAmongTheRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.kill(w.upload().ID, "embed: refused")
	raw := w.kafka("not json", "{}")
	two := w.kill(w.upload().ID, "extract: corrupt")
	d := w.service(func(deps *dlq.Deps) { deps.Kafka, deps.Raw = true, raw })
	var order []string
	for after, more := (*dlq.Cursor)(nil), true; more; {
		page, next, err := d.List(t.Context(), dlq.Query{}, after, 1)
		require.NoError(t, err)
		for _, l := range page {
			order = append(order, l.ID)
			require.Equal(t, dlq.SourceKafka, l.Source)
		}
		after, more = next, next != nil
	}
	require.Equal(t, []string{dlq.RowID(two.ID, two.Fence), "k:0:1", "k:0:0", dlq.RowID(one.ID, one.Fence)}, order)
	s, err := d.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, dlq.Stats{Source: dlq.SourceKafka, Entries: 2, Dead: 2}, s)

	l, err := d.Get(t.Context(), "k:0:0")
	require.NoError(t, err)
	require.Equal(t, "not json", l.Raw["value"])
	require.Equal(t, dlq.ReasonUnreadable, l.Reason)
	_, err = d.Replay(t.Context(), w.caller, "k:0:0")
	require.ErrorIs(t, err, dlq.ErrUnreadable)
	require.ErrorIs(t, d.Drop(t.Context(), nil, dlq.RowID(one.ID, one.Fence)), dlq.ErrNoEntry)
	r, err := d.ReplayAll(t.Context(), w.caller, dlq.Query{}, dlq.Bulk{Limit: 9, PerSecond: 9})
	require.NoError(t, err)
	require.Equal(t, 2, r.Done)
	require.Equal(t, map[dlq.Reason]int{dlq.ReasonUnreadable: 2}, r.Skipped)

	require.NoError(t, d.Drop(t.Context(), nil, "k:0:1"))
	_, err = d.Get(t.Context(), "k:0:1")
	require.ErrorIs(t, err, dlq.ErrNotFound)
	require.ErrorIs(t, d.Drop(t.Context(), nil, "k:0:1"), dlq.ErrNotFound)
	for _, want := range []int{1, 0} {
		r, err := d.DropAll(t.Context(), nil, dlq.Query{}, dlq.Bulk{Limit: 9})
		require.NoError(t, err)
		require.Equal(t, want, r.Done)
	}
	s, err = d.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.Entries)
}
