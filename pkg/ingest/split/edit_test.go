package split_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/split"
)

// longDocuments are documents of about 300 pages (a page has 3,000 characters), as the pieces that somebody edits and how they become blocks.
func longDocuments(rng *rand.Rand) map[string]struct {
	piece  func() string
	blocks func(pieces []string) []ingest.Block
} {
	words := strings.Fields("the of system water light over under time river stone house small large green and with from into because however document state")
	text := func(least, more int) string {
		out := make([]string, least+rng.IntN(more+1))
		for i := range out {
			out[i] = fmt.Sprintf("%s %04d", words[rng.IntN(len(words))], rng.IntN(10_000))
		}
		return strings.Join(out, " ") + "."
	}
	paragraph := func() string {
		var out []string
		for range 2 + rng.IntN(6) {
			out = append(out, text(6, 12))
		}
		return strings.Join(out, " ")
	}
	single := func(kind ingest.BlockKind, join string) func([]string) []ingest.Block {
		return func(pieces []string) []ingest.Block {
			return []ingest.Block{{Kind: kind, Text: strings.Join(pieces, join)}}
		}
	}
	each := func(pieces []string) (out []ingest.Block) {
		for _, p := range pieces {
			if title, after, ok := strings.Cut(p, "\n"); ok {
				out = append(out, ingest.Block{Kind: ingest.BlockHeading, Level: 1, Text: title})
				p = after
			}
			out = append(out, ingest.Block{Kind: ingest.BlockParagraph, Text: p})
		}
		return out
	}
	row := func() string { return strings.ReplaceAll(text(8, 0), " ", " | ") }
	return map[string]struct {
		piece  func() string
		blocks func(pieces []string) []ingest.Block
	}{
		"paragraphs": {paragraph, each},
		"chapters": {func() string {
			if rng.IntN(30) == 0 {
				return "Chapter of " + text(2, 0) + "\n" + paragraph()
			}
			return paragraph()
		}, each},
		"one paragraph":             {func() string { return text(12, 0) }, single(ingest.BlockParagraph, " ")},
		"a table of equal rows":     {row, single(ingest.BlockTable, "\n")},
		"a table":                   {func() string { return strings.ReplaceAll(text(4, 30), " ", " | ") }, single(ingest.BlockTable, "\n")},
		"code":                      {func() string { return text(3, 8) }, single(ingest.BlockCode, "\n")},
		"paragraphs of one line":    {func() string { return text(14, 0) }, each},
		"a list, an item each line": {func() string { return text(5, 0) }, each},
	}
}

// Where something is put in, taken away or changed, the segments around it are new, and those behind it soon are what they were.
func TestAnEditChangesFewSegments(t *testing.T) {
	t.Parallel()
	const seed, size, edits = 20, 200_000, 9
	rng := rand.New(rand.NewPCG(seed, seed))
	documents := longDocuments(rng)
	for _, name := range slices.Sorted(maps.Keys(documents)) { // in one order: they share the random numbers
		d := documents[name]
		var pieces []string
		for n := 0; n < size; n += len(pieces[len(pieces)-1]) {
			pieces = append(pieces, d.piece())
		}
		extra := d.piece()
		for _, o := range []ingest.ChunkOptions{
			{Strategy: ingest.ChunkRecursive}, {Strategy: ingest.ChunkRecursive, Unit: ingest.ChunkChars}, {Strategy: ingest.ChunkHeadings},
			{Strategy: ingest.ChunkSentences}, {Strategy: ingest.ChunkParents},
		} {
			t.Run(fmt.Sprintf("%s/%s %s", name, o.Strategy, o.Unit), func(t *testing.T) {
				t.Parallel()
				cfg, err := o.Chunking("chunking")
				require.NoError(t, err)
				s, err := split.New(split.NewDefaultConfig(), 0)
				require.NoError(t, err)
				texts := func(pieces []string) (out []string) {
					r := s.NewRun(cfg)
					for _, b := range d.blocks(pieces) {
						for _, seg := range r.Add(b) {
							out = append(out, seg.Text)
						}
					}
					for _, seg := range r.Close() {
						out = append(out, seg.Text)
					}
					return out
				}
				known := map[string]bool{}
				for _, text := range texts(pieces) {
					known[text] = true
				}
				all := 0
				for i := range edits {
					at := len(pieces)/10 + i*len(pieces)/(2*edits)
					edited := append([]string{}, pieces[:at]...)
					switch i % 3 {
					case 0:
						edited = append(append(edited, extra), pieces[at:]...)
					case 1:
						edited = append(edited, pieces[at+1:]...)
					default:
						edited = append(append(edited, extra+" "+pieces[at]), pieces[at+1:]...)
					}
					for _, text := range texts(edited) {
						if !known[text] {
							all++
						}
					}
				}
				t.Logf("%s: %d segments, %.1f new for an edit", t.Name(), len(known), float64(all)/edits)
				require.LessOrEqual(t, all, 4*edits, "new segments of %d edits, of %d", edits, len(known))
			})
		}
	}
}
