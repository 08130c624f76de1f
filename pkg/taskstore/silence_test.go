package taskstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// A process that was paused inside a transaction holds its locks only as long as the server's longest wait with a silent
// session: found by the drill main-zombie, where a stopped worker's half-written embedding cache held up its heirs for good.
func TestLocksOfASilentSessionAreFreed(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		if name == "sqlite" {
			continue // one process: its locks end with it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			other := migrated(t, cfg)
			cfg.Silence = 4 * time.Second // it has that long between two words, also on a machine that stalls
			silent := open(t, cfg)
			_, err := other.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
				return []taskstate.NewTask{newTask(idA)}, nil
			})
			require.NoError(t, err)
			locked, goOn, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- silent.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
					if _, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", "silent", idA); err != nil {
						return err
					}
					select {
					case locked <- struct{}{}:
					default:
					}
					<-goOn // as a stopped process would
					_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET channel = ? WHERE id = ?", "late", idB)
					return err
				})
			}()
			select {
			case <-locked:
			case err := <-ended:
				t.Fatalf("the silent session ended before it was silent: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			out, err := other.Apply(ctx, taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.NoError(t, err)
			require.Equal(t, taskstate.AnswerClaimed, out[0].Answer)
			require.Empty(t, out[0].Before.ChatID, "what the silent session wrote was never seen")
			close(goOn)
			<-ended // it may try again, or say that the database left it; its first try left nothing
		})
	}
}
