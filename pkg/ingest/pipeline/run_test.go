package pipeline_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestTextBecomesVisible(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	a := w.Upload("# The Mill\nfirst line\nsecond line\nfirst line\n")
	require.Equal(t, taskstate.StatusQueued, a.Task.Status)
	require.Equal(t, ingest.DocumentQueued, a.Document.Status)
	require.Equal(t, "default", a.Document.BaseName)

	task := w.Process(a.Task.ID)

	require.Equal(t, taskstate.StatusSucceeded, task.Status, task.LastError)
	require.Equal(t, []string{"first line", "second line", "first line"}, w.Text(a.Document.ID))
	d := w.Document(a.Document.ID)
	require.Equal(t, ingest.DocumentReady, d.Status)
	require.Equal(t, "The Mill", d.Title)
	require.EqualValues(t, 1, d.VisibleNo)
	require.Contains(t, string(task.Result), `"segments":3`)
	require.Equal(t, 1, w.Embed.Paid["first line"], "a repeated text is paid for once")
	w.CheckInvariants()
}

func TestLargeDocumentGoesInSeveralTransactions(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Embed.Batch = 100
	a := w.Upload(ingesttest.Lines(1234, 1))
	require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
	require.Len(t, w.Text(a.Document.ID), 1234)
	require.Equal(t, strings.Count(ingesttest.Lines(1234, 1), "\n"), w.VectorCount())
	w.CheckInvariants()
}

// A run that was paused beyond its lease wakes up in the middle: what its heir has paid for meanwhile is not paid for again.
func TestAWokenRunDoesNotPayForWhatItsHeirPaid(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Config: func(c *ingest.Config) { c.EmbedParallel = 1 }})
	w.Embed.Batch = 1
	a := w.Upload("one\ntwo\nthree\n")
	zombie, _ := w.Claim(a.Task.ID)
	zombie.Report = func(p taskstate.Progress) {
		if p.Stage != ingest.StageEmbed || p.Processed != 1 {
			return
		}
		w.Clock.Advance(time.Minute) // it sleeps after its first batch
		heir, _ := w.Claim(a.Task.ID)
		require.NoError(t, w.Handler.Handle(t.Context(), heir).Err)
	}
	require.Error(t, w.Handler.Handle(t.Context(), zombie).Err, "its claim is lost")
	require.Equal(t, map[string]int{"one": 1, "two": 1, "three": 1}, w.Embed.Paid)
}
