package commitproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }

func TestBothSidesOfACommitAreCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		postgres bool
		server   func(testing.TB) *labserver.Server
		database func(testing.TB) string
	}{
		"mariadb":  {false, labserver.MariaDB, labserver.MySQLDatabase},
		"postgres": {true, labserver.Postgres, labserver.PostgresDatabase},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, server := c.database(t), c.server(t)
			p, err := New(server.Addr, c.postgres)
			require.NoError(t, err)
			t.Cleanup(p.Close)
			cfg := taskstore.Config{MaxOpen: 2}
			if through := strings.Replace(address, server.Addr, p.Addr, 1); c.postgres {
				cfg.DatabaseURL = through
			} else {
				cfg.MySQLDSN = through
			}
			store, err := taskstore.Open(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			_, err = store.Migrate(t.Context())
			require.NoError(t, err)
			require.Empty(t, p.Cuts())

			p.Cut(0.5, rand.New(rand.NewPCG(1, 2))) //nolint:gosec // moments of faults
			const tasks = 30
			for i := range tasks {
				_, err := store.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
					return []taskstate.NewTask{{Task: taskstate.Task{ID: fmt.Sprintf("01900000-0000-7000-8000-%012d", i), UserID: "u", Type: "document", Channel: "http", MaxAttempts: 3}}}, nil
				})
				require.NoError(t, err)
			}
			require.Positive(t, p.Cuts()[Cut{What: "ACCEPTED", Done: true}])
			require.Positive(t, p.Cuts()[Cut{What: "ACCEPTED", Done: false}])
			require.GreaterOrEqual(t, p.Seen()["ACCEPTED"], tasks)
			p.Cut(0, nil)
			done := 0
			require.NoError(t, store.Reader().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM ingest_task WHERE status = 'QUEUED'").Scan(&done))
			require.Equal(t, tasks, done)
		})
	}
}
