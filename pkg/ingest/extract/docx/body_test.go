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

func TestNumbersAreReadAsTheyAreShown(t *testing.T) {
	t.Parallel()
	const numbering = `<w:numbering><w:abstractNum w:abstractNumId="0">` +
		`<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>` +
		`<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/></w:lvl></w:abstractNum>` +
		`<w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="*"/></w:lvl></w:abstractNum>` +
		`<w:abstractNum w:abstractNumId="2"><w:lvl w:ilvl="0"><w:start w:val="4"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="Part %1"/></w:lvl></w:abstractNum>` +
		`<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId w:val="1"/></w:num>` +
		`<w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num><w:num w:numId="4"><w:abstractNumId w:val="0"/></w:num></w:numbering>`
	const styles = `<w:styles><w:style w:styleId="h"><w:name w:val="heading 1"/><w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr></w:style>` +
		`<w:style w:styleId="b"><w:basedOn w:val="h"/></w:style></w:styles>`
	item := func(list, level, text string) string {
		return p(`<w:pPr><w:numPr><w:ilvl w:val="` + level + `"/><w:numId w:val="` + list + `"/></w:numPr></w:pPr>` + r(text))
	}
	styled := func(style, more, text string) string {
		return p(`<w:pPr><w:pStyle w:val="` + style + `"/>` + more + `</w:pPr>` + r(text))
	}
	body := styled("h", "", "Start") + item("1", "0", "one") + item("1", "1", "deeper") + item("1", "1", "again") + item("2", "0", "bullet") +
		item("4", "0", "two") + item("1", "1", "anew") + styled("b", "", "Next") + styled("h", `<w:numPr><w:numId w:val="0"/></w:numPr>`, "Bare") + item("9", "0", "unknown")
	extracttest.RequireLines(t, Read, document.TypeDOCX, extracttest.DocxOf(t, strings.NewReader(body), "styles", styles, "numbering", numbering),
		"# Part IV Start", "l 1. one", "l 1.a) deeper", "l 1.b) again", "l bullet", "l 2. two", "l 2.a) anew", "# Part V Next", "# Bare", "l unknown")
}

func TestNumbersOfEverySort(t *testing.T) {
	t.Parallel()
	for format, want := range map[string][]string{
		"decimal": {"0", "1", "28"}, "lowerLetter": {"0", "a", "bb"}, "upperLetter": {"0", "A", "BB"}, "lowerRoman": {"0", "i", "xxviii"},
		"upperRoman": {"0", "I", "XXVIII"}, "decimalZero": {"00", "01", "28"}, "ideographDigital": {"0", "1", "28"},
	} {
		for i, n := range []int{0, 1, 28} {
			require.Equal(t, want[i], formatNumber(n, format), format)
		}
	}
	require.Equal(t, "MCMXCIV", roman(1994))
}

func TestCellsThatTakeMoreThanOnePlace(t *testing.T) {
	t.Parallel()
	cell := func(props, text string) string { return tc("<w:tcPr>" + props + "</w:tcPr>" + p(r(text))) }
	body := tbl(
		tr(cell(`<w:gridSpan w:val="2"/>`, "wide"), cell(`<w:vMerge w:val="restart"/>`, "tall")),
		tr(cell("", "a"), cell("", "b"), tc(`<w:tcPr><w:vMerge/></w:tcPr>`+p(""))),
		tr(`<w:trPr><w:gridBefore w:val="1"/></w:trPr>`, cell("", "c"), tc(`<w:tcPr><w:vMerge w:val="continue"/></w:tcPr>`+p(""))),
		tr(cell("", "d"), cell(`<w:gridSpan w:val="99999"/>`, "e")))
	_, blocks, err := extracttest.ReadBytes(Read, extracttest.DocxOf(t, strings.NewReader(body)), document.TypeDOCX)
	require.NoError(t, err)
	require.Equal(t, "wide | wide | tall\na | b | tall\n | c | tall\nd"+strings.Repeat(" | e", maxSpan), blocks[0].Text)
}

// A cell that is a row by itself says what the table, or what follows in it, is about.
func TestACellThatTakesAWholeRow(t *testing.T) {
	t.Parallel()
	wide := func(text string) string {
		return tr(tc(`<w:tcPr><w:gridSpan w:val="2"/></w:tcPr>` + p(r(text))))
	}
	body := tbl(wide("Title"), tr(tc(p(r("a"))), tc(p(r("b")))), wide("part"), tr(`<w:trPr><w:gridBefore w:val="1"/></w:trPr>`, tc(p(r("2")))))
	extracttest.RequireLines(t, Read, document.TypeDOCX, extracttest.DocxOf(t, strings.NewReader(body)), "p Title", "t a | b\npart\n | 2")
}

func TestFormulasAreNotGluedTogether(t *testing.T) {
	t.Parallel()
	m := func(text string) string { return "<m:r><m:t>" + text + "</m:t></m:r>" }
	e := func(inner string) string { return "<m:e>" + inner + "</m:e>" }
	d := func(inner string) string { return "<m:d>" + e(inner) + "</m:d>" }
	fn := func(name, of string) string { return "<m:func><m:fName>" + name + "</m:fName>" + e(of) + "</m:func>" }
	low := func(inner, limit string) string {
		return "<m:limLow>" + e(inner) + "<m:lim>" + limit + "</m:lim></m:limLow>"
	}
	group := func(props, inner string) string {
		return "<m:groupChr><m:groupChrPr>" + props + "</m:groupChrPr>" + e(inner) + "</m:groupChr>"
	}
	for name, c := range map[string]struct{ inner, want string }{
		"a fraction":     {`<m:f><m:fPr/><m:num>` + m("a+b") + `</m:num><m:den>` + m("c") + `</m:den></m:f>`, `\frac{a+b}{c}`},
		"powers":         {`<m:sSup>` + e(m("x")) + `<m:sup>` + m("2") + `</m:sup></m:sSup><m:sSubSup>` + e(m("y")) + `<m:sub>` + m("i") + `</m:sub><m:sup>` + m("3") + `</m:sup></m:sSubSup>`, `x^{2}y_{i}^{3}`},
		"roots":          {`<m:rad><m:radPr><m:degHide m:val="1"/></m:radPr><m:deg/>` + e(m("x")) + `</m:rad><m:rad><m:deg>` + m("3") + `</m:deg>` + e(m("y")) + `</m:rad>`, `\sqrt{x}\sqrt[3]{y}`},
		"brackets":       {`<m:d>` + e(m("a")) + e(m("b")) + `</m:d><m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr>` + e(m("c")) + `</m:d>`, `(a,b)[c]`},
		"a sum":          {`<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>` + m("i=0") + `</m:sub><m:sup>` + m("n") + `</m:sup>` + e(m("i")) + `</m:nary>`, `∑_{i=0}^{n}i`},
		"a function":     {fn(m("cos"), `<m:f><m:num>`+m("x")+`</m:num><m:den>`+m("L")+`</m:den></m:f>`) + fn(m("sin"), m("y")) + m("+"), `cos \frac{x}{L} sin y+`},
		"of brackets":    {d(m("a") + fn(m("log"), d(m("x")))), `(alog(x))`},
		"a lower limit":  {fn(low(m("lim"), m("n")), d(m("1"))) + m(" , ") + fn(low(m("max"), m("0≤x")), m("x")), `lim_{n}(1) , max_{0≤x} x`},
		"limits alone":   {low(m("S"), m("i")) + m("+") + `<m:limUpp>` + e(m("T")) + `<m:lim>` + m("j") + `</m:lim></m:limUpp>` + m("e"), `S_{i}+T^{j} e`},
		"empty scripts":  {`<m:nary><m:naryPr><m:chr m:val="⋀"/></m:naryPr><m:sub/><m:sup/>` + e(m("x")) + `</m:nary><m:sSup>` + e(m("y")) + `<m:sup><m:sSub><m:e/><m:sub>` + m("2") + `</m:sub></m:sSub></m:sup></m:sSup>`, `⋀x` + `y^{_{2}}`},
		"scripts before": {m("s") + `<m:sPre><m:sub>` + m("+") + `</m:sub><m:sup/>` + e(m("τ")) + `</m:sPre>`, `s{}_{+}τ`},
		"no bar":         {d(`<m:f><m:fPr><m:type m:val="noBar"/></m:fPr><m:num>` + m("n") + `</m:num><m:den>` + m("k") + `</m:den></m:f>`), `(\binom{n}{k})`},
		"braces":         {low(group("", m("a")), m("low")) + group(`<m:chr m:val="⏞"/><m:pos m:val="top"/>`, m("b")), `\underbrace{a}_{low}\overbrace{b}`},
		"a long arrow":   {m("A") + `<m:box>` + e(group(`<m:chr m:val="→"/>`, m("gives"))) + `</m:box>` + m("B"), `A\underset{→}{gives}B`},
		"a matrix":       {d(`<m:m><m:mr>` + e(m("1")) + e(m("0")) + `</m:mr><m:mr>` + e(m("0")) + e(m("1")) + `</m:mr></m:m>`), `(1&0\\0&1)`},
		"lines":          {`<m:eqArr>` + e(m("a")) + e(m("b")) + `</m:eqArr>`, `a\\b`},
		"an accent":      {d(`<m:acc><m:accPr><m:chr m:val="` + "\u0305" + `"/></m:accPr>` + e(m("x")) + `</m:acc><m:acc>` + e(m("y")) + `</m:acc><m:bar>` + e(m("z")) + `</m:bar>`), `(\bar{x}\hat{y}\underline{z})`},
		"one in another": {`<m:f><m:num><m:f><m:num>` + m("1") + `</m:num><m:den>` + m("2") + `</m:den></m:f></m:num><m:den>` + m("3") + `</m:den></m:f>`, `\frac{\frac{1}{2}}{3}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := p(r("see") + "<m:oMath>" + c.inner + "</m:oMath>" + r("here"))
			extracttest.RequireLines(t, Read, document.TypeDOCX, extracttest.DocxOf(t, strings.NewReader(body)), "p see "+c.want+" here")
		})
	}
	shape := `<w:pict><v:shapetype><v:formulas><v:f eqn="x"/></v:formulas></v:shapetype></w:pict>`
	extracttest.RequireLines(t, Read, document.TypeDOCX, extracttest.DocxOf(t, strings.NewReader(p(r("a")+shape+r("b")))), "p ab")
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
