package taskstore_test

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/labserver"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/taskstatetest"
	"github.com/millweir/millweir/pkg/taskstore"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// open opens a store and closes it after the test.
func open(t *testing.T, cfg taskstore.Config) *taskstore.Store {
	t.Helper()
	s, err := taskstore.Open(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// migrated is open with the schema.
func migrated(t *testing.T, cfg taskstore.Config) *taskstore.Store {
	t.Helper()
	s := open(t, cfg)
	_, err := s.Migrate(t.Context())
	require.NoError(t, err)
	return s
}

// waitLimit is what transactions and silent sessions of the tests have: the limits of a real process are none for a test that
// holds a transaction open on a busy machine. Tests of the limits set their own.
const waitLimit = 3 * time.Minute

// databases are the configurations of every dialect, each for a database of the test's own.
var databases = map[string]func(t *testing.T) taskstore.Config{
	"sqlite": func(t *testing.T) taskstore.Config {
		t.Helper()
		return taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(t.TempDir(), "tasks.db"), Timeout: waitLimit}
	},
	"mysql": func(t *testing.T) taskstore.Config {
		t.Helper()
		return taskstore.Config{MySQLDSN: labserver.MySQLDatabase(t), MaxOpen: 8, Timeout: waitLimit, Silence: waitLimit}
	},
	"postgres": func(t *testing.T) taskstore.Config {
		t.Helper()
		return taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t), MaxOpen: 8, Timeout: waitLimit, Silence: waitLimit}
	},
}

// lockingDatabases are the configurations of those that lock rows.
func lockingDatabases() map[string]func(t *testing.T) taskstore.Config {
	locking := maps.Clone(labserver.Databases(databases))
	delete(locking, "sqlite")
	return locking
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			features := taskstatetest.Features{RowLocks: name != "sqlite"}
			taskstatetest.Run(t, features, func(t *testing.T) (taskstate.Database, func(t *testing.T) taskstate.Database) {
				t.Helper()
				cfg := config(t)
				return migrated(t, cfg), func(t *testing.T) taskstate.Database { t.Helper(); return open(t, cfg) }
			})
		})
	}
}

// Ids of tasks.
const (
	idA = "01900000-0000-7000-8000-00000000000a"
	idB = "01900000-0000-7000-8000-00000000000b"
	idC = "01900000-0000-7000-8000-00000000000c"
)
