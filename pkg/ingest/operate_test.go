package ingest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

func TestReplayAfterDeath(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.embed.fail = func([]string) error { return Permanent(CodeEmbedRejected, "Shorten it.", "text 1 is refused") }
		a := w.upload("one\ntwo\n")
		dead := w.process(a.Task.ID)
		require.Equal(t, taskstate.StatusDead, dead.Status)
		require.Equal(t, "embed batch 1/1: text 1 is refused", dead.LastError)
		require.Contains(t, dead.ErrorMessage, "Shorten it.")
		require.Equal(t, string(CodeEmbedRejected), dead.ErrorCode)
		require.Equal(t, DocumentFailed, w.document(a.Document.ID).Status)

		w.embed.fail = nil
		again, err := w.app.Retry(t.Context(), w.caller, a.Task.ID)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusQueued, again.Status)
		require.Zero(t, again.AttemptCount)
		require.Equal(t, DocumentQueued, w.document(a.Document.ID).Status)
		require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
		require.Equal(t, []string{"one", "two"}, w.text(a.Document.ID))
		d := w.document(a.Document.ID)
		require.EqualValues(t, 2, d.VisibleNo)
		require.EqualValues(t, 1, d.VisibleUpload, "a replay keeps the upload's number")
		w.checkInvariants()
	})
}

func TestReplayIsRefused(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.upload("!corrupt\n")
		w.process(a.Task.ID)
		b := w.accept(Upload{File: w.receive("a.txt", "good\n"), DocumentID: a.Document.ID})
		w.process(b.Task.ID)
		_, err := w.app.Retry(t.Context(), w.caller, a.Task.ID)
		require.ErrorIs(t, err, ErrReplaySuperseded)
		before := w.number("SELECT COUNT(*) FROM ingest_task_transition")
		refusals, err := w.app.Refusals(t.Context(), w.caller.Scope, []string{a.Task.ID, b.Task.ID, newID()})
		require.NoError(t, err)
		require.Len(t, refusals, 2, "what does not exist is not refused")
		require.ErrorIs(t, refusals[a.Task.ID], ErrReplaySuperseded)
		var state *taskstate.RefusedError
		require.ErrorAs(t, refusals[b.Task.ID], &state)
		require.Equal(t, before, w.number("SELECT COUNT(*) FROM ingest_task_transition"), "nothing changed")

		gone := w.upload("!corrupt\nagain\n")
		w.process(gone.Task.ID)
		refusals, err = w.app.Refusals(t.Context(), w.caller.Scope, []string{gone.Task.ID})
		require.NoError(t, err)
		require.Empty(t, refusals)
		require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, gone.Document.ID))
		_, err = w.app.Retry(t.Context(), w.caller, gone.Task.ID)
		require.ErrorIs(t, err, ErrDocumentDeleted)
		w.sweepAll()
		_, err = w.app.Retry(t.Context(), w.caller, gone.Task.ID)
		require.ErrorIs(t, err, ErrDocumentDeleted, "also when nothing is left of it")

		var refused *taskstate.RefusedError
		_, err = w.app.Retry(t.Context(), w.caller, b.Task.ID)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, taskstate.CodeNotReplayable, refused.Code)
		_, err = w.app.Retry(t.Context(), w.caller, newID())
		require.ErrorIs(t, err, taskstate.ErrNotFound)
		bob := w.caller
		bob.Scope.UserID = "bob"
		_, err = w.app.Cancel(t.Context(), bob, a.Task.ID)
		require.ErrorIs(t, err, taskstate.ErrNotFound, "foreign")
	})
}

func TestAFailedSecondUploadKeepsTheFirst(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		a := w.upload("one\n")
		w.process(a.Task.ID)
		b := w.accept(Upload{File: w.receive("b.txt", "!corrupt\n"), DocumentID: a.Document.ID})
		require.Equal(t, taskstate.StatusDead, w.process(b.Task.ID).Status)
		d := w.document(a.Document.ID)
		require.Equal(t, DocumentReady, d.Status)
		require.Equal(t, b.Task.ID, d.LatestTask)
		require.Equal(t, []string{"one"}, w.text(a.Document.ID))
		w.sweepAll()
		require.Equal(t, []string{"one"}, w.text(a.Document.ID))
	})
}

func TestSuspendAndResumeGoOnWithTheSameVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	operator := Caller{Scope: taskstate.Scope{UserID: "root", Role: taskstate.RoleOperator}}
	a := w.upload("one\n")
	job, _ := w.claim(a.Task.ID)
	require.Equal(t, DocumentProcessing, w.document(a.Document.ID).Status)
	_, err := w.app.Suspend(t.Context(), operator, a.Task.ID, "look at it")
	require.NoError(t, err)
	res := w.handler.Run(t.Context(), job)
	require.ErrorIs(t, res.Err, taskstate.ErrLost, "the holder learns it at its next write")
	_, err = w.app.Resume(t.Context(), operator, a.Task.ID, "fine")
	require.NoError(t, err)
	require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
	require.EqualValues(t, 1, w.document(a.Document.ID).VisibleNo)
}

func TestALaterVisibleUploadCancelsOlderOnes(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.upload("one\n")
		second := w.accept(Upload{File: w.receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		require.Equal(t, taskstate.StatusQueued, w.task(first.Task.ID).Status, "not when it is accepted")
		w.process(second.Task.ID)
		_, err := w.app.Sweep(t.Context())
		require.NoError(t, err)
		task := w.task(first.Task.ID)
		require.Equal(t, taskstate.StatusCancelled, task.Status)
		log, err := w.store.Transitions(t.Context(), taskstate.System(), first.Task.ID, 0, 10)
		require.NoError(t, err)
		require.Equal(t, taskstate.ReasonSuperseded, log[len(log)-1].Reason)
		require.Equal(t, []string{"two"}, w.text(first.Document.ID))
		w.checkInvariants()
	})
}

func TestAnOlderUploadThatFinishesLateIsWithdrawn(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.upload("one\n")
		second := w.accept(Upload{File: w.receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		job, _ := w.claim(first.Task.ID)
		res := w.handler.Run(t.Context(), job) // all written, not finished
		require.NoError(t, res.Err)
		w.process(second.Task.ID)
		out, err := w.finish(t.Context(), job, res)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, out.After.Status)
		require.Equal(t, []string{"two"}, w.text(first.Document.ID))
		w.sweepAll()
		require.Equal(t, 1, w.vectorCount())
		w.checkInvariants()
	})
}

func TestTwoVersionsOfOneDocumentFinishInOneBatch(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.upload("one\n")
		second := w.accept(Upload{File: w.receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		other := w.upload("other\n")
		statuses := w.finishTogether(first.Task.ID, second.Task.ID, other.Task.ID)
		require.Equal(t, []taskstate.Status{taskstate.StatusCancelled, taskstate.StatusSucceeded, taskstate.StatusSucceeded}, statuses)
		require.Equal(t, []string{"two"}, w.text(first.Document.ID))
		require.Equal(t, []string{"other"}, w.text(other.Document.ID))
		w.checkInvariants()
	})
}

func TestCauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *world, a Accepted)
		code    Code
		cause   string
		dead    bool
	}{
		"file gone": {func(w *world, a Accepted) { require.NoError(w.t, w.files.remove(w.stored()[0])) }, CodeFileMissing, "open stored file: ", true},
		"file damaged": {func(w *world, a Accepted) {
			w.overwrite(w.stored()[0], "oNe\ntwo\n")
		}, CodeFileDamaged, "the stored file is damaged", true},
		"file cut": {func(w *world, a Accepted) { w.overwrite(w.stored()[0], "one") }, CodeFileDamaged, "the stored file has 3 bytes, 8 were uploaded", true},
		"embedding away": {func(w *world, a Accepted) {
			w.embed.fail = func([]string) error {
				return Transient(CodeEmbed, "POST http://127.0.0.1:65530/embeddings: connection refused")
			}
		}, CodeEmbed, "embed batch 1/1: POST http://127.0.0.1:65530/embeddings: connection refused", false},
		"vector store away": {func(w *world, a Accepted) {
			w.vectors.fail = func(string) error { return Transient(CodeVector, "connection refused") }
		}, CodeVector, "store vectors batch 1/1: connection refused", false},
		"panic": {func(w *world, a Accepted) {
			w.embed.fail = func([]string) error { panic("a bug") }
		}, CodeInternal, "embed: panic: a bug", false},
		"other model": {func(w *world, a Accepted) {
			other := w.upload("first of its base\n")
			w.process(other.Task.ID)
			w.embed.model = Model{Key: "other", Dim: 5}
		}, CodeDimension, "the knowledge base was made with model hash/1 (8 dimensions), not other (5)", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			a := w.upload("one\ntwo\n")
			c.prepare(w, a)
			task := w.process(a.Task.ID)
			require.Equal(t, string(c.code), task.ErrorCode, task.LastError)
			require.Truef(t, strings.HasPrefix(task.LastError, c.cause), "%q", task.LastError)
			want := taskstate.StatusRetrying
			if c.dead {
				want = taskstate.StatusDead
			}
			require.Equal(t, want, task.Status)
		})
	}
}

func TestNothingToRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	task := w.process(w.upload("\n\n  \n").Task.ID)
	require.Equal(t, taskstate.StatusDead, task.Status)
	require.Equal(t, string(CodeEmpty), task.ErrorCode)
}

func TestAThrottleCountsNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.embed.batch = 1
	var calls atomic.Int32
	w.embed.fail = func([]string) error {
		if calls.Add(1) > 1 {
			return &Failure{Code: CodeThrottled, Throttled: true, RetryAfter: 90 * time.Second, Err: errors.New("429")}
		}
		return nil
	}
	a := w.upload("one\ntwo\nthree\n")
	task := w.process(a.Task.ID)
	require.Equal(t, taskstate.StatusRetrying, task.Status)
	require.Zero(t, task.AttemptCount)
	require.Equal(t, 90*time.Second, task.NextRetryAt.Sub(task.UpdatedAt))
	w.embed.fail = nil
	w.clock.advance(time.Hour)
	require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
	for _, text := range []string{"one", "two", "three"} {
		require.Equal(t, 1, w.embed.paid[text], "finished batches are kept")
	}
}

func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{deps: func(d *Deps) {
		d.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	}})
	f := w.handler.Classify(errors.New("POST http://a:hunter2@b: refused"))
	require.Equal(t, "POST http://a:***@b: refused", f.Cause)
	require.NotContains(t, f.Message, "hunter2")
}

func TestAStoppedRunSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("one\n")
	job, _ := w.claim(a.Task.ID)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.handler.Run(ctx, job).Err, context.Canceled)
}

func TestProgressGrows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{config: func(c *Config) { c.EmbedParallel = 1 }})
	w.embed.batch = 100
	a := w.upload(lines(700, 3))
	job, _ := w.claim(a.Task.ID)
	last := 0
	stages := map[taskstate.Stage]bool{}
	job.Report = func(p taskstate.Progress) {
		require.GreaterOrEqual(t, p.Percent, last)
		require.Less(t, p.Percent, 100)
		last = p.Percent
		stages[p.Stage] = true
	}
	require.NoError(t, w.handler.Run(t.Context(), job).Err)
	require.Len(t, stages, 5)
	require.Equal(t, percentIndex, last)
}

func TestAReplayOfAnOlderUploadDoesNotReplaceALaterOne(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.embed.fail = func([]string) error { return Permanent(CodeEmbedRejected, "", "no") }
		first := w.upload("one\n")
		require.Equal(t, taskstate.StatusDead, w.process(first.Task.ID).Status)
		w.embed.fail = nil
		second := w.accept(Upload{File: w.receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		_, err := w.app.Retry(t.Context(), w.caller, first.Task.ID) // version 3 holds the bytes of upload 1
		require.NoError(t, err)
		job, _ := w.claim(first.Task.ID)
		res := w.handler.Run(t.Context(), job)
		require.NoError(t, res.Err)
		w.process(second.Task.ID)
		out, err := w.finish(t.Context(), job, res)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, out.After.Status)
		require.Equal(t, []string{"two"}, w.text(first.Document.ID))
	})
}

func TestVectorsThatComeBackAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.calm()
	a := w.upload("one\ntwo\n")
	attempt := func(splitter string) taskstate.Task {
		w.build(worldOptions{
			config: func(c *Config) { c.MaxAttempts = 1000 },
			deps:   func(d *Deps) { d.Splitter = blockSplitter{version: splitter} },
		})
		job, _ := w.claim(a.Task.ID)
		require.NoError(t, w.handler.Run(t.Context(), job).Err) // and the process ends before the finish
		w.clock.advance(time.Hour)
		_, err := w.app.Sweep(t.Context())
		require.NoError(t, err)
		w.checkInvariants()
		return w.task(a.Task.ID)
	}
	attempt("")
	require.Equal(t, taskstate.StatusRunning, attempt("+").Status) // drops the vectors of the first plan
	w.calm()
	require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
	w.sweepAll()
	require.Equal(t, []string{"one", "two"}, w.text(a.Document.ID))
	require.Equal(t, 2, w.vectorCount())
}
