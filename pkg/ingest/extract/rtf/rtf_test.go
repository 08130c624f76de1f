package rtf_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/rtf"
)

func TestRichText(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"paragraphs":             {`one {\b two}\par three\line four\par`, []string{"p one two", "p three\nfour"}},
		"characters by number":   {`\uc1\u27515?\u20449?\uc0\u-25697 x\par`, []string{"p 死信\u9b9fx"}},
		"pairs of units":         {`\u-10179?\u-8704?\par`, []string{"p 😀"}},
		"two skipped for one":    {`{\uc2\u27515\'cb\'c0}a\par`, []string{"p 死a"}},
		"bytes of the code page": {`\'e9t\'e9\par`, []string{"p été"}},
		"bytes of a font":        {`{\fonttbl{\f3\fcharset134 SimSun;}}{\f3 \'cb\'c0\'d0\'c5}\par`, []string{"p 死信"}},
		"headings by style":      {`{\stylesheet{\s1 heading 2;}{\s4\sbasedon1 Title;}}\pard\s1 Head\par\pard\s4 Top\par\pard text\par`, []string{"## Head", "# Top", "p text"}},
		"headings by level":      {`\pard\outlinelevel0 Head\par\pard text\par`, []string{"# Head", "p text"}},
		"hidden and deleted":     {`a{\v SECRET}{\deleted GONE}b\v SECRET\v0 c\par`, []string{"p abc"}},
		"groups nobody shows":    {`{\*\generator X;}{\pict 00ff}{\field{\*\fldinst HYPERLINK x}{\fldrslt link}}\par`, []string{"p link"}},
		"raw bytes":              {"a{\\pict\\bin5 }}{{}}b\\par", []string{"p ab"}},
		"a table":                {`\trowd\intbl a\cell b\par c\cell\row\trowd\intbl d\cell e\cell\row\pard after\par`, []string{"t a | b c\nd | e", "p after"}},
		"a list":                 {`\pard\ls1{\listtext 1.}item\par\pard text\par`, []string{"l item", "p text"}},
		"a footnote":             {`text{\footnote\pard note\par}more\par`, []string{"p text [note ]more"}},
		"signs":                  {`\ldblquote a\rdblquote\emdash\~b\_c\bullet\{\}\\\par`, []string{"p “a”—\u00A0b-c•{}\\"}},
		"a text box": {
			`one{\shp{\*\shpinst\shpleft1{\sp{\sn fill}{\sv 1}}{\shptxt\pard in the box\par}}{\shprslt{\*\do\dptxbx{\dptxbxtext\pard in the box\par}}}} two\par`,
			[]string{"p one", "p in the box", "p two"},
		},
		"a text box of an old program": {`{\*\do\dptxbx{\dptxbxtext\pard in the box\par}}\pard two\par`, []string{"p in the box", "p two"}},
		"a text box in a header":       {`{\header{\shp{\*\shpinst{\shptxt top\par}}}}text\par`, []string{"p text"}},
		"an object with what it shows": {`a{\object\objemb{\*\objclass Word}{\*\objdata 0105}{\result{\pict 00}shown}}b\par`, []string{"p ashownb"}},
		"nothing but a header":         {`{\header\pard top{\field{\*\fldinst PAGE}{\fldrslt 1}}\par second\par}\pard\par`, []string{"p top1", "p second"}},
		"cut off":                      {`one\par two \'e`, []string{"p one", "p two"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, rtf.Read, document.TypeRTF, []byte(`{\rtf1\ansi\ansicpg1252 `+c.body+`}`), c.want...)
		})
	}
}

func TestHeadersOfRichTextBySetting(t *testing.T) {
	t.Parallel()
	var asked bool
	read := func(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
		in.Limits.HeadersFooters = asked
		return rtf.Read(ctx, in, out)
	}
	file := []byte(`{\rtf1{\header top\par}{\footer bottom}text\par}`)
	asked = true
	extracttest.RequireLines(t, read, document.TypeRTF, file, "p text", "p top", "p bottom")
	asked = false
	extracttest.RequireLines(t, read, document.TypeRTF, file, "p text")
}

func TestTheTitleOfRichText(t *testing.T) {
	t.Parallel()
	ex := extracttest.RequireLines(t, rtf.Read, document.TypeRTF, []byte(`{\rtf1{\info{\author Me}{\title The title}}text\par}}behind`), "p text")
	require.Equal(t, "The title", ex.Title)
}

func TestRichTextThatIsNone(t *testing.T) {
	t.Parallel()
	_, _, err := extracttest.ReadBytes(rtf.Read, []byte(`{\rtfx}`), document.TypeRTF)
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	_, _, err = extracttest.ReadBytes(rtf.Read, []byte(`{\rtf1`+strings.Repeat("{", 5000)), document.TypeRTF)
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
}

func TestLongRichText(t *testing.T) {
	t.Parallel()
	_, blocks, err := extracttest.ReadBytes(rtf.Read, []byte(`{\rtf1\ansi\ansicpg936 `+strings.Repeat(`\'cb\'c0`, 50_000)+`\par}`), document.TypeRTF)
	require.NoError(t, err)
	all := extracttest.Joined(blocks)
	require.Equal(t, 50_000, strings.Count(all, "死"), "no character is cut between two decodings")
	require.NotContains(t, all, "\uFFFD")
}

func FuzzRTF(f *testing.F) { extracttest.FuzzReader(f, rtf.Read, document.TypeRTF, ".rtf") }
