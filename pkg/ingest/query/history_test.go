package query_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// The last hour and the last day are told in their parts: what ended in each, and how long it took. What is over is read once.
func TestHistoryOfTheLastHourAndDay(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		r := ingesttest.NewReadWorld(t, w)
		exec := func(query string, args ...any) {
			require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			}))
		}
		began, err := w.Store.Moment(t.Context())
		require.NoError(t, err)
		ended := func(name string, ago time.Duration) {
			w.Process(w.Accept(ingest.Upload{File: w.Receive(name, name)}).Task.ID)
			at := began.Now.Truncate(time.Minute).Add(-ago)
			exec("UPDATE ingest_task_call SET created_at = ? WHERE to_status = 'SUCCEEDED' AND created_at >= ?", at, began.Now)
		}
		ended("old.txt", 25*time.Hour)
		ended("day.txt", 20*time.Hour)
		ended("hour.txt", 30*time.Minute)
		ended("too.txt", 30*time.Minute)
		read := func(span ingest.Span) (h ingest.History, at []time.Duration, n []int64) {
			h, err := r.Reads.History(t.Context(), span)
			require.NoError(t, err)
			m, err := w.Store.Moment(t.Context())
			require.NoError(t, err)
			for i, b := range h.Buckets {
				require.Equal(t, h.Buckets[0].At.Add(time.Duration(i)*h.Step), b.At)
				require.False(t, b.AtLeast)
				require.Zero(t, b.Dead)
				if b.Succeeded > 0 {
					require.EqualValues(t, b.Succeeded, b.Sampled)
					require.LessOrEqual(t, b.Half, b.Most)
					at, n = append(at, m.Now.Sub(b.At)), append(n, b.Succeeded)
				}
			}
			return h, at, n
		}
		hour, at, n := read(ingest.SpanHour)
		require.Len(t, hour.Buckets, 60)
		require.Equal(t, []int64{2}, n)
		require.InDelta(t, 30, at[0].Minutes(), 2)
		day, at, n := read(ingest.SpanDay)
		require.Len(t, day.Buckets, 48)
		require.Equal(t, []int64{1, 2}, n)
		require.InDelta(t, 20, at[0].Hours(), 1)
		require.InDelta(t, 0.5, at[1].Hours(), 1)

		exec("DELETE FROM ingest_task_call WHERE to_status = 'SUCCEEDED'")
		_, _, n = read(ingest.SpanHour)
		require.Equal(t, []int64{2}, n, "it is over, and known")
	})
}
