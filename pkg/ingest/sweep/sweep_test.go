package sweep_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
)

func TestRunSweeperWakesForWhatThisProcessDeleted(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Config: func(c *ingest.Config) { c.SweepInterval = time.Hour }})
	a := w.Upload("one\n")
	w.Process(a.Task.ID)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.App.RunSweeper(ctx) }()
	require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
	require.Eventually(t, func() bool {
		left, err := w.Vectors.List(t.Context(), a.Document.BaseID, 0, 10)
		return err == nil && len(left) == 0
	}, time.Minute, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
}
