package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	_, err := app.New(w.Deps, w.Files, ingest.Config{})
	require.ErrorContains(t, err, "UPLOAD_MAX_BYTES")
	require.ErrorContains(t, err, "INGEST_REDIS_MAX_ATTEMPTS")
	_, err = app.New(ingest.Deps{}, w.Files, ingest.NewDefaultConfig())
	require.Error(t, err)
	deps := w.Deps
	deps.Extractor = nil
	app, err := app.New(deps, w.Files, ingest.NewDefaultConfig())
	require.NoError(t, err)
	_, err = app.Worker()
	require.ErrorIs(t, err, pipeline.ErrNoWorker)
}
