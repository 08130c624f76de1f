package split

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestTokenCountsOfManyWritings(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "a", "The quick brown fox.", "don't can't I'll we've", "DON'T CAN'T", "x = y+1; // comment", "1234567890 12 1 1234", "    indented\n\tcode\n\n\n",
		"持久化异步入库任务", "これは文書です", "한국어 문서", "Это текст", "مرحبا بالعالم", "👩‍👩‍👧 🇩🇪", "e\u0301 ñ", "a\r\nb\rc", "!!! ... ---", "mixed中文and English，标点。",
		strings.Repeat("ab ", 500), strings.Repeat("=", 300), strings.Repeat("中", 300),
	} {
		requireSameCount(t, text)
	}
}

func TestSizesThatAreNotSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		fine bool
	}{
		"defaults":                  {NewDefaultConfig(), true},
		"characters":                {Config{Mode: ingest.ChunkChars, Overlap: -1}, true},
		"no overlap":                {Config{Mode: ingest.ChunkTokens, Size: 100}, true},
		"an overlap of the size":    {Config{Mode: ingest.ChunkChars, Size: 100, Overlap: 100}, false},
		"an overlap above the size": {Config{Mode: ingest.ChunkChars, Size: 100, Overlap: 5000}, false},
		"a size below zero":         {Config{Mode: ingest.ChunkChars, Size: -5, Overlap: -1}, false},
		"an unknown mode":           {Config{Mode: "words", Overlap: -1}, false},
	} {
		err := c.cfg.Validate()
		require.Equal(t, c.fine, err == nil, "%s: %v", name, err)
		if !c.fine {
			require.ErrorContains(t, err, "CHUNK_", name)
			_, err = New(c.cfg, 0)
			require.Error(t, err, name)
			continue
		}
		resolved := mustNew(t, c.cfg).of(ingest.Chunking{})
		require.Positive(t, resolved.Size, name)
		require.GreaterOrEqual(t, resolved.Overlap, 0, name)
		require.Less(t, resolved.Overlap, resolved.Size, name)
	}
}

func TestTableHeadersThatAreTooLarge(t *testing.T) {
	t.Parallel()
	r := mustNew(t, Config{Mode: ingest.ChunkChars, Size: 300, Overlap: 0}).NewRun(ingest.Chunking{}).(*run)
	require.Equal(t, "a | b", r.tableHead([]string{"a | b", "1 | 2"}))
	require.Empty(t, r.tableHead([]string{strings.Repeat("head ", 40), "1"}), "it would take a third of every piece")
	require.Empty(t, r.tableHead(nil))
}

func mustNew(t *testing.T, cfg Config) *Splitter {
	t.Helper()
	s, err := New(cfg, 0)
	require.NoError(t, err)
	return s
}
