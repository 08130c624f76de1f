package split_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/split"
)

// cut splits blocks by a new splitter.
func cut(t *testing.T, cfg split.Config, blocks ...ingest.Block) []ingest.Segment {
	t.Helper()
	s, err := split.New(cfg, 0)
	require.NoError(t, err)
	return run(s, blocks)
}

func run(s *split.Splitter, blocks []ingest.Block) []ingest.Segment {
	r := s.NewRun(ingest.Chunking{})
	var out []ingest.Segment
	for _, b := range blocks {
		out = append(out, r.Add(b)...)
	}
	return append(out, r.Close()...)
}

func block(kind ingest.BlockKind, text string) ingest.Block {
	return ingest.Block{Kind: kind, Text: text}
}

func chars(size, overlap int) split.Config {
	return split.Config{Mode: ingest.ChunkChars, Size: size, Overlap: overlap}
}

func textsOf(segs []ingest.Segment) []string {
	var out []string
	for _, s := range segs {
		out = append(out, s.Text)
	}
	return out
}

func TestNothingGivesNothing(t *testing.T) {
	t.Parallel()
	require.Empty(t, cut(t, split.NewDefaultConfig()))
	require.Empty(t, cut(t, split.NewDefaultConfig(), block(ingest.BlockParagraph, ""), block(ingest.BlockParagraph, " \n\t "), block(ingest.BlockTable, "\n\n")))
	s, err := split.New(split.NewDefaultConfig(), 0)
	require.NoError(t, err)
	r := s.NewRun(ingest.Chunking{})
	require.Empty(t, r.Close())
}

func TestAShortDocumentIsOneSegment(t *testing.T) {
	t.Parallel()
	segs := cut(t, split.NewDefaultConfig(), block(ingest.BlockParagraph, "One."), block(ingest.BlockList, "- two"), block(ingest.BlockCode, "three()"))
	require.Len(t, segs, 1)
	require.Equal(t, "One.\n\n- two\n\nthree()", segs[0].Text)
	require.EqualValues(t, 0, segs[0].ByteStart)
	require.EqualValues(t, len(segs[0].Text), segs[0].ByteEnd)
	require.Positive(t, segs[0].Tokens)
}

func TestEachPieceEndsWhereItHurtsLeast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind ingest.BlockKind
		text string
		size int
		ends string // what every segment but the last ends with
	}{
		"sentences":            {ingest.BlockParagraph, strings.Repeat("This is a sentence of a text. ", 40), 200, "."},
		"Chinese sentences":    {ingest.BlockParagraph, strings.Repeat("任务失败之后会再次执行。", 60), 200, "。"},
		"questions":            {ingest.BlockParagraph, strings.Repeat("Is this a question of yours? ", 40), 200, "?"},
		"lines of code":        {ingest.BlockCode, strings.Repeat("call(argument)\n", 100), 200, ")"},
		"rows of a table":      {ingest.BlockTable, "head | of it\n" + strings.Repeat("cell | cell 2\n", 100), 200, "2"},
		"words of no sentence": {ingest.BlockParagraph, strings.Repeat("word ", 300), 200, "word"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			segs := cut(t, chars(c.size, 0), block(c.kind, strings.TrimSpace(c.text)))
			require.Greater(t, len(segs), 2)
			for _, s := range segs[:len(segs)-1] {
				require.LessOrEqual(t, utf8.RuneCountInString(s.Text), c.size)
				require.True(t, strings.HasSuffix(strings.TrimSpace(s.Text), c.ends), "%q", s.Text)
			}
		})
	}
}

// A run without any place to end at is cut between characters, never inside one.
func TestRunsWithoutAPlaceToEnd(t *testing.T) {
	t.Parallel()
	for name, unit := range map[string]string{"letters": "x", "Han": "字", "emoji": "👩", "signs": "=", "digits": "7", "accents": "e\u0301", "tabs and x": "x\t"} {
		for _, kind := range []ingest.BlockKind{ingest.BlockParagraph, ingest.BlockCode, ingest.BlockTable, ingest.BlockHeading, ingest.BlockList} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				text := strings.Repeat(unit, 3000)
				b := block(kind, text)
				if kind == ingest.BlockHeading {
					b.Level = 1
				}
				segs := cut(t, chars(200, 0), b)
				var all strings.Builder
				for _, s := range segs {
					require.True(t, utf8.ValidString(s.Text))
					require.LessOrEqual(t, utf8.RuneCountInString(s.Text), 200)
					all.WriteString(s.Text)
				}
				strip := strings.NewReplacer(" ", "", "\t", "", "\n", "")
				require.Equal(t, len(strip.Replace(text)), len(strip.Replace(all.String())), "no text is lost or doubled")
			})
		}
	}
}

func TestHeadingsArePaths(t *testing.T) {
	t.Parallel()
	h := func(level int, text string) ingest.Block {
		return ingest.Block{Kind: ingest.BlockHeading, Text: text, Level: level}
	}
	p := block(ingest.BlockParagraph, strings.Repeat("text of it, ", 40)) // no small section
	for name, c := range map[string]struct {
		blocks []ingest.Block
		want   [][]string
	}{
		"no heading":              {[]ingest.Block{p}, [][]string{nil}},
		"a level left out":        {[]ingest.Block{h(1, "a"), p, h(4, "d"), p, h(2, "b"), p}, [][]string{{"a"}, {"a", "d"}, {"a", "b"}}},
		"deeper first":            {[]ingest.Block{h(3, "c"), p, h(1, "a"), p}, [][]string{{"c"}, {"a"}}},
		"the same title again":    {[]ingest.Block{h(1, "a"), p, h(1, "a"), p}, [][]string{{"a"}, {"a"}}},
		"a heading at the end":    {[]ingest.Block{h(1, "a"), p, h(2, "end")}, [][]string{{"a"}, {"a", "end"}}},
		"several without a text":  {[]ingest.Block{h(1, "a"), h(2, "b"), h(3, "c"), p}, [][]string{{"a", "b", "c"}}},
		"all six levels":          {[]ingest.Block{h(1, "1"), h(2, "2"), h(3, "3"), h(4, "4"), h(5, "5"), h(6, "6"), p}, [][]string{{"1", "2", "3", "4", "5", "6"}}},
		"text before the heading": {[]ingest.Block{p, h(1, "a"), p}, [][]string{nil, {"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got [][]string
			for _, s := range cut(t, split.NewDefaultConfig(), c.blocks...) {
				got = append(got, slices.Clip(append([]string(nil), s.HeadingPath...)))
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestOverlapRepeatsWholeSentencesOnly(t *testing.T) {
	t.Parallel()
	text := strings.TrimSpace(strings.Repeat("First one here. Second one there. Third one now. ", 30))
	without := cut(t, chars(150, 0), block(ingest.BlockParagraph, text))
	for i := range without[1:] {
		require.GreaterOrEqual(t, without[i+1].ByteStart, without[i].ByteEnd, "nothing is repeated")
	}
	with := cut(t, chars(150, 40), block(ingest.BlockParagraph, text))
	for i := range with[1:] {
		shared := with[i].ByteEnd - with[i+1].ByteStart
		require.Positive(t, shared)
		require.LessOrEqual(t, shared, int64(41))
		require.Regexp(t, `^(First|Second|Third) one`, with[i+1].Text)
	}
	code := cut(t, chars(150, 40), block(ingest.BlockCode, strings.Repeat("line()\n", 100)))
	for i := range code[1:] {
		require.GreaterOrEqual(t, code[i+1].ByteStart, code[i].ByteEnd, "code is not repeated")
	}
}

func TestPagesAreThoseOfTheText(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	for page := 1; page <= 30; page++ {
		blocks = append(blocks, ingest.Block{Kind: ingest.BlockParagraph, Page: page, Text: strings.Repeat(fmt.Sprintf("A sentence on page %d. ", page), 5)})
	}
	last := 0
	for _, s := range cut(t, chars(250, 60), blocks...) {
		require.GreaterOrEqual(t, s.Page, last-1, "but for the overlap")
		from := 0
		last = s.Page
		for _, next := range append(s.PageBreaks, [2]int{len(s.Text), 0}) {
			piece := s.Text[from:next[0]]
			require.Equal(t, strings.Count(piece, "page"), strings.Count(piece, fmt.Sprintf("page %d.", last)), piece)
			if from = next[0]; next[1] > 0 {
				last = next[1]
			}
		}
	}
	require.Greater(t, last, 25)
}

// A splitter serves many documents at a time; each gets what it would get alone.
func TestADeclarationBeginsASegmentUnlessTheOneBeforeIsSmall(t *testing.T) {
	t.Parallel()
	code := func(name string, lines int) ingest.Block {
		return block(ingest.BlockCode, "func "+name+"() {\n"+strings.Repeat("\tcall()\n", lines)+"}")
	}
	first, second, large := code("first", 20), code("second", 20), code("large", 60)
	require.Equal(t, []string{"package a\n\n" + first.Text, second.Text}, textsOf(cut(t, chars(300, 0), block(ingest.BlockCode, "package a"), first, second)),
		"a small block stays with the next, two that do not fit together are parted between them")
	segs := textsOf(cut(t, chars(300, 0), first, large))
	require.Equal(t, first.Text, segs[0])
	require.True(t, strings.HasPrefix(segs[1], "func large()"))
	require.Equal(t, strings.ReplaceAll(large.Text, "\n", ""), strings.ReplaceAll(strings.Join(segs[1:], ""), "\n", ""))
	segs = textsOf(cut(t, chars(300, 0), block(ingest.BlockParagraph, strings.Repeat("Some words. ", 15)), first))
	require.Contains(t, segs[0], "func first()", "code stays with the text before it")
}

func TestRunsDoNotMeet(t *testing.T) {
	t.Parallel()
	s, err := split.New(split.NewDefaultConfig(), 0)
	require.NoError(t, err)
	texts := []string{strings.Repeat("English text of a document. ", 300), strings.Repeat("中文文档的内容。", 300), strings.Repeat("code(); ", 500), "short"}
	want := make([][]string, len(texts))
	for i, text := range texts {
		want[i] = textsOf(run(s, []ingest.Block{block(ingest.BlockParagraph, text)}))
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			n := i % len(texts)
			if got := textsOf(run(s, []ingest.Block{block(ingest.BlockParagraph, texts[n])})); !slices.Equal(want[n], got) {
				t.Errorf("document %d was split otherwise", n)
			}
		})
	}
	all.Wait()
}

func TestTheFingerprintSaysWhatDecidesTheSegments(t *testing.T) {
	t.Parallel()
	seen := map[string]split.Config{}
	for _, cfg := range []split.Config{
		split.NewDefaultConfig(), {Mode: ingest.ChunkTokens, Size: 256, Overlap: -1}, {Mode: ingest.ChunkTokens, Size: 256, Overlap: 10}, chars(256, 10), chars(256, 0),
	} {
		s, err := split.New(cfg, 0)
		require.NoError(t, err)
		other, twice := seen[s.Fingerprint(ingest.Chunking{})]
		require.False(t, twice, "%+v and %+v", cfg, other)
		seen[s.Fingerprint(ingest.Chunking{})] = cfg
		again, err := split.New(cfg, 0)
		require.NoError(t, err)
		require.Equal(t, s.Fingerprint(ingest.Chunking{}), again.Fingerprint(ingest.Chunking{}))
	}
}

// Text that is made to be slow: eight times as much of it takes about eight times as long, and no segment is larger than was asked.
func TestTextsThatAreMadeToBeSlow(t *testing.T) {
	t.Parallel()
	for name := range slowTexts(1) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runtime.LockOSThread() // its processor time is that of this goroutine, whatever else the machine does
			defer runtime.UnlockOSThread()
			took := func(n int) time.Duration {
				text, began := slowTexts(n)[name], threadTime(t)
				for _, kind := range []ingest.BlockKind{ingest.BlockParagraph, ingest.BlockCode} {
					for _, s := range cut(t, split.NewDefaultConfig(), block(kind, text)) {
						require.LessOrEqual(t, s.Tokens, 512)
						require.True(t, utf8.ValidString(s.Text))
					}
				}
				return threadTime(t) - began
			}
			little := took(25_000)
			require.Less(t, took(200_000), 30*little+time.Second, "%v for an eighth", little)
		})
	}
}

// threadTime is the processor time that the thread has used.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(1, &u)) // RUSAGE_THREAD
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// slowTexts are about n bytes each.
func slowTexts(n int) map[string]string {
	return map[string]string{
		"full stops":         strings.Repeat(".", n),
		"stops and spaces":   strings.Repeat(". ", n/2),
		"abbreviations":      strings.Repeat("e.g. i.e. Dr. ", n/14),
		"initials":           strings.Repeat("A. B. ", n/6),
		"opening quotes":     strings.Repeat("“", n/3),
		"closing quotes":     strings.Repeat("a.”", n/5),
		"line ends":          strings.Repeat("a\n", n/2),
		"combining marks":    "a" + strings.Repeat("\u0301", n/2),
		"joined emoji":       strings.Repeat("👩\u200d", n/7),
		"right to left":      strings.Repeat("مرحبا ", n/11),
		"apostrophes":        strings.Repeat("'s't're've'm'll'd", n/17),
		"white space":        "a" + strings.Repeat(" \t", n/2) + "b",
		"one word of digits": strings.Repeat("1234567890", n/10),
	}
}

// The same blocks give the same segments, whatever was split before them.
func TestTheSameBlocksGiveTheSameSegments(t *testing.T) {
	t.Parallel()
	s, err := split.New(chars(120, 30), 0)
	require.NoError(t, err)
	blocks := []ingest.Block{
		{Kind: ingest.BlockHeading, Text: "Head", Level: 1}, block(ingest.BlockParagraph, strings.Repeat("A sentence of some words. ", 30)),
		block(ingest.BlockTable, "a | b\n"+strings.Repeat("1 | 2\n", 60)), block(ingest.BlockCode, strings.Repeat("x()\n", 80)),
	}
	want := run(s, blocks)
	require.Greater(t, len(want), 5)
	for range 3 {
		run(s, []ingest.Block{block(ingest.BlockParagraph, strings.Repeat("something else. ", 100))})
		require.Equal(t, want, run(s, blocks))
	}
	for i, seg := range want {
		require.Less(t, seg.ByteStart, seg.ByteEnd, "segment %d", i)
	}
}
