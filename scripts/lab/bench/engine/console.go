package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

// seenValues are tasks of which one in ten has failed for good.
const seenValues = `IF(seq % 10, 'SUCCEEDED', 'DEAD') AS status, 'done' AS stage, 1 AS attempts, NULL AS retry_at, 1 AS fence,
'9999-12-31' AS wake, '9999-12-31' AS promised, IF(seq % 10, 'none', 'written') AS dlq, 2592000 - seq DIV @call * 0.6 AS age`

// seenRows are what stands beside the tasks: who succeeded has no failure, and each task has a document in one of 100 bases.
var seenRows = []string{
	`UPDATE ingest_task_body b JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', '')) SET b.last_error = NULL, b.error_code = NULL WHERE t.status = 'SUCCEEDED'`,
	`DELETE f FROM task_failure f JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(f.task_id, '-', '')) WHERE t.status = 'SUCCEEDED'`,
	`UPDATE failure_group g SET tasks = (SELECT COUNT(*) FROM task_failure f WHERE f.failure_id = g.id)`,
	`INSERT INTO knowledge_base (id, user_id, name, live_name, created_at, updated_at)
SELECT CONCAT('01920000-0000-7000-8000-', LPAD(seq, 12, '0')), CONCAT('user', seq % 50), CONCAT('base ', seq), CONCAT('base ', seq), NOW(6), NOW(6) FROM seq_0_to_99`,
	`INSERT INTO knowledge_document (id, user_id, base_id, title, file_name, media_type, status, segment_count, bytes, content_sha256, same_sha256,
  visible_no, last_no, last_upload_no, latest_task_id, created_at, updated_at, sweep_at)
SELECT b.document_id, b.user_id, b.knowledge_base_id, CONCAT('Report ', b.id), CONCAT('report-', b.id, '.pdf'), 'application/pdf',
  CASE t.status WHEN 'DEAD' THEN 'FAILED' ELSE 'READY' END, 12, 100000, SHA2(b.id, 256), SHA2(b.id, 256), 1, 1, 1, b.id, b.created_at, b.created_at, '9999-12-31'
FROM ingest_task_body b JOIN ingest_task_state t ON t.id = UNHEX(REPLACE(b.id, '-', ''))`,
	`INSERT INTO document_count (base_id, status, documents, segments)
SELECT base_id, status, COUNT(*), SUM(segment_count) FROM knowledge_document GROUP BY base_id, status`,
	`ANALYZE TABLE document_count, knowledge_document, knowledge_base, failure_group, task_failure, ingest_task_body`,
}

// screens are the addresses of the console, below it; TASK, DOCUMENT and BASE are ids of one of each.
var screens = []string{
	"", "/tasks", "/tasks?filter=status%3ADEAD", "/tasks?filter=status%3ADEAD+kb%3ABASE", "/tasks?filter=doc~nowhere", "/tasks/TASK", "/documents",
	"/documents/DOCUMENT", "/bases", "/bases/BASE", "/failures", "/bulk", "/search?q=report&knowledgeBase=BASE", "/upload", "/queues", "/workers", "/suspended", "/keys", "/audit",
	"/settings", "/health", "/deadletters",
}

// Console measures the screens of the console as an operator opens them.
func Console(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, _, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "console"}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	rows := figure.Setting("BENCH_ROWS", deadRows)
	name := w.Database()
	if err := w.SQL.SQL(ctx, name, "SET GLOBAL innodb_buffer_pool_size = 2147483648"); err != nil {
		return nil, err
	}
	if err := fillTasks(ctx, w.SQL, name, rows, seenValues); err != nil {
		return nil, err
	}
	for _, statement := range seenRows {
		if err := w.SQL.SQL(ctx, name, statement); err != nil {
			return nil, fmt.Errorf("fill: %w", err)
		}
	}
	task := idOf(0, rows/2)
	at := strings.NewReplacer("TASK", task, "DOCUMENT", strings.Replace(task, "0190", "0191", 1), "BASE", baseOf(7))
	var out []figure.Figure
	for _, screen := range screens {
		var times []time.Duration
		status := 0
		for i := range deadRounds + 1 {
			took, code, err := look(ctx, procs[0].HTTP+"/console"+at.Replace(screen))
			if err != nil {
				return out, fmt.Errorf("screen %q: %w", screen, err)
			}
			if status = code; i > 0 { // what comes first reads pages and opens connections
				times = append(times, took)
			}
		}
		out = append(out, figure.Figure{
			Name: "screen " + "/console" + screen + ", " + count(rows) + " tasks", Measured: figure.Ms(figure.Percentile(times, 95)), Unit: "ms", Asked: screenAsked,
			Relation: "≤", Note: "p95 of " + strconv.Itoa(len(times)) + ", status " + strconv.Itoa(status),
		})
	}
	return out, nil
}

// browser opens screens.
var browser = &http.Client{Timeout: time.Minute}

// look opens one screen, as its user waits for it.
func look(ctx context.Context, address string) (time.Duration, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	req.Header.Set("Accept", "text/html")
	began := time.Now()
	res, err := browser.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(io.Discard, res.Body)
	return time.Since(began), res.StatusCode, err
}
