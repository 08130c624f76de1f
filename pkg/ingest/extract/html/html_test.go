package html

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

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
