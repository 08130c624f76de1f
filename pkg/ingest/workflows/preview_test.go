package workflows_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/split"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

func newPreviewBench(t *testing.T, w *ingesttest.World) *bench {
	t.Helper()
	splitter, err := split.New(split.NewDefaultConfig(), 0)
	require.NoError(t, err)
	w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Splitter, d.TokenPrice, d.Detect = splitter, 20, detect.Type }})
	return newBench(t, w, "")
}

func (b *bench) previewed(payload string) (p workflows.Previewed) {
	b.t.Helper()
	out, err := b.run(b.task(), workflows.PreviewDocument, payload)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(out, &p))
	return p
}

// A document is shown as another chunking would cut it; what its visible version has, or was paid for, costs nothing.
func TestAPreviewShowsSegmentsAndCost(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		got := w.Upload("The first line is here.\nThe second line is there.")
		w.Process(got.Task.ID)
		same := b.previewed(fmt.Sprintf(`{"documentId":%q}`, strings.ToUpper(got.Document.ID)))
		require.Equal(t, "recursive/4 tokens 512/60", same.Chunker)
		require.Equal(t, 1, same.Segments)
		require.Zero(t, same.New, "it is paid for")
		require.Zero(t, *same.Cost)
		require.Equal(t, "hash/1", same.Model)
		other := b.previewed(fmt.Sprintf(`{"documentId":%q,"limit":1,"chunking":{"strategy":"sentences"}}`, got.Document.ID))
		require.Equal(t, "sentences/4 tokens 512/0 among 3", other.Chunker)
		require.Equal(t, 2, other.Segments)
		require.Equal(t, 2, other.New)
		require.Len(t, other.Shown, 1)
		require.Equal(t, "The first line is here.", other.Shown[0].Text)
		require.Equal(t, other.Tokens, other.NewTokens)
		require.InDelta(t, float64(other.Tokens)*20/1e6, *other.Cost, 1e-9)
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM document_version"), "nothing was stored")
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM knowledge_segment"))
		w.CheckInvariants()
	})
}

// A file that is sent for a preview alone is gone with it; it is the task's own, so no other can be looked at.
func TestAFileOfAPreviewGoesWithIt(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		b := newPreviewBench(t, w)
		look := func(f ingest.ReceivedFile, more string) (p workflows.Previewed, err error) {
			task := b.task()
			task.ID = f.ID
			text, err := json.Marshal(workflows.FileOf(f))
			require.NoError(t, err)
			out, err := b.run(task, workflows.PreviewDocument, fmt.Sprintf(`{"file":%s%s}`, text, more))
			if err == nil {
				require.NoError(t, json.Unmarshal(out, &p))
			}
			return p, err
		}
		fails := func(f ingest.ReceivedFile, more string) taskstate.Failure {
			_, err := look(f, more)
			require.Error(t, err)
			return workflow.Handler{}.Classify(err)
		}
		f := w.Receive("a.txt", "One is here.")
		p, err := look(f, "")
		require.NoError(t, err)
		require.Equal(t, 1, p.New)
		require.Equal(t, "a.txt", p.FileName)
		_, err = w.Files.Open(f.ID)
		require.Error(t, err, "it is gone")
		gone := fails(f, "")
		require.True(t, gone.Permanent)
		require.Equal(t, string(ingest.CodeFileMissing), gone.Code)

		bad := w.Receive("b.txt", "!corrupt")
		require.Equal(t, string(ingest.CodeCorrupt), fails(bad, "").Code)
		_, err = w.Files.Open(bad.ID)
		require.Error(t, err, "a failure that no retry cures ends it too")
		wide, err := look(w.Receive("w.txt", strings.Repeat(strings.Repeat("<", 500)+"\n", 200)), `,"limit":100`)
		require.NoError(t, err)
		require.NotEmpty(t, wide.Shown)
		require.Less(t, len(wide.Shown), 100, "a result has its bound, and a sign takes six bytes")
		text, err := json.Marshal(wide)
		require.NoError(t, err)
		require.Less(t, len(text), workflow.MaxResult)

		require.Equal(t, workflow.CodePayload, fails(w.Receive("e.txt", "One. Two."), `,"chunking":{"size":1}`).Code)
		require.Equal(t, workflows.CodeNoBase, fails(w.Receive("e.txt", "One. Two."), `,"knowledgeBase":"nobody's"`).Code)
		require.Equal(t, workflows.CodeNoDocument, b.fails(workflows.PreviewDocument, `{"documentId":"0190a6e0-0000-7000-8000-000000000001"}`).Code)
	})
}
