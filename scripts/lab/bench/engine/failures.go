package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/tasks"
	manytasks "github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	deadRows     = 1_000_000 // BENCH_ROWS says otherwise
	deadRounds   = 20
	groupsAsked  = 50  // ms
	screenAsked  = 100 // ms
	previewAsked = 2   // s
)

// deadValues are a million tasks that ended badly, the cause by their number.
const deadValues = `'DEAD' AS status, 'embed' AS stage, 3 AS attempts, NULL AS retry_at, 3 AS fence,
'9999-12-31' AS wake, '9999-12-31' AS promised, 'written' AS dlq, 2592000 - seq DIV @call * 0.6 AS age`

// deadCause is the group of a task, one of 200, as hexadecimal digits.
const deadCause = "LPAD(LOWER(HEX(seq % 200)), 16, '0')"

// Failures measures what people ask about a million DEAD tasks: their groups, pages by filter, and what a bulk operation would do.
func Failures(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	server, err := labserver.Start(ctx, labserver.KindMariaDB, labserver.Options{Args: []string{
		"--innodb-buffer-pool-size=2G", "--innodb-log-file-size=2G",
	}})
	if err != nil {
		return nil, err
	}
	defer Servers{SQL: server}.End()
	rows := figure.Setting("BENCH_ROWS", deadRows)
	db, err := fillDead(ctx, server, rows)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	operations := manytasks.New(manytasks.Deps{Store: db, Door: noRefusals{}, Reason: func(error) string { return "" }})
	group := fmt.Sprintf("%016x", 7)
	preview := func(expression string) func() (int64, error) {
		return func() (int64, error) {
			f, err := filter.Parse(expression, time.Now())
			if err != nil {
				return 0, err
			}
			p, err := operations.Preview(ctx, tasks.Caller{Scope: taskstate.System()}, manytasks.Request{Action: manytasks.Replay, Filter: f})
			return p.Matched, err
		}
	}
	page := func(expression string, sort taskstate.Sort) func() (int64, error) {
		return func() (int64, error) {
			f, err := filter.Parse(expression, time.Now())
			if err != nil {
				return 0, err
			}
			f.Query.Sort, f.Query.Limit = sort, 50
			found, err := db.List(ctx, taskstate.System(), f.Query)
			return int64(len(found.Tasks)), err
		}
	}
	groups := func(s taskstate.Scope) func() (int64, error) {
		return func() (int64, error) {
			found, err := db.FailureGroups(ctx, s, taskstate.GroupQuery{Limit: 50})
			return int64(len(found)), err
		}
	}
	var out []figure.Figure
	for _, p := range []struct {
		name  string
		asked float64
		unit  string
		call  func() (int64, error)
	}{
		{"failure groups, the first 50", groupsAsked, "ms", groups(taskstate.System())},
		{"failure groups of a user", groupsAsked, "ms", groups(taskstate.Scope{UserID: "user7", Role: taskstate.RoleUser})},
		{"tasks, status:DEAD", screenAsked, "ms", page("status:DEAD", taskstate.SortUpdatedDesc)},
		{"tasks, of a group", screenAsked, "ms", page("group:"+group, taskstate.SortCreatedDesc)},
		{"tasks, error~nowhere", screenAsked, "ms", page("status:DEAD error~nowhere", taskstate.SortUpdatedDesc)},
		{"tasks, of a group, error~nowhere", screenAsked, "ms", page("group:"+group+" error~nowhere", taskstate.SortCreatedDesc)},
		{"dry run, status:DEAD", previewAsked, "s", preview("status:DEAD")},
		{"dry run, status:DEAD error~refused", previewAsked, "s", preview("status:DEAD error~refused")},
		{"dry run, of a group", previewAsked, "s", preview("group:" + group)},
	} {
		var times []time.Duration
		var n int64
		for i := range deadRounds + 1 {
			began := time.Now()
			if n, err = p.call(); err != nil {
				return out, fmt.Errorf("%s: %w", p.name, err)
			}
			if i > 0 { // what comes first reads pages and opens connections
				times = append(times, time.Since(began))
			}
			if p.unit == "s" && i == 5 {
				break
			}
		}
		took := figure.Percentile(times, 95)
		f := figure.Figure{Name: p.name + ", " + count(rows) + " DEAD", Measured: figure.Ms(took), Unit: "ms", Asked: p.asked, Relation: "≤", Note: fmt.Sprintf("p95 of %d, %d found", len(times), n)}
		if p.unit == "s" {
			f.Measured, f.Unit = took.Seconds(), "s"
		}
		out = append(out, f)
	}
	return out, nil
}

// noRefusals is a door that refuses no replay: only the store is measured.
type noRefusals struct{ manytasks.Door }

func (noRefusals) Refusals(context.Context, taskstate.Scope, []string) (map[string]error, error) {
	return nil, nil
}

// fillDead makes a database with DEAD tasks and the counts of their failures.
func fillDead(ctx context.Context, server *labserver.Server, rows int) (*taskstore.Store, error) {
	const name = "dead"
	if err := server.SQL(ctx, "", "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: server.URL(name), Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	if _, err := db.Migrate(ctx); err != nil {
		return db, fmt.Errorf("migrate: %w", err)
	}
	return db, fillTasks(ctx, server, name, rows, deadValues)
}

// fillTasks puts tasks into a database, each of which is counted among the failures.
func fillTasks(ctx context.Context, server *labserver.Server, name string, rows int, values string) error {
	at := strings.NewReplacer("@at", "TIMESTAMP'"+time.Now().UTC().Format("2006-01-02 15:04:05.000000")+"'", "@call", strconv.Itoa(fillCall))
	for first := 0; first < rows; first += fillChunk {
		made := madeOf(0, first, min(first+fillChunk, rows)-1, values)
		for _, insert := range append(filled[:len(filled):len(filled)],
			`INSERT INTO task_failure (task_id, failure_id, group_id, created_at)
SELECT id, LEFT(MD5(CONCAT(seq %% 200, 'user', seq %% 50, 'base', seq %% 100)), 16), `+strings.ReplaceAll(deadCause, "%", "%%")+`, @at - INTERVAL age SECOND %s`) {
			if err := server.SQL(ctx, name, at.Replace(fmt.Sprintf(insert, made))); err != nil {
				return fmt.Errorf("fill from row %d on: %w", first, err)
			}
		}
	}
	for _, statement := range []string{
		`UPDATE ingest_task_body SET last_error = 'embed batch 3/12: POST http://127.0.0.1:9/v1/embeddings: connection refused', error_code = 'EMBEDDING_FAILED'`,
		`INSERT INTO failure_group (id, group_id, user_id, knowledge_base_id, stage, error_code, pattern, permanent, failures, tasks, task_id, sample, message, first_at, last_at)
SELECT f.failure_id, MIN(f.group_id), MIN(b.user_id), MIN(b.knowledge_base_id), 'embed', 'EMBEDDING_FAILED', CONCAT('cause ', MIN(f.group_id)), 0, COUNT(*), COUNT(*), MIN(f.task_id), 'refused', 'Wait.', MIN(f.created_at), MAX(f.created_at)
FROM task_failure f JOIN ingest_task_body b ON b.id = f.task_id GROUP BY f.failure_id`,
		`INSERT INTO ingest_task_count (status, n) SELECT to_status, SUM(tasks) FROM ingest_task_call WHERE wake_at = '9999-12-31' GROUP BY to_status ON DUPLICATE KEY UPDATE n = VALUES(n)`,
		fillOwners,
		`ANALYZE TABLE failure_group, task_failure, ingest_task_body, ingest_task_state`,
	} {
		if err := server.SQL(ctx, name, statement); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}
