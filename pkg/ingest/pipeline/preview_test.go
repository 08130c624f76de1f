package pipeline_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/pipeline"
)

func TestAnExtractorNamesReadersAndSettings(t *testing.T) {
	t.Parallel()
	readers, settings := pipeline.Made("eml/1 tika+html/2 hidden-sheets tesseract=chi_sim+eng tika=application/msword,image/*")
	require.Equal(t, []string{"eml/1", "html/2"}, readers)
	require.Equal(t, []string{"hidden-sheets", "tesseract=chi_sim+eng", "tika=application/msword,image/*"}, settings)
}

// naming is an extractor with another fingerprint.
type naming struct {
	ingest.Extractor
	name string
}

func (n naming) Fingerprint() string { return n.name }

func TestAVersionIsCurrentWhileItsReadersAre(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) {
		d.Extractor = naming{d.Extractor, "pdf/3 html/2 eml/1 headers"}
	}})
	worker, err := w.App.Worker()
	require.NoError(t, err)
	for extractor, current := range map[string]bool{
		"pdf/3 headers": true, "eml/1 pdf/3 headers": true, "tika+html/2 headers": true,
		"pdf/3": false, "pdf/2 headers": false, "pdf/3 headers comments": false, "": false, "headers": false, "docx/1 headers": false,
	} {
		require.Equal(t, current, worker.Current(extractor, "blocks/", ingest.Chunking{}), extractor)
	}
	require.False(t, worker.Current("pdf/3 headers", "blocks/2", ingest.Chunking{}))
}
