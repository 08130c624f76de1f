package taskstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/migrations"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// catalogue lists "table.column" of a database, as the server itself sees it.
func catalogue(t *testing.T, s *taskstore.Store) []string {
	t.Helper()
	query := map[string]string{
		"sqlite": `SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_xinfo(m.name) c
			WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY 1`,
		"mysql":    `SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY 1`,
		"postgres": `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1`,
	}[s.Dialect()]
	rows, err := s.DB().QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // Err tells what went wrong
	var out []string
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		out = append(out, name)
	}
	require.NoError(t, rows.Err())
	return out
}

func TestDialectsDescribeTheSameColumns(t *testing.T) {
	t.Parallel()
	seen := map[string]map[string]bool{}
	for name, config := range databases {
		seen[name] = map[string]bool{}
		for _, c := range catalogue(t, migrated(t, config(t))) {
			seen[name][c] = true
		}
	}
	require.Contains(t, seen["mysql"], "ingest_task_state.wake_at")
	require.Equal(t, seen["mysql"], seen["postgres"])
	require.Equal(t, seen["mysql"], seen["sqlite"])
}

func TestMigrateUpDownUp(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := open(t, config(t)), t.Context()
			require.ErrorIs(t, s.CheckSchema(ctx), sqldb.ErrSchemaBehind)
			first, err := s.Migrate(ctx)
			require.NoError(t, err)
			require.NotEmpty(t, first)
			full := catalogue(t, s)
			m, err := s.Moment(ctx)
			require.NoError(t, err)
			require.Positive(t, m.Epoch)

			again, err := s.Migrate(ctx)
			require.NoError(t, err)
			require.Empty(t, again)
			same, err := s.Moment(ctx)
			require.NoError(t, err)
			require.Equal(t, m.Epoch, same.Epoch, "an upgrade keeps the timeline")

			states, err := s.MigrationStatus(ctx)
			require.NoError(t, err)
			for _, st := range states {
				require.False(t, st.AppliedAt.IsZero())
			}
			require.NoError(t, s.MigrateDown(ctx, 0))
			for _, c := range catalogue(t, s) {
				require.Contains(t, c, "schema_migrations.")
			}
			_, err = s.Migrate(ctx)
			require.NoError(t, err)
			require.Equal(t, full, catalogue(t, s))
			require.NoError(t, s.CheckSchema(ctx))
			next, err := s.Moment(ctx)
			require.NoError(t, err)
			require.NotEqual(t, m.Epoch, next.Epoch)
		})
	}
}

// A service may be a user of the database who can read and write rows, and no more: another one changes the schema.
func TestServicesNeedNoRightToChangeTheSchema(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]struct {
		server   func(testing.TB) *labserver.Server
		database func(testing.TB) string
		config   func(address string) taskstore.Config
		user     string
		rights   string
	}{
		"mysql": {
			labserver.MariaDB, labserver.MySQLDatabase, func(address string) taskstore.Config { return taskstore.Config{MySQLDSN: address} },
			"CREATE USER plain@'%' IDENTIFIED BY 'pw'", "GRANT SELECT, INSERT, UPDATE, DELETE ON DATABASE.* TO plain@'%'",
		},
		"postgres": {
			labserver.Postgres, labserver.PostgresDatabase, func(address string) taskstore.Config { return taskstore.Config{DatabaseURL: address} },
			"CREATE ROLE plain LOGIN PASSWORD 'pw'",
			"REVOKE CREATE ON SCHEMA public FROM PUBLIC; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain", // Postgres 15 gives nobody CREATE
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, ctx := on.database(t), t.Context()
			database, _, _ := strings.Cut(path.Base(address), "?")
			grant := func() {
				require.NoError(t, on.server(t).SQL(ctx, database, strings.ReplaceAll(on.rights, "DATABASE", database)))
			}
			require.NoError(t, on.server(t).SQL(ctx, "", on.user))
			grant()
			s := open(t, on.config(regexp.MustCompile(`[^/@]+@`).ReplaceAllString(address, "plain:pw@")))
			require.ErrorIs(t, s.CheckSchema(ctx), sqldb.ErrSchemaBehind)
			_, err := s.Migrate(ctx)
			require.Error(t, err)
			migrated(t, on.config(address))
			grant()
			require.NoError(t, s.CheckSchema(ctx))
			ids := submitted(t, s, 2)
			require.NoError(t, claimedBy(t, s, "p/1", nil, ids...)[0].Err)
			page, err := s.List(ctx, taskstate.System(), taskstate.Query{Limit: 2})
			require.NoError(t, err)
			require.Len(t, page.Tasks, 2)
		})
	}
}

func TestMigrateRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			exec := func(query string) {
				t.Helper()
				_, err := s.DB().ExecContext(ctx, query)
				require.NoError(t, err)
			}
			exec("INSERT INTO schema_migrations (version, name, checksum, applied_at) SELECT 999, 'later', checksum, applied_at FROM schema_migrations WHERE version = 1")
			require.ErrorIs(t, s.CheckSchema(ctx), sqldb.ErrSchemaAhead)
			_, err := s.Migrate(ctx)
			require.ErrorIs(t, err, sqldb.ErrSchemaAhead)
			exec("DELETE FROM schema_migrations WHERE version = 999")
			require.NoError(t, s.CheckSchema(ctx))
			exec("UPDATE schema_migrations SET checksum = 'edited' WHERE version = 1")
			_, err = s.Migrate(ctx)
			require.ErrorIs(t, err, sqldb.ErrChecksum)
			require.ErrorIs(t, s.CheckSchema(ctx), sqldb.ErrChecksum)
			require.ErrorContains(t, err, "001_tasks")
		})
	}
}

func TestRunnersDoNotCollide(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			stores := []*taskstore.Store{open(t, cfg), open(t, cfg), open(t, cfg)}
			applied, errs := make([]int, len(stores)), make([]error, len(stores))
			var wg sync.WaitGroup
			for i, s := range stores {
				wg.Go(func() {
					done, err := s.Migrate(t.Context())
					applied[i], errs[i] = len(done), err
				})
			}
			wg.Wait()
			states, err := stores[0].MigrationStatus(t.Context())
			require.NoError(t, err)
			for _, err := range errs {
				require.NoError(t, err)
			}
			require.Equal(t, len(states), applied[0]+applied[1]+applied[2], "each migration is applied once")
		})
	}
}

// A runner waits for another one longer than SQLite itself waits for a lock, and no longer than it is asked to.
func TestARunnerWaitsForTheFile(t *testing.T) {
	t.Parallel()
	cfg := databases["sqlite"](t)
	first, second := open(t, cfg), open(t, cfg)
	held, err := first.DB().Conn(t.Context())
	require.NoError(t, err)
	_, err = held.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	_, err = second.Migrate(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "it waited until it was to stop")
	_, err = held.ExecContext(t.Context(), "COMMIT")
	require.NoError(t, err)
	require.NoError(t, held.Close())
	_, err = second.Migrate(t.Context())
	require.NoError(t, err)
}

// TestSweepsUseTheIndex asks the server, on 20,000 rows, how it runs the statements that must read no more than they need.
func TestSweepsUseTheIndex(t *testing.T) {
	t.Parallel()
	s, ctx := migrated(t, databases["mysql"](t)), t.Context()
	_, err := s.DB().ExecContext(ctx, `INSERT INTO ingest_task_state (id, status, wake_at, updated_at)
		SELECT UNHEX(CONCAT('0190000', a.n, b.n, '000700', c.n, '800', d.n, '00000000000', e.n)),
			ELT(1 + b.n % 3, 'QUEUED', 'RUNNING', 'SUCCEEDED'), NOW(6) - INTERVAL c.n MINUTE, NOW(6)
		FROM (SELECT 0 AS n UNION ALL SELECT 1) a, (`+digits+`) b, (`+digits+`) c, (`+digits+`) d, (`+digits+`) e`)
	require.NoError(t, err)
	fillBodies(t, s)
	_, err = s.DB().ExecContext(ctx, "ANALYZE TABLE ingest_task_state, ingest_task_body, ingest_task_call")
	require.NoError(t, err)

	var statements []string
	s.Watch(func(query string, done bool) error {
		if !done {
			statements = append(statements, query)
		}
		return nil
	})
	keep := taskstate.Each(func(_ taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
	})
	plan := func(what, key string, rows int64, args ...any) {
		t.Helper()
		var query string
		for _, st := range statements {
			if len(st) > 40 {
				query = st
			}
		}
		gotKey, examined, extra := explain(t, s.DB(), query, args...)
		require.Equal(t, key, gotKey, "%s: %s", what, query)
		require.LessOrEqual(t, examined, rows, "%s examines", what)
		require.NotContains(t, extra, "filesort", what)
		statements = nil
	}
	out, err := s.Sweep(ctx, taskstate.Sweep{Status: taskstate.StatusQueued, Limit: 20, Decide: keep, Exclude: []string{"01900000-0000-7000-8000-000000000001"}})
	require.NoError(t, err)
	require.Len(t, out, 20)
	found := []any{}
	for _, o := range out {
		found = append(found, sqldb.RawID("mysql", o.TaskID))
	}
	plan("sweep", "PRIMARY", 60, append(sqldb.Args(sqldb.Padded(found)), "QUEUED", time.Now().UTC())...)
	_, err = s.NextWake(ctx, taskstate.StatusRunning, 1)
	require.NoError(t, err)
	first := make([]any, 8) // as many as the first page has calls, of one task each here
	for i := range first {
		first[i] = found[i]
	}
	plan("next wake", "PRIMARY", 16, append(first, "RUNNING")...)
	_, err = s.Apply(ctx, taskstate.Batch{IDs: []string{"01900000-0000-7000-8000-000000000000"}, Scope: taskstate.System(), Decide: keep})
	require.NoError(t, err)
	plan("lock", "PRIMARY", 5, sqldb.RawID("mysql", "01900000-0000-7000-8000-000000000000"))
	_, err = s.List(ctx, taskstate.Scope{UserID: "u1", Role: taskstate.RoleUser}, taskstate.Query{Limit: 20})
	require.NoError(t, err)
	plan("list", "ingest_task_user_created", 40, "u1", 20)

	_, err = s.DB().ExecContext(ctx, `INSERT IGNORE INTO ingest_task_call (no, call_id, to_status, reason, timeline, actor, tasks, ids, created_at)
		SELECT d.n + 1, x'00', 'QUEUED', 'ACCEPTED', 1, 'user:u', 1, x'00', NOW(6) FROM (`+digits+`) d`)
	require.NoError(t, err)
	_, err = s.DB().ExecContext(ctx, `INSERT INTO ingest_task_log (task_id, call_no, attempt_count, crash_count, fence)
		SELECT UNHEX(REPLACE(t.id, '-', '')), d.n + 1, 0, 0, 0 FROM ingest_task_body t, (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2) d`)
	require.NoError(t, err)
	_, examined, _ := explain(t, s.DB(), "SELECT * FROM ingest_task_transition WHERE task_id = ? ORDER BY id", "01900000-0000-7000-8000-000000000001")
	require.LessOrEqual(t, examined, int64(3*4), "a person's look at a log: its task, and of each transition the row, its call and a place in the order")
}

// A query over all tasks begins with their bodies, whatever the server believes of the tables' sizes: from a state or a row of the
// log no index leads to a body, and such a query once took minutes.
func TestViewsBeginWithBodies(t *testing.T) {
	t.Parallel()
	s := migrated(t, databases["mysql"](t))
	submitted(t, s, 40)
	for query, want := range map[string][]string{
		"SELECT COUNT(*) FROM ingest_task WHERE fence <> 1":               {"b", "t", "w"},
		"SELECT COUNT(*) FROM ingest_task_transition WHERE message <> ''": {"t", "l", "c"},
	} {
		var order []string
		for _, line := range planOf(t, s.DB(), query) {
			order = append(order, line["table"])
		}
		require.Equal(t, want, order, query)
	}
}

const digits = "SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 " +
	"UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9"

// planOf returns the lines of a statement's plan, each by the names of its columns.
func planOf(t *testing.T, db interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, query string, args ...any) []map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN "+query, args...)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // a test's rows
	columns, err := rows.Columns()
	require.NoError(t, err)
	var plan []map[string]string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		targets := make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		require.NoError(t, rows.Scan(targets...))
		line := map[string]string{}
		for i, c := range columns {
			line[c] = values[i].String
		}
		plan = append(plan, line)
	}
	require.NoError(t, rows.Err())
	return plan
}

// explain returns the index of the first table, t or b, in a statement's plan, the rows that running it really read, and the plan's remarks.
func explain(t *testing.T, db *sql.DB, query string, args ...any) (key string, examined int64, extra string) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // a test's connection
	for _, line := range planOf(t, conn, query, args...) {
		if table := line["table"]; key == "" && (table == "t" || table == "b") {
			key, extra = line["key"], line["Extra"]
		}
	}
	read := func() (sum int64) {
		rows, err := conn.QueryContext(t.Context(), "SHOW SESSION STATUS LIKE 'Handler_read%'")
		require.NoError(t, err)
		defer rows.Close() //nolint:errcheck // a test's rows
		for rows.Next() {
			var name string
			var n int64
			require.NoError(t, rows.Scan(&name, &n))
			sum += n
		}
		require.NoError(t, rows.Err())
		return sum
	}
	before := read()
	drain(t.Context(), t, conn, query, args...)
	return key, read() - before - overhead(read), extra
}

// overhead is what reading the counters itself counts.
func overhead(read func() int64) int64 {
	before := read()
	return read() - before
}

// drain runs a query to its end.
func drain(ctx context.Context, t *testing.T, conn *sql.Conn, query string, args ...any) {
	t.Helper()
	rows, err := conn.QueryContext(ctx, query, args...)
	require.NoError(t, err)
	defer rows.Close() //nolint:errcheck // a test's rows
	n := 0
	for rows.Next() {
		n++
	}
	require.NoError(t, rows.Err(), fmt.Sprint(n))
}

// A log written before migration 008 is read as one without codes, and the next change writes the row's.
func TestAnOlderLogHasNoErrorCodes(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			apply := func(decide func(taskstate.DBClock, taskstate.Task) taskstate.Decision) {
				t.Helper()
				out, err := s.Apply(ctx, taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(decide)})
				require.NoError(t, err)
				require.NotNil(t, out[0].Change)
			}
			codes := func() (codes []string) {
				t.Helper()
				log, err := s.Transitions(ctx, taskstate.System(), idA, 0, 10)
				require.NoError(t, err)
				for _, tr := range log {
					codes = append(codes, tr.ErrorCode)
				}
				return codes
			}
			_, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
				return []taskstate.NewTask{newTask(idA)}, nil
			})
			require.NoError(t, err)
			apply(claim)
			apply(func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
				holder := taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: task.Fence}}
				return taskstate.Fail(policy, m, task, holder, taskstate.Failure{Code: "BROKEN", Cause: "it broke"})
			})
			require.Equal(t, []string{"", "", "BROKEN"}, codes())
			require.NoError(t, s.MigrateDown(ctx, 7))
			_, err = s.Migrate(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"", "", ""}, codes())
			apply(func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
				return taskstate.Cancel(m, task, taskstate.Actor{}, taskstate.ReasonCancelled, "")
			})
			require.Equal(t, []string{"", "", "", "BROKEN"}, codes())
		})
	}
}

// lifeOf makes three tasks with logs that have everything a log can have.
func lifeOf(t *testing.T, s *taskstore.Store) {
	t.Helper()
	tasks := []taskstate.NewTask{newTask(idA), newTask(idB), newTask(idC)}
	for i := range tasks {
		tasks[i].Actor = taskstate.Actor{Kind: taskstate.ActorUser, Name: fmt.Sprint("u", i)}
		tasks[i].KnowledgeBase = []string{"", "base", "base"}[i]
	}
	_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return tasks, nil })
	require.NoError(t, err)
	apply := func(ids []string, decide func(taskstate.DBClock, taskstate.Task) taskstate.Decision) {
		t.Helper()
		out, err := s.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(decide)})
		require.NoError(t, err)
		require.NotNil(t, out[0].Change)
	}
	all := []string{idA, idB, idC}
	apply(all, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Claim(policy, m, task, taskstate.ClaimRequest{Owner: "p/1", Process: "p", Actor: worker, Delivery: fmt.Sprint("1-", task.ID[35]-'a')})
	})
	apply(all, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		holder := taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: task.Fence}, Actor: worker}
		if task.ID == idB {
			return taskstate.Succeed(m, task, holder, nil, "done: "+task.ID)
		}
		return taskstate.Fail(policy, m, task, holder, taskstate.Failure{Code: "BROKEN", Cause: "it broke"})
	})
}

// logOf is the whole log of lifeOf's tasks, task by task, without the numbers of calls: a way down gives them anew.
func logOf(t *testing.T, s *taskstore.Store) (log []taskstate.Transition) {
	t.Helper()
	for _, id := range []string{idA, idB, idC} {
		one, err := s.Transitions(t.Context(), taskstate.System(), id, 0, 10)
		require.NoError(t, err)
		require.Len(t, one, 3)
		for i := range one {
			one[i].ID = 0
		}
		log = append(log, one...)
	}
	return log
}

// Migrations 013, 014 and 029 keep every word of the log and of the tasks, and count each task once, also when they break off between
// any two statements.
func TestTasksAndTheirLogOutliveTheirMigrations(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			lifeOf(t, s)
			tasks := func() []taskstate.Task {
				t.Helper()
				out, err := s.GetMany(ctx, taskstate.System(), []string{idA, idB, idC})
				require.NoError(t, err)
				slices.SortFunc(out, func(a, b taskstate.Task) int { return strings.Compare(a.ID, b.ID) })
				counts, err := s.Counts(ctx, taskstate.System(), "base")
				require.NoError(t, err)
				require.Equal(t, map[taskstate.Status]int64{taskstate.StatusSucceeded: 1, taskstate.StatusRetrying: 1}, counts)
				counts, err = s.Counts(ctx, taskstate.Scope{UserID: out[0].UserID, Role: taskstate.RoleUser}, "")
				require.NoError(t, err)
				require.Equal(t, map[taskstate.Status]int64{taskstate.StatusSucceeded: 1, taskstate.StatusRetrying: 2}, counts)
				for i := range out { // the call in an owner is not kept, and nobody looks when a SUCCEEDED task would have woken
					out[i].LeaseOwner, _, _ = strings.Cut(out[i].LeaseOwner, "/")
					if out[i].Status == taskstate.StatusSucceeded {
						out[i].WakeAt = time.Time{}
					}
				}
				return out
			}
			rows, log := tasks(), logOf(t, s)
			all, err := migrations.Load(s.Dialect())
			require.NoError(t, err)
			for _, n := range []int{13, 14, 29} {
				up, down := migrations.Statements(all[n-1].Up), migrations.Statements(all[n-1].Down)
				if name != "mysql" {
					up, down = nil, nil // a migration is done as a whole or not at all
				}
				for broken := 0; broken <= len(up); broken++ {
					require.NoError(t, s.MigrateDown(ctx, n-1))
					run(t, s, up[:broken])
					_, err = s.Migrate(ctx)
					require.NoError(t, err)
					require.Equal(t, log, logOf(t, s), "%d up broken off after %d statements", n, broken)
					require.Equal(t, rows, tasks(), "%d up broken off after %d statements", n, broken)
				}
				for broken := range down {
					require.NoError(t, s.MigrateDown(ctx, n))
					run(t, s, down[:broken])
					require.NoError(t, s.MigrateDown(ctx, n-1))
					_, err = s.Migrate(ctx)
					require.NoError(t, err)
					require.Equal(t, log, logOf(t, s), "%d down broken off after %d statements", n, broken)
					require.Equal(t, rows, tasks(), "%d down broken off after %d statements", n, broken)
				}
			}
		})
	}
}

// run runs the first statements of a migration, as one session.
func run(t *testing.T, s *taskstore.Store, steps []string) {
	t.Helper()
	if len(steps) == 0 {
		return
	}
	conn, err := s.DB().Conn(t.Context())
	require.NoError(t, err)
	var noPad string // MariaDB's comes first where both are known
	require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT MAX(collation_name) FROM information_schema.collations
		WHERE collation_name IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin')`).Scan(&noPad))
	for _, step := range steps {
		_, err := conn.ExecContext(t.Context(), strings.ReplaceAll(step, "@nopad", noPad))
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close())
}

// People's SQL reads the log, and cannot write it.
func TestTheViewOfTheLog(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			lifeOf(t, s)
			log, err := s.Transitions(ctx, taskstate.System(), idA, 0, 10)
			require.NoError(t, err)
			read := sqldb.Rebind(sqldb.Dialect(s.Dialect()), `SELECT id, task_id, COALESCE(from_status, ''), to_status, reason, attempt_count, crash_count, fence, timeline,
				actor, message, lease_expires_at, next_retry_at, delivery, COALESCE(error_code, ''), created_at FROM ingest_task_transition WHERE task_id = ? ORDER BY id`)
			seen, err := sqldb.Collect(ctx, s.DB(), func(rows *sql.Rows) (tr taskstate.Transition, err error) {
				var lease, retry, created taskstate.DBTime
				err = rows.Scan(&tr.ID, &tr.TaskID, &tr.From, &tr.To, &tr.Reason, &tr.AttemptCount, &tr.CrashCount, &tr.Fence, &tr.Epoch,
					&tr.Actor, &tr.Message, &lease, &retry, &tr.Delivery, &tr.ErrorCode, &created)
				tr.LeaseExpiresAt, tr.NextRetryAt, tr.CreatedAt = lease.Time, retry.Time, created.Time
				return tr, err
			}, read, idA)
			require.NoError(t, err)
			require.Equal(t, log, seen)
			for _, write := range []string{
				"UPDATE ingest_task_transition SET fence = 7", "UPDATE ingest_task_transition SET actor = 'user:mallory'", "UPDATE ingest_task_transition SET to_status = 'DEAD'",
				"UPDATE ingest_task_transition SET id = 7", "UPDATE ingest_task_transition SET task_id = '01900000-0000-7000-8000-00000000000d'",
				"DELETE FROM ingest_task_transition", "INSERT INTO ingest_task_transition (task_id) VALUES ('x')",
			} {
				_, err := s.DB().ExecContext(ctx, write)
				require.Error(t, err, write)
			}
		})
	}
}

// People's SQL reads tasks, and cannot write them.
func TestTheViewOfTasks(t *testing.T) {
	t.Parallel()
	for name, config := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			lifeOf(t, s)
			row, err := s.Get(ctx, taskstate.System(), idA)
			require.NoError(t, err)
			var seen taskstate.Task
			var retry, updated taskstate.DBTime
			require.NoError(t, s.DB().QueryRowContext(ctx, `SELECT id, user_id, type, status, attempt_count, fence, delivery, last_error, error_code, next_retry_at, updated_at
				FROM ingest_task WHERE id = '`+idA+"'").Scan(&seen.ID, &seen.UserID, &seen.Type, &seen.Status, &seen.AttemptCount, &seen.Fence, &seen.Delivery,
				&seen.LastError, &seen.ErrorCode, &retry, &updated))
			require.Equal(t, taskstate.Task{
				ID: row.ID, UserID: row.UserID, Type: row.Type, Status: row.Status, AttemptCount: row.AttemptCount, Fence: row.Fence, Delivery: row.Delivery,
				LastError: row.LastError, ErrorCode: row.ErrorCode,
			}, seen)
			require.Equal(t, []time.Time{row.NextRetryAt, row.UpdatedAt}, []time.Time{retry.Time, updated.Time})

			writes := []string{
				"DELETE FROM ingest_task", "INSERT INTO ingest_task (id) VALUES ('" + idC + "')",
				"UPDATE ingest_task SET status = 'SUCCEEDED', fence = 9", "UPDATE ingest_task SET id = '01900000-0000-7000-8000-00000000000d'",
			}
			for _, c := range catalogue(t, s) {
				table, c, _ := strings.Cut(c, ".")
				if table != "ingest_task" {
					continue
				}
				writes = append(writes, "UPDATE ingest_task SET "+c+" = "+c, "UPDATE ingest_task SET "+c+" = '1'")
			}
			for _, write := range writes {
				if _, err := s.DB().ExecContext(ctx, write); err == nil && write != "UPDATE ingest_task SET id = id" { // it changes nothing
					t.Errorf("%s is done", write)
				}
			}
			require.Greater(t, len(writes), 2*35, "each column")
			after, err := s.Get(ctx, taskstate.System(), idA)
			require.NoError(t, err)
			require.Equal(t, row, after)
		})
	}
}
