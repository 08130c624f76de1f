package fsck_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// meanwhile does something once, right before the n-th statement that has a text; done tells whether it came to that.
func (w *world) meanwhile(text string, n int32, do func()) (done func() bool) {
	var seen atomic.Int32
	var did atomic.Bool
	w.store.Database.Watch = func(query string, after bool) error {
		if !after && strings.Contains(query, text) && seen.Add(1) == n {
			did.Store(true)
			do()
		}
		return nil
	}
	return did.Load
}

// still ends meanwhile.
func (w *world) still() { w.store.Database.Watch = nil }

// Statements of a check, by what they alone have.
const (
	readsLogs    = "FROM ingest_task_log l"
	looksAgain   = "WHERE d.id IN"
	readsOneFile = "FROM stored_file\nWHERE id = ?"
)

// moving is work that goes on in the middle of a check.
type moving struct {
	rule   string
	before string // the statement
	nth    int32
	spoil  func(w *world) // what the check would find if nothing moved; nil: nothing
	do     func(w *world)
}

// movings are what may happen between two looks of one check.
var movings = map[string]moving{
	"a wrong document is gone": {"I24", looksAgain, 1, func(w *world) { w.hide() }, func(w *world) {
		w.sql(`DELETE FROM document_version WHERE task_id = ?`, w.good)
		w.sql(`DELETE FROM knowledge_document WHERE latest_task_id = ?`, w.good)
	}},
	"a wrong document is right": {"I24", looksAgain, 1, func(w *world) {
		w.sql(`UPDATE knowledge_document SET status = 'FAILED' WHERE latest_task_id = ?`, w.good)
	}, func(w *world) {
		w.sql(`UPDATE knowledge_document SET status = 'READY', updated_at = ? WHERE latest_task_id = ?`, now(), w.good)
	}},
	"segments of a version that is closed": {"I25", looksAgain, 1, func(w *world) {
		w.sql(`DELETE FROM knowledge_segment WHERE version_id = ?`, w.goodVersion())
		w.sql(`DELETE FROM knowledge_text_part`)
	}, func(w *world) { w.hide() }},
	"vectors of a version that is closed": {"I25", looksAgain, 1, func(w *world) {
		require.NoError(w.t, w.vectors.Delete(w.t.Context(), base, []string{w.vector()}))
	}, func(w *world) { w.hide() }},
	"a file whose row goes": {"I12", readsOneFile, 1, func(w *world) {
		require.NoError(w.t, os.Remove(filepath.Join(w.dir, w.goodFile())))
	}, func(w *world) {
		w.sql(`DELETE FROM stored_file WHERE id = ?`, w.goodFile())
	}},
	"a task moves after its row was read": {"I2", readsLogs, 1, nil, func(w *world) {
		w.options.Rest = false
		w.claim(w.retrying(), "w3", "9-0")
	}},
	"a task is made after the rows were read": {"I2", readsLogs, 1, nil, func(w *world) {
		w.accept(strings.Replace(w.good, "8001", "8002", 1), "key-9")
	}},
}

// retrying is the task that waits for another attempt.
func (w *world) retrying() string {
	return w.read(`SELECT id FROM ingest_task WHERE status = 'QUEUED'`)
}

func TestWhatMovesWhileACheckReadsIsNoBreach(t *testing.T) {
	t.Parallel()
	for name, one := range movings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, databases["sqlite"](t))
			if one.rule == "I2" {
				w.options.Rest = false
				w.accept(w.id("8002"), "key-8")
			}
			if one.spoil != nil {
				one.spoil(w)
				require.NotZero(t, w.check().Rule(one.rule).Violations, "it would be a breach")
			}
			done := w.meanwhile(one.before, one.nth, func() { one.do(w) })
			got := w.check().Rule(one.rule)
			w.still()
			require.True(t, done(), "there was no such statement")
			require.Empty(t, got.Examples)
		})
	}
}
