package document_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// gather is a sink and what came out of it.
func gather(limit int64) (*document.Sink, *[]ingest.Block) {
	var blocks []ingest.Block
	return document.NewSink(document.Limits{MaxTextBytes: limit}, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	}), &blocks
}

func text(kind ingest.BlockKind, s string) ingest.Block { return ingest.Block{Kind: kind, Text: s} }

func TestASinkCleansWhatItIsGiven(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"controls go":                    {"a\x00b\x07c\x7f\u0085d", "abc\nd"},
		"line ends are one":              {"a\r\nb\rc\u2028d\u2029e\vf\fg", "a\nb\nc\nd\ne\nf\ng"},
		"broken UTF-8 is shown":          {"a\xffb", "a\uFFFDb"},
		"a soft hyphen joins":            {"hy\u00ADphen", "hyphen"},
		"a mark inside goes":             {"\uFEFFa\uFEFFb", "ab"},
		"tabs and ends stay":             {"a\tb\n\nc", "a\tb\n\nc"},
		"white space around goes":        {" \n a \t\n", "a"},
		"nothing at all":                 {"\x00\x01 \n", ""},
		"other scripts are left as they": {"مرحبا 👩‍👩‍👧 é", "مرحبا 👩‍👩‍👧 é"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, blocks := gather(1 << 20)
			require.NoError(t, out.Block(text(ingest.BlockParagraph, c.in)))
			if c.want == "" {
				require.Empty(t, *blocks, "a block without text is no block")
				return
			}
			require.Equal(t, []ingest.Block{text(ingest.BlockParagraph, c.want)}, *blocks)
			require.NoError(t, document.CheckBlock((*blocks)[0]))
			require.EqualValues(t, utf8.RuneCountInString(c.want), out.Chars)
		})
	}
}

func TestCodeKeepsTheIndentationOfItsFirstLine(t *testing.T) {
	t.Parallel()
	out, blocks := gather(1 << 20)
	require.NoError(t, out.Block(text(ingest.BlockCode, "\n \n    if x {\n\ty()\n    }  \n\n")))
	require.Equal(t, "    if x {\n\ty()\n    }", (*blocks)[0].Text)
}

func TestLongBlocksAreCutWhereItHurtsLeast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ unit, end string }{
		"lines": {"a line of a text\n", "text"}, "words": {"word ", "word"}, "characters": {"中", "中"}, "bytes": {"x", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, blocks := gather(8 << 20)
			whole := strings.Repeat(c.unit, 300_000/len(c.unit))
			require.NoError(t, out.Block(text(ingest.BlockParagraph, whole)))
			require.Greater(t, len(*blocks), 3)
			var joined strings.Builder
			for _, b := range *blocks {
				require.NoError(t, document.CheckBlock(b))
				require.True(t, strings.HasSuffix(b.Text, c.end), "%.20q", b.Text)
				joined.WriteString(b.Text)
			}
			strip := strings.NewReplacer(" ", "", "\n", "")
			require.Equal(t, strip.Replace(whole), strip.Replace(joined.String()), "nothing is lost")
		})
	}
}

func TestASinkEndsAtItsLimit(t *testing.T) {
	t.Parallel()
	out, blocks := gather(10)
	require.NoError(t, out.Block(text(ingest.BlockParagraph, "0123456789")))
	err := out.Block(text(ingest.BlockParagraph, "x"))
	f := ingest.AsFailure(err)
	require.Equal(t, ingest.CodeLimitExceeded, f.Code)
	require.True(t, f.Permanent)
	require.NotEmpty(t, f.Remedy)
	require.Len(t, *blocks, 1)
}

func TestAReceiversErrorEndsTheReading(t *testing.T) {
	t.Parallel()
	full := errors.New("disk full")
	out := document.NewSink(document.Limits{MaxTextBytes: 100}, func(ingest.Block) error { return full })
	require.ErrorIs(t, out.Block(text(ingest.BlockParagraph, "x")), full)
}

func TestTheFirstHeadingIsRemembered(t *testing.T) {
	t.Parallel()
	out, _ := gather(1 << 20)
	for _, b := range []ingest.Block{
		text(ingest.BlockParagraph, "before"), {Kind: ingest.BlockHeading, Text: " One ", Level: 2}, {Kind: ingest.BlockHeading, Text: "Two", Level: 1},
	} {
		require.NoError(t, out.Block(b))
	}
	require.Equal(t, "One", out.FirstHeading)
}

func TestSqueezeJoinsTheLinesOfRunningText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", " \n ": "", "a": "a", " a  b\n\tc ": "a b c", "持久化\n异步": "持久化异步", "持久化 异步": "持久化 异步", "ある\n日。\nthe end": "ある日。 the end",
		"end\n中": "end 中", "中\nend": "中 end", "，\n中": "，中", "a a a": "a a a", "x\u3000y": "x y",
	} {
		require.Equal(t, want, document.Squeeze(in), "%q", in)
	}
}

func TestATitleIsOneLineOfBoundedLength(t *testing.T) {
	t.Parallel()
	require.Equal(t, "A title of two lines", document.CleanTitle(" A title\r\nof\ttwo \x00lines "))
	long := document.CleanTitle(strings.Repeat("標題 ", 1000))
	require.Equal(t, document.MaxTitleRunes, utf8.RuneCountInString(long))
	require.True(t, utf8.ValidString(long))
}

func TestTablesAreRowsOfCells(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows [][]string
		want []string
	}{
		"a table":                {[][]string{{"a", "b"}, {"1", "2"}}, []string{"a | b\n1 | 2"}},
		"cells of several lines": {[][]string{{"a\nb", " c "}, {"x|y", "持\n久"}}, []string{"a b | c\nx¦y | 持久"}},
		"empty rows go":          {[][]string{{"", " "}, {"a", ""}, {"\n"}}, []string{"a |"}},
		"uneven rows":            {[][]string{{"a", "b"}, {"1"}, {"1", "2", "3"}}, []string{"a | b\n1\n1 | 2 | 3"}},
		"a frame around text":    {[][]string{{"just text"}, {"more"}}, []string{"just text", "more"}},
		"no rows":                {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, blocks := gather(1 << 20)
			table := &document.TableWriter{Out: out}
			for _, row := range c.rows {
				require.NoError(t, table.Row(row))
			}
			require.NoError(t, table.Flush())
			var got []string
			for _, b := range *blocks {
				got = append(got, b.Text)
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestAHeaderThatIsATableByItselfIsNotRepeated(t *testing.T) {
	t.Parallel()
	out, blocks := gather(8 << 20)
	table := &document.TableWriter{Out: out}
	huge := strings.Repeat("head ", 1000)
	require.NoError(t, table.Row([]string{huge, "x"}))
	for range 2000 {
		require.NoError(t, table.Row([]string{"some cell", "another cell"}))
	}
	require.NoError(t, table.Flush())
	require.Greater(t, len(*blocks), 2)
	for _, b := range (*blocks)[1:] {
		require.NotContains(t, b.Text, "head", "it would fill every piece")
		require.NoError(t, document.CheckBlock(b))
	}
}

func TestBlocksOfAChildAreJudged(t *testing.T) {
	t.Parallel()
	good := ingest.Block{Kind: ingest.BlockHeading, Text: "x", Level: 6, Page: 1}
	require.NoError(t, document.CheckBlock(good))
	for want, change := range map[string]func(*ingest.Block){
		"unknown kind": func(b *ingest.Block) { b.Kind = "script" },
		"without text": func(b *ingest.Block) { b.Text = " \n" },
		"more than":    func(b *ingest.Block) { b.Text = strings.Repeat("x", document.MaxBlockBytes+1) },
		"not UTF-8":    func(b *ingest.Block) { b.Text = "\xff" },
		"a NUL":        func(b *ingest.Block) { b.Text = "a\x00" },
		"of level 7":   func(b *ingest.Block) { b.Level = 7 },
		"on page -1":   func(b *ingest.Block) { b.Page = -1 },
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, document.CheckBlock(bad), want)
	}
}

func TestFailuresTellTheUserWhatToDo(t *testing.T) {
	t.Parallel()
	for code, err := range map[ingest.Code]error{
		ingest.CodeUnsupportedType: document.Unsupported("a %s", "thing"), ingest.CodeEncrypted: document.Encrypted("locked"),
		ingest.CodeCorrupt: document.Corrupt("read: %w", io.ErrUnexpectedEOF), ingest.CodeLimitExceeded: document.OverLimit("too much"),
	} {
		f := ingest.AsFailure(err)
		require.Equal(t, code, f.Code)
		require.True(t, f.Permanent)
		require.NotEmpty(t, f.Remedy)
	}
	require.ErrorIs(t, document.Corrupt("read: %w", io.ErrUnexpectedEOF), io.ErrUnexpectedEOF, "the cause is kept")
}

func TestAnInputIsReadFromItsStartEachTime(t *testing.T) {
	t.Parallel()
	in := &document.Input{File: strings.NewReader("0123456789"), Size: 4}
	for range 2 {
		got, err := io.ReadAll(in.Stream())
		require.NoError(t, err)
		require.Equal(t, "0123", string(got), "and not beyond its size")
	}
}
