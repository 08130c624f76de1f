package html

import (
	"testing"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// What tags do inside of others, and tags that have no end or none of their own.
func TestTagsInsideOfOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page string
		want []string
	}{
		"pre in pre stays code":               {"<pre>a <pre>b</pre> c</pre>d", []string{"c a b", "c  c", "p d"}},
		"blocks in a cell are line ends":      {"<table><tr><td>a<p>b</p><div>c</div><td>d</table>", []string{"t a b c | d"}},
		"inline tags in a cell are none":      {"<table><tr><td>a<b>b</b><td>d</table>", []string{"t ab | d"}},
		"a self-closing nav drops nothing":    {"<p>a<nav/>b<p>c", []string{"p a", "p b", "p c"}},
		"a self-closing script goes on":       {"<p>a<script/>x</script>b", []string{"p ab"}},
		"a hidden tag without end hides none": {"<p>a<p hidden>b<br hidden>c<input hidden>d", []string{"p a", "p b cd"}},
		"h6 is the last heading":              {"<h6>a</h6><h7>b</h7>", []string{"###### a", "p b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, Read, document.TypeHTML, []byte(c.page), c.want...)
		})
	}
}
