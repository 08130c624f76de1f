package extract

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

// sample is one file of testdata/corpus and what must come of it.
type sample struct {
	File     string        `json:"file"`
	Contains []string      `json:"contains"` // with white space removed
	Excludes []string      `json:"excludes"` // literally
	Order    []string      `json:"order"`
	Codes    []ingest.Code `json:"codes"`    // refused with one of these, permanently
	Either   bool          `json:"either"`   // text or any permanent failure
	AtUpload bool          `json:"atUpload"` // Detect refuses it already
	Title    string        `json:"title"`
	Note     string        `json:"note"`
}

func samples(t testing.TB) []sample {
	raw, err := os.ReadFile(filepath.Join("testdata", "manifest.json"))
	require.NoError(t, err)
	var out []sample
	require.NoError(t, json.Unmarshal(raw, &out))
	require.NotEmpty(t, out)
	return out
}

// extractPath reads one file with an extractor.
func extractPath(t testing.TB, ctx context.Context, x ingest.Extractor, path string) (ingest.Extraction, []ingest.Block, error) {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var blocks []ingest.Block
	ex, err := x.Extract(ctx, ingest.Source{File: f, Name: filepath.Base(path)}, nil, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	return ex, blocks, err
}

func joined(blocks []ingest.Block) string {
	texts := make([]string, 0, len(blocks))
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n\n")
}

func withoutSpace(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s)
}

// requirePermanent checks that err is a permanent failure with a remedy and one of codes (any, when there are none).
func requirePermanent(t testing.TB, err error, codes ...ingest.Code) {
	t.Helper()
	require.Error(t, err)
	f := ingest.AsFailure(err)
	require.True(t, f.Permanent, "permanent: %v", err)
	require.NotEmpty(t, f.Remedy, "remedy of %v", err)
	require.NotEmpty(t, f.Error())
	if len(codes) > 0 {
		require.True(t, slices.Contains(codes, f.Code), "code %s (%v) is one of %v", f.Code, err, codes)
	}
}

func requireGoodBlock(t testing.TB, b ingest.Block) {
	t.Helper()
	require.NoError(t, checkBlock(b))
}

func requireSample(t testing.TB, s sample, ex ingest.Extraction, blocks []ingest.Block, err error) {
	t.Helper()
	if len(s.Codes) > 0 {
		requirePermanent(t, err, s.Codes...)
		return
	}
	if s.Either && err != nil {
		requirePermanent(t, err)
		return
	}
	require.NoError(t, err)
	text := joined(blocks)
	for _, b := range blocks {
		requireGoodBlock(t, b)
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
	for _, s := range samples(t) {
		t.Run(s.File, func(t *testing.T) {
			t.Parallel()
			f, err := os.Open(filepath.Join("testdata", "corpus", s.File))
			require.NoError(t, err)
			defer f.Close()
			info, err := f.Stat()
			require.NoError(t, err)
			mediaType, err := DetectFile(f, info.Size(), s.File)
			if s.AtUpload {
				requirePermanent(t, err, s.Codes...)
				require.Empty(t, mediaType)
				return
			}
			require.NoError(t, err)
			_, ok := readerFor(mediaType)
			require.True(t, ok, mediaType)
		})
	}
}

func TestCorpusInProcess(t *testing.T) {
	t.Parallel()
	direct := Direct{Limits: NewDefaultConfig().limits()}
	for _, s := range samples(t) {
		if strings.HasSuffix(s.File, ".pdf") && s.File != "docx_named.pdf" {
			continue // PDFium is loaded in children only: pool_test.go
		}
		t.Run(s.File, func(t *testing.T) {
			t.Parallel()
			ex, blocks, err := extractPath(t, t.Context(), direct, filepath.Join("testdata", "corpus", s.File))
			requireSample(t, s, ex, blocks, err)
		})
	}
}
