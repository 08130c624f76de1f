package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestAnOlderUploadThatFinishesLateIsWithdrawn(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		first := w.Upload("one\n")
		second := w.Accept(ingest.Upload{File: w.Receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		job, _ := w.Claim(first.Task.ID)
		res := w.Handler.Handle(t.Context(), job) // all written, not finished
		require.NoError(t, res.Err)
		w.Process(second.Task.ID)
		out, err := w.Finish(t.Context(), job, res)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusCancelled, out.After.Status)
		require.Equal(t, []string{"two"}, w.Text(first.Document.ID))
		w.SweepAll()
		require.Equal(t, 1, w.VectorCount())
		w.CheckInvariants()
	})
}

func TestTwoVersionsOfOneDocumentFinishInOneBatch(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		first := w.Upload("one\n")
		second := w.Accept(ingest.Upload{File: w.Receive("b.txt", "two\n"), DocumentID: first.Document.ID})
		other := w.Upload("other\n")
		statuses := w.FinishTogether(first.Task.ID, second.Task.ID, other.Task.ID)
		require.Equal(t, []taskstate.Status{taskstate.StatusCancelled, taskstate.StatusSucceeded, taskstate.StatusSucceeded}, statuses)
		require.Equal(t, []string{"two"}, w.Text(first.Document.ID))
		require.Equal(t, []string{"other"}, w.Text(other.Document.ID))
		w.CheckInvariants()
	})
}

func TestCauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(w *ingesttest.World, a ingest.Accepted)
		code    ingest.Code
		cause   string
		dead    bool
	}{
		"file gone": {func(w *ingesttest.World, a ingest.Accepted) { require.NoError(w.T, w.Files.Remove(w.Stored()[0])) }, ingest.CodeFileMissing, "open stored file: ", true},
		"file damaged": {func(w *ingesttest.World, a ingest.Accepted) {
			w.Overwrite(w.Stored()[0], "oNe\ntwo\n")
		}, ingest.CodeFileDamaged, "the stored file is damaged", true},
		"file cut": {func(w *ingesttest.World, a ingest.Accepted) { w.Overwrite(w.Stored()[0], "one") }, ingest.CodeFileDamaged, "the stored file has 3 bytes, 8 were uploaded", true},
		"embedding away": {func(w *ingesttest.World, a ingest.Accepted) {
			w.Embed.Fail = func([]string) error {
				return ingest.Transient(ingest.CodeEmbed, "POST http://127.0.0.1:65530/embeddings: connection refused")
			}
		}, ingest.CodeEmbed, "embed batch 1/1: POST http://127.0.0.1:65530/embeddings: connection refused", false},
		"vector store away": {func(w *ingesttest.World, a ingest.Accepted) {
			w.Vectors.Fail = func(string) error { return ingest.Transient(ingest.CodeVector, "connection refused") }
		}, ingest.CodeVector, "store vectors batch 1/1: connection refused", false},
		"panic": {func(w *ingesttest.World, a ingest.Accepted) {
			w.Embed.Fail = func([]string) error { panic("a bug") }
		}, ingest.CodeInternal, "embed: panic: a bug", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			a := w.Upload("one\ntwo\n")
			c.prepare(w, a)
			task := w.Process(a.Task.ID)
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
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	task := w.Process(w.Upload("\n\n  \n").Task.ID)
	require.Equal(t, taskstate.StatusDead, task.Status)
	require.Equal(t, string(ingest.CodeEmpty), task.ErrorCode)
}

func TestAThrottleCountsNoAttempt(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Embed.Batch = 1
	var calls atomic.Int32
	w.Embed.Fail = func([]string) error {
		if calls.Add(1) > 1 {
			return &ingest.Failure{Code: ingest.CodeThrottled, Throttled: true, RetryAfter: 90 * time.Second, Err: errors.New("429")}
		}
		return nil
	}
	a := w.Upload("one\ntwo\nthree\n")
	task := w.Process(a.Task.ID)
	require.Equal(t, taskstate.StatusRetrying, task.Status)
	require.Zero(t, task.AttemptCount)
	require.Equal(t, 90*time.Second, task.NextRetryAt.Sub(task.UpdatedAt))
	w.Embed.Fail = nil
	w.Clock.Advance(time.Hour)
	require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
	for _, text := range []string{"one", "two", "three"} {
		require.Equal(t, 1, w.Embed.Paid[text], "finished batches are kept")
	}
}

func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) {
		d.Redact = func(s string) string { return strings.ReplaceAll(s, "hunter2", "***") }
	}})
	f := w.Handler.Classify(errors.New("POST http://a:hunter2@b: refused"))
	require.Equal(t, "POST http://a:***@b: refused", f.Cause)
	require.NotContains(t, f.Message, "hunter2")
}

func TestAStoppedRunSaysSo(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("one\n")
	job, _ := w.Claim(a.Task.ID)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.Handler.Handle(ctx, job).Err, context.Canceled)
}

func TestProgressGrows(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Config: func(c *ingest.Config) { c.EmbedParallel = 1 }})
	w.Embed.Batch = 100
	a := w.Upload(ingesttest.Lines(700, 3))
	job, _ := w.Claim(a.Task.ID)
	last := 0
	stages := map[taskstate.Stage]bool{}
	job.Report = func(p taskstate.Progress) {
		require.GreaterOrEqual(t, p.Percent, last)
		require.Less(t, p.Percent, 100)
		last = p.Percent
		stages[p.Stage] = true
	}
	require.NoError(t, w.Handler.Handle(t.Context(), job).Err)
	require.Len(t, stages, 5)
	require.Equal(t, pipeline.PercentIndex, last)
}

func TestVectorsThatComeBackAreKept(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Calm()
	a := w.Upload("one\ntwo\n")
	attempt := func(splitter string) taskstate.Task {
		w.Build(ingesttest.Options{
			Config: func(c *ingest.Config) { c.MaxAttempts = 1000 },
			Deps:   func(d *ingest.Deps) { d.Splitter = ingesttest.BlockSplitter{Version: splitter} },
		})
		job, _ := w.Claim(a.Task.ID)
		require.NoError(t, w.Handler.Handle(t.Context(), job).Err) // and the process ends before the finish
		w.Clock.Advance(time.Hour)
		_, err := w.App.Sweep(t.Context())
		require.NoError(t, err)
		w.CheckInvariants()
		return w.Task(a.Task.ID)
	}
	attempt("")
	require.Equal(t, taskstate.StatusRunning, attempt("+").Status) // drops the vectors of the first plan
	w.Calm()
	require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
	w.SweepAll()
	require.Equal(t, []string{"one", "two"}, w.Text(a.Document.ID))
	require.Equal(t, 2, w.VectorCount())
}
