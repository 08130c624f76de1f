package formats_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

// readAll detects and reads a file in this process, as a child does: a panic fails the test, since nothing recovers it.
func readAll(t *testing.T, name string, data []byte) {
	t.Helper()
	mediaType, err := detect.File(bytes.NewReader(data), int64(len(data)), name)
	if err != nil {
		extracttest.RequirePermanent(t, err)
		return
	}
	if mediaType == document.TypePDF {
		return // read in children only
	}
	in := &document.Input{
		File: bytes.NewReader(data), Size: int64(len(data)), MediaType: mediaType,
		Limits: document.Limits{MaxTextBytes: 4 << 20, MaxPages: 100}, Progress: func(int, int) {},
	}
	ex, err := formats.Read(context.Background(), in, func(b ingest.Block) error {
		return document.CheckBlock(b)
	})
	if err != nil {
		extracttest.RequirePermanent(t, err)
		return
	}
	require.Positive(t, ex.Chars)
	require.Equal(t, mediaType, ex.MediaType)
	require.NotEmpty(t, ex.Reader)
	require.NotContains(t, ex.Title, "\n")
}

// damaged are the files of the corpus that readers in this process read, and small enough to be damaged often.
func damaged(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, s := range extracttest.Samples(t) {
		if data := extracttest.CorpusFile(t, s.File); len(data) < 100_000 && !strings.HasSuffix(s.File, ".pdf") && !strings.Contains(s.File, "bomb") {
			out[s.File] = data
		}
	}
	require.Greater(t, len(out), 20)
	return out
}

// An upload that broke off, at any place: text as far as it goes, or a plain reason.
func TestFilesThatAreCutOff(t *testing.T) {
	t.Parallel()
	for name, data := range damaged(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for part := range 16 {
				readAll(t, name, data[:len(data)*part/16])
			}
			for less := range min(40, len(data)) {
				readAll(t, name, data[:len(data)-less])
			}
		})
	}
}

// Bits that a disk or a line has turned, where they hurt: at the beginning, at the end, anywhere.
func TestFilesWithTurnedBits(t *testing.T) {
	t.Parallel()
	for name, data := range damaged(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(data) == 0 {
				return
			}
			random := rand.New(rand.NewPCG(uint64(len(data)), 7))
			for round := range 60 {
				broken := bytes.Clone(data)
				for range 1 + round%8 {
					at := random.IntN(len(broken))
					switch round % 3 {
					case 0:
						at = min(at, random.IntN(64))
					case 1:
						at = max(at, len(broken)-1-random.IntN(64))
					}
					broken[at%len(broken)] ^= 1 << random.IntN(8)
				}
				readAll(t, name, broken)
			}
		})
	}
}

// The name is the user's word only: every content under every name is text or a plain reason.
func TestEveryContentUnderEveryName(t *testing.T) {
	t.Parallel()
	for name, data := range damaged(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, other := range []string{
				"a", "a.pdf", "a.docx", "a.html", "a.md", "a.txt", "a.json", "a.csv", "a.zip", "a.exe", ".", "", "a.TXT", "a.txt.docx", strings.Repeat("x", 5000) + ".md", "\x00.txt",
			} {
				readAll(t, other, data)
			}
		})
	}
}

// Two files behind each other, as a program that appends by mistake leaves them.
func TestFilesBehindEachOther(t *testing.T) {
	t.Parallel()
	files := damaged(t)
	began := time.Now()
	for name, data := range files {
		for other, more := range files {
			if time.Since(began) > 3*time.Second {
				return // a part of the pairs is enough
			}
			if len(data)+len(more) < 40_000 {
				readAll(t, name, append(bytes.Clone(data), more...))
				readAll(t, other, append(bytes.Clone(data), more...))
			}
		}
	}
}
