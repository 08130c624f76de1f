package outbox_test

import (
	"context"
	"errors"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// forever is longer than any test.
const forever = time.Hour

func TestStaleMarkLeavesTheRow(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		ids := w.insert(many(3)...)
		first := w.lease("first", 10, 0) // over at once
		require.Len(t, first, 3)
		second := w.lease("second", 2, forever)
		require.Len(t, second, 2)
		fail := outbox.Mark{Seq: first[0].Seq, Token: "first", To: outbox.StatusDead, Cause: outbox.CauseUnavailable, Attempt: 9, Error: "late"}
		marks := append(sentMarks("first", first[1:]), fail)
		_, err := w.store.Turn(t.Context(), outbox.Turn{Marks: marks})
		require.NoError(t, err)
		for _, id := range ids[:2] {
			e := w.get(id)
			require.Equal(t, outbox.StatusNew, e.Status, "the second relay's")
			require.Zero(t, e.AttemptCount)
		}
		require.Equal(t, outbox.StatusSent, w.get(ids[2]).Status, "an expired lease that nobody took")
		_, err = w.store.Turn(t.Context(), outbox.Turn{Marks: sentMarks("second", second)})
		require.NoError(t, err)
		require.Equal(t, 3, w.count(outbox.StatusSent))
		_, err = w.store.Turn(t.Context(), outbox.Turn{Marks: []outbox.Mark{{Seq: second[0].Seq, Token: "second", To: outbox.StatusRetrying, Cause: outbox.CauseUnavailable, Attempt: 1, Error: "x"}}})
		require.NoError(t, err)
		require.Equal(t, 3, w.count(outbox.StatusSent), "what is sent stays sent")
	})
}

func TestTurnMarksAndLeasesAtOnce(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.insert(many(5)...)
		a := w.lease("a", 3, forever)
		next, err := w.store.Turn(t.Context(), outbox.Turn{Marks: sentMarks("a", a), Status: outbox.StatusNew, Limit: 10, Token: "b", Lease: forever})
		require.NoError(t, err)
		require.Len(t, next, 2)
		require.Equal(t, 3, w.count(outbox.StatusSent))
		require.Equal(t, 2, w.number("SELECT COUNT(*) FROM outbox_event WHERE lease = 'b' AND status = 'NEW' AND sent_at IS NULL"))
		require.Zero(t, w.number("SELECT COUNT(*) FROM outbox_event WHERE lease = 'a'"))
		require.Empty(t, w.lease("c", 10, forever), "all are leased")
	})
}

// A flight may outlast its lease: the turn that marks it reads its rows as due, and must not lease them.
func TestTurnDoesNotLeaseWhatItMarks(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.insert(many(2)...)
		a := w.lease("a", 2, 0)
		marks := sentMarks("a", a[:1])
		marks = append(marks, outbox.Mark{Seq: a[1].Seq, Token: "a", To: outbox.StatusRetrying, Cause: outbox.CauseUnavailable, Attempt: 1, Wait: forever, Error: "x"})
		got, err := w.store.Turn(t.Context(), outbox.Turn{Marks: marks, Status: outbox.StatusNew, Limit: 10, Token: "b", Lease: forever})
		require.NoError(t, err)
		require.Empty(t, got)
		require.Equal(t, 1, w.count(outbox.StatusSent))
		require.Equal(t, 1, w.count(outbox.StatusRetrying))
	})
}

// Rows that another transaction has locked are passed over, in order, and nobody waits.
func TestTwoRelaysGetDisjointEvents(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		if w.tasks.Dialect() == "sqlite" {
			return // its transactions exclude each other
		}
		ids := w.insert(many(6)...)
		require.NoError(t, w.tasks.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			var first string
			err := tx.QueryRowContext(ctx, "SELECT id FROM outbox_event WHERE status = 'NEW' ORDER BY wake_at, seq LIMIT 3 FOR UPDATE SKIP LOCKED").Scan(&first)
			require.NoError(t, err)
			require.Equal(t, ids[0], first)
			got := w.lease("b", 3, forever)
			require.Len(t, got, 3)
			for i, e := range got {
				require.Equal(t, ids[3+i], e.ID)
			}
			w.insert(many(1)...) // nor does a writer wait: that would be for the end of this very function, and fail
			return nil
		}))
	})
}

// unknown is a database whose first COMMIT gets no answer.
type unknown struct {
	*taskstore.Store
	committed bool // whether it was done
	times     int
}

func (u *unknown) Transact(ctx context.Context, f taskstate.ReadFunc, resolved func(ctx context.Context, tx taskstate.Tx) (bool, error)) error {
	if u.times++; u.times > 1 {
		return u.Store.Transact(ctx, f, resolved)
	}
	giveUp := errors.New("rolled back")
	err := u.Store.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		if err := f(ctx, tx); err != nil || u.committed {
			return err
		}
		return giveUp
	}, nil)
	if err != nil && !errors.Is(err, giveUp) {
		return err
	}
	done := false
	err = u.Store.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) (err error) {
		done, err = resolved(ctx, tx)
		return err
	}, nil)
	if err != nil || done {
		return err
	}
	return u.Transact(ctx, f, resolved)
}

func TestTurnWhoseCommitHadNoAnswer(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{false, true} {
		onEachDatabase(t, func(t *testing.T, w *world) {
			w.insert(many(4)...)
			old := w.lease("old", 2, forever)
			u := &unknown{Store: w.tasks, committed: committed}
			store := outbox.NewStore(u)
			got, err := store.Turn(t.Context(), outbox.Turn{Marks: sentMarks("old", old), Status: outbox.StatusNew, Limit: 10, Token: "new", Lease: forever})
			require.NoError(t, err)
			require.Len(t, got, 2, "it knows what it holds")
			require.Equal(t, 2, w.count(outbox.StatusSent))
			require.Equal(t, 2, w.number("SELECT COUNT(*) FROM outbox_event WHERE lease = 'new'"))
			require.Equal(t, map[bool]int{true: 1, false: 2}[committed], u.times)
		})
	}
}

func TestNextWake(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		wake := func() time.Duration {
			d, err := w.store.NextWake(t.Context(), outbox.StatusNew, time.Minute)
			require.NoError(t, err)
			return d
		}
		require.Equal(t, time.Minute, wake(), "nothing is there")
		w.insert(many(1)...)
		require.Zero(t, wake())
		w.lease("a", 1, 30*time.Second)
		require.InDelta(t, 30, wake().Seconds(), 25, "the lease's end")
	})
}

func TestListPagesThroughEverything(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		ids := w.insert(many(23)...)
		w.exec("UPDATE outbox_event SET status = 'DEAD', cause = 'REFUSED', wake_at = ?, last_error = 'too large' WHERE seq % 3 = 0", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		w.exec("UPDATE outbox_event SET status = 'DEAD', cause = 'BROKER_UNAVAILABLE', last_error = 'refused' WHERE seq % 3 = 1")
		all := func(q outbox.Query) []string {
			var out []string
			q.Limit = 4
			for {
				page, err := w.store.List(t.Context(), q)
				require.NoError(t, err)
				for _, i := range page {
					out = append(out, i.ID)
				}
				if len(page) < q.Limit {
					return out
				}
				after := page[len(page)-1].Cursor()
				q.After = &after
			}
		}
		sorted := func(ids []string) []string { sort.Strings(ids); return ids }
		dead := all(outbox.Query{State: outbox.StatusDead})
		refused := all(outbox.Query{State: outbox.StatusDead, Cause: outbox.CauseRefused})
		absent := all(outbox.Query{State: outbox.StatusDead, Cause: outbox.CauseUnavailable})
		fresh := all(outbox.Query{State: outbox.StatusNew})
		require.Len(t, dead, w.count(outbox.StatusDead))
		require.Equal(t, append(refused, absent...), dead, "the refused first, then by death")
		require.Equal(t, sorted(ids), sorted(append(dead, fresh...)))
		require.True(t, sort.IsSorted(sort.Reverse(sort.StringSlice(refused))), "newest first")
		require.Empty(t, all(outbox.Query{State: outbox.StatusDead, Topic: "other"}))
		require.Equal(t, []string{ids[5]}, all(outbox.Query{Task: ids[5]}))
		require.Empty(t, all(outbox.Query{Task: ids[5], State: outbox.StatusSent}))
		e := w.get(refused[0])
		require.Equal(t, "too large", e.LastError)
		require.Equal(t, "{}", string(e.Payload))
		_, err := w.store.Get(t.Context(), "none")
		require.ErrorIs(t, err, outbox.ErrNotFound)
	})
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		ids := w.insert(append(many(1200), event{topic: "other"})...)
		require.ErrorIs(t, w.store.Requeue(t.Context(), ids[0], nil), outbox.ErrNotDead)
		require.ErrorIs(t, w.store.Requeue(t.Context(), "none", nil), outbox.ErrNotFound)
		w.exec("UPDATE outbox_event SET status = 'DEAD', attempt_count = 4, cause = 'REFUSED', last_error = 'x', wake_at = ?", time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		require.NoError(t, w.store.Requeue(t.Context(), ids[0], nil))
		e := w.get(ids[0])
		require.Equal(t, outbox.StatusNew, e.Status)
		require.Zero(t, e.AttemptCount)
		require.Empty(t, e.LastError)
		require.Equal(t, e.CreatedAt, e.WakeAt)
		n, err := w.store.RequeueAll(t.Context(), outbox.Query{Cause: outbox.CauseUnavailable}, 10_000, nil)
		require.NoError(t, err)
		require.Zero(t, n)
		n, err = w.store.RequeueAll(t.Context(), outbox.Query{Cause: outbox.CauseRefused, Topic: topic}, 700, nil)
		require.NoError(t, err)
		require.Equal(t, 700, n)
		n, err = w.store.RequeueAll(t.Context(), outbox.Query{Topic: topic}, 10_000, nil)
		require.NoError(t, err)
		require.Equal(t, 499, n)
		require.Equal(t, 1, w.count(outbox.StatusDead), "the other topic's")
	})
}

func TestStats(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		s, err := w.store.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[outbox.Status]int64{"NEW": 0, "RETRYING": 0, "SENT": 0, "DEAD": 0}, s.Counts)
		require.Zero(t, s.Oldest)
		ids := w.insert(many(4)...)
		w.exec("UPDATE outbox_event SET status = 'SENT', sent_at = created_at WHERE id = ?", ids[0])
		w.exec("UPDATE outbox_event SET status = 'RETRYING', next_retry_at = wake_at, created_at = ? WHERE id = ?", w.now().Add(-time.Hour), ids[1])
		s, err = w.store.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[outbox.Status]int64{"NEW": 2, "RETRYING": 1, "SENT": 1, "DEAD": 0}, s.Counts)
		require.Equal(t, int64(3), s.Backlog())
		require.InDelta(t, time.Hour.Seconds(), s.Oldest.Seconds(), 60)
	})
}

func TestOddPayloadsGoThroughWhole(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		payloads := []string{
			`{"a":"` + strings.Repeat("x", 900_000) + `"}`, `{"a":"` + strings.Repeat("ß€𝄞", 50_000) + `"}`,
			`{"a":"\u0000 ' \" \\ ? $1 @now %s ;--"}`, "{}",
		}
		var events []event
		for _, p := range payloads {
			events = append(events, event{payload: p})
		}
		w.insert(events...)
		got := w.lease("a", 10, forever)
		require.Len(t, got, len(payloads))
		for i, e := range got {
			require.Equal(t, payloads[i], string(e.Payload))
			require.Len(t, e.TraceParent, 55)
			require.GreaterOrEqual(t, e.Age, time.Duration(0))
		}
	})
}
