package upload_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// The whole inside of an accept happens and is rolled back: the copy of an upload that shares another's file is still there for
// the client's next try, and nobody was told of tasks that are not.
func TestARolledBackAcceptLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"its own file": false, "another's file": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, ingesttest.Options{})
			if shared {
				w.Process(w.Upload("one\n").Task.ID)
			}
			p := &refusingPublisher{}
			f := &ingesttest.Faults{At: 1, Mode: ingesttest.Undone}
			w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store, d.Publisher = ingesttest.FaultyStore{Database: w.Store, Faults: f}, p }})
			file := w.Receive("b.txt", "one\n")
			u := ingest.Upload{File: file, Force: true}
			_, err := w.App.Accept(t.Context(), w.Caller, u)
			require.ErrorIs(t, err, ingesttest.ErrRolledBack)
			require.True(t, f.Hit)
			require.Empty(t, p.got, "no delivery of a task that is not")
			require.Contains(t, w.Stored(), file.ID, "the copy")
			require.Equal(t, map[bool]int{true: 1, false: 0}[shared], w.Number("SELECT COUNT(*) FROM ingest_task"))

			w.Calm()
			a, err := w.App.Accept(t.Context(), w.Caller, u)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
			w.CheckInvariants()
			w.CheckFiles()
		})
	}
}

// lookingPublisher notes the status of each task at the moment at which its delivery is added.
type lookingPublisher struct {
	w     *world
	found []taskstate.Status
}

func (p *lookingPublisher) Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	ids := make([]string, len(envelopes))
	for i, e := range envelopes {
		task, err := p.w.Store.Get(ctx, taskstate.System(), e.GetTaskId())
		if err != nil {
			return nil, err
		}
		p.found, ids[i] = append(p.found, task.Status), "1-1"
	}
	return ids, nil
}

// What a person asks for is told to the queue and to those who wait only when it is committed: nothing while its transaction is
// rolled back, and one delivery of a row that is QUEUED after the next try.
func TestAPersonsWishIsToldAfterItsCommit(t *testing.T) {
	t.Parallel()
	root := ingest.Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}
	retry := func(w *world, id string) error { _, err := w.App.Retry(w.T.Context(), w.Caller, id); return err }
	for name, c := range map[string]struct {
		before func(w *world, id string) // takes the task to where the wish finds it
		wish   func(w *world, id string) error
		found  []taskstate.Status
	}{
		"replay of a dead task": {func(w *world, id string) {
			w.Embed.Fail = func([]string) error { return ingest.Permanent(ingest.CodeEmbedRejected, "Shorten it.", "refused") }
			require.Equal(w.T, taskstate.StatusDead, w.Process(id).Status)
		}, retry, []taskstate.Status{taskstate.StatusQueued}},
		"replay of a cancelled task": {func(w *world, id string) {
			_, err := w.App.Cancel(w.T.Context(), w.Caller, id)
			require.NoError(w.T, err)
		}, retry, []taskstate.Status{taskstate.StatusQueued}},
		"resume": {func(w *world, id string) {
			_, err := w.App.Suspend(w.T.Context(), root, id, "look at it")
			require.NoError(w.T, err)
		}, func(w *world, id string) error { _, err := w.App.Resume(w.T.Context(), root, id, "fine"); return err },
			[]taskstate.Status{taskstate.StatusQueued}},
		"retry now": {func(w *world, id string) {
			w.Embed.Fail = func([]string) error { return ingesttest.ErrInjected }
			require.Equal(w.T, taskstate.StatusRetrying, w.Process(id).Status)
		}, retry, nil}, // recovery finds it in the table
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, ingesttest.Options{})
			a := w.Upload("one\n")
			c.before(w, a.Task.ID)
			was := w.Task(a.Task.ID)
			p, told := &lookingPublisher{w: w}, 0
			f := &ingesttest.Faults{At: 1, Mode: ingesttest.Undone}
			w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) {
				d.Store, d.Publisher, d.Changed = ingesttest.FaultyStore{Database: w.Store, Faults: f}, p, func(...string) { told++ }
			}})
			require.ErrorIs(t, c.wish(w, a.Task.ID), ingesttest.ErrRolledBack)
			require.Empty(t, p.found, "no delivery of what is not so")
			require.Zero(t, told)
			require.Equal(t, was, w.Task(a.Task.ID))

			require.NoError(t, c.wish(w, a.Task.ID))
			require.Equal(t, c.found, p.found)
			require.Equal(t, 1, told)
			w.CheckInvariants()
		})
	}
}

// submittedStore is a Store that calls then when a Submit is committed, before its caller knows.
type submittedStore struct {
	taskstate.Database
	then func()
}

func (s submittedStore) Submit(ctx context.Context, p taskstate.PrepareFunc) ([]taskstate.Task, error) {
	tasks, err := s.Database.Submit(ctx, p)
	if err == nil {
		s.then()
	}
	return tasks, err
}

// From the COMMIT on any worker may read the file, and the process that accepted may be gone.
func TestADamagedFileIsReplacedBeforeItsTaskIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	first := w.Upload("one\ntwo\n")
	path := w.filePaths()[0]
	w.harm("overwritten", path)
	require.Equal(t, taskstate.StatusDead, w.Process(first.Task.ID).Status)
	found := ""
	w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) {
		d.Store = submittedStore{w.Store, func() {
			text, err := os.ReadFile(filepath.Join(w.Dir, path))
			found = fmt.Sprint(string(text), err)
		}}
	}})
	w.Upload("one\ntwo\n")
	require.Equal(t, fmt.Sprint("one\ntwo\n", nil), found)
}

// Every deletion of a kind is refused by the store, or the process ends at it, for longer than the two passes of the sweep take:
// what the store still holds is named by SQL all the while, and goes when the store deletes again.
func TestNothingIsForgottenBeforeTheVectorStoreDeletedIt(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"delete", "drop"} { // vectors; a base's collection
		for name, dies := range map[string]bool{op + " is refused": false, "the process ends at a " + op: true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				onEachDatabase(t, func(t *testing.T, w *world) { w.refuseDeletions(op, dies) })
			})
		}
	}
}

// refuseDeletions lets a version be outdated, a document and a base be deleted, and the store refuse one kind of deletion at first.
func (w *world) refuseDeletions(op string, dies bool) {
	w.T.Helper()
	before, after := ingesttest.TwoVersions(0)
	a := w.Accept(ingest.Upload{File: w.Receive("a.txt", before)})
	w.Process(a.Task.ID)
	w.Process(w.Accept(ingest.Upload{File: w.Receive("a.txt", after), DocumentID: a.Document.ID}).Task.ID)
	gone := w.Accept(ingest.Upload{File: w.Receive("b.txt", "gone "+before)})
	w.Process(gone.Task.ID)
	require.NoError(w.T, w.App.DeleteDocument(w.T.Context(), w.Caller, gone.Document.ID))
	base := w.base("elsewhere")
	w.Process(w.Accept(ingest.Upload{File: w.Receive("c.txt", "elsewhere "+before), Base: base}).Task.ID)
	require.NoError(w.T, w.App.DeleteBase(w.T.Context(), w.Caller, base, true))

	refused := 0 // sweeps that met it
	for range 10 {
		w.Advance(11 * time.Minute)
		f := &ingesttest.Faults{}
		w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Store = ingesttest.FaultyStore{Database: w.Store, Faults: f} }})
		met := false
		w.Vectors.Fail = func(called string) error {
			if called != op {
				return nil
			}
			f.Dead, met = dies, true
			return ingesttest.ErrInjected
		}
		_, err := w.App.Sweep(w.T.Context())
		w.Vectors.Fail = nil
		if met {
			refused++
			require.ErrorIs(w.T, err, ingesttest.ErrInjected)
		}
		w.CheckInvariants()
		w.CheckCollections()
	}
	require.GreaterOrEqual(w.T, refused, 3, "more than the passes")
	w.Calm()
	w.SweepAll()
	w.CheckInvariants()
	require.Equal(w.T, ingesttest.SplitLines(after), w.Text(a.Document.ID))
	require.Equal(w.T, w.Number("SELECT COUNT(*) FROM knowledge_segment"), w.VectorCount())
	require.Len(w.T, w.Vectors.Rows, 1, "the deleted base's collection is gone")
	require.Zero(w.T, w.Number("SELECT COUNT(*) FROM vector_garbage"))
	require.Equal(w.T, 1, w.Number("SELECT COUNT(*) FROM knowledge_base"))
}
