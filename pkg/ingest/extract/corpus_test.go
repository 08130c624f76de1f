package extract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

func requireSample(t testing.TB, s extracttest.Sample, ex ingest.Extraction, blocks []ingest.Block, err error) {
	t.Helper()
	if len(s.Codes) > 0 {
		extracttest.RequirePermanent(t, err, s.Codes...)
		return
	}
	if s.Either && err != nil {
		extracttest.RequirePermanent(t, err)
		return
	}
	require.NoError(t, err)
	text := extracttest.Joined(blocks)
	for _, b := range blocks {
		extracttest.RequireGoodBlock(t, b)
	}
	squeezed := withoutSpace(text)
	for _, want := range s.Contains {
		require.Contains(t, squeezed, withoutSpace(want))
	}
	for _, no := range s.Excludes {
		require.NotContains(t, text, no)
	}
	at := 0
	for _, part := range s.Order {
		i := strings.Index(squeezed[at:], part)
		require.GreaterOrEqual(t, i, 0, "%s comes after %v", part, s.Order)
		at += i
	}
	if s.Title != "" {
		require.Equal(t, s.Title, ex.Title)
	}
	require.NotEmpty(t, ex.Reader)
	require.NotEmpty(t, ex.MediaType)
}

func TestDetectCorpus(t *testing.T) {
	t.Parallel()
	for _, s := range extracttest.Samples(t) {
		t.Run(s.File, func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(filepath.Join("testdata", "corpus", s.File))
			require.NoError(t, err)
			defer f.Close()
			info, err := f.Stat()
			require.NoError(t, err)
			mediaType, err := detect.File(f, info.Size(), s.File)
			if s.AtUpload {
				extracttest.RequirePermanent(t, err, s.Codes...)
				require.Empty(t, mediaType)
				return
			}
			require.NoError(t, err)
			_, ok := formats.For(mediaType)
			require.True(t, ok, mediaType)
		})
	}
}

func TestCorpusInProcess(t *testing.T) {
	t.Parallel()
	for _, s := range extracttest.Samples(t) {
		if strings.HasSuffix(s.File, ".pdf") && s.File != "docx_named.pdf" {
			continue // PDFium is loaded in children only: pool_test.go
		}
		t.Run(s.File, func(t *testing.T) {
			t.Parallel()
			ex, blocks, err := extracttest.ExtractPath(t, t.Context(), direct{}, filepath.Join("testdata", "corpus", s.File))
			requireSample(t, s, ex, blocks, err)
		})
	}
}
