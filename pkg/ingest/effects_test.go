package ingest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
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
