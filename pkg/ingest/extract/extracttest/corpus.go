// Package extracttest builds and judges documents for the tests of the readers.
package extracttest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// Sample is one file of testdata/corpus and what must come of it.
type Sample struct {
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

func Samples(t testing.TB) []Sample {
	raw, err := os.ReadFile(filepath.Join(folder(), "manifest.json"))
	require.NoError(t, err)
	var out []Sample
	require.NoError(t, json.Unmarshal(raw, &out))
	require.NotEmpty(t, out)
	return out
}

// ExtractPath reads one file with an extractor.
func ExtractPath(t testing.TB, ctx context.Context, x ingest.Extractor, path string) (ingest.Extraction, []ingest.Block, error) {
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

func Joined(blocks []ingest.Block) string {
	texts := make([]string, 0, len(blocks))
	for _, b := range blocks {
		texts = append(texts, b.Text)
	}
	return strings.Join(texts, "\n\n")
}

// RequirePermanent checks that err is a permanent failure with a remedy and one of codes (any, when there are
// none).
func RequirePermanent(t testing.TB, err error, codes ...ingest.Code) {
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

func RequireGoodBlock(t testing.TB, b ingest.Block) {
	t.Helper()
	require.NoError(t, document.CheckBlock(b))
}

func CorpusFile(t testing.TB, name string) []byte {
	data, err := os.ReadFile(filepath.Join(folder(), "corpus", name))
	require.NoError(t, err)
	return data
}

// Lines shows blocks compactly: kind, level, text.
func Lines(blocks []ingest.Block) []string {
	var out []string
	for _, b := range blocks {
		kind := string(b.Kind[:1])
		if b.Kind == ingest.BlockHeading {
			kind = strings.Repeat("#", b.Level)
		}
		out = append(out, kind+" "+b.Text)
	}
	return out
}

// FuzzReader gives a reader the corpus's files with these suffixes, and what the fuzzer makes of them.
func FuzzReader(f *testing.F, read readFunc, mediaType string, suffixes ...string) {
	for _, s := range Samples(f) {
		for _, suffix := range suffixes {
			if strings.HasSuffix(s.File, suffix) {
				f.Add(CorpusFile(f, s.File))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		_, blocks, err := ReadBytes(read, data, mediaType)
		if err != nil {
			RequirePermanent(t, err)
		}
		for _, b := range blocks {
			RequireGoodBlock(t, b)
		}
	})
}

func WriteTemp(t testing.TB, name string, data []byte) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// readFunc is a format's reader.
type readFunc func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error)

// ReadBytes reads a document of a known type in this process.
func ReadBytes(read readFunc, data []byte, mediaType string) (ingest.Extraction, []ingest.Block, error) {
	var blocks []ingest.Block
	caps := document.Limits{MaxTextBytes: 8 << 20, MaxPages: 100, HeadersFooters: true, Comments: true}
	in := &document.Input{File: bytes.NewReader(data), Size: int64(len(data)), MediaType: mediaType, Limits: caps, Progress: func(int, int) {}}
	ex, err := read(context.Background(), in, document.NewSink(caps, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	}))
	return ex, blocks, err
}

// RequireLines reads a document and compares what lines shows of it.
func RequireLines(t *testing.T, read readFunc, mediaType string, data []byte, want ...string) ingest.Extraction {
	t.Helper()
	ex, blocks, err := ReadBytes(read, data, mediaType)
	require.NoError(t, err)
	require.Equal(t, want, Lines(blocks))
	return ex
}

// folder finds testdata from the package that tests, which lies in extract or right below it.
func folder() string {
	for _, dir := range []string{"testdata", "../testdata", "../../testdata"} {
		if _, err := os.Stat(filepath.Join(dir, "manifest.json")); err == nil {
			return dir
		}
	}
	return "testdata"
}
