package taskstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// A claim of many finds each body by its key, also while the database's statistics know nothing of tasks that have just come.
func TestABatchFindsBodiesByTheirKeys(t *testing.T) {
	t.Parallel()
	const batch = 300
	s := migrated(t, taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)})
	ids := submitted(t, s, 2*batch)
	var lock string
	s.Watch(func(query string, _ bool) error {
		if strings.Contains(query, "FOR UPDATE OF t") {
			lock = query
		}
		return nil
	})
	_, err := s.Apply(t.Context(), taskstate.Batch{IDs: ids[:1], Scope: taskstate.System(), Decide: taskstate.Each(claim)})
	require.NoError(t, err)
	head, tail, found := strings.Cut(lock, "(?)")
	require.True(t, found, lock)
	list := sqldb.List(ids[:batch])
	var plan []string
	require.NoError(t, s.Read(t.Context(), func(ctx context.Context, tx taskstate.Tx) (err error) {
		plan, err = sqldb.Texts(ctx, tx, "EXPLAIN "+head+"("+list.Text+")"+tail, list.Args...)
		return err
	}))
	require.True(t, slices.ContainsFunc(plan, func(line string) bool {
		return strings.Contains(line, "Index Scan using ingest_task_pkey on ingest_task_body")
	}))
	require.Contains(t, strings.Join(plan, "\n"), "Tid Scan on ingest_task_state s")
}

// A page of tasks by their creation is read along the index, and none of the others is read for it.
func TestAPageByCreationReadsNoMore(t *testing.T) {
	t.Parallel()
	s := migrated(t, taskstore.Config{DatabaseURL: labserver.PostgresDatabase(t)})
	submitted(t, s, 3000)
	_, err := s.DB().ExecContext(t.Context(), "ANALYZE")
	require.NoError(t, err)
	for _, q := range []taskstate.Query{{}, {UserID: "u1"}} {
		var list string
		s.Watch(func(query string, _ bool) error {
			if strings.Contains(query, "ORDER BY b.created_at") {
				list = query
			}
			return nil
		})
		q.Sort, q.Limit = taskstate.SortCreatedDesc, 50
		page, err := s.List(t.Context(), taskstate.System(), q)
		require.NoError(t, err)
		require.Len(t, page.Tasks, 50)
		args := []any{q.Limit}
		if q.UserID != "" {
			args = []any{q.UserID, q.Limit}
		}
		var plan []string
		require.NoError(t, s.Read(t.Context(), func(ctx context.Context, tx taskstate.Tx) (err error) {
			plan, err = sqldb.Texts(ctx, tx, "EXPLAIN "+list, args...)
			return err
		}))
		require.NotContains(t, strings.Join(plan, "\n"), "Seq Scan on ingest_task")
	}
}
