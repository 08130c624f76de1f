package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

// larger is the model that bases move to here.
var larger = ingest.Model{Key: "hash/2", Dim: 12}

// base is the caller's default base.
func base(t *testing.T, w *ingesttest.World) ingest.Base {
	t.Helper()
	b, err := w.App.Base(t.Context(), w.Caller, "")
	require.NoError(t, err)
	return b
}

// move moves it to the world's model.
func move(t *testing.T, w *ingesttest.World) (int64, error) {
	t.Helper()
	return w.Handler.Move(t.Context(), base(t, w), func(int, int) {})
}

// waiting are the tasks that have not ended.
func waiting(t *testing.T, w *ingesttest.World) (ids []string) {
	t.Helper()
	page, err := w.Store.List(t.Context(), taskstate.System(), taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusQueued, taskstate.StatusRetrying}, Limit: 20})
	require.NoError(t, err)
	for _, task := range page.Tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

// Searches and uploads go on with the model before until the base has moved; then they use the new one, an edit costs what it changes,
// and the old collection is dropped.
func TestABaseMovesToAnotherModel(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		const n = 12
		var documents []ingest.Accepted
		for i := range n {
			a := w.Upload(fmt.Sprintf("one %d\ntwo %d\nboth", i, i))
			w.Process(a.Task.ID)
			documents = append(documents, a)
		}
		was := base(t, w)
		require.Equal(t, was.ID, was.Collection)
		w.ChangeModel(larger)
		require.True(t, w.Handler.Moves(was.Model))
		found, tokens, err := w.Handler.MoveCosts(t.Context(), was.ID)
		require.NoError(t, err)
		require.Equal(t, int64(n), found)
		require.Equal(t, int64(w.Number("SELECT SUM(tokens) FROM knowledge_segment")), tokens)
		r := ingesttest.NewReadWorld(t, w)
		first := func(query string) string {
			texts, partial := r.Search(query, 1)
			require.False(t, partial)
			require.Len(t, texts, 1)
			return texts[0]
		}
		require.Equal(t, "two 3", first("two 3"), "with the model before")

		meanwhile := 0
		moved, err := w.Handler.Move(t.Context(), was, func(done, total int) {
			require.LessOrEqual(t, done, total)
			if meanwhile++; meanwhile > 1 {
				return
			}
			a := w.Upload("late 1\nlate 2")
			require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status, "uploads go on")
			again := w.Accept(ingest.Upload{File: w.Receive("b.txt", "one 0\nfresh 0\nboth"), DocumentID: documents[0].Document.ID})
			require.Equal(t, taskstate.StatusSucceeded, w.Process(again.Task.ID).Status)
			require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, documents[1].Document.ID))
			require.Equal(t, "late 2", first("late 2"))
		})
		require.NoError(t, err)
		require.Equal(t, int64(n+2), moved, "two that came meanwhile, or came anew")
		is := base(t, w)
		require.Equal(t, larger, is.Model)
		require.NotEqual(t, was.Collection, is.Collection)
		require.False(t, w.Handler.Moves(is.Model))
		require.Equal(t, 2*n+1+3, len(w.Embed.Paid), "each text once, those that came meanwhile too")
		for text, times := range w.Embed.Paid {
			require.Equal(t, 1, times, text)
		}
		w.CheckInvariants()
		require.Equal(t, "fresh 0", first("fresh 0"))
		require.Equal(t, "late 1", first("late 1"))

		edit := w.Accept(ingest.Upload{File: w.Receive("c.txt", "one 2\nedited 2\nboth"), DocumentID: documents[2].Document.ID})
		w.Process(edit.Task.ID)
		require.Equal(t, 2*n+1+3+1, len(w.Embed.Paid), "vectors that were moved are used again")
		require.Equal(t, "edited 2", first("edited 2"))
		w.SweepAll()
		w.CheckInvariants()
		w.CheckCollections()
		require.Len(t, w.Vectors.Rows, 1, "the collection before was dropped")
		require.Zero(t, w.Number("SELECT COUNT(*) FROM retired_collection"))

		// A base that is deleted takes its collection along.
		require.NoError(t, w.App.DeleteBase(t.Context(), w.Caller, is.ID, true))
		w.SweepAll()
		require.Empty(t, w.Vectors.Rows)
	})
}

// A move that broke off at any of its effects goes on, and pays for no text twice.
func TestAMoveThatBreaksOff(t *testing.T) {
	t.Parallel()
	for _, mode := range ingesttest.SweepFaults() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ingesttest.Every(t, mode, func(t *testing.T, n int, f *ingesttest.Faults) {
				w := ingesttest.NewWorld(t, ingesttest.Options{})
				for i := range 3 {
					w.Process(w.Upload(fmt.Sprintf("one %d\ntwo %d\nboth", i, i)).Task.ID)
				}
				w.ChangeModel(larger)
				w.Afflicted(f)
				_, err := move(t, w)
				w.Calm()
				w.CheckInvariants()
				if err != nil && w.Handler.Moves(base(t, w).Model) {
					_, err = move(t, w)
					require.NoError(t, err)
				}
				require.Equal(t, larger, base(t, w).Model)
				for text, times := range w.Embed.Paid {
					require.LessOrEqual(t, times, 2, text)
				}
				require.Equal(t, taskstate.StatusSucceeded, w.Recover(w.Upload("after").Task.ID).Status)
				w.CheckInvariants()
				w.SweepAll()
				w.CheckCollections()
				require.Len(t, w.Vectors.Rows, 1)
			})
		})
	}
}

// Whatever happens between two effects of a move, no visible segment is without its vector, and nothing is left behind.
func TestWhatHappensDuringAMove(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, w *ingesttest.World, ready ingest.Accepted, run func() taskstate.Status){
		"a run ends": func(_ *testing.T, _ *ingesttest.World, _ ingest.Accepted, run func() taskstate.Status) { run() },
		"a document is deleted": func(t *testing.T, w *ingesttest.World, ready ingest.Accepted, _ func() taskstate.Status) {
			require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, ready.Document.ID))
			for range 3 { // its vectors are deleted for the first time
				_, err := w.App.Sweep(t.Context())
				require.NoError(t, err)
				w.Advance(2 * time.Minute)
			}
		},
		"a document is replaced": func(_ *testing.T, w *ingesttest.World, ready ingest.Accepted, _ func() taskstate.Status) {
			a := w.Accept(ingest.Upload{File: w.Receive("b.txt", "one 0\nother\nboth"), DocumentID: ready.Document.ID})
			w.Process(a.Task.ID)
		},
		"another attempt": func(t *testing.T, w *ingesttest.World, _ ingest.Accepted, _ func() taskstate.Status) {
			_, err := move(t, w)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ingesttest.Every(t, ingesttest.Interrupted, func(t *testing.T, n int, f *ingesttest.Faults) {
				w := ingesttest.NewWorld(t, ingesttest.Options{})
				var all []ingest.Accepted
				for i := range 3 {
					a := w.Upload(fmt.Sprintf("one %d\ntwo %d\nboth", i, i))
					w.Process(a.Task.ID)
					all = append(all, a)
				}
				w.ChangeModel(larger)
				late := w.Upload("late 1\nlate 2")
				job, answer := w.Claim(late.Task.ID)
				require.Equal(t, taskstate.AnswerClaimed, answer)
				res := w.Handler.Handle(t.Context(), job) // with the model before; its end comes in the midst of the move
				require.NoError(t, res.Err)
				w.Afflicted(f)
				afflicted := w.Handler
				w.Calm()
				run := func() taskstate.Status {
					out, err := w.Finish(t.Context(), job, res)
					require.NoError(t, err)
					return out.After.Status
				}
				f.Hook = func() {
					meanwhile(t, w, all[0], run)
					w.CheckInvariants()
				}
				b := base(t, w)
				_, err := afflicted.Move(t.Context(), b, func(int, int) {})
				w.CheckInvariants()
				if err != nil { // another attempt has done it, or the base was closed for too long
					require.ErrorContains(t, err, "move the knowledge base")
				}
				if w.Handler.Moves(base(t, w).Model) {
					_, err = move(t, w)
					require.NoError(t, err)
				}
				require.Equal(t, larger, base(t, w).Model)
				if !w.Task(late.Task.ID).Status.Terminal() {
					run()
					w.CheckInvariants()
				}
				require.Equal(t, taskstate.StatusSucceeded, w.Recover(late.Task.ID).Status)
				for _, id := range waiting(t, w) {
					w.Recover(id)
				}
				w.CheckInvariants()
				w.SweepAll()
				w.CheckInvariants()
				w.CheckCollections()
				require.Len(t, w.Vectors.Rows, 1)
				require.Equal(t, w.Number("SELECT COUNT(DISTINCT vector_id) FROM knowledge_segment"), w.VectorCount(), "no vector is left of what went")
			})
		})
	}
}

// A version that is just becoming visible when its base is closed: the move waits for it, and takes it along.
func TestAMoveWaitsForTransactionsThatShow(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		w.Process(w.Upload("one\ntwo").Task.ID)
		w.ChangeModel(larger)
		late := w.Upload("late")
		job, _ := w.Claim(late.Task.ID)
		res := w.Handler.Handle(t.Context(), job)
		require.NoError(t, res.Err)
		b := base(t, w)
		moved := make(chan error, 1)
		holder := taskstate.Holder{Token: job.Token, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: "p"}}
		_, err := w.Store.Apply(t.Context(), taskstate.Batch{
			IDs: []string{job.Task.ID}, Scope: taskstate.System(),
			Decide: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
				out, err := w.Handler.Decide(ctx, tx, m, []taskrun.Done{{Task: tasks[0], Holder: holder, Result: res}})
				go func() {
					_, err := w.Handler.Move(context.WithoutCancel(t.Context()), b, func(int, int) {})
					moved <- err
				}()
				for deadline := time.Now().Add(10 * time.Second); w.Server && err == nil && w.Number("SELECT COUNT(*) FROM knowledge_base WHERE closing_until IS NOT NULL") == 0; {
					if time.Now().After(deadline) {
						err = context.DeadlineExceeded
					}
				}
				select {
				case early := <-moved: // it has not waited
					moved <- early
				case <-time.After(300 * time.Millisecond):
				}
				return out, err
			},
			OnTransition: func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, d []taskstate.Decision) error {
				return w.Handler.OnTransition(ctx, tx, m, d, map[string]any{job.Task.ID: res.Payload})
			},
		})
		require.NoError(t, err)
		require.NoError(t, <-moved)
		require.Equal(t, larger, base(t, w).Model)
		require.Equal(t, taskstate.StatusSucceeded, w.Recover(late.Task.ID).Status)
		w.CheckInvariants()
	})
}

// A base that was closed by a process which died opens by itself.
func TestAClosedBaseOpensByItself(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Process(w.Upload("one").Task.ID)
	w.ChangeModel(larger)
	b := base(t, w)
	shadow, err := w.App.Catalog.Shadow(t.Context(), b.ID, larger.Key)
	require.NoError(t, err)
	closed, err := w.App.Catalog.Close(t.Context(), b.ID, shadow, time.Minute)
	require.NoError(t, err)
	require.True(t, closed)
	a := w.Upload("two")
	waits := w.Process(a.Task.ID)
	require.Equal(t, taskstate.StatusRetrying, waits.Status)
	require.Zero(t, waits.AttemptCount, "no attempt is counted")
	require.True(t, strings.Contains(waits.LastError, "another embedding model"), waits.LastError)
	w.Clock.Advance(2 * time.Minute)
	stays, err := w.App.Catalog.StaysClosed(t.Context(), b.ID, shadow, time.Minute)
	require.NoError(t, err)
	require.False(t, stays)
	moved, err := w.App.Catalog.Moved(t.Context(), b.ID, shadow)
	require.NoError(t, err)
	require.False(t, moved)
	require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
	w.CheckInvariants()
}

// A text that the new model refuses is named by its document, and the base stays as it was.
func TestATextThatTheNewModelRefuses(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Process(w.Upload("one\ntwo").Task.ID)
	bad := w.Upload("good\nbad")
	w.Process(bad.Task.ID)
	w.ChangeModel(larger)
	w.Embed.Fail = func(texts []string) error {
		if slices.Contains(texts, "bad") {
			return ingest.Permanent(ingest.CodeEmbedRejected, "Shorten it.", "the text is too long")
		}
		return nil
	}
	_, err := move(t, w)
	f := ingest.AsFailure(err)
	require.True(t, f.Permanent)
	require.Equal(t, ingest.CodeEmbedRejected, f.Code)
	require.ErrorContains(t, err, "document "+bad.Document.ID+", segment 1: the text is too long")
	require.Contains(t, f.Remedy, bad.Document.ID)
	require.True(t, w.Handler.Moves(base(t, w).Model))
	w.CheckInvariants()
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, bad.Document.ID))
	_, err = move(t, w)
	require.NoError(t, err)
	for text, times := range w.Embed.Paid {
		require.Equal(t, 1, times, text)
	}
	w.CheckInvariants()
}

// A base whose documents are gone has no model after a move: the next document says it.
func TestABaseWithoutDocumentsMoves(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		a := w.Upload("one")
		w.Process(a.Task.ID)
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
		w.ChangeModel(larger)
		moved, err := move(t, w)
		require.NoError(t, err)
		require.Zero(t, moved)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(w.Upload("two").Task.ID).Status)
		require.Equal(t, larger, base(t, w).Model)
		w.CheckInvariants()
		w.SweepAll()
		w.CheckCollections()
	})
}

// A model that is given up for a third one leaves nothing behind, and its move ends.
func TestAMoveIsGivenUpForAnother(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Process(w.Upload("one\ntwo").Task.ID)
	w.ChangeModel(larger)
	second := w.Handler
	third := false
	_, err := second.Move(t.Context(), base(t, w), func(int, int) {
		if third {
			return
		}
		third = true
		w.ChangeModel(ingest.Model{Key: "hash/3", Dim: 16})
		_, err := move(t, w)
		require.NoError(t, err)
	})
	require.Equal(t, ingest.CodeDimension, ingest.AsFailure(err).Code)
	require.Equal(t, "hash/3", base(t, w).Model.Key)
	w.CheckInvariants()
	w.SweepAll()
	w.CheckCollections()
	require.Len(t, w.Vectors.Rows, 1)
}
