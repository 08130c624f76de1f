package fsck_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate"
)

// several gives the good task the key of a request with several files, of which the gateway numbers each.
func (w *world) several() {
	w.sql(`UPDATE ingest_task_body SET idempotency_key = 'key-1/2' WHERE id = ?`, w.good)
}

// unanswered says that the request of the good task had no answer.
func (w *world) unanswered() {
	w.client[0].Outcome, w.client[0].Task, w.client[0].Document = fsck.OutcomeMaybe, "", ""
}

// What a client log can say of a task, and whether a rule has something against it; the rows are sound.
func TestWhatTheClientLogSaysOfTasks(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		rule string
		do   func(w *world)
		want string // empty: nothing is wrong
	}{
		"one of several files":                    {"I14", func(w *world) { w.several() }, ""},
		"one of several files, without an answer": {"I13", func(w *world) { w.several(); w.unanswered() }, ""},
		"without an answer":                       {"I13", func(w *world) { w.unanswered() }, ""},
		"without an answer and without a key":     {"I13", func(w *world) { w.unanswered(); w.keyless() }, ""},
		"a lost request had another key":          {"I13", func(w *world) { w.unanswered(); w.client[0].Key = "key-77" }, "no request in the client log"},
		"a lost request was another user's":       {"I13", func(w *world) { w.unanswered(); w.client[0].User = "mallory" }, "no request in the client log"},
		"it was refused":                          {"I13", func(w *world) { w.unanswered(); w.client[0].Outcome = fsck.OutcomeRefused }, "no request in the client log"},
		"without a key, and no request was lost":  {"I13", func(w *world) { w.client = w.client[1:]; w.keyless() }, "no request in the client log"},
		"a client asked for a workflow": {"I13", func(w *world) {
			w.client[0] = fsck.ClientRecord{Op: fsck.OpApply, User: w.client[0].User, Outcome: fsck.OutcomeOK, Task: w.client[0].Task}
		}, ""},
		"a source made it":                        {"I13", func(w *world) { w.client = w.client[1:]; w.madeBy("system:import") }, ""},
		"a log that is not whole":                 {"I13", func(w *world) { w.client = w.client[1:]; w.options.WholeClient = false }, ""},
		"a document of a log that is not whole":   {"I12", func(w *world) { w.gone(); w.options.WholeClient = false }, ""},
		"a document that a client deleted":        {"I12", func(w *world) { w.gone(); w.deleted(fsck.OutcomeOK) }, ""},
		"a document whose deletion has no answer": {"I12", func(w *world) { w.gone(); w.deleted(fsck.OutcomeMaybe) }, ""},
		"a document whose deletion was refused":   {"I12", func(w *world) { w.gone(); w.deleted(fsck.OutcomeRefused) }, "no client deleted it"},
		"a replay with other bytes":               {"I14", func(w *world) { w.again(func(r *fsck.ClientRecord) { r.BodyHash = hash("other") }) }, "1 tasks for 2 bodies"},
		"a replay with another task":              {"I14", func(w *world) { w.again(func(r *fsck.ClientRecord) { r.Task = w.twin }) }, "2 tasks for 1 bodies"},
		"a replay that was refused":               {"I14", func(w *world) { w.again(func(r *fsck.ClientRecord) { r.Outcome = fsck.OutcomeRefused; r.Task = "" }) }, ""},
		"the same key of another user":            {"I14", func(w *world) { w.again(func(r *fsck.ClientRecord) { r.User, r.Task = "anna", w.twin }) }, ""},
		"two tasks of one key":                    {"I14", func(w *world) { w.client[0].Task = w.twin }, "were answered with another task"},
		"watched, and there is no such task":      {"I35", func(w *world) { w.event(0).Task = "nobody" }, "it was watched and has no log"},
		"a search that was refused": {"I26", func(w *world) {
			w.hit(func(r *fsck.ClientRecord) { r.Outcome = fsck.OutcomeRefused; r.Hits[0].Version = 9 })
		}, ""},
		"a search before the version was made":        {"I26", func(w *world) { w.searchedAt(ago()) }, "was not visible then"},
		"a search long after the version was closed":  {"I26", func(w *world) { w.closedAt(ago()); w.searchedAt(now()) }, "was not visible then"},
		"a search right after the version was closed": {"I26", func(w *world) { w.closedAt(now()); w.searchedAt(now()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databases["sqlite"](t))
			one.do(w)
			got := w.check().Rule(one.rule)
			if one.want == "" {
				require.Empty(t, got.Examples)
				require.True(t, got.Judged > 0 || got.NotJudged != "", "it never looked")
				return
			}
			require.NotEmpty(t, got.Examples)
			require.Contains(t, got.Examples[0].Problem, one.want)
		})
	}
}

// keyless takes the good task's key.
func (w *world) keyless() {
	w.sql(`UPDATE ingest_task_body SET idempotency_key = NULL WHERE id = ?`, w.good)
	w.client[0].Key = ""
}

// madeBy says who made the good task.
func (w *world) madeBy(actor string) {
	w.edit(`actor = ?`, `task_id = ? AND reason = 'ACCEPTED'`, actor, w.good)
}

// gone removes the good document, as a sweep does in the end.
func (w *world) gone() {
	w.deleted(fsck.OutcomeRefused) // while its row tells which it is
	w.sql(`DELETE FROM knowledge_segment WHERE version_id = ?`, w.goodVersion())
	w.sql(`DELETE FROM stored_file WHERE id = ?`, w.goodFile())
	require.NoError(w.t, w.files.Remove(w.goodFile()))
	w.sql(`DELETE FROM document_version WHERE task_id = ?`, w.good)
	w.sql(`DELETE FROM knowledge_document WHERE latest_task_id = ?`, w.good)
}

// deleted says how the deletion of the good document ended.
func (w *world) deleted(outcome fsck.Outcome) {
	w.client = append(w.client, fsck.ClientRecord{Op: fsck.OpDelete, User: "u", Outcome: outcome, Document: w.goodDocument(), Ended: now()})
}

// again sends the good task's request once more.
func (w *world) again(change func(r *fsck.ClientRecord)) {
	r := w.client[0]
	r.Replayed = true
	change(&r)
	w.client = append(w.client, r)
}

// searchedAt moves the first search.
func (w *world) searchedAt(at time.Time) {
	w.hit(func(r *fsck.ClientRecord) { r.Began, r.Ended = at, at.Add(time.Millisecond) })
}

// closedAt gives the good document's version, which was made long before, a successor at a time.
func (w *world) closedAt(at time.Time) {
	w.sql(`UPDATE document_version SET state = 'SUPERSEDED', created_at = ?, closed_at = ? WHERE task_id = ?`, ago().Add(-time.Hour), at, w.good)
}

// A task that nobody watched to its end, one that was never answered and one that came back: a world with all of them is sound.
func TestAClientLogOfABusyWorld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databases["sqlite"](t))
	w.client = append(w.client,
		fsck.ClientRecord{Op: fsck.OpUpload, User: "u", Outcome: fsck.OutcomeRefused, Status: 429, Code: "BACKLOG_FULL"},
		fsck.ClientRecord{Op: fsck.OpUpload, User: "u", Outcome: fsck.OutcomeMaybe, Key: "never-arrived"},
		fsck.ClientRecord{Op: fsck.OpSearch, User: "u", Outcome: fsck.OutcomeMaybe},
		fsck.ClientRecord{Op: fsck.OpCancel, User: "u", Outcome: fsck.OutcomeOK, Task: w.good},
		fsck.ClientRecord{Op: fsck.OpRead, User: "u", Outcome: fsck.OutcomeOK, Document: w.goodDocument()},
	)
	report := w.check()
	require.NoError(t, report.Err())
	require.NoError(t, report.RequireJudged("I12", "I13", "I14", "I26", "I30", "I35"))
	w.want(taskstate.StatusDead)
	require.NoError(t, w.check().Err())
	w.want(taskstate.StatusCancelled)
	require.Contains(t, w.check().Rule("L1").Examples[0].Problem, "it ended in DEAD, not CANCELLED")
}

// want says how the dead task must end.
func (w *world) want(s taskstate.Status) {
	w.options.Want = map[string]taskstate.Status{w.dead: s}
}
