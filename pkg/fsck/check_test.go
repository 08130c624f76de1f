package fsck_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
)

// notAtRest are the rules that judge work under way: a world at rest has nothing for them.
var notAtRest = map[string]bool{"I6": true, "I19": true, "L2": true, "L6": true}

func TestAWorldThatKeepsEveryRule(t *testing.T) {
	t.Parallel()
	for name, open := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, open(t))
			report := w.check()
			require.NoError(t, report.Err())
			for _, id := range rules.Applicable() {
				if !notAtRest[id] {
					require.NoError(t, report.RequireJudged(id))
				}
			}
			require.NoError(t, report.RequireJudged("I16", "L3"), "it has an outbox")
			require.NoError(t, report.RequireJudged("I31", "I32", "I33"), "it has a log of partitions")
			require.NoError(t, report.RequireJudged("I22"), "it has copies")
			w.options.History = false
			report = w.check()
			require.NoError(t, report.Err())
			require.NoError(t, report.RequireJudged("I12", "I18", "I23", "I24", "I25", "I27", "I29", "I37"))
			require.Error(t, report.RequireJudged("I14"), "only with the history")
		})
	}
}

// breach is one way to break a rule, and the words that must say so.
type breach struct {
	rule  string
	spoil func(w *world)
	want  string
}

// breaches break rows, files, vectors, queue and logs, one at a time.
var breaches = map[string]breach{
	"log: first row gone": {"I1", func(w *world) {
		w.unlog(`task_id = ? AND reason = 'ACCEPTED'`, w.good)
	}, "the one before ended in –"},
	"row: other state": {"I2", func(w *world) { w.state("status = 'CANCELLED'", w.good) }, "its row says CANCELLED"},
	"log: gone":        {"I2", func(w *world) { w.unlog(`task_id = ?`, w.good) }, "its log is empty"},
	"log: fence": {"I3", func(w *world) {
		w.edit(`fence = 7`, `task_id = ? AND reason = 'FAILED'`, w.good)
	}, "its fence is 7"},
	"log: zombie": {"I4", func(w *world) {
		w.edit(`actor = 'worker:zz'`, `task_id = ? AND reason = 'DONE'`, w.good)
	}, "worker:zz ended the run"},
	"log: ended twice": {"I5", func(w *world) {
		w.edit(`fence = 1`, `task_id = ? AND reason = 'DONE'`, w.good)
	}, "had ended before"},
	"log: no lease": {"I6", func(w *world) {
		w.edit(`lease_expires_at = NULL`, `task_id = ? AND reason = 'CLAIMED'`, w.good)
	}, "does not lie ahead"},
	"log: attempt": {"I7", func(w *world) {
		w.edit(`attempt_count = 0`, `task_id = ? AND reason = 'FAILED'`, w.good)
	}, "attempt count is 0"},
	"log: crash": {"I8", func(w *world) {
		w.edit(`crash_count = 1`, `task_id = ? AND reason = 'FAILED'`, w.good)
	}, "crash count is 1"},
	"log: wait": {"I9", func(w *world) {
		w.edit(`next_retry_at = ?`, `task_id = ? AND reason = 'FAILED'`, now().Add(-time.Hour), w.good)
	}, "must be between"},
	"log: early": {"I10", func(w *world) {
		w.edit(`next_retry_at = ?`, `task_id = ? AND reason = 'FAILED'`, now().Add(time.Hour), w.good)
	}, "early"},
	"log: after the end": {"I11", func(w *world) {
		w.edit(`to_status = 'DEAD'`, `task_id = ? AND reason = 'FAILED'`, w.good)
		w.edit(`from_status = 'DEAD'`, `task_id = ? AND from_status = 'RETRYING'`, w.good)
	}, "only a person's replay"},
	"file: missing":     {"I12", func(w *world) { w.eachFile(func(path string) error { return os.Remove(path) }) }, "is missing in the upload folder"},
	"file: other bytes": {"I12", func(w *world) { w.eachFile(func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }) }, "has 1 bytes"},
	"task: lost": {"I12", func(w *world) {
		w.client = append(w.client, fsck.ClientRecord{Op: fsck.OpUpload, User: "u", Outcome: fsck.OutcomeOK, Task: "lost"})
	}, "LOST"},
	"document: gone":          {"I12", func(w *world) { w.sql(`DELETE FROM knowledge_document WHERE latest_task_id = ?`, w.good) }, "no client deleted it"},
	"version: of other bytes": {"I12", func(w *world) { w.sql(`UPDATE stored_file SET sha256 = ?`, hash("y")) }, "was accepted for bytes"},
	"task: ghost":             {"I13", func(w *world) { w.client = w.client[1:]; w.watch(w.good) }, "no request in the client log"},
	"key: two tasks":          {"I14", func(w *world) { w.client[0].Key = "key-2" }, "with one key"},
	"key: other bytes":        {"I14", func(w *world) { w.sql(`UPDATE ingest_task_body SET request_hash = ? WHERE id = ?`, hash("z"), w.good) }, "accepted for other bytes"},
	"queued: no delivery": {"I15", func(w *world) {
		w.edit(`delivery = ''`, `task_id = ? AND from_status = 'QUEUED'`, w.good)
	}, "names no delivery"},
	"queued: forgotten":       {"I15", func(w *world) { w.forget(); w.options.Rest = false }, "has no delivery since"},
	"ack: before the outcome": {"I17", func(w *world) { w.acks[0].At = w.claimed(w.good) }, "was acknowledged at"},
	"dead letter: missing":    {"I18", func(w *world) { w.queue.deadLetters = nil }, "there is none"},
	"dead letter: of no death": {"I18", func(w *world) {
		w.queue.deadLetters = append(w.queue.deadLetters, ingestq.WrittenDeadLetter{ID: "8-0", TaskID: w.good, Fence: 1})
	}, "never died"},
	"dead letter: owed for ever": {"I18", func(w *world) { w.state("dlq_state = 'owed'", w.dead) }, "is owed since"},
	"run: none":                  {"I39", func(w *world) { w.sql(`UPDATE ingest_task_body SET type = 'workflow.execute' WHERE id = ?`, w.good) }, "has no row of workflow_runs"},
	"run: of no workflow":        {"I39", func(w *world) { w.run(w.good, "SUCCEEDED") }, "it is no task of a workflow and workflow_runs says SUCCEEDED"},
	"run: not ended": {"I39", func(w *world) {
		w.sql(`UPDATE ingest_task_body SET type = 'workflow.execute' WHERE id = ?`, w.good)
		w.sql(`UPDATE ingest_task_state SET status = 'QUEUED' WHERE status = 'SUCCEEDED'`)
		w.run(w.good, "SUCCEEDED")
	}, "it is QUEUED and workflow_runs says SUCCEEDED"},
	"run: other end": {"I39", func(w *world) {
		w.sql(`UPDATE ingest_task_body SET type = 'workflow.execute' WHERE id = ?`, w.good)
		w.run(w.good, "DEAD")
	}, "it is SUCCEEDED and workflow_runs says DEAD"},
	"failure: of a task that does not fail": {"I40", func(w *world) {
		w.sql(`INSERT INTO task_failure (task_id, failure_id, group_id, created_at) VALUES (?, 'f', 'g', ?)`, w.good, now())
	}, "does not fail"},
	"failure: not counted":   {"I40", func(w *world) { w.sql(`DELETE FROM task_failure WHERE task_id = ?`, w.dead) }, "is not counted among the failures"},
	"failure: group differs": {"I40", func(w *world) { w.sql(`UPDATE failure_group SET tasks = tasks + 1`) }, "the group says 2 tasks, and 1 are counted in it"},
	"counts: of a status":    {"I41", func(w *world) { w.sql(`UPDATE ingest_task_count SET n = n + 1 WHERE status = 'DEAD'`) }, "and there are 1"},
	"counts: of nobody": {"I41", func(w *world) {
		w.sql(`INSERT INTO ingest_task_owner (user_id, knowledge_base_id, status, n) VALUES ('nobody', '', 'DEAD', 1)`)
	}, `of user "nobody" in knowledge base "" 1 are counted, and there are 0`},
	"counts: of a call":           {"I41", func(w *world) { w.sql(`UPDATE ingest_task_call SET owners = 'x' WHERE to_status = 'DEAD'`) }, "cannot be read"},
	"counts: documents of a base": {"I42", func(w *world) { w.sql(`UPDATE document_count SET documents = documents + 1`) }, "READY documents with"},
	"counts: documents of nobody": {"I42", func(w *world) {
		w.sql(`INSERT INTO document_count_change (base_id, status, documents, segments) VALUES ('nobody', 'FAILED', 1, 3)`)
	}, "1 FAILED documents with 3 segments are counted, and there are 0 with 0"},
	"task: asleep": {"I38", func(w *world) {
		w.sql(`UPDATE ingest_task_call SET wake_at = ?`, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		w.sql(`UPDATE ingest_task_state SET dlq_state = 'owed', wake_at = ? WHERE status = 'DEAD'`, now())
	}, "no call says so"},
	"pending: unknown task":   {"I19", func(w *world) { w.pend(ingestq.Unacked{ID: "9-0", TaskID: "nobody"}) }, "names no task"},
	"pending: entry gone":     {"I20", func(w *world) { w.pend(ingestq.Unacked{ID: "9-0", Gone: true}) }, "was removed"},
	"trim: beyond the group":  {"I20", func(w *world) { w.queue.state.Deleted = "10-0" }, "entry 10-0 was removed"},
	"pending: finished task":  {"L4", func(w *world) { w.pend(ingestq.Unacked{ID: "9-0", TaskID: w.good}) }, "is SUCCEEDED and entry 9-0 is pending"},
	"stream: deaf":            {"L5", func(w *world) { w.queue.state.Watermark = now() }, "given to nobody"},
	"version: two visible":    {"I23", func(w *world) { w.secondVersion("VISIBLE") }, "2 versions are visible"},
	"version: task not done":  {"I23", func(w *world) { w.sql(`UPDATE document_version SET task_id = ? WHERE task_id = ?`, w.dead, w.good) }, "is DEAD"},
	"version: still building": {"I23", func(w *world) { w.secondVersion("BUILDING") }, "is BUILDING and its task"},
	"document: empty again":   {"I24", func(w *world) { w.hide() }, "was not deleted, and has none"},
	"document: wrong status": {"I24", func(w *world) {
		w.sql(`UPDATE knowledge_document SET status = 'FAILED' WHERE latest_task_id = ?`, w.good)
	}, "its status is FAILED"},
	"segments: gap":              {"I25", func(w *world) { w.sql(`UPDATE knowledge_segment SET segment_index = 5 WHERE segment_index = 1`) }, "stands at place 1"},
	"segments: one missing":      {"I25", func(w *world) { w.sql(`DELETE FROM knowledge_segment WHERE segment_index = 1`) }, "has 1 segments"},
	"vectors: one missing":       {"I25", func(w *world) { require.NoError(w.t, w.vectors.Delete(w.t.Context(), base, []string{w.vector()})) }, "is not in the store"},
	"vectors: a stray":           {"I25", func(w *world) { w.stray() }, "which no row names"},
	"vectors: other dimension":   {"I25", func(w *world) { w.sql(`UPDATE knowledge_base SET dim = 9`) }, "refuses such a vector"},
	"segments: born elsewhere":   {"I26", func(w *world) { w.sql(`UPDATE knowledge_segment SET birth_version_id = ?`, tomb) }, "is no earlier one"},
	"hit: of no visible version": {"I26", func(w *world) { w.hit(func(r *fsck.ClientRecord) { r.Hits[0].Version = 9 }) }, "was not visible then"},
	"effect: unknown fence":      {"I26", func(w *world) { w.effects[0].Fence = 9 }, "does not know by then"},
	"effect: unknown task":       {"I26", func(w *world) { w.effects[0].Task = "nobody" }, "is not in the table"},
	"content: differs": {"I27", func(w *world) {
		w.sql(`UPDATE knowledge_segment SET text_hash = ? WHERE vector_id = ?`, hash("q"), w.vector())
	}, "same bytes"},
	"paid twice in a run": {"I28", func(w *world) { w.pay(w.good, 1, "batch-key-1") }, "was paid at"},
	"deleted: still open": {"I29", func(w *world) { w.sql(`UPDATE knowledge_segment SET document_id = ? WHERE segment_index = 0`, tomb) }, "segments are left"},
	"deleted: found":      {"I29", func(w *world) { w.delete() }, "the deletion was answered at"},
	"owner: another user": {"I30", func(w *world) {
		w.edit(`actor = 'user:mallory'`, `task_id = ? AND reason = 'ACCEPTED'`, w.good)
	}, "is by user:mallory"},
	"owner: an id with a space": {"I30", func(w *world) {
		w.sql(`UPDATE stored_file SET user_id = 'u '`)
	}, "begins or ends with white space"},
	"owner: two ids that look alike": {"I30", func(w *world) {
		w.sql(`UPDATE stored_file SET user_id = ?`, "u\u200b")
	}, "can be taken for one another"},
	"owner: foreign hit":   {"I30", func(w *world) { w.hit(func(r *fsck.ClientRecord) { r.User = "mallory" }) }, "a search of mallory found it"},
	"stats: off by one":    {"I34", func(w *world) { w.stats[taskstate.StatusDead]++ }, "the gateway counts 2"},
	"watcher: skipped one": {"I35", func(w *world) { w.drop(1) }, "between them are missing"},
	"watcher: other state": {"I35", func(w *world) { w.event(1).State = "DEAD" }, "was shown DEAD"},
	"watcher: went back":   {"I35", func(w *world) { *w.event(2) = *w.event(0) }, "was shown transition"},
	"watcher: unknown":     {"I35", func(w *world) { w.event(0).Transition = 99_999 }, "not in the log"},
	"watcher: unknown long before an outage": {"I35", func(w *world) {
		e := w.event(0)
		e.Transition = 99_999
		w.outage(e.Ended.Add(time.Minute))
	}, "not in the log"},
	"secret: in a message": {"I36", func(w *world) {
		w.edit(`message = 'POST https://u:hunter2@host/'`, `task_id = ?`, w.good)
	}, "looks like a secret"},
	"secret: in an error": {"I36", func(w *world) {
		w.sql(`UPDATE ingest_task_body SET last_error = 'xx canary-4711' WHERE id = ?`, w.dead)
	}, "planted secret 1"},
	"secret: in a log": {"I36", func(w *world) { w.logs += "Authorization: Bearer abcdefghijkl\n" }, "line 2 holds"},
	"index: a part is lost": {"I37", func(w *world) {
		w.sql(`DELETE FROM knowledge_text_part WHERE id = ?`, w.read(`SELECT MIN(id) FROM knowledge_text_part`))
	}, "lacks 2 of its segments"},
	"index: words of another text": {"I37", func(w *world) {
		w.sql(`UPDATE knowledge_segment SET text_hash = ? WHERE vector_id = ?`, hash("q"), w.vector())
	}, "lacks 1 of its segments"},
	"index: a byte is changed": {"I37", func(w *world) { w.flip("knowledge_text_part", "head") }, "of its full-text index is damaged"},
	"rest: unfinished":         {"L1", func(w *world) { w.accept(w.id("8002"), "key-9") }, "it is QUEUED"},
	"event: sent before it was made": {"I16", func(w *world) {
		w.sql(`UPDATE outbox_event SET sent_at = ?`, now().Add(-time.Hour))
	}, "it is SENT at"},
	"event: unsent with the time of sending": {"I16", func(w *world) { w.sql(`UPDATE outbox_event SET status = 'NEW'`) }, "it is NEW with"},
	"event: left at rest": {"L3", func(w *world) {
		w.sql(`UPDATE outbox_event SET status = 'NEW', sent_at = NULL`)
	}, "it is NEW since"},
	"event: nobody looks": {"L3", func(w *world) {
		w.sql(`UPDATE outbox_event SET status = 'NEW', sent_at = NULL, wake_at = ?`, now().Add(-time.Hour))
		w.options.Rest = false
	}, "was to be looked at at"},
	"rest: wrong end":          {"L1", func(w *world) { w.options.Want = map[string]taskstate.Status{} }, "it ended in DEAD, not SUCCEEDED"},
	"lease: nobody took over":  {"L2", func(w *world) { w.abandon() }, "nobody took it over"},
	"loss: not promised again": {"L6", func(w *world) { w.forget(); w.options.Flushes = []time.Time{now().Add(-time.Minute)} }, "the queue had lost all"},
	"document: found by other bytes": {"I12", func(w *world) {
		w.sql(`UPDATE knowledge_document SET same_sha256 = ? WHERE latest_task_id = ?`, hash("y"), w.good)
	}, "is found by"},
	"version: without a file": {"I12", func(w *world) {
		w.sql(`UPDATE document_version SET file_id = '' WHERE task_id = ?`, w.good)
	}, "names no stored file"},
	"document: of another user's base": {"I30", func(w *world) { w.sql(`UPDATE knowledge_base SET user_id = 'mallory'`) }, "its base that of user"},
	"document: of another user's task": {"I30", func(w *world) {
		w.sql(`UPDATE ingest_task_body SET user_id = 'mallory' WHERE id = ?`, w.good)
	}, "that of user \"mallory\""},
	"document: of another user's file": {"I30", func(w *world) { w.sql(`UPDATE stored_file SET user_id = 'mallory'`) }, "has a file of user"},
	"document: names another number": {"I23", func(w *world) {
		w.sql(`UPDATE knowledge_document SET visible_no = 7 WHERE latest_task_id = ?`, w.good)
	}, "the document names"},
	"document: names what is not visible": {"I23", func(w *world) {
		w.sql(`UPDATE document_version SET state = 'ABANDONED' WHERE task_id = ?`, w.good)
	}, "it names visible version"},
	"version: an older one is visible": {"I23", func(w *world) { w.secondVersion("SUPERSEDED") }, "now the older 1 is"},
	"deleted: still visible": {"I29", func(w *world) {
		w.sql(`UPDATE knowledge_document SET deleted_at = updated_at WHERE latest_task_id = ?`, w.good)
	}, "it is deleted and version"},
	"deleted: still worked on": {"I29", func(w *world) { w.accept(tomb, "key-9"); w.changes++ }, "open tasks are left"},
	"segments: counted wrong": {"I25", func(w *world) {
		w.sql(`UPDATE knowledge_document SET segment_count = 9 WHERE latest_task_id = ?`, w.good)
	}, "it counts 9 segments"},
	"segments: one vector for two": {"I25", func(w *world) {
		w.sql(`UPDATE knowledge_segment SET vector_id = ? WHERE vector_id = ?`, w.vectorAt(0), w.vectorAt(1))
	}, "two segments share vector"},
	"paid again: more than was in flight": {"I28", func(w *world) { w.crash(); w.payAgain("a", "b") }, "3 batches were paid again, 2 were in flight"},
	"dead letter: not owed": {"I18", func(w *world) {
		w.state("dlq_state = 'none'", w.dead)
	}, "owes no dead letter"},
	"pending: entry gone at rest":      {"I19", func(w *world) { w.pend(ingestq.Unacked{ID: "9-0", Gone: true}) }, "does not exist any more"},
	"attachment: of no message":        {"I43", func(w *world) { w.attach(w.id("8010")) }, "which is gone"},
	"attachment: of a deleted message": {"I43", func(w *world) { w.attach(tomb) }, "which is deleted and was swept 1 times"},
	"attachment: in another base": {"I43", func(w *world) {
		w.sql(`UPDATE knowledge_document SET base_id = ? WHERE latest_task_id = ?`, tomb, w.twin)
	}, "its message"},
	"receipt: none":   {"I44", func(w *world) { w.sql(`DELETE FROM document_deletion`) }, "has no receipt"},
	"receipt: early":  {"I44", func(w *world) { w.sql(`UPDATE document_deletion SET removed_at = ?`, now()) }, "rows of it are left"},
	"receipt: unsaid": {"I44", func(w *world) { w.sql(`DELETE FROM knowledge_document WHERE id = ?`, tomb) }, "does not say that it was removed"},
	"receipt: verified before it was removed": {"I44", func(w *world) {
		w.receipt(w.id("8011"), now(), now(), now().Add(-time.Second))
	}, "are not in the order"},
	"event: died with a lease": {"I16", func(w *world) {
		w.sql(`UPDATE outbox_event SET status = 'DEAD', sent_at = NULL, lease = 'x'`)
	}, "it is DEAD with lease"},
}

func TestEveryBreachIsCaughtByItsRule(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for name, b := range breaches {
		caught[b.rule] = true
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if w := b.caught(t, "sqlite"); w.changes > 0 { // rows: every server is asked in its own words
				b.caught(t, "mariadb")
				b.caught(t, "postgres")
			}
		})
	}
	for _, id := range rules.Applicable() {
		require.True(t, caught[id], "no breach of %s", id)
	}
}

// caught spoils a world on a database and finds that.
func (b breach) caught(t *testing.T, kind string) *world {
	t.Helper()
	w := newWorld(t, databases[kind](t))
	w.changes = 0
	b.spoil(w)
	got := w.check().Rule(b.rule)
	require.NotZero(t, got.Violations, "%s: %s saw nothing", kind, b.rule)
	text := ""
	for _, e := range got.Examples {
		text += e.Problem + "\n"
	}
	require.Contains(t, text, b.want, kind)
	return w
}

func TestADeletionWithoutAnAnswerExplainsAnAbsence(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.client = append(w.client, fsck.ClientRecord{Op: fsck.OpDelete, User: "u", Outcome: fsck.OutcomeMaybe, Document: w.goodDocument(), Ended: now()})
	w.sql(`DELETE FROM knowledge_document WHERE latest_task_id = ?`, w.good)
	for _, e := range w.check().Rule("I12").Examples {
		require.NotContains(t, e.Problem, "no client deleted it")
	}
	w.client[len(w.client)-1].Outcome = fsck.OutcomeRefused
	require.NotZero(t, w.check().Rule("I12").Violations, "a refused one explains nothing")
}

// MySQL and MariaDB show a COMMIT before it is on the disk: what a watcher saw right before a kill may never have been.
func TestAnEventRightBeforeTheDatabasesDeathIsNoBreach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	e := w.event(0)
	e.Transition = 99_999
	w.outage(e.Ended.Add(time.Second))
	require.Zero(t, w.check().Rule("I35").Violations)
}

func TestWithoutEvidenceARuleIsNotJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.sql(`DELETE FROM outbox_event`)
	found, err := fsck.Check(t.Context(), fsck.Evidence{DB: w.store}, fsck.Options{History: true, DLQ: true})
	require.NoError(t, err)
	require.NoError(t, found.Report.Err())
	for _, id := range []string{"I13", "I14", "I15", "I17", "I18", "I19", "I20", "I21", "I28", "I34", "I35", "L4", "L5", "L6"} {
		require.NotEmpty(t, found.Report.Rule(id).NotJudged, id)
		require.Error(t, found.Report.RequireJudged(id), id)
	}
	for _, id := range []string{"I16", "L3"} {
		require.Contains(t, found.Report.Rule(id).NotJudged, "the outbox is empty", id)
	}
	for _, id := range []string{"I31", "I33"} {
		require.Contains(t, found.Report.Rule(id).NotJudged, "no log of the partitioned queue", id)
	}
	require.Zero(t, found.Report.Rule("I32").Judged)
	require.Contains(t, found.Report.Rule("I22").NotJudged, "RABBITMQ_URL")
}

func TestExcusesForPayingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	log, err := w.store.Transitions(t.Context(), taskstate.System(), w.good, 0, 0)
	require.NoError(t, err)
	w.effects[0].At = log[2].CreatedAt // also where the machine stood still in between
	w.pay(w.good, 2, "batch-key-1")    // the first run failed right after: the answer may not have been committed
	require.NoError(t, w.check().Err())
	w.effects[0].At = w.effects[0].At.Add(-time.Minute) // long before: it was committed
	require.NotZero(t, w.check().Rule("I28").Violations)
	w.effects[0].Spoiled = true // its vectors were of no use
	require.Zero(t, w.check().Rule("I28").Violations)
	w.effects[0].Spoiled, w.effects[0].Status = false, 0 // its answer never arrived
	require.Zero(t, w.check().Rule("I28").Violations)
}

func TestRepairMendsTheVectorStoreOnly(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		w.sql(`DELETE FROM document_deletion WHERE document_id = ?`, tomb)
		w.sql(`DELETE FROM knowledge_document WHERE id = ?`, tomb) // with it a stray could be its
		w.sql(`DELETE FROM embedding_ledger`)
		w.stray()
		lost := w.vector()
		require.NoError(t, w.vectors.Delete(t.Context(), base, []string{lost}))
		found := w.find()
		require.Equal(t, int64(2), found.Report.Violations())

		done, err := fsck.Repair(t.Context(), w.evidence(), found)
		require.NoError(t, err)
		require.Equal(t, 1, done.Deleted)
		require.Zero(t, done.Written)
		require.Len(t, done.Left, 1, "there is no ledger and no embedder")
		require.Contains(t, done.Left[0], "upload it again with force")

		done, err = fsck.Repair(t.Context(), w.evidence(), w.find(), fake{})
		require.NoError(t, err)
		require.Equal(t, fsck.Repaired{Written: 1, Paid: 1}, done)
		require.NoError(t, w.check().Err())
		there, err := w.vectors.Get(t.Context(), base, []string{lost}, false)
		require.NoError(t, err)
		require.Contains(t, there, lost)
	})
}

// Documents that were changed beside the services, by hand or by the version before, are counted anew.
func TestDocumentsAreCountedAnew(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		require.Empty(t, w.find().Miscounted)
		w.sql(`UPDATE knowledge_document SET status = 'PROCESSING' WHERE latest_task_id = ?`, w.good)
		w.sql(`INSERT INTO document_count_change (base_id, status, documents, segments) VALUES ('nobody', 'FAILED', 1, 3)`)
		found := w.find()
		require.Len(t, found.Miscounted, 3)
		done, err := fsck.Repair(t.Context(), w.evidence(), found)
		require.NoError(t, err)
		require.Equal(t, 3, done.Counts)
		require.EqualValues(t, 3, done.Mended)
		require.Empty(t, w.find().Miscounted)
	})
}

// A task that does not fail any more is taken off the failures, and off its group's count.
func TestTasksAreTakenOffTheFailures(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		require.Empty(t, w.find().Counted)
		w.sql(`UPDATE ingest_task_body SET last_error = NULL WHERE id = ?`, w.dead)
		found := w.find()
		require.Equal(t, []string{w.dead}, found.Counted)
		for _, n := range []int{1, 0} { // the second time somebody else has done it
			done, err := fsck.Repair(t.Context(), w.evidence(), fsck.Findings{Counted: found.Counted})
			require.NoError(t, err)
			require.Equal(t, n, done.Failures)
			require.EqualValues(t, n, done.Mended)
		}
		after := w.find()
		require.Empty(t, after.Counted)
		require.Zero(t, after.Report.Rule("I40").Violations)
	})
}

// Tasks that no call names are found by their own look, and named again.
func TestAsleepTasksAreWoken(t *testing.T) {
	t.Parallel()
	everyDatabase(t, func(t *testing.T, w *world) {
		id := w.accept(w.id("8002"), "key-9")
		w.sql(`UPDATE ingest_task_call SET wake_at = ?`, time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		found := w.find()
		require.Equal(t, []string{id}, found.Asleep)
		done, err := fsck.Repair(t.Context(), w.evidence(), found)
		require.NoError(t, err)
		require.Equal(t, 1, done.Tasks)
		require.Empty(t, w.find().Asleep)
		swept, err := w.store.Sweep(t.Context(), taskstate.Sweep{
			Status: taskstate.StatusQueued, WakeBefore: taskstate.In(time.Minute), Limit: 9,
			Decide: taskstate.Each(func(_ taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
			}),
		})
		require.NoError(t, err)
		require.Len(t, swept, 1)
		require.Equal(t, id, swept[0].TaskID)
	})
}

var _ ingest.Embedder = fake{}

// eachFile does something to every stored file.
func (w *world) eachFile(f func(path string) error) {
	entries, err := os.ReadDir(w.dir)
	require.NoError(w.t, err)
	for _, e := range entries {
		require.NoError(w.t, f(filepath.Join(w.dir, e.Name())))
	}
}
