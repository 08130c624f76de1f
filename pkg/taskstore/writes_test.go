package taskstore_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// Writes that go with a later statement, or with the COMMIT, are there before it, or the transaction fails as a whole.
func TestWritesAreDoneOrNone(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			write := func(rows int, until time.Time, text string, args ...any) sqldb.Write {
				return sqldb.Write{Part: sqldb.Part{Text: text, Args: args}, Rows: rows, Until: until}
			}
			mark := write(1, time.Time{}, "UPDATE ingest_task_state SET progress = progress + 1 WHERE id = ?", sqldb.RawID(s.Dialect(), idA))
			none := write(1, time.Time{}, "UPDATE ingest_task_state SET progress = 9 WHERE id = ?", sqldb.RawID(s.Dialect(), idB))
			count := func() (n int) {
				task, err := s.Get(t.Context(), taskstate.System(), idA)
				require.NoError(t, err)
				return task.Progress.Percent
			}
			tries := 0
			run := func(then func(ctx context.Context, tx taskstate.Tx) error, all ...sqldb.Write) error {
				tries = 0
				ctx, end := context.WithCancel(t.Context())
				defer end()
				return s.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
					if tries++; tries == 2 {
						end()
					}
					for _, w := range all {
						if err := w.Exec(ctx, tx); err != nil {
							return err
						}
					}
					if then != nil {
						return then(ctx, tx)
					}
					return nil
				}, nil)
			}
			_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
				return []taskstate.NewTask{newTask(idA)}, nil
			})
			require.NoError(t, err)

			require.NoError(t, run(nil, mark, mark))
			require.Equal(t, 2, count())
			require.ErrorIs(t, run(nil, mark, none, mark), context.Canceled, "a row was not as it was read: it is tried again")
			require.Equal(t, 2, count())
			var seen int
			require.NoError(t, run(func(ctx context.Context, tx taskstate.Tx) error {
				return tx.QueryRowContext(ctx, "SELECT progress FROM ingest_task_state WHERE id = ?", sqldb.RawID(s.Dialect(), idA)).Scan(&seen)
			}, mark))
			require.Equal(t, 3, seen, "a statement sees the writes before it")
			require.ErrorIs(t, run(func(ctx context.Context, tx taskstate.Tx) error {
				return tx.QueryRowContext(ctx, "SELECT 1").Scan(&seen)
			}, none), context.Canceled, "and fails with them")
			require.ErrorIs(t, run(func(ctx context.Context, tx taskstate.Tx) error { return sqldb.Flush(ctx, tx) }, none), context.Canceled)
			require.ErrorIs(t, run(nil, mark, write(0, time.Time{}, "INSERT INTO timeline (id, value) VALUES (1, 2)")), taskstate.ErrUnique)
			require.Equal(t, 1, tries)
			require.Equal(t, 3, count())
			require.NoError(t, s.Beat(t.Context(), func(ctx context.Context, tx taskstate.Tx) error { return mark.Exec(ctx, tx) }))
			require.Equal(t, 4, count(), "outside a transaction a write waits for nothing")
			if s.Dialect() != string(sqldb.SQLite) {
				late := mark
				late.Until = time.Now().Add(-time.Minute)
				require.ErrorIs(t, run(nil, late), context.Canceled)
				late.Until = time.Now().Add(time.Minute)
				require.NoError(t, run(nil, late))
				require.Equal(t, 5, count())
			}
		})
	}
}

// Not parallel: it sets the global provider.
func TestSpansOfWritesThatGoTogether(t *testing.T) {
	s := migrated(t, taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t)})
	spans := tracetest.NewSpanRecorder()
	provider, before := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	t.Cleanup(func() {
		otel.SetTracerProvider(before)
		require.NoError(t, provider.Shutdown(context.Background()))
	})
	ctx, root := provider.Tracer("test").Start(t.Context(), "upload")
	_, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		return []taskstate.NewTask{newTask(idA)}, nil
	})
	require.NoError(t, err)
	root.End()
	var got []string
	for _, span := range spans.Ended() {
		said := map[attribute.Key]string{}
		for _, a := range span.Attributes() {
			said[a.Key] = a.Value.String()
		}
		require.Equal(t, cmp.Or(said["db.query.summary"], span.Name()), span.Name())
		got = append(got, span.Name()+said["db.operation.batch.size"])
	}
	require.Equal(t, []string{
		"SELECT timeline", "INSERT ingest_task_body5", "INSERT ingest_task_state5", "INSERT ingest_task_call5", "INSERT ingest_task_log5", "COMMIT5",
		"submit", "upload",
	}, got)
}
