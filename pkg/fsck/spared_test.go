package fsck_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingestq"
)

// spared is something that looks odd and breaks no rule.
type spared struct {
	rule string
	do   func(w *world)
}

// allowances are the near misses of the breaches: the rule looks at each and has nothing to say.
var allowances = map[string]spared{
	"version: given up":                {"I23", func(w *world) { w.secondVersion("ABANDONED") }},
	"deleted: not swept yet":           {"I29", func(w *world) { w.leftover(); w.sql(`UPDATE knowledge_document SET sweep_pass = 0 WHERE id = ?`, tomb) }},
	"deleted: found before":            {"I29", func(w *world) { w.delete(); w.client[len(w.client)-1].Ended = now().Add(time.Hour) }},
	"vectors: named by garbage":        {"I25", func(w *world) { w.stray(); w.garbage(hash("stray")) }},
	"vectors: of a tombstone":          {"I25", func(w *world) { w.vectorOf(tomb) }},
	"vectors: of a deleted base":       {"I25", func(w *world) { w.stray(); w.sql(`UPDATE knowledge_base SET deleted_at = created_at`) }},
	"metadata: of a closed version":    {"I25", func(w *world) { w.hide(); w.say(w.goodVersion(), w.goodDocument(), `{"note":1}`) }},
	"metadata: swept with its version": {"I25", func(w *world) { w.hide(); w.sql(`DELETE FROM document_metadata WHERE version_id = ?`, w.goodVersion()) }},
	"metadata: of a version that is worked on": {"I25", func(w *world) {
		w.secondVersion("BUILDING")
		w.say(w.read(`SELECT MAX(id) FROM document_version`), w.goodDocument(), `{"note":1}`)
	}},
	"attachment: of a message not swept yet": {"I43", func(w *world) {
		w.attach(tomb)
		w.sql(`UPDATE knowledge_document SET sweep_pass = 0 WHERE id = ?`, tomb)
	}},
	"receipt: of what is gone": {"I44", func(w *world) { w.receipt(w.id("8011"), now(), now(), now()) }},
	"receipt: from before they were written": {"I44", func(w *world) {
		w.sql(`DELETE FROM document_deletion`)
		w.sql(`UPDATE schema_migrations SET applied_at = ? WHERE version = 20`, now().Add(time.Minute))
		w.receipt(w.id("8011"), now(), now(), now())
	}},
	"index: of a closed version": {"I37", func(w *world) { w.hide() }},
	"index: written twice":       {"I37", func(w *world) { w.index(w.goodVersion(), "first", "second") }},
	"index: of a deleted document": {"I37", func(w *world) {
		w.sql(`UPDATE knowledge_document SET deleted_at = updated_at WHERE latest_task_id = ?`, w.good)
		w.sql(`DELETE FROM knowledge_segment WHERE version_id = ?`, w.goodVersion())
	}},
	"index: of a version that is worked on": {"I37", func(w *world) {
		w.secondVersion("BUILDING")
		w.index(w.id("8004"), "third")
	}},
	"index: bytes of a merge": {"I37", func(w *world) {
		w.sql(`INSERT INTO knowledge_text_chunk (part_id, seq, data) VALUES (?, 1, ?)`, w.id("8006"), []byte("x"))
	}},
	"hit: of an operator":       {"I30", func(w *world) { w.hit(byMallory); w.options.Operators = []string{"mallory"} }},
	"hit: of no user":           {"I30", func(w *world) { w.hit(func(r *fsck.ClientRecord) { r.User = "" }) }},
	"hit: without a version":    {"I26", func(w *world) { w.hit(func(r *fsck.ClientRecord) { r.Hits[0].Version = 0 }) }},
	"ack: by a script":          {"I17", func(w *world) { w.acks[0].At, w.acks[0].Script = w.claimed(w.good), true }},
	"key: sent again":           {"I14", func(w *world) { again := w.client[0]; again.Replayed = true; w.client = append(w.client, again) }},
	"upload: without an answer": {"I13", func(w *world) { w.client[0].Outcome, w.client[0].Task = fsck.OutcomeMaybe, "" }},
	"upload: by another channel": {"I13", func(w *world) {
		w.client = w.client[1:]
		w.sql(`UPDATE ingest_task_body SET channel = 'mail' WHERE id = ?`, w.good)
	}},
	"upload: of the same bytes":    {"I12", func(w *world) { again := w.client[0]; again.Duplicate = true; w.client = append(w.client, again) }},
	"paid again: answers get lost": {"I28", func(w *world) { w.pay(w.good, 1, "batch-key-1"); w.options.RepliesLost = true }},
	"paid again: what was in flight at a crash": {"I28", func(w *world) {
		w.crash()
		w.payAgain("batch-key-1", "b", "b")
	}},
	"lease: just ended": {"L2", func(w *world) {
		w.abandon()
		w.sql(`UPDATE ingest_worker SET lease_until = ?`, now())
	}},
	"rest: suspended": {"L1", func(w *world) {
		w.state("status = 'SUSPENDED'", w.accept(w.id("8002"), "key-9"))
	}},
	"rest: a retry ahead":          {"L1", func(w *world) { w.retryAt(now().Add(time.Hour)) }},
	"dead letter: owed lately":     {"I18", func(w *world) { w.options.Rest = false; w.owe(now()) }},
	"dead letter: lost with Redis": {"I18", func(w *world) { w.queue.deadLetters, w.options.Flushes = nil, []time.Time{now().Add(time.Minute)} }},
	"dead letter: of no concern":   {"I18", func(w *world) { w.queue.deadLetters, w.options.DLQ = nil, false }},
	"dead letter: before the settings": {"I18", func(w *world) {
		w.options.Since = now().Add(time.Minute)
		w.state("dlq_state = 'none'", w.dead)
	}},
	"pending: entry gone, work goes on":  {"I19", func(w *world) { w.options.Rest = false; w.pend(ingestq.Unacked{ID: "9-0", Gone: true}) }},
	"pending: finished, work goes on":    {"L4", func(w *world) { w.options.Rest = false; w.pend(ingestq.Unacked{ID: "9-0", TaskID: w.good}) }},
	"stream: not read to the end":        {"L5", func(w *world) { w.options.Rest = false; w.queue.state.Watermark = now() }},
	"trim: what the group was given":     {"I20", func(w *world) { w.queue.state.Deleted = "9-0" }},
	"trim: before a group of no entries": {"I20", func(w *world) { w.queue.state.Deleted, w.queue.state.Groups[0].Given = "10-0", "0-0" }},
	"trim: ids are numbers":              {"I20", func(w *world) { w.queue.state.Groups[0].Given = "10-0"; w.queue.state.Deleted = "9-5" }},
	"queued: promised lately":            {"I15", func(w *world) { w.options.Rest = false; w.accept(w.id("8002"), "key-9") }},
	"queued: the reader is behind":       {"I15", func(w *world) { w.options.Rest = false; w.forget(); w.queue.state.Watermark = ago() }},
	"event: tried again later": {"L3", func(w *world) {
		w.options.Rest = false
		w.sql(`UPDATE outbox_event SET status = 'RETRYING', sent_at = NULL, next_retry_at = ?, wake_at = ?`, now().Add(time.Hour), now().Add(time.Hour))
	}},
	"event: refused":              {"I16", func(w *world) { w.sql(`UPDATE outbox_event SET status = 'DEAD', sent_at = NULL`) }},
	"stats: work goes on":         {"I34", func(w *world) { w.options.Rest = false; w.stats = nil }},
	"secret: hidden":              {"I36", func(w *world) { w.logs += `{"authorization":"***","url":"https://host/?page=2"}` + "\n" }},
	"watcher: the same again":     {"I35", func(w *world) { w.client = append(w.client, *w.event(4)) }},
	"watcher: stopped in between": {"I35", func(w *world) { w.drop(0); w.drop(3) }},
}

func TestWhatAHealthyInstallationMayLookLike(t *testing.T) {
	t.Parallel()
	for name, one := range allowances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databases["sqlite"](t))
			one.do(w)
			got := w.check().Rule(one.rule)
			require.Empty(t, got.Examples)
			if one.rule != "I18" { // a death that needs no dead letter is no event
				require.True(t, got.Judged > 0 || got.NotJudged != "", "%s never looked", one.rule)
			}
		})
	}
}

// Each rule that has a breach is also seen to spare a world that keeps it; those that judge work under way have an allowance.
func TestRulesOfWorkUnderWaySpareIt(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, one := range allowances {
		named[one.rule] = true
	}
	for id := range notAtRest {
		require.True(t, named[id] || id == "I6" || id == "L6", "no allowance of %s", id)
	}
}

func byMallory(r *fsck.ClientRecord) { r.User = "mallory" }

// leftover gives the tombstone a segment.
func (w *world) leftover() {
	w.sql(`UPDATE knowledge_segment SET document_id = ? WHERE segment_index = 0`, tomb)
}

// garbage names a vector that is to be deleted.
func (w *world) garbage(id string) {
	w.sql(`INSERT INTO vector_garbage (vector_id, base_id, document_id, birth_version_id, sweep_at) VALUES (?, ?, ?, ?, ?)`, id, base, tomb, tomb, now())
}

// vectorOf writes a vector of a document that no row names.
func (w *world) vectorOf(document string) {
	rows := []ingest.Vector{{ID: hash("other"), DocumentID: document, Birth: document, Values: []float32{1, 0, 0, 0}}}
	require.NoError(w.t, w.vectors.Upsert(w.t.Context(), base, rows))
}

// owe says that the dead task's letter is owed, to be written at a time.
func (w *world) owe(at time.Time) {
	w.state("dlq_state = 'owed', wake_at = ?", w.dead, at)
}

// retryAt makes a task that waits for another attempt.
func (w *world) retryAt(at time.Time) {
	w.state("status = 'RETRYING', next_retry_at = ?", w.accept(w.id("8002"), "key-9"), at)
}

// crash says that the good task's first run did not fail but crashed.
func (w *world) crash() {
	w.edit(`reason = 'TAKEOVER'`, `task_id = ? AND reason = 'FAILED'`, w.good)
}

// payAgain lets the good task's second run pay for what the first had paid for long before; batches of one name are one.
func (w *world) payAgain(batches ...string) {
	paid := map[string]bool{"batch-key-1": true}
	for _, b := range batches {
		if !paid[b] {
			paid[b] = true
			w.pay(w.good, 1, b)
		}
	}
	for i := range w.effects {
		if w.effects[i].Fence == 1 {
			w.effects[i].At = w.claimed(w.good)
		}
	}
	for b := range paid {
		w.pay(w.good, 2, b)
	}
}
