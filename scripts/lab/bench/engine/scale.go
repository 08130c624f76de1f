package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	smallRows   = 10_000    // finished, in the table that others are compared with
	smallQueued = 20_000    // of it; the gauge of due work counts 10,000
	queuedRows  = 1_000_000 // in the large tables
	mostRows    = 1_000_000 // finished, in the largest table; BENCH_ROWS says otherwise
	scaleBatch  = 64
	scaleRounds = 60 // calls of each sort that are timed, on both tables by turns
	scaleCalls  = 10 // calls of each sort whose rows are counted
	flatCost    = 1.3
	fillChunk   = 240_000 // rows of one INSERT
	fillCall    = 30      // tasks of a call, as uploads of 64 clients share one
)

// Scale compares what calls of the store cost on a small table and on large ones, by rows looked at and by time.
func Scale(ctx context.Context, _ *world.Bench) ([]figure.Figure, error) {
	server, err := labserver.Start(ctx, labserver.KindMariaDB, labserver.Options{Args: []string{
		"--innodb-buffer-pool-size=2G", "--innodb-log-file-size=2G",
	}})
	if err != nil {
		return nil, err
	}
	defer Servers{SQL: server}.End()
	small, err := fillTable(ctx, server, "small", smallRows, smallQueued)
	if err != nil {
		return nil, err
	}
	defer small.close()
	var out []figure.Figure
	most := figure.Setting("BENCH_ROWS", mostRows)
	for rows := min(mostRows, most); rows <= most; rows *= 10 {
		large, err := fillTable(ctx, server, fmt.Sprintf("large%d", rows), rows, min(queuedRows, most))
		if err != nil {
			return out, err
		}
		defer large.close()
		figures, err := compare(ctx, small, large)
		out = append(out, figures...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// table is a database with a filled table of tasks.
type table struct {
	server           *labserver.Server
	db               *taskstore.Store
	name             string
	finished, queued int
	claimed          int        // of the queued ones, in the order of their ids
	held             [][]string // batches that were claimed and not ended
	batch            []string   // of this call
}

func (t *table) close() { _ = t.db.Close() }

// fillTable makes a database with finished and queued tasks, and the same few of all other sorts whatever the size.
func fillTable(ctx context.Context, server *labserver.Server, name string, finished, queued int) (*table, error) {
	if err := server.SQL(ctx, "", "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: server.URL(name), Timeout: time.Minute})
	if err != nil {
		return nil, err
	}
	t := &table{server: server, db: db, name: name, finished: finished, queued: queued}
	if _, err := db.Migrate(ctx); err != nil {
		return t, fmt.Errorf("migrate %s: %w", name, err)
	}
	at := strings.NewReplacer("@at", "TIMESTAMP'"+time.Now().UTC().Format("2006-01-02 15:04:05.000000")+"'", "@call", strconv.Itoa(fillCall))
	for _, part := range []struct {
		series int
		rows   int
		values string
	}{
		{0, finished, doneValues},
		{1, queued, queuedValues},
		{2, 1000, retryValues("1 HOUR")},
		{3, 2 * scaleBatch, retryValues("-1 HOUR")},
	} {
		for first := 0; first < part.rows; first += fillChunk {
			last := min(first+fillChunk, part.rows) - 1
			for _, table := range filled {
				if err := server.SQL(ctx, name, at.Replace(fmt.Sprintf(table, madeOf(part.series, first, last, part.values)))); err != nil {
					return t, fmt.Errorf("fill %s from row %d on: %w", name, first, err)
				}
			}
		}
	}
	return t, server.SQL(ctx, name, "INSERT INTO ingest_task_count (status, n) SELECT to_status, SUM(tasks) FROM ingest_task_call WHERE wake_at = '9999-12-31' GROUP BY to_status ON DUPLICATE KEY UPDATE n = VALUES(n); "+fillOwners+"; ANALYZE TABLE ingest_task_body, ingest_task_state, ingest_task_call")
}

// fillOwners counts the tasks of users and knowledge bases.
const fillOwners = `INSERT INTO ingest_task_owner (user_id, knowledge_base_id, status, n)
SELECT b.user_id, COALESCE(b.knowledge_base_id, ''), t.status, COUNT(*)
FROM ingest_task_body b JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', '')) GROUP BY 1, 2, 3`

// What the sorts of rows differ in; age is in seconds. One in a thousand finished tasks is DEAD.
const (
	doneValues = `IF(seq % 1000, 'SUCCEEDED', 'DEAD') AS status, 'done' AS stage, 1 AS attempts, NULL AS retry_at, 1 AS fence,
'9999-12-31' AS wake, '9999-12-31' AS promised, IF(seq % 1000, 'none', 'written') AS dlq, 2592000 - seq DIV @call * 0.6 AS age`
	queuedValues = `'QUEUED' AS status, 'none' AS stage, 0 AS attempts, NULL AS retry_at, 0 AS fence,
@at - INTERVAL 60 - seq DIV @call * 0.0003 SECOND AS wake, @at - INTERVAL 60 - seq DIV @call * 0.0003 SECOND AS promised, 'none' AS dlq,
60 - seq DIV @call * 0.0003 AS age`
)

// retryValues are those of tasks that failed once and are due in a while.
func retryValues(in string) string {
	return fmt.Sprintf(`'RETRYING' AS status, 'none' AS stage, 1 AS attempts, @at + INTERVAL %s AS retry_at, 1 AS fence,
@at + INTERVAL %s AS wake, '9999-12-31' AS promised, 'none' AS dlq, 7200 AS age`, in, in)
}

// idOf is the id of a task of a series; ids grow with their numbers.
func idOf(series, number int) string {
	return fmt.Sprintf("0190%04d-0000-7000-8000-%012d", series, number)
}

// baseOf is the id of one of the 100 knowledge bases.
func baseOf(number int) string { return fmt.Sprintf("01920000-0000-7000-8000-%012d", number) }

// filled are the INSERTs of tasks and of the calls that changed them last, of what madeOf says.
var filled = []string{
	`INSERT INTO ingest_task_body (id, user_id, document_id, knowledge_base_id, file_path, type, channel, max_attempts, created_at)
SELECT id, CONCAT('user', seq %% 50), CONCAT('0191', SUBSTR(id, 5)), CONCAT('01920000-0000-7000-8000-', LPAD(seq %% 100, 12, '0')), CONCAT('files/', id), 'document', 'http', 10,
 @at - INTERVAL age SECOND %s`,
	`INSERT INTO ingest_task_state (id, status, stage, attempt_count, next_retry_at, fence, promised_at, wake_at, dlq_state, updated_at)
SELECT UNHEX(REPLACE(id, '-', '')), status, stage, attempts, retry_at, fence, promised, wake, dlq, @at - INTERVAL age SECOND %s`,
	`INSERT INTO ingest_task_call (call_id, to_status, reason, timeline, actor, wake_at, tasks, ids, created_at)
SELECT UNHEX(REPLACE(MIN(id), '-', '')), status, 'ACCEPTED', 1, 'user:fill', MIN(wake), COUNT(*), GROUP_CONCAT(UNHEX(REPLACE(id, '-', '')) ORDER BY id SEPARATOR ''),
 @at - INTERVAL age SECOND %s GROUP BY seq DIV @call, status, age`,
}

// madeOf is what the tasks first to last of a series say.
func madeOf(series, first, last int, values string) string {
	return fmt.Sprintf(`
FROM (SELECT seq, CONCAT('0190%04d-0000-7000-8000-', LPAD(seq, 12, '0')) AS id, %s FROM seq_%d_to_%d) AS made`, series, values, first, last)
}

// probe is one sort of call.
type probe struct {
	name string
	sort probeSort
	call func(ctx context.Context, t *table) error
}

// probeSort says what is expected of a call.
type probeSort int

const (
	flat    probeSort = iota // asked to cost the same on every table
	growing                  // told for its own sake
)

var probes = []probe{
	{"claim of 64", flat, claimBatch},
	{"finish of 64", flat, finishBatch},
	{"sweep of 64 due retries", flat, sweepOf(taskstate.Sweep{Status: taskstate.StatusRetrying, WakeBefore: taskstate.In(0), Limit: scaleBatch}, scaleBatch)},
	{"sweep of expired leases, none", flat, sweepOf(taskstate.Sweep{Status: taskstate.StatusRunning, WakeBefore: taskstate.In(0), Limit: scaleBatch}, 0)},
	{"sweep of lost deliveries, none", flat, sweepOf(taskstate.Sweep{Status: taskstate.StatusQueued, Before: time.Unix(0, 0), Limit: scaleBatch}, 0)},
	{"sweep of 64 lost deliveries", flat, sweepOf(taskstate.Sweep{Status: taskstate.StatusQueued, WakeBefore: taskstate.In(0), Limit: scaleBatch}, scaleBatch)},
	{"next lease or retry", flat, nextWakes},
	{"gauge of due work", flat, func(ctx context.Context, t *table) error { _, _, err := t.db.Due(ctx, 10_000); return err }},
	{"list, first page of 50", flat, list(taskstate.Query{})},
	{"list, of one user", flat, userList(taskstate.Query{})},
	{"list, last changed first", flat, list(taskstate.Query{Sort: taskstate.SortUpdatedDesc})},
	{"list, last changed first, of one user", flat, userList(taskstate.Query{Sort: taskstate.SortUpdatedDesc})},
	{"list, one base", flat, list(taskstate.Query{KnowledgeBase: baseOf(7)})},
	{"list, DEAD", growing, list(taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusDead}})},
	{"list, DEAD of one user", growing, userList(taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusDead}})},
	{"list, text that nothing has", flat, list(taskstate.Query{Text: "nowhere"})},
	{"list, text that nothing has, last changed first", flat, list(taskstate.Query{Text: "nowhere", Sort: taskstate.SortUpdatedDesc})},
	{"list, text that nothing has, of one user", growing, userList(taskstate.Query{Text: "nowhere"})},
	{"counts by status", growing, func(ctx context.Context, t *table) error {
		_, err := t.db.Counts(ctx, taskstate.System(), "")
		return err
	}},
}

// claimBatch claims the next batch of queued tasks.
func claimBatch(ctx context.Context, t *table) error {
	t.batch = make([]string, scaleBatch)
	for i := range t.batch {
		t.batch[i] = idOf(1, t.claimed+i)
	}
	t.claimed += scaleBatch
	t.held = append(t.held, t.batch)
	return t.apply(ctx, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Claim(taskstate.Policy{Lease: time.Hour, MaxCrashes: 3}, m, task, taskstate.ClaimRequest{
			Owner: "bench/1", Process: "bench", Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "bench"},
		})
	})
}

// finishBatch ends a batch that was claimed and not yet ended.
func finishBatch(ctx context.Context, t *table) error {
	if len(t.held) == 0 {
		if err := claimBatch(ctx, t); err != nil {
			return err
		}
	}
	t.batch, t.held = t.held[0], t.held[1:]
	return t.apply(ctx, func(m taskstate.DBClock, task taskstate.Task) taskstate.Decision {
		return taskstate.Succeed(m, task, taskstate.Holder{
			Token: taskstate.Token{Epoch: m.Epoch, Fence: task.Fence}, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "bench"},
		}, nil, "")
	})
}

// apply decides on the batch; each of it must change.
func (t *table) apply(ctx context.Context, decide func(taskstate.DBClock, taskstate.Task) taskstate.Decision) error {
	outs, err := t.db.Apply(ctx, taskstate.Batch{IDs: t.batch, Scope: taskstate.System(), Decide: taskstate.Each(decide)})
	for _, o := range outs {
		if o.Err != nil || o.Change == nil {
			return fmt.Errorf("task %s of %s: %s: %w", o.TaskID, t.name, o.Answer, o.Err)
		}
	}
	return err
}

// sweepOf locks due rows and lets them be; there must be so many.
func sweepOf(w taskstate.Sweep, want int) func(context.Context, *table) error {
	w.Decide = taskstate.Each(func(_ taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
	})
	return func(ctx context.Context, t *table) error {
		outs, err := t.db.Sweep(ctx, w)
		if err == nil && len(outs) != want {
			err = fmt.Errorf("sweep of %s in %s found %d rows, must find %d", w.Status, t.name, len(outs), want)
		}
		return err
	}
}

// nextWakes is what the recovery loop asks.
func nextWakes(ctx context.Context, t *table) error {
	for _, status := range []taskstate.Status{taskstate.StatusRunning, taskstate.StatusRetrying} {
		if _, err := t.db.NextWake(ctx, status, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// list is a page of an operator.
func list(q taskstate.Query) func(context.Context, *table) error {
	return listOf(taskstate.System(), q)
}

// userList is a page of one of the 50 users.
func userList(q taskstate.Query) func(context.Context, *table) error {
	return listOf(taskstate.Scope{UserID: "user7"}, q)
}

func listOf(scope taskstate.Scope, q taskstate.Query) func(context.Context, *table) error {
	q.Limit = 50
	return func(ctx context.Context, t *table) error {
		_, err := t.db.List(ctx, scope, q)
		return err
	}
}

// compare measures every sort of call on both tables.
func compare(ctx context.Context, small, large *table) ([]figure.Figure, error) {
	var out []figure.Figure
	for _, p := range probes {
		f, err := p.compare(ctx, small, large)
		if err != nil {
			return out, fmt.Errorf("%s: %w", p.name, err)
		}
		out = append(out, f)
	}
	return out, nil
}

// compare is the ratio of the medians of one sort of call, with the rows that it looks at in both tables.
func (p probe) compare(ctx context.Context, small, large *table) (figure.Figure, error) {
	var rows [2]float64
	var times [2][]time.Duration
	for i, t := range []*table{small, large} {
		if err := p.call(ctx, t); err != nil { // what comes first reads pages and opens connections
			return figure.Figure{}, err
		}
		before, err := t.server.Counters(ctx)
		if err != nil {
			return figure.Figure{}, err
		}
		for range scaleCalls {
			if err := p.call(ctx, t); err != nil {
				return figure.Figure{}, err
			}
		}
		after, err := t.server.Counters(ctx)
		if err != nil {
			return figure.Figure{}, err
		}
		rows[i] = after.Sub(before).Per(scaleCalls).RowsRead
	}
	spent := time.Duration(0)
	for range scaleRounds {
		for i, t := range []*table{small, large} {
			began := time.Now()
			if err := p.call(ctx, t); err != nil {
				return figure.Figure{}, err
			}
			times[i] = append(times[i], time.Since(began))
			spent += time.Since(began)
		}
		if spent > time.Minute { // a call that reads all of a table
			break
		}
	}
	few, many := figure.Percentile(times[0], 50), figure.Percentile(times[1], 50)
	f := figure.Figure{
		Name:     fmt.Sprintf("%s, %s tasks / %s", p.name, count(large.finished+large.queued), count(small.finished+small.queued)),
		Measured: many.Seconds() / few.Seconds(), Unit: "×",
		Note: fmt.Sprintf("%.2f and %.2f ms, %.0f and %.0f rows looked at, median of %d", figure.Ms(few), figure.Ms(many), rows[0], rows[1], len(times[0])),
	}
	if p.sort == flat {
		f.Asked, f.Relation = flatCost, "≤"
	}
	return f, nil
}

// count is a number of rows as people say it.
func count(n int) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%g M", float64(n)/1e6)
	}
	return fmt.Sprintf("%g k", float64(n)/1e3)
}
