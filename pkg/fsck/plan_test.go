package fsck_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// Documents name their tasks by a CHAR, whose index has a VARCHAR: Postgres compares the two without the index, and would read all tasks
// for each version.
func TestTasksOfVersionsAreFoundByTheirKeys(t *testing.T) {
	t.Parallel()
	store, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrate(t.Context())
	require.NoError(t, err)
	id := uuid.NewString()
	for _, statement := range []struct {
		folder, name string
		args         []any
	}{
		{"queries", "VersionsOf", []any{id}},
		{"../ingest/catalog/sql", "VersionContent", []any{id, 1}},
	} {
		text := sqldb.MustLoad(os.DirFS(statement.folder), ".", store.Dialect()).List(statement.name, 1)
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			if _, err := tx.ExecContext(ctx, "SET LOCAL enable_seqscan = off"); err != nil {
				return err
			}
			plan, err := sqldb.Texts(ctx, tx, "EXPLAIN "+text, statement.args...)
			require.Contains(t, strings.Join(plan, "\n"), "using ingest_task_pkey on ingest_task_body", statement.name)
			return err
		}))
	}
}
