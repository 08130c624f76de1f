package html

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

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
		"cells of several columns":        {"<table><tr><th rowspan=2>city<th colspan=2>people<tr><th>2020<th>2025<tr><td>Oslo<td>1<td>2</table>", []string{"t city | people | people\ncity | 2020 | 2025\nOslo | 1 | 2"}},
		"cells of several rows":           {"<table><tr><th>a<th>b<th>c<tr><td>1<td rowspan='3'>x<td>2<tr><td>3<td>4<tr><td>5<tr><td>6<td>7<td>8</table>", []string{"t a | b | c\n1 | x | 2\n3 | x | 4\n5 | x\n6 | 7 | 8"}},
		"rows to the end":                 {"<table><tr><td>a<td rowspan=0>x<tr><td>b<tr><td>c</table><table><tr><td>1<td>2</table>", []string{"t a | x\nb | x\nc | x", "t 1 | 2"}},
		"a title over the table":          {"<table><tr><th colspan=3>Title<tr><th>a<th>b<th>c<tr><td colspan=3>part<tr><td>1<td>2<td>3</table>", []string{"p Title", "t a | b | c\npart\n1 | 2 | 3"}},
		"spans that are none":             {"<table><tr><td colspan=-1>a<td colspan=x>b<td colspan=0 rowspan=-2>c<tr><td>1<td>2<td>3</table>", []string{"t a | b | c\n1 | 2 | 3"}},
		"a row of cells from above":       {"<table><tr><td rowspan=3>a<td rowspan=3>b<tr></tr><tr></tr><tr><td>c<td>d</table>", []string{"t a | b\nc | d"}},
		"a cell right of a gap":           {"<table><tr><td>a<td>b<td rowspan=2>c<tr><td>1</table>", []string{"t a | b | c\n1 |  | c"}},
		"nested table":                    {"<table><tr><td>a<td><table><tr><td>in<td>ner</table></tr></table>", []string{"t a | in ner"}},
		"frame table":                     {"<table><tr><td>just a frame</table>", []string{"p just a frame"}},
		"pre keeps its lines":             {"<pre>  a\n\n   b </pre>", []string{"c   a\n\n   b"}},
		"cjk lines join":                  {"<p>持久化\n异步 words\nhere", []string{"p 持久化异步 words here"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, Read, document.TypeHTML, []byte(c.page), c.want...)
		})
	}
	long := strings.Repeat("A sentence of a page laid out by a table. ", 80)
	_, blocks, err := extracttest.ReadBytes(Read, []byte("<table><tr><td>menu<td><h2>Head</h2><p>"+long+"<h2>Two</h2><p>more</table>"), document.TypeHTML)
	require.NoError(t, err)
	require.Contains(t, extracttest.Lines(blocks), "## Two", "a table that arranges the page hides no headings after it is seen through")
}

func FuzzHTML(f *testing.F) { extracttest.FuzzReader(f, Read, document.TypeHTML, ".html") }

func TestLongTablesRepeatTheirHeader(t *testing.T) {
	t.Parallel()
	page := "<table><tr><th>name<th>value" + strings.Repeat("<tr><td>some name<td>some value", 3000) + "</table>"
	_, blocks, err := extracttest.ReadBytes(Read, []byte(page), document.TypeHTML)
	require.NoError(t, err)
	require.Greater(t, len(blocks), 2)
	for _, b := range blocks {
		require.True(t, strings.HasPrefix(b.Text, "name | value\n"))
	}
}

func TestPagesThatBreakTheRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"end tags without a start":     {"</p></table></li></ul></h1>text</html>", []string{"p text"}},
		"a table that never ends":      {"<table><tr><td>a<td>b<tr><td>1<td>2", []string{"t a | b\n1 | 2"}},
		"cells outside a table":        {"<td>a</td><tr><td>b", []string{"p a", "p b"}},
		"a row without cells":          {"<table><tr></tr><tr><td>a<td>b</table>", []string{"t a | b"}},
		"a heading that never ends":    {"<h2>Head<p>text", []string{"## Head", "## text"}},
		"a script in a script":         {"<script><script>x</script>kept", []string{"p kept"}},
		"a comment that never ends":    {"<p>text<!-- and then <p>nothing", []string{"p text"}},
		"a tag that never ends":        {"<p>text<a href=\"", []string{"p text"}},
		"an unknown element":           {"<blink>a</blink> <x-y>b</x-y>", []string{"p a b"}},
		"entities":                     {"<p>&lt;b&gt; &copy; &#x4e2d; &nope; &#0;", []string{"p <b> © 中 &nope; \uFFFD"}},
		"upper case":                   {"<HTML><BODY><H1>A</H1><UL><LI>b</UL>", []string{"# A", "l b"}},
		"words across elements":        {"<p>un<b>believ</b>able <i>x</i><i>y</i>", []string{"p unbelievable xy"}},
		"numbers of nested lists":      {"<ol><li>a<ul><li>b</ul><li>c</ol><ol><li>d</ol>", []string{"l 1. a", "l b", "l 2. c", "l 1. d"}},
		"definitions":                  {"<dl><dt>term<dd>meaning</dl>", []string{"l term", "l meaning"}},
		"hidden until it is found":     {"<div hidden=until-found>shown</div>", []string{"p shown"}},
		"an attribute called hidden":   {"<p data-hidden=x>shown</p><span hidden>not</span>", []string{"p shown"}},
		"a picture that is hidden":     {"<img hidden src=x>text<br hidden>more", []string{"p text more"}},
		"a form's choices":             {"<p>Pick<select><option>a<option>b</select> one", []string{"p Pick one"}},
		"preformatted in preformatted": {"<pre>a<pre>b</pre>c</pre>", []string{"c ab", "c c"}},
		"footers inside the content":   {"<main><p>a<footer>END</footer><p>b</main>", []string{"p a", "p b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, Read, document.TypeHTML, []byte("<!doctype html>"+c.page), c.want...)
		})
	}
}

func TestCharsetOfAPage(t *testing.T) {
	t.Parallel()
	for _, head := range []string{
		`<meta charset=gbk>`, `<META CHARSET="GB2312">`, `<meta http-equiv="Content-Type" content="text/html; charset=gb18030">`, `<?xml version="1.0" encoding="gbk"?>`,
	} {
		page := append([]byte(head+"<p>"), 0xB3, 0xD6, 0xBE, 0xC3)
		ex := extracttest.RequireLines(t, Read, document.TypeHTML, page, "p 持久")
		require.Equal(t, "gb18030", ex.Charset)
	}
}

func TestAPieceOfAPage(t *testing.T) {
	t.Parallel()
	var got []ingest.Block
	out := document.NewSink(document.Limits{MaxTextBytes: 100}, func(b ingest.Block) error { got = append(got, b); return nil })
	require.NoError(t, ReadPart(t.Context(), "<ul><li>a</li></ul><nav>x</nav>b", out))
	require.Equal(t, []string{"l a", "p b"}, extracttest.Lines(got))
}
