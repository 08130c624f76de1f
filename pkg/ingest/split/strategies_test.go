package split_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/tiktoken-go/tokenizer/codec"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/split"
)

// by cuts blocks as a knowledge base with these options says, whatever the operator has set.
func by(t *testing.T, o ingest.ChunkOptions, blocks ...ingest.Block) []ingest.Segment {
	t.Helper()
	c, err := o.Chunking("")
	require.NoError(t, err)
	s, err := split.New(chars(1000, 100), 0)
	require.NoError(t, err)
	return under(s, c, blocks)
}

func under(s *split.Splitter, c ingest.Chunking, blocks []ingest.Block) (out []ingest.Segment) {
	r := s.NewRun(c)
	for _, b := range blocks {
		out = append(out, r.Add(b)...)
	}
	return append(out, r.Close()...)
}

func TestEverySectionBeginsASegment(t *testing.T) {
	t.Parallel()
	blocks := []ingest.Block{
		block(ingest.BlockHeading, "Guide"), block(ingest.BlockParagraph, "Intro."), {Kind: ingest.BlockHeading, Level: 2, Text: "Install"},
		block(ingest.BlockParagraph, "Do it."), {Kind: ingest.BlockHeading, Level: 2, Text: "Use"}, block(ingest.BlockParagraph, "Use it."),
	}
	require.Len(t, by(t, ingest.ChunkOptions{}, blocks...), 1)
	require.Equal(t, []string{"Guide\n\nIntro.", "Install\n\nDo it.", "Use\n\nUse it."},
		textsOf(by(t, ingest.ChunkOptions{Strategy: ingest.ChunkHeadings}, blocks...)))
}

func TestEachRowIsASegmentWithItsHeader(t *testing.T) {
	t.Parallel()
	segs := by(t, ingest.ChunkOptions{Strategy: ingest.ChunkRows},
		block(ingest.BlockParagraph, "Before."), block(ingest.BlockTable, "name | age\nAnna | 41\nBen | 7"), block(ingest.BlockParagraph, "Behind. And more."))
	require.Equal(t, []string{"Before.", "name | age\nAnna | 41", "name | age\nBen | 7", "Behind. And more."}, textsOf(segs))
	wide := strings.Repeat("a wide header cell ", 80) + "| b\n1 | 2\n3 | 4"
	segs = by(t, ingest.ChunkOptions{Strategy: ingest.ChunkRows, Size: new(200)}, block(ingest.BlockTable, wide))
	require.Equal(t, []string{"1 | 2", "3 | 4"}, textsOf(segs)[len(segs)-2:], "a header that would fill a segment is not repeated")
}

func TestEachSentenceIsASegmentAmongItsNeighbours(t *testing.T) {
	t.Parallel()
	segs := by(t, ingest.ChunkOptions{Strategy: ingest.ChunkSentences, Window: new(2)},
		block(ingest.BlockHeading, "Birds"), block(ingest.BlockParagraph, "One flew. Two sat. Three sang."),
		block(ingest.BlockTable, "bird | song\nlark | yes\nstork | no"), block(ingest.BlockParagraph, "Four left."))
	require.Equal(t, []string{"Birds\n\nOne flew.", "Two sat.", "Three sang.", "bird | song\nlark | yes\nstork | no", "Four left."}, textsOf(segs))
	require.Equal(t, [2]int{0, 2}, segs[0].Around)
	require.Equal(t, [2]int{0, 3}, segs[1].Around)
	require.Equal(t, [2]int{2, 6}, segs[4].Around, "the last may lie behind the end")
}

func TestSmallSegmentsKnowTheirParent(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	for chapter := range 3 {
		blocks = append(blocks, block(ingest.BlockHeading, fmt.Sprintf("Chapter %d", chapter)))
		for n := range 40 {
			blocks = append(blocks, block(ingest.BlockParagraph, fmt.Sprintf("Sentence %d of chapter %d says a little. And one more follows it there.", n, chapter)))
		}
	}
	blocks = append(blocks, block(ingest.BlockHeading, "End"), block(ingest.BlockParagraph, "All."))
	c, err := ingest.ChunkOptions{Strategy: ingest.ChunkParents, Unit: ingest.ChunkChars, Size: new(200), ParentSize: new(1000)}.Chunking("")
	require.NoError(t, err)
	s, err := split.New(split.NewDefaultConfig(), 0)
	require.NoError(t, err)
	segs := under(s, c, blocks)
	size, parents := map[[2]int]int{}, 0
	for i, seg := range segs {
		require.LessOrEqual(t, utf8.RuneCountInString(seg.Text), 200)
		if seg.Around == ([2]int{}) {
			require.Equal(t, "End\n\nAll.", seg.Text, "the only one of its parent")
			continue
		}
		require.LessOrEqual(t, seg.Around[0], i)
		require.GreaterOrEqual(t, seg.Around[1], i)
		require.Equal(t, segs[seg.Around[0]].HeadingPath, seg.HeadingPath, "a parent is of one chapter")
		if i == seg.Around[0] {
			parents++
		}
		size[seg.Around] += utf8.RuneCountInString(seg.Text) + 2
	}
	require.Len(t, size, parents)
	require.Greater(t, parents, 3, "a chapter has several")
	for at, n := range size {
		require.LessOrEqual(t, n, 1002, "parent %v", at)
		require.Greater(t, at[1], at[0])
	}
}

// A knowledge base may ask for more than the model takes: since it was set, the operator has changed the model.
func TestNoSegmentIsLargerThanTheModelTakes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("知识库的每一句话都要被找到。", 400) + strings.Repeat("word and ", 900)
	for _, unit := range []ingest.ChunkUnit{ingest.ChunkTokens, ingest.ChunkChars} {
		for _, strategy := range []ingest.ChunkStrategy{ingest.ChunkRecursive, ingest.ChunkSentences, ingest.ChunkParents} {
			s, err := split.New(split.Config{Size: 64, Overlap: -1}, 64)
			require.NoError(t, err)
			c, err := ingest.ChunkOptions{Strategy: strategy, Unit: unit, Size: new(4000)}.Chunking("")
			require.NoError(t, err)
			segs := under(s, c, []ingest.Block{block(ingest.BlockParagraph, long)})
			require.NotEmpty(t, segs)
			for _, seg := range segs {
				n, err := codec.NewCl100kBase().Count(seg.Text)
				require.NoError(t, err)
				require.LessOrEqual(t, n, 64, "%s, %s", unit, strategy)
			}
		}
	}
	_, err := split.New(split.Config{Size: 1024, Overlap: -1}, 512)
	require.ErrorContains(t, err, "CHUNK_SIZE is 1024 tokens, and the embedding model takes texts of at most 512")
}

func TestChunkingNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]ingest.ChunkOptions{
		`chunking.strategy is "semantic", allowed are recursive, headings, sentences, rows, parents`: {Strategy: "semantic"},
		`chunking.unit is "words", allowed are tokens, chars`:                                        {Unit: "words"},
		"chunking.size is 8, allowed are 32 to 8192":                                                 {Size: new(8)},
		"chunking.overlap is 300, allowed are 0 to 256":                                              {Overlap: new(300)},
		"chunking.overlap is 1, allowed are 0 to 0":                                                  {Strategy: ingest.ChunkParents, Overlap: new(1)},
		"chunking.parentSize is 100, allowed are 128 to 8192":                                        {Strategy: ingest.ChunkParents, ParentSize: new(100)},
		"chunking.window is 0, allowed are 1 to 20":                                                  {Strategy: ingest.ChunkSentences, Window: new(0)},
		"chunking.window is for the strategy sentences, not for rows; leave it out":                  {Strategy: ingest.ChunkRows, Window: new(2)},
		"chunking.parentSize is for the strategy parents, not for recursive; leave it out":           {ParentSize: new(512)},
	} {
		_, err := o.Chunking("chunking.")
		require.EqualError(t, err, want)
		var text *ingest.TextError
		require.ErrorAs(t, err, &text)
	}
}

func TestFingerprintsNameTheStrategy(t *testing.T) {
	t.Parallel()
	s, err := split.New(split.NewDefaultConfig(), 0)
	require.NoError(t, err)
	require.Equal(t, "recursive/4 tokens 512/60", s.Fingerprint(ingest.Chunking{}))
	for want, o := range map[string]ingest.ChunkOptions{
		"headings/4 chars 900/120":         {Strategy: ingest.ChunkHeadings, Unit: ingest.ChunkChars},
		"sentences/4 tokens 512/0 among 3": {Strategy: ingest.ChunkSentences},
		"parents/4 tokens 128/0 in 1024":   {Strategy: ingest.ChunkParents},
	} {
		c, err := o.Chunking("")
		require.NoError(t, err)
		require.Equal(t, want, s.Fingerprint(c))
	}
}
