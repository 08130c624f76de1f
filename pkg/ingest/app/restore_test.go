package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// copied is a task as its copy in RabbitMQ has it: through the envelope's bytes, with the hash from the header.
func copied(t *testing.T, task taskstate.Task) taskstate.Task {
	t.Helper()
	body, err := pb.Encode(ingestq.EnvelopeOf(task))
	require.NoError(t, err)
	e, err := pb.Decode(body)
	require.NoError(t, err)
	out := ingestq.TaskOf(e)
	out.RequestHash = task.RequestHash
	return out
}

// whole is the row of an accepted task.
func whole(t *testing.T, w *ingesttest.World, a ingest.Accepted) taskstate.Task {
	t.Helper()
	task, err := w.Store.Get(t.Context(), taskstate.System(), a.Task.ID)
	require.NoError(t, err)
	return task
}

// The database is lost and the folder is not: tasks come back from their copies with the ids, keys and bases that they had, and run.
// The versions of one document are in their order whatever the order of the copies.
func TestLostTasksComeBack(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, old *ingesttest.World) {
		_, err := old.App.CreateBase(t.Context(), old.Caller, "contracts", ingest.BaseSettings{})
		require.NoError(t, err)
		meta, err := ingest.ParseMetadata("metadata", `{"author":"Ada","year":1843}`)
		require.NoError(t, err)
		first := old.Accept(ingest.Upload{File: old.Receive("a.txt", "one\n"), Base: "contracts", Title: "A title", Metadata: meta, IdempotencyKey: "k", ChatID: "7"})
		second := old.Accept(ingest.Upload{File: old.Receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		same := old.Accept(ingest.Upload{File: old.Receive("c.txt", "two\n")}) // the same bytes in another base
		var copies []taskstate.Task
		for _, a := range []ingest.Accepted{second, same, first} {
			copies = append(copies, copied(t, whole(t, old, a)))
		}

		w := ingesttest.NewWorld(t, ingesttest.Options{})
		for _, name := range old.Stored() {
			data, err := os.ReadFile(filepath.Join(old.Dir, name))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(w.Dir, name), data, 0o640))
		}
		for range 2 { // a second time changes nothing
			for _, err := range w.App.Restore(t.Context(), copies) {
				require.NoError(t, err)
			}
		}
		require.Equal(t, 3, w.Number("SELECT COUNT(*) FROM ingest_task"))
		require.Equal(t, 2, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		for _, was := range []taskstate.Task{whole(t, old, first), whole(t, old, second), whole(t, old, same)} {
			is, err := w.Store.Get(t.Context(), taskstate.System(), was.ID)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusQueued, is.Status)
			require.JSONEq(t, string(was.Payload), string(is.Payload))
			require.Equal(t,
				[]any{was.UserID, was.DocumentID, was.FilePath, was.IdempotencyKey, was.RequestHash, was.MaxAttempts, was.Channel, was.ChatID, was.TraceParent, was.RequestID},
				[]any{is.UserID, is.DocumentID, is.FilePath, is.IdempotencyKey, is.RequestHash, is.MaxAttempts, is.Channel, is.ChatID, is.TraceParent, is.RequestID})
			log, err := w.Store.Transitions(t.Context(), taskstate.System(), was.ID, 0, 10)
			require.NoError(t, err)
			require.Len(t, log, 1)
			require.Equal(t, "system:restore", log[0].Actor)
		}
		replay := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), Base: "contracts", Metadata: meta, IdempotencyKey: "k"})
		require.True(t, replay.Replayed, "the client's own repeat finds it")
		require.Equal(t, first.Task.ID, replay.Task.ID)

		done := w.Process(second.Task.ID)
		require.Equal(t, taskstate.StatusSucceeded, done.Status, done.LastError)
		require.Equal(t, taskstate.StatusCancelled, w.Process(first.Task.ID).Status, "a later upload is visible")
		require.Equal(t, taskstate.StatusSucceeded, w.Process(same.Task.ID).Status)
		document := w.Document(first.Document.ID)
		require.Equal(t, []string{"two"}, w.Text(document.ID))
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_base b JOIN knowledge_document d ON d.base_id = b.id WHERE b.name = 'contracts'"))
		require.JSONEq(t, string(meta), string(document.Metadata))
		w.CheckInvariants()
		w.CheckFiles()
	})
}

// What cannot be made again is refused with the reason, and holds up nothing else.
func TestWhatIsLostForGood(t *testing.T) {
	t.Parallel()
	old := ingesttest.NewWorld(t, ingesttest.Options{})
	good := copied(t, whole(t, old, old.Accept(ingest.Upload{File: old.Receive("a.txt", "one\n"), IdempotencyKey: "k"})))
	change := func(f func(t *taskstate.Task, p *ingest.Payload)) taskstate.Task {
		task := good
		task.ID, task.IdempotencyKey = ingest.NewID(), ""
		var p ingest.Payload
		require.NoError(t, json.Unmarshal(task.Payload, &p))
		f(&task, &p)
		text, err := json.Marshal(p)
		require.NoError(t, err)
		if task.Payload != nil {
			task.Payload = text
		}
		return task
	}
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	data, err := os.ReadFile(filepath.Join(old.Dir, good.FilePath))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, good.FilePath), data, 0o640))
	taken := w.Accept(ingest.Upload{File: w.Receive("x.txt", "x\n"), IdempotencyKey: "taken"})
	refused := map[string]taskstate.Task{
		"taskId":                change(func(t *taskstate.Task, _ *ingest.Payload) { t.ID = "7" }),
		"userId":                change(func(t *taskstate.Task, _ *ingest.Payload) { t.UserID = "" }),
		"retry.max":             change(func(t *taskstate.Task, _ *ingest.Payload) { t.MaxAttempts = 0 }),
		"payload":               change(func(t *taskstate.Task, _ *ingest.Payload) { t.Payload = nil }),
		"payload.knowledgeBase": change(func(_ *taskstate.Task, p *ingest.Payload) { p.Base = "" }),
		"payload.sha256":        change(func(_ *taskstate.Task, p *ingest.Payload) { p.SHA256 = "../../etc/passwd" }),
		"documentId":            change(func(t *taskstate.Task, _ *ingest.Payload) { t.DocumentID = "d" }),
		"received file is gone": change(func(t *taskstate.Task, p *ingest.Payload) { t.FilePath, p.SHA256 = ingest.NewID(), sumOfNothing }),
		"filePath":              change(func(t *taskstate.Task, p *ingest.Payload) { t.FilePath, p.SHA256 = "../../../etc/passwd", sumOfNothing }),
		"idempotency key":       change(func(t *taskstate.Task, _ *ingest.Payload) { t.IdempotencyKey = "taken" }),
		"idempotency key ":      change(func(t *taskstate.Task, _ *ingest.Payload) { t.IdempotencyKey, t.Type = "taken", "other" }),
	}
	plain := change(func(t *taskstate.Task, _ *ingest.Payload) { t.Type, t.DocumentID, t.FilePath = "other", "", "" })
	lost := []taskstate.Task{good, plain}
	var names []string
	for name, task := range refused {
		lost, names = append(lost, task), append(names, name)
	}
	errs := w.App.Restore(t.Context(), lost)
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	for i, name := range names {
		require.ErrorContains(t, errs[i+2], trim(name), name)
	}
	require.Equal(t, 3, w.Number("SELECT COUNT(*) FROM ingest_task"))
	require.Equal(t, taskstate.StatusQueued, whole(t, w, taken).Status)
	require.ErrorIs(t, w.App.Restore(t.Context(), []taskstate.Task{{ID: "x"}})[0], app.ErrNoCopy)
	require.Contains(t, w.Stored(), good.FilePath)
	w.CheckInvariants()
}

const sumOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func trim(name string) string {
	for len(name) > 0 && name[len(name)-1] == ' ' {
		name = name[:len(name)-1]
	}
	return name
}
