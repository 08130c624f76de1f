package ingest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

func TestTextBecomesVisible(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	a := w.upload("# The Mill\nfirst line\nsecond line\nfirst line\n")
	require.Equal(t, taskstate.StatusQueued, a.Task.Status)
	require.Equal(t, DocumentQueued, a.Document.Status)
	require.Equal(t, "default", a.Document.BaseName)

	task := w.process(a.Task.ID)

	require.Equal(t, taskstate.StatusSucceeded, task.Status, task.LastError)
	require.Equal(t, []string{"first line", "second line", "first line"}, w.text(a.Document.ID))
	d := w.document(a.Document.ID)
	require.Equal(t, DocumentReady, d.Status)
	require.Equal(t, "The Mill", d.Title)
	require.EqualValues(t, 1, d.VisibleNo)
	require.Contains(t, string(task.Result), `"segments":3`)
	require.Equal(t, 1, w.embed.paid["first line"], "a repeated text is paid for once")
	w.checkInvariants()
}

func TestLargeDocumentGoesInSeveralTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	w.embed.batch = 100
	a := w.upload(lines(1234, 1))
	require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
	require.Len(t, w.text(a.Document.ID), 1234)
	require.Equal(t, strings.Count(lines(1234, 1), "\n"), w.vectorCount())
	w.checkInvariants()
}

// A run that was paused beyond its lease wakes up in the middle: what its heir has paid for meanwhile is not paid for again.
func TestAWokenRunDoesNotPayForWhatItsHeirPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{config: func(c *Config) { c.EmbedParallel = 1 }})
	w.embed.batch = 1
	a := w.upload("one\ntwo\nthree\n")
	zombie, _ := w.claim(a.Task.ID)
	zombie.Report = func(p taskstate.Progress) {
		if p.Stage != taskstate.StageEmbed || p.Processed != 1 {
			return
		}
		w.clock.advance(time.Minute) // it sleeps after its first batch
		heir, _ := w.claim(a.Task.ID)
		require.NoError(t, w.handler.Run(t.Context(), heir).Err)
	}
	require.Error(t, w.handler.Run(t.Context(), zombie).Err, "its claim is lost")
	require.Equal(t, map[string]int{"one": 1, "two": 1, "three": 1}, w.embed.paid)
}
