package rival

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskstore"
)

// rawCycle is the least SQL that an audited task needs: insert, claim and finish, each with its audit row, in three
// transactions of 500 tasks, on four connections, without Redis, without workers and without a single SELECT.
// Its submit is the first of them, its drain the other two: what no system on these tables can be faster than.
type rawCycle struct {
	cfg    Config
	shape  shape
	db     *sql.DB
	queued [][]string // ids of submitted tasks
}

// shape is the tables of a cycle and its three transactions.
type shape struct {
	tables func(ctx context.Context, dsn string) error
	steps  [3][]statement
}

// statement is one of a transaction over many tasks.
type statement struct {
	text func(n int) string
	args func(ids []string) []any
	all  bool // it must change every one of them
}

// insertOf is a multi-row INSERT; args are those of one row.
func insertOf(head, row string, args func(id string) []any) statement {
	return statement{
		text: func(n int) string { return rowsOf(head, row, n) },
		args: func(ids []string) (out []any) {
			for _, id := range ids {
				out = append(out, args(id)...)
			}
			return out
		},
	}
}

// updateOf is an UPDATE of the tasks of the batch that are as the condition says; key is a task's id as the table has it.
func updateOf(table, set, condition string, key func(id string) []any) statement {
	return statement{
		text: func(n int) string {
			return "UPDATE " + table + " SET " + set + " WHERE id IN " + among(n) + " AND " + condition
		},
		args: func(ids []string) (out []any) {
			for _, id := range ids {
				out = append(out, key(id)...)
			}
			return out
		},
		all: true,
	}
}

// ofID are the arguments of a row that needs only the task's id.
func ofID(id string) []any { return []any{id} }

// ofBytes is the id as the product's narrow tables have it.
func ofBytes(id string) []any { u := uuid.MustParse(id); return []any{u[:]} }

const (
	lease = "NOW(6) + INTERVAL 30 SECOND"
)

// logged are the statements of the log: the call's row with its tasks' ids, and a row for each of them.
func logged(from, to, reason, actor, lease string, fence int, delivery string) []statement {
	return []statement{{
		text: func(n int) string {
			return fmt.Sprintf(`INSERT INTO ingest_task_call (call_id, from_status, to_status, reason, timeline, actor, fence, lease_expires_at, wake_at, tasks, ids, created_at)
VALUES ('0123456789abcdef', %s, %s, %s, 1, %s, %d, %s, NOW(6), %d, ?, NOW(6))`, from, to, reason, actor, fence, lease, n)
		},
		args: func(ids []string) []any {
			raw := make([]byte, 0, len(ids)*len(uuid.UUID{}))
			for _, id := range ids {
				u := uuid.MustParse(id)
				raw = append(raw, u[:]...)
			}
			return []any{raw}
		},
	}, insertOf(`INSERT INTO ingest_task_log (task_id, call_no, delivery)`,
		fmt.Sprintf("(?, LAST_INSERT_ID(), %s)", delivery),
		ofBytes)}
}

// ourShape is the product's own schema, with every column that the product writes.
func ourShape() shape {
	return shape{
		tables: func(ctx context.Context, dsn string) error {
			s, err := taskstore.Open(ctx, taskstore.Config{MySQLDSN: dsn})
			if err != nil {
				return err
			}
			defer s.Close() //nolint:errcheck // only connections
			_, err = s.Migrate(ctx)
			return err
		},
		steps: [3][]statement{append([]statement{
			insertOf(`INSERT INTO ingest_task_body (id, user_id, type, channel, payload, max_attempts, created_at)`,
				"(?, 'local', 'noop', 'http', ?, 10, NOW(6))", func(id string) []any { return []any{id, Payload(0)} }),
			insertOf(`INSERT INTO ingest_task_state (id, status, wake_at, promised_at, updated_at)`, "(?, 'QUEUED', NOW(6), NOW(6), NOW(6))", ofBytes),
		}, logged("NULL", "'QUEUED'", "'ACCEPTED'", "'user:local'", "NULL", 0, "NULL")...), append([]statement{
			updateOf("ingest_task_state", `status = 'RUNNING', fence = fence + 1, lease_owner = 1 << 36 | 1, wake_at = `+lease+`,
promise_count = 0, delivery = x'1700000000000a0fffffffffffffffff', updated_at = NOW(6)`, "status = 'QUEUED' AND fence = 0", ofBytes),
		}, logged("'QUEUED'", "'RUNNING'", "'CLAIMED'", "'worker:peers-1'", lease, 1, "'1700000000000-0'")...), append([]statement{
			updateOf("ingest_task_state", `status = 'SUCCEEDED', stage = 'done', progress = 100, updated_at = NOW(6)`, "status = 'RUNNING' AND fence = 1", ofBytes),
		}, logged("'RUNNING'", "'SUCCEEDED'", "'DONE'", "'worker:peers-1'", "NULL", 1, "NULL")...)},
	}
}

// sketchTables are the few columns with which the first prototype of batching was measured: naive's with a status of
// constant width and without its index on the status; a document besides.
var sketchTables = []string{
	naiveTables[0],
	`CREATE TABLE ingest_task (
  id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY, document_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD') NOT NULL, attempt_count INT NOT NULL DEFAULT 0,
  next_retry_at DATETIME(3) NULL, last_error VARCHAR(1000) NULL, error_message VARCHAR(1000) NULL, payload VARBINARY(512) NULL,
  created_at DATETIME(3) NOT NULL, updated_at DATETIME(3) NOT NULL, KEY ix_due (next_retry_at))`,
	`CREATE TABLE ingest_task_transition (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, task_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  from_status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD') NULL,
  to_status ENUM('QUEUED', 'RUNNING', 'RETRYING', 'SUCCEEDED', 'DEAD') NOT NULL, attempt_count INT NOT NULL,
  message VARCHAR(500) NULL, created_at DATETIME(3) NOT NULL, KEY ix_task (task_id, id))`,
}

// sketchShape is the cycle over them.
func sketchShape() shape {
	const log = "INSERT INTO ingest_task_transition (task_id, from_status, to_status, attempt_count, created_at)"
	return shape{
		tables: func(ctx context.Context, dsn string) error {
			db, err := openMySQL(ctx, dsn, 1)
			if err != nil {
				return err
			}
			defer db.Close() //nolint:errcheck // only a connection
			for _, table := range sketchTables {
				if _, err := db.ExecContext(ctx, table); err != nil {
					return err
				}
			}
			return nil
		},
		steps: [3][]statement{{
			insertOf("INSERT INTO knowledge_document", "(?, 'kb', 'title', '/data/x', 'QUEUED', NOW(3))", ofID),
			insertOf("INSERT INTO ingest_task (id, document_id, status, payload, created_at, updated_at)", "(?, ?, 'QUEUED', ?, NOW(3), NOW(3))",
				func(id string) []any { return []any{id, id, Payload(0)} }),
			insertOf(log, "(?, NULL, 'QUEUED', 0, NOW(3))", ofID),
		}, {
			updateOf("ingest_task", "status = 'RUNNING', updated_at = NOW(3)", "status IN ('QUEUED', 'RETRYING') AND (next_retry_at IS NULL OR next_retry_at <= NOW(3))", ofID),
			insertOf(log, "(?, 'QUEUED', 'RUNNING', 0, NOW(3))", ofID),
		}, {
			updateOf("ingest_task", "status = 'SUCCEEDED', updated_at = NOW(3)", "status = 'RUNNING'", ofID),
			insertOf(log, "(?, 'RUNNING', 'SUCCEEDED', 0, NOW(3))", ofID),
		}},
	}
}

// Prepare makes the tables anew.
func (c *rawCycle) Prepare(ctx context.Context) error {
	c.Close()
	dsn, err := freshMySQL(ctx, c.cfg.MySQL, "peers_cycle")
	if err != nil {
		return err
	}
	if err := c.shape.tables(ctx, dsn); err != nil {
		return err
	}
	c.db, err = openMySQL(ctx, dsn, bulkers)
	return err
}

// Cycle takes n tasks from their insert to their end, each batch on its own.
func (c *rawCycle) Cycle(ctx context.Context, n int) error {
	chunks, err := newIDs(n)
	if err != nil {
		return err
	}
	return c.do(ctx, chunks, c.shape.steps[:])
}

// Submit is the first half of a cycle, Drain the second.
func (c *rawCycle) Submit(ctx context.Context, n int) (err error) {
	if c.queued, err = newIDs(n); err != nil {
		return err
	}
	return c.do(ctx, c.queued, c.shape.steps[:1])
}

// Drain is the second half of a cycle.
func (c *rawCycle) Drain(ctx context.Context) error {
	return c.do(ctx, c.queued, c.shape.steps[1:])
}

// newIDs makes the ids of n tasks, in transactions' portions.
func newIDs(n int) ([][]string, error) {
	ids := make([]string, n)
	for i := range ids {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		ids[i] = id.String()
	}
	slices.Sort(ids)
	return slices.Collect(slices.Chunk(ids, bulk)), nil
}

// do takes each chunk through the steps.
func (c *rawCycle) do(ctx context.Context, chunks [][]string, steps [][]statement) error {
	return each(ctx, len(chunks), bulkers, func(ctx context.Context, i int) error {
		for _, step := range steps {
			if err := c.transaction(ctx, step, chunks[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// transaction is one step for a batch.
func (c *rawCycle) transaction(ctx context.Context, step []statement, ids []string) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing to roll back after the commit
	for _, s := range step {
		done, err := tx.ExecContext(ctx, s.text(len(ids)), s.args(ids)...)
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || (s.all && n != int64(len(ids))) {
			return fmt.Errorf("%d of %d tasks changed: %w", n, len(ids), err)
		}
	}
	return tx.Commit()
}

// Close lets the connections go.
func (c *rawCycle) Close() {
	if c.db != nil {
		_ = c.db.Close() // only connections
	}
	c.db = nil
}
