package extract

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func corpusFile(t testing.TB, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", "corpus", name))
	require.NoError(t, err)
	return data
}

// readBytes reads a document of a known type in this process.
func readBytes(data []byte, mediaType string) (ingest.Extraction, []ingest.Block, error) {
	var blocks []ingest.Block
	in := &input{file: bytes.NewReader(data), size: int64(len(data)), mediaType: mediaType,
		limits: limits{MaxTextBytes: 8 << 20, MaxPages: 100}, progress: func(int, int) {}}
	ex, err := runReader(context.Background(), in, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	})
	return ex, blocks, err
}

// lines shows blocks compactly: kind, level, text.
func lines(blocks []ingest.Block) []string {
	var out []string
	for _, b := range blocks {
		kind := string(b.Kind[:1])
		if b.Kind == ingest.BlockHeading {
			kind = strings.Repeat("#", b.Level)
		}
		out = append(out, kind+" "+b.Text)
	}
	return out
}

func requireLines(t *testing.T, mediaType string, data []byte, want ...string) ingest.Extraction {
	t.Helper()
	ex, blocks, err := readBytes(data, mediaType)
	require.NoError(t, err)
	require.Equal(t, want, lines(blocks))
	return ex
}

func TestHTML(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"boilerplate is dropped":          {"<html><nav>MENU<nav>x</nav></nav><aside>AD</aside><p>text<footer>END</footer>", []string{"p text"}},
		"an open nav ends at the content": {"<html><nav>MENU<main><p>text", []string{"p text"}},
		"nothing but navigation is kept":  {"<html><nav>MENU</nav>", []string{"p MENU"}},
		"scripts never":                   {"<html><script>if(a<b){}</script><p>text<style>x{}</style><noscript>NO</noscript>", []string{"p text"}},
		"hidden":                          {"<html><div hidden>SECRET<div>x</div></div><p>text</p><div role=navigation>NAV</div>", []string{"p text"}},
		"headings and inline":             {"<html><h1>A <b>b</b></h1><h3>C</h3><p>x <i>y</i>z<br>w &amp; v", []string{"# A b", "### C", "p x yz w & v"}},
		"lists":                           {"<ul><li>a<ol><li>one<li>two</ol><li>b</ul>", []string{"l a", "l 1. one", "l 2. two", "l b"}},
		"table":                           {"<table><caption>T</caption><tr><th>a<th>b<tr><td>1<td>x|y<p>z</table>after", []string{"p T", "t a | b\n1 | x¦y z", "p after"}},
		"nested table":                    {"<table><tr><td>a<td><table><tr><td>in<td>ner</table></tr></table>", []string{"t a | in ner"}},
		"frame table":                     {"<table><tr><td>just a frame</table>", []string{"p just a frame"}},
		"pre keeps its lines":             {"<pre>  a\n\n   b </pre>", []string{"c   a\n\n   b"}},
		"cjk lines join":                  {"<p>持久化\n异步 words\nhere", []string{"p 持久化异步 words here"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireLines(t, typeHTML, []byte(c.page), c.want...)
		})
	}
	long := strings.Repeat("A sentence of a page laid out by a table. ", 80)
	_, blocks, err := readBytes([]byte("<table><tr><td>menu<td><h2>Head</h2><p>"+long+"<h2>Two</h2><p>more</table>"), typeHTML)
	require.NoError(t, err)
	require.Contains(t, lines(blocks), "## Two", "a table that arranges the page hides no headings after it is seen through")
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	ex := requireLines(t, typeMarkdown, []byte("---\ntitle: \"My title\"\n---\n# One *two* `a_b`\n\nline\nsoft &amp; \\*hard\\*\n\n3. c\n4. d\n   - e\n\n> quote\n\n    code  x\n\n<div>html <b>block</b></div>\n\n[link](http://x) ![alt](y.png) <http://auto>\n"),
		"# One two a_b", "p line soft & *hard*", "l 3. c", "l 4. d", "l e", "p quote", "c code  x", "p html block", "p link alt http://auto")
	require.Equal(t, "My title", ex.Title)
}

func TestText(t *testing.T) {
	t.Parallel()
	requireLines(t, typeText, []byte("one\r\ntwo\r\n\r\n\x00three\x07\n"), "p one\ntwo", "p three")
	requireLines(t, typeJSON, []byte(`{"a":"\u6b7b\u4fe1 \ud842\udfb7 \\u0041 \u0000"}`), `p {"a":"死信 𠮷 \\u0041 \u0000"}`)
	_, blocks, err := readBytes(bytes.Repeat([]byte("a log line without an end of paragraph\n"), 10_000), typeText)
	require.NoError(t, err)
	for _, b := range blocks {
		require.LessOrEqual(t, len(b.Text), paragraphBytes)
		require.True(t, strings.HasPrefix(b.Text, "a log") && strings.HasSuffix(b.Text, "paragraph"), "cut at line ends")
	}
	_, _, err = readBytes([]byte("\x81\x20\x81\x20\xff\xff\x81"), typeText)
	requirePermanent(t, err, ingest.CodeEncoding)
	_, _, err = readBytes(bytes.Repeat([]byte("too long "), 1<<20), typeText)
	requirePermanent(t, err, ingest.CodeLimitExceeded)
}

func TestLateInvalidUTF8DoesNotChangeTheCharset(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("持久化异步入库任务。", 20_000) + "\xff end"
	ex, blocks, err := readBytes([]byte(text), typeText)
	require.NoError(t, err)
	require.Contains(t, joined(blocks), "持久化")
	require.Contains(t, joined(blocks), "end")
	require.Equal(t, "utf-8", ex.Charset)
}

func TestDOCX(t *testing.T) {
	t.Parallel()
	const styles = `<w:styles><w:style w:styleId="a"><w:name w:val="heading 2"/></w:style><w:style w:styleId="b"><w:basedOn w:val="a"/></w:style><w:style w:styleId="o"><w:pPr><w:outlineLvl w:val="2"/></w:pPr></w:style></w:styles>`
	const notes = `<w:footnotes><w:footnote w:type="separator" w:id="0"><w:p><w:r><w:t>SEP</w:t></w:r></w:p></w:footnote><w:footnote w:id="1"><w:p><w:r><w:t>the note</w:t></w:r></w:p></w:footnote></w:footnotes>`
	p := func(inner string) string { return "<w:p>" + inner + "</w:p>" }
	r := func(text string) string { return "<w:r><w:t>" + text + "</w:t></w:r>" }
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"styles":            {p(`<w:pPr><w:pStyle w:val="b"/></w:pPr>`+r("Based")) + p(`<w:pPr><w:pStyle w:val="o"/></w:pPr>`+r("Outline")) + p(`<w:pPr><w:outlineLvl w:val="0"/></w:pPr>`+r("Own")), []string{"## Based", "### Outline", "# Own"}},
		"revisions":         {p(`<w:ins>` + r("in") + `</w:ins><w:del><w:r><w:delText>out</w:delText></w:r></w:del><w:moveFrom>` + r("from") + `</w:moveFrom><w:moveTo>` + r("to") + `</w:moveTo>`), []string{"p into"}},
		"old properties":    {p(`<w:pPr><w:pPrChange><w:pPr><w:pStyle w:val="a"/></w:pPr></w:pPrChange></w:pPr>` + r("plain")), []string{"p plain"}},
		"tabs and breaks":   {p(`<w:pPr><w:tabs><w:tab w:val="left"/></w:tabs></w:pPr><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t></w:r>`), []string{"p a\tb\nc-d"}},
		"one alternative":   {p(`<w:r><mc:AlternateContent><mc:Choice><w:txbxContent>` + p(r("box")) + `</w:txbxContent></mc:Choice><mc:Fallback><w:txbxContent>` + p(r("box")) + `</w:txbxContent></mc:Fallback></mc:AlternateContent></w:r>` + r("after")), []string{"p box", "p after"}},
		"only the fallback": {p(`<mc:AlternateContent><mc:Fallback>` + r("old") + `</mc:Fallback></mc:AlternateContent>`), []string{"p old"}},
		"hidden text":       {p(`<w:r><w:rPr><w:vanish/></w:rPr><w:t>SECRET</w:t></w:r>` + r("seen")), []string{"p seen"}},
		"lists":             {p(`<w:pPr><w:numPr><w:numId w:val="3"/></w:numPr></w:pPr>` + r("item")), []string{"l item"}},
		"tables":            {`<w:tbl><w:tr><w:tc>` + p(r("a")) + p(r("b")) + `</w:tc><w:tc>` + p(r("c")) + `</w:tc></w:tr><w:tr><w:tc><w:tbl><w:tr><w:tc>` + p(r("in")) + `</w:tc></w:tr></w:tbl>` + p("") + `</w:tc><w:tc>` + p(r("d")) + `</w:tc></w:tr></w:tbl>`, []string{"t a b | c\nin | d"}},
		"fields and links":  {p(`<w:r><w:instrText>HYPERLINK x</w:instrText></w:r><w:hyperlink>` + r("link") + `</w:hyperlink><w:sdt><w:sdtPr><w:placeholder><w:t>no</w:t></w:placeholder></w:sdtPr><w:sdtContent>` + r(" control") + `</w:sdtContent></w:sdt>`), []string{"p link control"}},
		"formulas":          {p(`<m:oMath><m:r><m:t>x+y</m:t></m:r></m:oMath>`), []string{"p x+y"}},
		"notes":             {p(r("text") + `<w:r><w:footnoteReference w:id="1"/></w:r>`), []string{"p text[1]", "p [1] the note"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := []string{"styles", styles}
			if name == "notes" {
				parts = append(parts, "footnotes", notes)
			}
			requireLines(t, typeDOCX, docxOf(t, strings.NewReader(c.body), parts...), c.want...)
		})
	}
	for name, body := range map[string]string{"unclosed": "<w:p>", "garbage": "<w:p><&></w:p>", "crossed": "</w:body></w:document></w:p>"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := readBytes(docxOf(t, strings.NewReader(body)), typeDOCX)
			requirePermanent(t, err)
		})
	}
}

func TestPageFlow(t *testing.T) {
	t.Parallel()
	var blocks []ingest.Block
	out := &sink{limits: limits{MaxTextBytes: 1 << 20}, emit: func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	}}
	f := newPageFlow(out)
	f.outline = map[int][]bookmark{1: {{key: "introduction", level: 2}}}
	require.NoError(t, f.page(1, "Running title\r\n1.2 Introduction\r\nThe well-known lease is inter\uFFFEnational and fault-\r\ntolerant, as a well\uFFFE\r\nknown rule says here.\r\n• first\n• second\n7"))
	require.NoError(t, f.page(2, "Running title\n持久化异步入库任务把文档切成段落，再写入\n向量库。\n- 2 -"))
	require.Equal(t, []string{
		"p Running title", "## 1.2 Introduction",
		"p The well-known lease is international and faulttolerant, as a well-known rule says here.",
		"l • first", "l • second", "p 持久化异步入库任务把文档切成段落，再写入向量库。",
	}, lines(blocks))
	require.Equal(t, 2, blocks[len(blocks)-1].Page)
}

func TestLongTablesRepeatTheirHeader(t *testing.T) {
	t.Parallel()
	page := "<table><tr><th>name<th>value" + strings.Repeat("<tr><td>some name<td>some value", 3000) + "</table>"
	_, blocks, err := readBytes([]byte(page), typeHTML)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 2)
	for _, b := range blocks {
		require.True(t, strings.HasPrefix(b.Text, "name | value\n"))
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultConfig().Validate())
	cfg := NewDefaultConfig()
	cfg.Parallel, cfg.Sandbox, cfg.TimeoutSmall, cfg.MemoryMB = 0, "maybe", time.Microsecond, 1
	err := cfg.Validate()
	for _, name := range []string{"EXTRACT_PARALLEL: 0 is not in 1..64", "EXTRACT_SANDBOX", "EXTRACT_TIMEOUT_SMALL", "EXTRACT_MEMORY_MB"} {
		require.ErrorContains(t, err, name)
	}
	_, err = NewPool(cfg, testLog(t))
	require.Error(t, err)
}

func fuzzReader(f *testing.F, mediaType string, suffixes ...string) {
	for _, s := range samples(f) {
		for _, suffix := range suffixes {
			if strings.HasSuffix(s.File, suffix) {
				f.Add(corpusFile(f, s.File))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		_, blocks, err := readBytes(data, mediaType)
		if err != nil {
			requirePermanent(t, err)
		}
		for _, b := range blocks {
			requireGoodBlock(t, b)
		}
	})
}

// FuzzDOCX begins with small archives: those of the corpus hold pictures and fonts, whose bytes are no part of what is read.
func FuzzDOCX(f *testing.F) {
	f.Add(docxOf(f, strings.NewReader("<w:p><w:r><w:t>text</w:t></w:r></w:p>")))
	f.Add(docxOf(f, strings.NewReader(`<w:tbl><w:tr><w:tc><w:p><w:pPr><w:pStyle w:val="a"/></w:pPr><w:r><w:t>x</w:t></w:r></w:p></w:tc></w:tr></w:tbl>`),
		"styles", `<w:styles><w:style w:styleId="a"><w:name w:val="heading 2"/><w:basedOn w:val="a"/></w:style></w:styles>`,
		"footnotes", `<w:footnotes><w:footnote w:id="1"><w:p><w:r><w:t>note</w:t></w:r></w:p></w:footnote></w:footnotes>`))
	f.Add(zipOf(f, "", "x", `word\document.xml`, smallBody, "_rels/.rels", `<Relationships><Relationship Type="officeDocument" Target=""/></Relationships>`))
	f.Add(lying(docxOf(f, repeated("<w:p/>", 1000)), 1<<30))
	fuzzReader(f, typeDOCX)
}

func FuzzHTML(f *testing.F) { fuzzReader(f, typeHTML, ".html") }

func FuzzMarkdown(f *testing.F) { fuzzReader(f, typeMarkdown, ".md") }

func FuzzText(f *testing.F) { fuzzReader(f, typeText, ".txt", ".csv") }

// FuzzDocumentXML fuzzes what stands inside the zip, which FuzzDOCX seldom reaches.
func FuzzDocumentXML(f *testing.F) {
	f.Add("<w:tbl><w:tr><w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc></w:tr></w:tbl>")
	f.Add("<mc:AlternateContent><mc:Choice/><mc:Fallback/></mc:AlternateContent></w:tbl>")
	f.Fuzz(func(t *testing.T, body string) {
		_, blocks, err := readBytes(docxOf(t, strings.NewReader(body)), typeDOCX)
		if err != nil {
			requirePermanent(t, err)
		}
		for _, b := range blocks {
			requireGoodBlock(t, b)
		}
	})
}
