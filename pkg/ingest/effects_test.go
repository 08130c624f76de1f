package ingest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
			w := newWorld(t, worldOptions{})
			if shared {
				w.process(w.upload("one\n").Task.ID)
			}
			p := &refusingPublisher{}
			f := &faults{at: 1, mode: undone}
			w.build(worldOptions{deps: func(d *Deps) { d.Store, d.Publisher = faultyStore{w.store, f}, p }})
			file := w.receive("b.txt", "one\n")
			u := Upload{File: file, Force: true}
			_, err := w.app.Accept(t.Context(), w.caller, u)
			require.ErrorIs(t, err, errRolledBack)
			require.True(t, f.hit)
			require.Empty(t, p.got, "no delivery of a task that is not")
			require.Contains(t, w.stored(), file.ID, "the copy")
			require.Equal(t, map[bool]int{true: 1, false: 0}[shared], w.number("SELECT COUNT(*) FROM ingest_task"))

			w.calm()
			a, err := w.app.Accept(t.Context(), w.caller, u)
			require.NoError(t, err)
			require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
			w.checkInvariants()
			w.checkFiles()
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
		task, err := p.w.store.Get(ctx, taskstate.System(), e.GetTaskId())
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
	root := Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}
	retry := func(w *world, id string) error { _, err := w.app.Retry(w.t.Context(), w.caller, id); return err }
	for name, c := range map[string]struct {
		before func(w *world, id string) // takes the task to where the wish finds it
		wish   func(w *world, id string) error
		found  []taskstate.Status
	}{
		"replay of a dead task": {func(w *world, id string) {
			w.embed.fail = func([]string) error { return Permanent(CodeEmbedRejected, "Shorten it.", "refused") }
			require.Equal(w.t, taskstate.StatusDead, w.process(id).Status)
		}, retry, []taskstate.Status{taskstate.StatusQueued}},
		"replay of a cancelled task": {func(w *world, id string) {
			_, err := w.app.Cancel(w.t.Context(), w.caller, id)
			require.NoError(w.t, err)
		}, retry, []taskstate.Status{taskstate.StatusQueued}},
		"resume": {func(w *world, id string) {
			_, err := w.app.Suspend(w.t.Context(), root, id, "look at it")
			require.NoError(w.t, err)
		}, func(w *world, id string) error { _, err := w.app.Resume(w.t.Context(), root, id, "fine"); return err },
			[]taskstate.Status{taskstate.StatusQueued}},
		"retry now": {func(w *world, id string) {
			w.embed.fail = func([]string) error { return errInjected }
			require.Equal(w.t, taskstate.StatusRetrying, w.process(id).Status)
		}, retry, nil}, // recovery finds it in the table
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			a := w.upload("one\n")
			c.before(w, a.Task.ID)
			was := w.task(a.Task.ID)
			p, told := &lookingPublisher{w: w}, 0
			f := &faults{at: 1, mode: undone}
			w.build(worldOptions{deps: func(d *Deps) {
				d.Store, d.Publisher, d.Changed = faultyStore{w.store, f}, p, func(...string) { told++ }
			}})
			require.ErrorIs(t, c.wish(w, a.Task.ID), errRolledBack)
			require.Empty(t, p.found, "no delivery of what is not so")
			require.Zero(t, told)
			require.Equal(t, was, w.task(a.Task.ID))

			require.NoError(t, c.wish(w, a.Task.ID))
			require.Equal(t, c.found, p.found)
			require.Equal(t, 1, told)
			w.checkInvariants()
		})
	}
}

// submittedStore is a Store that calls then when a Submit is committed, before its caller knows.
type submittedStore struct {
	taskstate.Store
	then func()
}

func (s submittedStore) Submit(ctx context.Context, p taskstate.PrepareFunc) ([]taskstate.Task, error) {
	tasks, err := s.Store.Submit(ctx, p)
	if err == nil {
		s.then()
	}
	return tasks, err
}

// From the COMMIT on any worker may read the file, and the process that accepted may be gone.
func TestADamagedFileIsReplacedBeforeItsTaskIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	first := w.upload("one\ntwo\n")
	path := w.filePaths()[0]
	w.harm("overwritten", path)
	require.Equal(t, taskstate.StatusDead, w.process(first.Task.ID).Status)
	found := ""
	w.build(worldOptions{deps: func(d *Deps) {
		d.Store = submittedStore{w.store, func() {
			text, err := os.ReadFile(filepath.Join(w.dir, path))
			found = fmt.Sprint(string(text), err)
		}}
	}})
	w.upload("one\ntwo\n")
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
	w.t.Helper()
	before, after := w.twoVersions(0)
	a := w.accept(Upload{File: w.receive("a.txt", before)})
	w.process(a.Task.ID)
	w.process(w.accept(Upload{File: w.receive("a.txt", after), DocumentID: a.Document.ID}).Task.ID)
	gone := w.accept(Upload{File: w.receive("b.txt", "gone "+before)})
	w.process(gone.Task.ID)
	require.NoError(w.t, w.app.DeleteDocument(w.t.Context(), w.caller, gone.Document.ID))
	base := w.base("elsewhere")
	w.process(w.accept(Upload{File: w.receive("c.txt", "elsewhere "+before), Base: base}).Task.ID)
	require.NoError(w.t, w.app.DeleteBase(w.t.Context(), w.caller, base, true))

	refused := 0 // sweeps that met it
	for range 10 {
		w.advance(11 * time.Minute)
		f := &faults{}
		w.build(worldOptions{deps: func(d *Deps) { d.Store = faultyStore{w.store, f} }})
		met := false
		w.vectors.fail = func(called string) error {
			if called != op {
				return nil
			}
			f.dead, met = dies, true
			return errInjected
		}
		_, err := w.app.Sweep(w.t.Context())
		w.vectors.fail = nil
		if met {
			refused++
			require.ErrorIs(w.t, err, errInjected)
		}
		w.checkInvariants()
		w.checkCollections()
	}
	require.GreaterOrEqual(w.t, refused, 3, "more than the passes")
	w.calm()
	w.sweepAll()
	w.checkInvariants()
	require.Equal(w.t, splitLines(after), w.text(a.Document.ID))
	require.Equal(w.t, w.number("SELECT COUNT(*) FROM knowledge_segment"), w.vectorCount())
	require.Len(w.t, w.vectors.rows, 1, "the deleted base's collection is gone")
	require.Zero(w.t, w.number("SELECT COUNT(*) FROM vector_garbage"))
	require.Equal(w.t, 1, w.number("SELECT COUNT(*) FROM knowledge_base"))
}
