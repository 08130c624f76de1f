package docx

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func p(inner string) string  { return "<w:p>" + inner + "</w:p>" }
func r(text string) string   { return "<w:r><w:t>" + text + "</w:t></w:r>" }
func tc(inner string) string { return "<w:tc>" + inner + "</w:tc>" }
func tr(cells ...string) string {
	return "<w:tr>" + strings.Join(cells, "") + "</w:tr>"
}
func tbl(rows ...string) string { return "<w:tbl>" + strings.Join(rows, "") + "</w:tbl>" }

func TestBodiesOfEverySort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"runs join":                  {p(r("one") + r(" and ") + r("two")), []string{"p one and two"}},
		"empty paragraphs go":        {p("") + p(r(" ")) + p(r("text")), []string{"p text"}},
		"text outside a run's text":  {p("loose" + r("kept") + "<w:r>loose</w:r>"), []string{"p kept"}},
		"a text box in a paragraph":  {p(r("before") + "<w:r><w:txbxContent>" + p(r("inside")) + "</w:txbxContent></w:r>" + r("after")), []string{"p inside", "p beforeafter"}},
		"nested deletions":           {p("<w:del><w:ins>" + r("no") + "</w:ins></w:del>" + r("yes")), []string{"p yes"}},
		"hidden, then not":           {p(`<w:r><w:rPr><w:vanish w:val="false"/></w:rPr><w:t>seen</w:t></w:r>` + r(" too")), []string{"p seen too"}},
		"a list that is turned off":  {p(`<w:pPr><w:numPr><w:numId w:val="0"/></w:numPr></w:pPr>` + r("plain")), []string{"p plain"}},
		"levels beyond six":          {p(`<w:pPr><w:outlineLvl w:val="8"/></w:pPr>` + r("deep")), []string{"###### deep"}},
		"the level of body text":     {p(`<w:pPr><w:outlineLvl w:val="9"/></w:pPr>` + r("body")), []string{"p body"}},
		"a level that is no number":  {p(`<w:pPr><w:outlineLvl w:val="x"/></w:pPr>` + r("body")), []string{"p body"}},
		"a table without rows":       {tbl() + p(r("after")), []string{"p after"}},
		"rows of empty cells":        {tbl(tr(tc(p("")), tc(p(""))), tr(tc(p(r("a"))), tc(p(r("b"))))), []string{"t a | b"}},
		"one cell around text":       {tbl(tr(tc(p(r("framed")) + p(r("text"))))), []string{"p framed text"}},
		"paragraphs between tables":  {tbl(tr(tc(p(r("a"))), tc(p(r("b"))))) + p(r("x")) + tbl(tr(tc(p(r("c"))), tc(p(r("d"))))), []string{"t a | b", "p x", "t c | d"}},
		"headings in a cell":         {tbl(tr(tc(p(`<w:pPr><w:outlineLvl w:val="0"/></w:pPr>`+r("h"))), tc(p(r("x"))))), []string{"t h | x"}},
		"tables that never end":      {"<w:tbl><w:tr><w:tc>" + p(r("lost")) + "</w:tc></w:tr></w:tbl>" + p(r("kept")), []string{"p lost", "p kept"}},
		"cells outside a table":      {tr(tc(p(r("loose")))), []string{"p loose"}},
		"a symbol font's characters": {p(`<w:r><w:sym w:font="x" w:char="F0B7"/><w:t>item</w:t></w:r>`), []string{"p item"}},
		"comments and instructions":  {"<!-- no --><?no no?>" + p(r("yes")), []string{"p yes"}},
		"CDATA":                      {p("<w:r><w:t><![CDATA[a <b> c]]></w:t></w:r>"), []string{"p a <b> c"}},
		"entities of XML":            {p(r("&lt;a&gt; &amp; &#x4e2d;")), []string{"p <a> & 中"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, Read, document.TypeDOCX, extracttest.DocxOf(t, strings.NewReader(c.body)), c.want...)
		})
	}
}

func TestWideAndLongTables(t *testing.T) {
	t.Parallel()
	var cells, rows []string
	for i := range 1500 {
		cells = append(cells, tc(p(r(strconv.Itoa(i)))))
	}
	for i := range 2000 {
		rows = append(rows, tr(tc(p(r("name "+strconv.Itoa(i)))), tc(p(r("value")))))
	}
	for _, body := range []string{tbl(tr(cells...)), tbl(rows...), tbl(tr(tc(p(r(strings.Repeat("long ", 50_000)))), tc(p(r("x")))))} {
		_, blocks, err := extracttest.ReadBytes(Read, extracttest.DocxOf(t, strings.NewReader(body)), document.TypeDOCX)
		require.NoError(t, err)
		require.NotEmpty(t, blocks)
		for _, b := range blocks {
			require.NoError(t, document.CheckBlock(b))
		}
	}
}

func TestNotesComeLast(t *testing.T) {
	t.Parallel()
	notes := func(kind, text string) string {
		return "<w:" + kind + "s><w:" + kind + ` w:id="7">` + p(r(text)) + p(r("more")) + "</w:" + kind + "></w:" + kind + "s>"
	}
	data := extracttest.DocxOf(t, strings.NewReader(p(r("text")+`<w:r><w:endnoteReference w:id="7"/></w:r>`)),
		"footnotes", notes("footnote", "foot"), "endnotes", notes("endnote", "end"))
	extracttest.RequireLines(t, Read, document.TypeDOCX, data, "p text[7]", "p [7] foot", "p more", "p [7] end", "p more")
}

func TestALongDocumentReportsItsProgress(t *testing.T) {
	t.Parallel()
	data := extracttest.DocxOf(t, extracttest.Noise(0), "x", "y")
	require.NotEmpty(t, data)
	var body strings.Builder
	for i := range 40_000 {
		body.WriteString(p(r("paragraph " + strconv.Itoa(i*7919))))
	}
	data = extracttest.DocxOf(t, strings.NewReader(body.String()))
	reports, last := 0, 0
	read := func(in *document.Input, out *document.Sink) error {
		in.Progress = func(done, total int) {
			require.GreaterOrEqual(t, done, last)
			require.LessOrEqual(t, done, total)
			last = done
			reports++
		}
		_, err := Read(t.Context(), in, out)
		return err
	}
	in := &document.Input{File: strings.NewReader(string(data)), Size: int64(len(data)), MediaType: document.TypeDOCX}
	n := 0
	require.NoError(t, read(in, document.NewSink(document.Limits{MaxTextBytes: 8 << 20}, func(ingest.Block) error { n++; return nil })))
	require.Equal(t, 40_000, n)
	require.Greater(t, reports, 3)
}
