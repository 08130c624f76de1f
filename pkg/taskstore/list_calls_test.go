package taskstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// Rows of every sort, also some that the store never writes: whatever a row says, a list has it once and in its place.
func TestListsByUpdateHaveEveryRowOnce(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			m, err := s.Moment(ctx)
			require.NoError(t, err)
			never := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
			n := 0
			for _, status := range taskstate.Statuses() {
				for _, wake := range []time.Duration{0, time.Second, -time.Second, 1 << 62} {
					if wake == 1<<62 && !status.Terminal() && status != taskstate.StatusSuspended {
						continue // each of them wakes
					}
					for range 2 { // with the same updated_at
						n++
						updated := m.Now.Add(-time.Duration(n/2) * time.Hour)
						wakes := updated.Add(wake)
						if wake == 1<<62 {
							wakes = never
						}
						var retry any
						if status == taskstate.StatusRetrying {
							retry = updated
						}
						require.NoError(t, s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
							id := fmt.Sprintf("01900000-0000-7000-8000-%012d", n)
							_, err := tx.ExecContext(ctx, `INSERT INTO ingest_task_body (id, user_id, type, channel, file_path, max_attempts, created_at)
							VALUES (?, ?, 'document', 'http', ?, 3, ?)`, id, fmt.Sprint("u", n%3), fmt.Sprintf("f%d.txt", n%5), updated.Add(-time.Duration(n*37%50)*time.Minute))
							if err != nil {
								return err
							}
							_, err = tx.ExecContext(ctx, `INSERT INTO ingest_task_state (id, status, next_retry_at, wake_at, updated_at)
							VALUES (?, ?, ?, ?, ?)`, sqldb.RawID(s.Dialect(), id), string(status), retry, wakes, updated)
							if err != nil {
								return err
							}
							raw := uuid.MustParse(id)
							_, err = tx.ExecContext(ctx, `INSERT INTO ingest_task_call (call_id, to_status, reason, timeline, actor, wake_at, tasks, ids, created_at)
							VALUES (?, ?, 'ACCEPTED', 1, 'user:u', ?, 1, ?, ?)`, raw[:], string(status), wakes, raw[:], updated)
							return err
						}))
					}
				}
			}
			whole, err := s.List(ctx, taskstate.System(), taskstate.Query{Limit: 200})
			require.NoError(t, err)
			require.Nil(t, whole.More)
			all := whole.Tasks
			require.Len(t, all, n)
			for _, q := range []taskstate.Query{
				{Sort: taskstate.SortUpdated},
				{Sort: taskstate.SortUpdatedDesc},
				{Sort: taskstate.SortUpdatedDesc, Statuses: []taskstate.Status{taskstate.StatusQueued, taskstate.StatusDead}},
				{Sort: taskstate.SortUpdated, UpdatedAfter: m.Now.Add(-10 * time.Hour)},
				{UpdatedAfter: m.Now.Add(-20 * time.Hour), UpdatedBefore: m.Now.Add(-5 * time.Hour)},
				{Statuses: []taskstate.Status{taskstate.StatusDead}},
				{Sort: taskstate.SortCreated, Statuses: []taskstate.Status{taskstate.StatusRunning}},
				{Sort: taskstate.SortCreatedDesc, Statuses: []taskstate.Status{taskstate.StatusRetrying, taskstate.StatusQueued, taskstate.StatusSuspended}},
				{Sort: taskstate.SortCreated, Statuses: taskstate.Statuses()},
				{Sort: taskstate.SortCreated, UpdatedBefore: m.Now.Add(-7 * time.Hour), Statuses: []taskstate.Status{taskstate.StatusRunning, taskstate.StatusSucceeded}},
				{Statuses: []taskstate.Status{taskstate.StatusDead, taskstate.StatusSucceeded}, CreatedAfter: m.Now.Add(-20*time.Hour - time.Second)},
				{Sort: taskstate.SortCreated, Statuses: []taskstate.Status{taskstate.StatusDead, taskstate.StatusCancelled}, CreatedAfter: m.Now.Add(-20*time.Hour - time.Second)},
				{Statuses: []taskstate.Status{taskstate.StatusDead, taskstate.StatusSucceeded}, CreatedBefore: m.Now.Add(-13*time.Hour - time.Second)},
				{Sort: taskstate.SortUpdatedDesc, CreatedAfter: m.Now.Add(-12*time.Hour - time.Second)},
				{Sort: taskstate.SortUpdated, CreatedAfter: m.Now.Add(-12*time.Hour - time.Second)},
			} {
				for _, scope := range []taskstate.Scope{taskstate.System(), {UserID: "u1", Role: taskstate.RoleUser}} {
					requirePages(t, s, scope, q, all)
					q.Text = "F1."
					for _, most := range []int{1, 4, 9, 1000} { // a search ends early, goes on, and has found the same
						s.LookAt(most)
						requirePages(t, s, scope, q, all)
					}
				}
			}
		})
	}
}

// requirePages reads all pages of q and compares them with what of all rows fits it.
func requirePages(t *testing.T, s *taskstore.Store, scope taskstate.Scope, q taskstate.Query, all []taskstate.Task) {
	t.Helper()
	key := func(t taskstate.Task) time.Time {
		if strings.HasSuffix(string(q.Sort), "updatedAt") {
			return t.UpdatedAt
		}
		return t.CreatedAt
	}
	var want, got []string
	rows := slices.Clone(all)
	slices.SortFunc(rows, func(a, b taskstate.Task) int {
		order := key(a).Compare(key(b))
		if order == 0 {
			order = strings.Compare(a.ID, b.ID)
		}
		if q.Sort == taskstate.SortCreatedDesc || q.Sort == taskstate.SortUpdatedDesc || q.Sort == "" {
			order = -order
		}
		return order
	})
	for _, r := range rows {
		if (scope.All() || r.UserID == scope.UserID) && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, r.Status)) &&
			(q.Text == "" || strings.Contains(r.FilePath, strings.ToLower(q.Text))) && (q.UpdatedAfter.IsZero() || r.UpdatedAt.After(q.UpdatedAfter)) && (q.UpdatedBefore.IsZero() || r.UpdatedAt.Before(q.UpdatedBefore)) &&
			(q.CreatedAfter.IsZero() || r.CreatedAt.After(q.CreatedAfter)) && (q.CreatedBefore.IsZero() || r.CreatedAt.Before(q.CreatedBefore)) {
			want = append(want, r.ID)
		}
	}
	q.Limit = 3
	for {
		page, err := s.List(t.Context(), scope, q)
		require.NoError(t, err)
		for _, r := range page.Tasks {
			got = append(got, r.ID)
		}
		require.LessOrEqual(t, len(got), len(all))
		if len(page.Tasks) < q.Limit && page.More == nil {
			break
		}
		if q.After = page.More; page.More == nil {
			last := page.Tasks[len(page.Tasks)-1]
			q.After = &taskstate.Cursor{At: key(last), ID: last.ID}
		}
	}
	require.True(t, q.Text != "" || len(want) > 0)
	require.Equal(t, want, got, "%+v", q)
}

// fillBodies gives each state a body, of a user by its last digit, and the call that changed it last.
func fillBodies(t *testing.T, s *taskstore.Store) {
	t.Helper()
	_, err := s.DB().ExecContext(t.Context(), `INSERT INTO ingest_task_body (id, user_id, type, channel, max_attempts, created_at)
		SELECT LOWER(CONCAT_WS('-', LEFT(h, 8), SUBSTR(h, 9, 4), SUBSTR(h, 13, 4), SUBSTR(h, 17, 4), SUBSTR(h, 21))), CONCAT('u', RIGHT(h, 1)), 'document', 'http', 3, NOW(6)
		FROM (SELECT HEX(id) AS h FROM ingest_task_state) s`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `INSERT INTO ingest_task_call (call_id, to_status, reason, timeline, actor, wake_at, tasks, ids, created_at)
		SELECT id, status, 'ACCEPTED', 1, 'user:u', wake_at, 1, id, updated_at FROM ingest_task_state`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `INSERT INTO ingest_task_owner (user_id, knowledge_base_id, status, n)
		SELECT b.user_id, '', t.status, COUNT(*) FROM ingest_task_body b JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', '')) GROUP BY b.user_id, t.status`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(t.Context(), `UPDATE ingest_task_count c
		SET n = (SELECT COUNT(*) FROM ingest_task_call k WHERE k.to_status = c.status AND k.wake_at = '9999-12-31')`)
	require.NoError(t, err)
}

// TestListsByUpdateReadFewRows asks the server, on 20,000 rows as the store leaves them, how many it reads for a page.
func TestListsByUpdateReadFewRows(t *testing.T) {
	t.Parallel()
	s, ctx := alone(t), t.Context()
	const running = 20
	_, err := s.DB().ExecContext(ctx, `INSERT INTO ingest_task_state (id, status, next_retry_at, wake_at, updated_at)
		SELECT UNHEX(CONCAT('0190000', a.n, b.n, '000700', c.n, '800', d.n, '00000000000', e.n)), k.status,
			IF(k.status = 'RETRYING', NOW(6), NULL), IF(k.status = 'SUCCEEDED', '9999-12-31', NOW(6) - INTERVAL c.n * 100 + d.n * 10 + e.n SECOND), NOW(6) - INTERVAL c.n * 100 + d.n * 10 + e.n SECOND
		FROM (SELECT 0 AS n UNION ALL SELECT 1) a, (`+digits+`) b, (`+digits+`) c, (`+digits+`) d, (`+digits+`) e,
			(SELECT 'QUEUED' AS status UNION ALL SELECT 'SUCCEEDED' UNION ALL SELECT 'RETRYING') k
		WHERE k.status = ELT(1 + b.n % 3, 'QUEUED', 'SUCCEEDED', 'RETRYING')`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(ctx, "UPDATE ingest_task_state SET status = 'RUNNING' WHERE status = 'QUEUED' ORDER BY id LIMIT ?", running)
	require.NoError(t, err)
	fillBodies(t, s)
	_, err = s.DB().ExecContext(ctx, "ANALYZE TABLE ingest_task_state, ingest_task_body, ingest_task_call")
	require.NoError(t, err)
	const limit = 20
	after := &taskstate.Cursor{At: time.Now().UTC().Add(-3*time.Minute - 30*time.Second), ID: "01900000-5000-7000-8000-000000000000"}
	for _, q := range []taskstate.Query{
		{Sort: taskstate.SortUpdatedDesc},
		{Sort: taskstate.SortUpdated},
		{Sort: taskstate.SortUpdatedDesc, After: after},
		{Sort: taskstate.SortUpdated, After: after, Statuses: []taskstate.Status{taskstate.StatusSucceeded, taskstate.StatusRetrying}},
	} {
		q.Limit = limit
		before := handlerReads(t, s)
		page, err := s.List(ctx, taskstate.System(), q)
		require.NoError(t, err)
		require.Len(t, page.Tasks, limit)
		require.LessOrEqual(t, handlerReads(t, s)-before, int64(3_000), "%+v", q)
	}
	// The gauge of due work ends at its limit.
	before := handlerReads(t, s)
	due, _, err := s.Due(ctx, limit)
	require.NoError(t, err)
	require.GreaterOrEqual(t, due, int64(limit))
	require.LessOrEqual(t, handlerReads(t, s)-before, int64(3_000))
}

// TestListsOfRareTasksReadFewRows asks the server how many rows it reads for a page of tasks that are rare among 20,000, and
// that were made first: the table has none of them near the list's beginning.
func TestListsOfRareTasksReadFewRows(t *testing.T) {
	t.Parallel()
	s, ctx := alone(t), t.Context()
	const rare = 30
	_, err := s.DB().ExecContext(ctx, `INSERT INTO ingest_task_state (id, status, wake_at, updated_at)
		SELECT UNHEX(CONCAT('0190000', a.n, b.n, '000700', c.n, '800', d.n, '00000000000', e.n)), k.status, IF(k.status IN ('RUNNING', 'QUEUED'), NOW(6), '9999-12-31'), NOW(6)
		FROM (SELECT 0 AS n UNION ALL SELECT 1) a, (`+digits+`) b, (`+digits+`) c, (`+digits+`) d, (`+digits+`) e,
			(SELECT 'SUCCEEDED' AS status UNION ALL SELECT 'DEAD' UNION ALL SELECT 'RUNNING' UNION ALL SELECT 'QUEUED') k
		WHERE k.status = IF(a.n = 0 AND b.n = 0 AND c.n = 0 AND d.n < 9, ELT(1 + d.n DIV 3, 'DEAD', 'RUNNING', 'QUEUED'), 'SUCCEEDED')`)
	require.NoError(t, err)
	fillBodies(t, s)
	_, err = s.DB().ExecContext(ctx, "UPDATE ingest_task_body SET created_at = NOW(6) - INTERVAL 1 HOUR WHERE id < '01900000-0000-7010'")
	require.NoError(t, err)
	_, err = s.DB().ExecContext(ctx, "ANALYZE TABLE ingest_task_state, ingest_task_body, ingest_task_call")
	require.NoError(t, err)
	for _, status := range []taskstate.Status{taskstate.StatusDead, taskstate.StatusRunning, taskstate.StatusQueued, taskstate.StatusSuspended} {
		for _, scope := range []taskstate.Scope{taskstate.System(), {UserID: "u1", Role: taskstate.RoleUser}} {
			want := rare
			if !scope.All() {
				want /= 10
			}
			if status == taskstate.StatusSuspended {
				want = 0 // there is none to be found, which takes the longest in the table
			}
			before := handlerReads(t, s)
			page, err := s.List(ctx, scope, taskstate.Query{Statuses: []taskstate.Status{status}, Limit: rare})
			require.NoError(t, err)
			require.Len(t, page.Tasks, want, "%s %+v", status, scope)
			require.LessOrEqual(t, handlerReads(t, s)-before, int64(1_000), "%s %+v", status, scope)
		}
	}
	// What is frequent among a user's tasks stands in their own order, and is not looked for among all users' tasks.
	before := handlerReads(t, s)
	page, err := s.List(ctx, taskstate.Scope{UserID: "u1", Role: taskstate.RoleUser}, taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusSucceeded}, Limit: rare})
	require.NoError(t, err)
	require.Len(t, page.Tasks, rare)
	require.LessOrEqual(t, handlerReads(t, s)-before, int64(1_000))
	// Where the counts say that there is none, none is looked for: 2,000 of another status are this user's, and 18,000 of this one others'.
	for _, statement := range []string{
		"UPDATE ingest_task_state SET status = 'CANCELLED' WHERE status = 'SUCCEEDED' AND id IN (SELECT UNHEX(REPLACE(id, '-', '')) FROM ingest_task_body WHERE user_id = 'u2')",
		"UPDATE ingest_task_owner SET status = 'CANCELLED' WHERE status = 'SUCCEEDED' AND user_id = 'u2'",
	} {
		_, err = s.DB().ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	idle := handlerReads(t, s)
	before = handlerReads(t, s)
	look := before - idle // MySQL counts what reads its counters: three hundred
	page, err = s.List(ctx, taskstate.Scope{UserID: "u2", Role: taskstate.RoleUser}, taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusSucceeded}, Limit: rare})
	require.NoError(t, err)
	require.Empty(t, page.Tasks)
	require.LessOrEqual(t, handlerReads(t, s)-before-look, int64(300))
	_, err = s.DB().ExecContext(ctx, `UPDATE ingest_task_body SET created_at = created_at +
		INTERVAL CONCAT(SUBSTR(id, 8, 1), SUBSTR(id, 10, 1), SUBSTR(id, 18, 1), SUBSTR(id, 23, 1), RIGHT(id, 1)) MICROSECOND`)
	require.NoError(t, err)
	s.LookAt(200)
	for _, q := range []taskstate.Query{
		{Text: "nowhere"}, {Text: "nowhere", Sort: taskstate.SortUpdatedDesc}, {Text: "nowhere", Sort: taskstate.SortUpdated}, {Stage: "nowhere", Sort: taskstate.SortCreated},
	} {
		for _, scope := range []taskstate.Scope{taskstate.System(), {UserID: "u1", Role: taskstate.RoleUser}} {
			q.Limit = rare
			before := handlerReads(t, s)
			page, err := s.List(ctx, scope, q)
			require.NoError(t, err)
			require.Empty(t, page.Tasks, "%+v", q)
			require.NotNil(t, page.More, "%+v", q)
			require.LessOrEqual(t, handlerReads(t, s)-before, int64(3_000), "%+v", q)
		}
	}
}

// TestListsLookAtWhatEndedLast asks the server how many rows it reads for a page of what ended last, of 18,000 tasks, and for one of a user
// who has none of these.
func TestListsLookAtWhatEndedLast(t *testing.T) {
	t.Parallel()
	s, ctx := alone(t), t.Context()
	_, err := s.DB().ExecContext(ctx, `INSERT INTO ingest_task_state (id, status, wake_at, updated_at)
		SELECT UNHEX(CONCAT('0190000', a.n, b.n, '000700', c.n, '800', d.n, '00000000000', e.n)), IF(e.n = 7, 'SUCCEEDED', 'DEAD'), '9999-12-31',
			NOW(6) - INTERVAL a.n * 1000 + b.n * 100 + c.n * 10 + d.n SECOND
		FROM (SELECT 0 AS n UNION ALL SELECT 1) a, (`+digits+`) b, (`+digits+`) c, (`+digits+`) d, (`+digits+`) e`)
	require.NoError(t, err)
	fillBodies(t, s)
	_, err = s.DB().ExecContext(ctx, `UPDATE ingest_task_body b JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', ''))
		SET b.created_at = t.updated_at - INTERVAL CRC32(b.id) % 30 SECOND`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(ctx, "ANALYZE TABLE ingest_task_state, ingest_task_body, ingest_task_call")
	require.NoError(t, err)
	dead := []taskstate.Status{taskstate.StatusDead}
	for _, c := range []struct {
		scope taskstate.Scope
		q     taskstate.Query
	}{
		{taskstate.System(), taskstate.Query{Statuses: dead}},
		{taskstate.System(), taskstate.Query{Statuses: dead, CreatedAfter: time.Now().Add(-5 * time.Minute)}},
		{taskstate.Scope{UserID: "u7", Role: taskstate.RoleUser}, taskstate.Query{Sort: taskstate.SortUpdatedDesc}},
		{taskstate.System(), taskstate.Query{Sort: taskstate.SortUpdatedDesc, UserID: "u7"}},
	} {
		c.q.Limit = 20
		before := handlerReads(t, s)
		page, err := s.List(ctx, c.scope, c.q)
		require.NoError(t, err)
		require.Len(t, page.Tasks, c.q.Limit)
		require.LessOrEqual(t, handlerReads(t, s)-before, int64(5_000), "%+v", c)
		c.q.Limit = 200
		more, err := s.List(ctx, c.scope, c.q)
		require.NoError(t, err)
		require.Equal(t, page.Tasks, more.Tasks[:len(page.Tasks)])
		if c.q.CreatedAfter.IsZero() && c.q.Sort == "" { // the next page
			last := page.Tasks[len(page.Tasks)-1]
			c.q.Limit, c.q.After = 20, &taskstate.Cursor{At: last.CreatedAt, ID: last.ID}
			before := handlerReads(t, s)
			next, err := s.List(ctx, c.scope, c.q)
			require.NoError(t, err)
			require.LessOrEqual(t, handlerReads(t, s)-before, int64(5_000), "%+v", c)
			require.Equal(t, next.Tasks, more.Tasks[20:40])
		}
	}
	// Whoever asks for those made first gets them, also of what ended in some time.
	for _, q := range []taskstate.Query{{}, {UpdatedBefore: time.Now().Add(-time.Second)}} {
		q.Statuses, q.Sort, q.Limit = dead, taskstate.SortCreated, 20
		page, err := s.List(ctx, taskstate.System(), q)
		require.NoError(t, err)
		oldest, err := sqldb.Collect(ctx, s.DB(), func(rows *sql.Rows) (id string, err error) { return id, rows.Scan(&id) },
			"SELECT id FROM ingest_task WHERE status = 'DEAD' ORDER BY created_at, id LIMIT 20")
		require.NoError(t, err)
		require.Len(t, page.Tasks, len(oldest))
		for i, task := range page.Tasks {
			require.Equal(t, oldest[i], task.ID)
		}
	}
}

// alone is a store on a server of its own, which counts for all its sessions.
func alone(t *testing.T) *taskstore.Store {
	t.Helper()
	server := labserver.Private(t, labserver.KindMariaDB, labserver.Options{})
	require.NoError(t, server.SQL(t.Context(), "", "CREATE DATABASE d"))
	return migrated(t, taskstore.Config{MySQLDSN: server.DSN("d")})
}

// handlerReads is how many rows a server has read.
func handlerReads(t *testing.T, s *taskstore.Store) (sum int64) {
	t.Helper()
	rows, err := sqldb.Collect(t.Context(), s.DB(), func(rows *sql.Rows) (n int64, err error) {
		var name string
		err = rows.Scan(&name, &n)
		return n, err
	}, "SHOW GLOBAL STATUS LIKE 'Handler_read%'")
	require.NoError(t, err)
	for _, n := range rows {
		sum += n
	}
	return sum
}
