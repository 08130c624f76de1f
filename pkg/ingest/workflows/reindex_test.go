package workflows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// reindexed is an attempt; meanwhile is called at each look at what is under way.
func (b *bench) reindexed(ctx context.Context, task taskstate.Task, dry bool, meanwhile func()) (r workflows.Reindexed, err error) {
	b.t.Helper()
	out, err := b.all[workflows.ReindexBase].Run(ctx, workflow.Run{
		Task: task, Key: task.ID, Payload: json.RawMessage(fmt.Sprintf(`{"knowledgeBase":"default","dryRun":%v}`, dry)),
		Report: func(taskstate.Progress) { meanwhile() },
	})
	if err == nil {
		require.NoError(b.t, json.Unmarshal(out, &r))
	}
	return r, err
}

// work runs the documents that wait.
func (b *bench) work() {
	for _, id := range b.open() {
		b.Process(id)
	}
}

// open are the tasks that have not ended.
func (b *bench) open() []string {
	page, err := b.Store.List(b.t.Context(), taskstate.System(), taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusQueued}, Limit: 200})
	require.NoError(b.t, err)
	ids := make([]string, len(page.Tasks))
	for i, t := range page.Tasks {
		ids[i] = t.ID
	}
	return ids
}

// What was made with another chunking is made anew, each document in one step and only once, also after an attempt that broke off; what
// is unchanged is not paid for.
func TestABaseIsReindexed(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		const n = 40 // more than are under way at a time
		var documents []ingest.Accepted
		for i := range n {
			a := w.Upload(fmt.Sprintf("Sentence %d is here. Another one follows.\nOnly paragraph %d.", i, i))
			w.Process(a.Task.ID)
			documents = append(documents, a)
		}
		task := b.task()
		none := func() { require.Fail(t, "nothing is under way") }
		same, err := b.reindexed(t.Context(), task, false, none)
		require.NoError(t, err)
		require.Equal(t, workflows.Reindexed{Documents: n}, same)

		c, err := ingest.ChunkOptions{Strategy: ingest.ChunkSentences}.Chunking("")
		require.NoError(t, err)
		_, err = w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{Chunking: &c})
		require.NoError(t, err)
		dry, err := b.reindexed(t.Context(), task, true, none)
		require.NoError(t, err)
		require.Equal(t, int64(n), dry.Outdated)
		require.Equal(t, int64(w.Number("SELECT SUM(tokens) FROM knowledge_segment")), *dry.Tokens)
		require.InDelta(t, float64(*dry.Tokens)*20/1e6, *dry.Cost, 1e-9)
		require.Empty(t, b.open(), "it was dry")

		// One was deleted, one uploaded anew and not run yet.
		require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, documents[0].Document.ID))
		newer := w.Accept(ingest.Upload{File: w.Receive("n.txt", "Newer words."), DocumentID: documents[1].Document.ID})

		ctx, cancel := context.WithCancel(t.Context())
		_, err = b.reindexed(ctx, task, false, func() { // the first attempt breaks off with 32 under way
			require.Len(t, b.open(), 32+1)
			cancel()
		})
		require.Error(t, err)
		for _, id := range b.open() { // some of which run meanwhile
			if id != newer.Task.ID {
				w.Process(id)
				break
			}
		}
		got, err := b.reindexed(t.Context(), task, false, func() {
			for _, id := range b.open() {
				if id != newer.Task.ID {
					w.Process(id)
				}
			}
		})
		require.NoError(t, err)
		require.Equal(t, workflows.Reindexed{Documents: n - 1, Outdated: n - 2, Done: n - 3, Skipped: 1}, got, "one of the first attempt's had ended")
		require.Equal(t, int64(1), w.Document(newer.Document.ID).VisibleNo)
		for _, a := range documents[2:] {
			d := w.Document(a.Document.ID)
			require.Equal(t, []any{int64(2), int64(2), 3}, []any{d.VisibleNo, d.LastNo, d.Segments})
		}
		w.Embed.Fail = func(texts []string) error {
			for _, text := range texts {
				require.NotContains(t, text, "Only paragraph", "it is unchanged")
			}
			return nil
		}
		w.Process(newer.Task.ID)
		again, err := b.reindexed(t.Context(), b.task(), false, none)
		require.NoError(t, err)
		require.Equal(t, workflows.Reindexed{Documents: n - 1}, again)
		w.CheckInvariants()
	})
}

// A document that cannot be made anew stays as it was; workers that are busy cost no attempt.
func TestAReindexThatCannotGoOn(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		a := w.Upload("One is here. Two is there.")
		w.Process(a.Task.ID)
		c, err := ingest.ChunkOptions{Strategy: ingest.ChunkSentences}.Chunking("")
		require.NoError(t, err)
		_, err = w.App.ChangeBase(t.Context(), w.Caller, "", ingest.BaseSettings{Chunking: &c})
		require.NoError(t, err)
		task := b.task()
		_, err = b.reindexed(t.Context(), task, false, func() {})
		busy := workflow.Handler{}.Classify(err)
		require.True(t, busy.Throttled)
		open := b.open()
		require.Len(t, open, 1)
		w.Overwrite(w.Task(open[0]).FilePath, "One is here. Two is THERE.")
		got, err := b.reindexed(t.Context(), task, false, b.work)
		require.NoError(t, err)
		require.Equal(t, int64(1), got.Failed)
		require.Equal(t, []workflows.ReindexFailure{{DocumentID: a.Document.ID, TaskID: open[0], ErrorCode: string(ingest.CodeFileDamaged)}}, got.Failures)
		require.Equal(t, int64(1), w.Document(a.Document.ID).VisibleNo)

		_, err = b.run(b.task(), workflows.ReindexBase, `{"knowledgeBase":"nobody's"}`)
		require.Equal(t, workflows.CodeNoBase, workflow.Handler{}.Classify(err).Code)
	})
}

// A base of another model is moved to this one's, and says before what that costs.
func TestAReindexMovesABaseToAnotherModel(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		const n = 3
		for i := range n {
			w.Process(w.Upload(fmt.Sprintf("Sentence %d is here. Another one follows.", i)).Task.ID)
		}
		w.Embed.Model_ = ingest.Model{Key: "hash/2", Dim: 12}
		dry, err := b.reindexed(t.Context(), b.task(), true, func() {})
		require.NoError(t, err)
		require.Equal(t, int64(n), dry.Outdated)
		require.Equal(t, int64(w.Number("SELECT SUM(tokens) FROM knowledge_segment")), *dry.Tokens)
		require.InDelta(t, float64(*dry.Tokens)*20/1e6, *dry.Cost, 1e-9)

		refused := ingest.Permanent(ingest.CodeEmbedRejected, "Send other words.", "no such words")
		w.Embed.Fail = func([]string) error { return refused }
		_, err = b.reindexed(t.Context(), b.task(), false, func() {})
		require.Equal(t, string(ingest.CodeEmbedRejected), workflow.Handler{}.Classify(err).Code)
		w.Embed.Fail = nil
		reports := 0
		got, err := b.reindexed(t.Context(), b.task(), false, func() { reports++ })
		require.NoError(t, err)
		require.Equal(t, workflows.Reindexed{Documents: n, Moved: n}, got)
		require.Positive(t, reports)
		base, err := w.App.Base(t.Context(), w.Caller, "")
		require.NoError(t, err)
		require.Equal(t, w.Embed.Model_, base.Model)
		w.CheckInvariants()
	})
}
