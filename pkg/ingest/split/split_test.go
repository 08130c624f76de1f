package split

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/split/sentence"
)

func runAll(t require.TestingT, cfg Config, blocks []ingest.Block) []ingest.Segment {
	s, err := New(cfg, 0)
	require.NoError(t, err)
	r := s.NewRun(ingest.Chunking{})
	var out []ingest.Segment
	for _, b := range blocks {
		out = append(out, r.Add(b)...)
	}
	return append(out, r.Close()...)
}

func extracted(blocks []ingest.Block) string {
	var texts []string
	for _, b := range blocks {
		if strings.TrimSpace(b.Text) != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, blockJoin)
}

func para(text string) ingest.Block { return ingest.Block{Kind: ingest.BlockParagraph, Text: text} }

func heading(level int, text string) ingest.Block {
	return ingest.Block{Kind: ingest.BlockHeading, Text: text, Level: level}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	cases := map[string][]string{
		"One. Two! Three?":                 {"One. ", "Two! ", "Three?"},
		"Dr. Smith met J. Doe. They left.": {"Dr. Smith met J. Doe. ", "They left."},
		"See Fig. 3 for it. Next.":         {"See Fig. 3 for it. ", "Next."},
		"他问：“是吗？”她说：“好的。”然后走了。":                  {"他问：“是吗？”", "她说：“好的。”", "然后走了。"},
		"第一句。第二句！第三句？":                           {"第一句。", "第二句！", "第三句？"},
		"是吗？“好的。”":                               {"是吗？", "“好的。”"},
		"A line that\nis wrapped here. And more": {"A line that\nis wrapped here. ", "And more"},
		"no end":                                 {"no end"},
		"":                                       nil,
	}
	for text, want := range cases {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, sentence.Cut(text))
		})
	}
}

func TestSectionsBeginSegmentsAndNameTheirPath(t *testing.T) {
	t.Parallel()
	segs := runAll(t, NewDefaultConfig(), []ingest.Block{
		heading(1, "Guide"), para("Intro."), heading(2, "Install"), heading(3, "Step 1"), para("Do it."), heading(1, "Usage"), para("Use it."),
	})
	require.Len(t, segs, 2)
	require.Equal(t, []string{"Guide"}, segs[0].HeadingPath)
	require.Equal(t, "Guide\n\nIntro.\n\nInstall\n\nStep 1\n\nDo it.", segs[0].Text)
	require.Equal(t, []string{"Usage"}, segs[1].HeadingPath)
}

func TestSmallSectionsOfOneSectionStayTogether(t *testing.T) {
	t.Parallel()
	text := strings.TrimSpace(strings.Repeat("A sentence of ten words that says nothing much at all. ", 5))
	blocks := []ingest.Block{heading(1, "Guide"), para(text + text)}
	for range 20 {
		blocks = append(blocks, heading(2, "Part"), heading(3, "Detail"), para(text))
	}
	blocks = append(blocks, heading(2, "Last"), para(strings.Repeat(text, 20)), heading(1, "Other"), para("Alone."))
	segs := runAll(t, NewDefaultConfig(), blocks)
	small := 0
	for _, s := range segs {
		require.LessOrEqual(t, s.Tokens, 512)
		if s.Tokens < 100 {
			small++
		}
	}
	require.Equal(t, 1, small, "none but the last, which shares no heading with the one before")
	require.Equal(t, []string{"Guide"}, segs[1].HeadingPath)
	require.Equal(t, 2, strings.Count(segs[1].Text, "Detail"))
	require.Equal(t, []string{"Guide", "Last"}, segs[len(segs)-2].HeadingPath, "a section that goes on has its own path")
	require.Equal(t, []string{"Other"}, segs[len(segs)-1].HeadingPath)
}

func TestNeverCutsInsideASentenceThatFits(t *testing.T) {
	t.Parallel()
	english := strings.Repeat("The reclaimer finds the expired lease and takes the task over with a new fence. ", 200)
	chinese := strings.Repeat("持久化异步入库任务把文档切成段落，再写入向量库。他问：“可以重试吗？”她说：“可以。”", 200)
	for name, text := range map[string]string{"english": english, "chinese": chinese} {
		for _, cfg := range []Config{NewDefaultConfig(), {Mode: ingest.ChunkChars, Overlap: -1}} {
			segs := runAll(t, cfg, []ingest.Block{para(strings.TrimSpace(text))})
			require.Greater(t, len(segs), 3, name)
			for _, s := range segs {
				require.Regexp(t, `[.。！？”]$`, s.Text, name)
				require.Regexp(t, `^(The|持久化|他问|她说)`, s.Text, name)
			}
			for i := range segs[1:] {
				require.Less(t, segs[i+1].ByteStart, segs[i].ByteEnd, "%s: segments overlap", name)
				require.Greater(t, segs[i+1].ByteEnd, segs[i].ByteEnd, "%s: each has something new", name)
			}
		}
	}
}

func TestDefaultSegmentsAreWellFilled(t *testing.T) {
	t.Parallel()
	text := strings.TrimSpace(strings.Repeat("A worker that is alive but deaf after a broker reconnect is found by its progress. ", 400))
	segs := runAll(t, NewDefaultConfig(), []ingest.Block{para(text)})
	for _, s := range segs[:len(segs)-1] {
		require.GreaterOrEqual(t, s.Tokens, 400)
		require.LessOrEqual(t, s.Tokens, 512)
	}
}

func TestTablePiecesKeepTheirHeader(t *testing.T) {
	t.Parallel()
	rows := []string{"status | count"}
	for range 400 {
		rows = append(rows, "RETRYING | 42 and some more words to fill it")
	}
	segs := runAll(t, NewDefaultConfig(), []ingest.Block{para("Before."), {Kind: ingest.BlockTable, Text: strings.Join(rows, "\n")}})
	require.Greater(t, len(segs), 3)
	require.True(t, strings.HasPrefix(segs[0].Text, "Before.\n\nstatus | count\n"))
	total := 0
	for i, s := range segs {
		require.Equal(t, 1, strings.Count(s.Text, "status | count"), "segment %d", i)
		require.LessOrEqual(t, s.Tokens, 512)
		total += strings.Count(s.Text, "RETRYING")
	}
	require.Equal(t, 400, total, "no row lost or repeated")
}

func TestCodeIsNeverReflowed(t *testing.T) {
	t.Parallel()
	code := strings.TrimRight(strings.Repeat("func  f() {\n\n\treturn  1\n}\n", 300), "\n")
	segs := runAll(t, NewDefaultConfig(), []ingest.Block{{Kind: ingest.BlockCode, Text: code}})
	require.Greater(t, len(segs), 2)
	for _, s := range segs {
		require.Equal(t, strings.TrimRight(code[s.ByteStart:s.ByteEnd], "\n"), s.Text)
	}
}

func TestPageIsThatOfTheFirstCharacter(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	for page := 1; page <= 30; page++ {
		blocks = append(blocks, ingest.Block{Kind: ingest.BlockParagraph, Page: page, Text: strings.TrimSpace(strings.Repeat("Words of a page that fill it. ", 30))})
	}
	text := extracted(blocks)
	for _, s := range runAll(t, NewDefaultConfig(), blocks) {
		require.Equal(t, strings.Count(text[:s.ByteStart], blockJoin)+1, s.Page)
	}
}

func TestHostileRunsStayQuickAndBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("中", 20_000), strings.Repeat("a", 60_000), strings.Repeat("\u0301", 30_000), strings.Repeat("( ", 30_000)} {
		for _, s := range runAll(t, NewDefaultConfig(), []ingest.Block{para(strings.TrimSpace(text))}) {
			require.LessOrEqual(t, s.Tokens, 512)
		}
	}
}

func TestValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	err := Config{Mode: ingest.ChunkTokens, Size: 5, Overlap: 900}.Validate()
	require.ErrorContains(t, err, "CHUNK_SIZE")
	require.ErrorContains(t, err, "CHUNK_OVERLAP")
	require.ErrorContains(t, Config{Mode: "words"}.Validate(), "CHUNK_MODE")
	require.NoError(t, Config{Mode: ingest.ChunkChars, Size: 900, Overlap: 120}.Validate())
}

var pieces = []string{"Dr. Smith said no. ", "Is it? ", "一句话。", "他说：“好”。", "word ", "\n", "\n\n", "a,b;c: ", strings.Repeat("x", 300), "é", "𠮷", "👩‍👩‍👧 ", "3.14 ", "\t", "“", "”", "| "}

func blocksGen() *rapid.Generator[[]ingest.Block] {
	one := rapid.Custom(func(t *rapid.T) ingest.Block {
		kind := rapid.SampledFrom([]ingest.BlockKind{ingest.BlockHeading, ingest.BlockParagraph, ingest.BlockParagraph, ingest.BlockTable, ingest.BlockCode, ingest.BlockList}).Draw(t, "kind")
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 60).Draw(t, "text"), "")
		return ingest.Block{Kind: kind, Text: strings.TrimSpace(text), Level: rapid.IntRange(0, 9).Draw(t, "level"), Page: rapid.IntRange(0, 3).Draw(t, "page")}
	})
	return rapid.SliceOfN(one, 0, 12)
}

func TestNothingIsLostAndSizesAreBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkProperties(t, blocksGen().Draw(t, "blocks"), configGen().Draw(t, "config")) })
}

func configGen() *rapid.Generator[Config] {
	return rapid.Custom(func(t *rapid.T) Config {
		mode := rapid.SampledFrom([]ingest.ChunkUnit{ingest.ChunkTokens, ingest.ChunkChars}).Draw(t, "mode")
		size := rapid.IntRange(100, 600).Draw(t, "size")
		strategy := rapid.SampledFrom([]ingest.ChunkStrategy{
			ingest.ChunkRecursive, ingest.ChunkHeadings, ingest.ChunkRows, ingest.ChunkSentences, ingest.ChunkParents,
		}).Draw(t, "strategy")
		if strategy == ingest.ChunkSentences || strategy == ingest.ChunkParents {
			return Config{Strategy: strategy, Mode: mode, Size: size, Overlap: -1}
		}
		return Config{Strategy: strategy, Mode: mode, Size: size, Overlap: rapid.IntRange(0, size/2).Draw(t, "overlap")}
	})
}

func checkProperties(t require.TestingT, blocks []ingest.Block, cfg Config) {
	text := extracted(blocks)
	segs := runAll(t, cfg, blocks)
	require.Equal(t, segs, runAll(t, cfg, blocks), "deterministic")
	covered := int64(0)
	for i, s := range segs {
		require.Equal(t, i, s.Index)
		require.True(t, utf8.ValidString(s.Text))
		require.NotEmpty(t, strings.TrimSpace(s.Text))
		require.LessOrEqual(t, s.ByteStart, s.ByteEnd)
		if gap := s.ByteStart; gap > covered {
			require.Empty(t, strings.TrimFunc(text[covered:gap], unicode.IsSpace), "text lost before segment %d", i)
		}
		require.Greater(t, s.ByteEnd, covered, "segment %d brings nothing new", i)
		covered = s.ByteEnd
		require.True(t, strings.HasSuffix(s.Text, strings.TrimSpace(text[s.ByteStart:s.ByteEnd])), "segment %d is its byte range", i)
		if cfg.Mode == ingest.ChunkChars {
			require.LessOrEqual(t, utf8.RuneCountInString(s.Text), cfg.Size)
		} else {
			require.LessOrEqual(t, s.Tokens, cfg.Size)
		}
	}
	require.Empty(t, strings.TrimSpace(text[covered:]), "text lost at the end")
}

func FuzzSplit(f *testing.F) {
	for _, p := range pieces {
		f.Add(p, "heading", 100, 20)
	}
	f.Fuzz(func(t *testing.T, text, title string, size, overlap int) {
		if !utf8.ValidString(text) || !utf8.ValidString(title) {
			return
		}
		size = 100 + abs(size)%500
		cfg := Config{Mode: ingest.ChunkChars, Size: size, Overlap: abs(overlap) % (size / 2)}
		checkProperties(t, []ingest.Block{heading(1, strings.TrimSpace(title)), para(strings.TrimSpace(text)), {Kind: ingest.BlockTable, Text: strings.TrimSpace(text)}, {Kind: ingest.BlockCode, Text: strings.TrimSpace(text)}}, cfg)
	})
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
