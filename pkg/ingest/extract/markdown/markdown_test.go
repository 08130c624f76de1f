package markdown

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func TestMarkdown(t *testing.T) {
	t.Parallel()
	ex := extracttest.RequireLines(t, Read, document.TypeMarkdown, []byte("---\ntitle: \"My title\"\n---\n# One *two* `a_b`\n\nline\nsoft &amp; \\*hard\\*\n\n3. c\n4. d\n   - e\n\n> quote\n\n    code  x\n\n<div>html <b>block</b></div>\n\n[link](http://x) ![alt](y.png) <http://auto>\n"),
		"# One two a_b", "p line soft & *hard*", "l 3. c", "l 4. d", "l e", "p quote", "c code  x", "p html block", "p link alt http://auto")
	require.Equal(t, "My title", ex.Title)
}

func FuzzMarkdown(f *testing.F) { extracttest.FuzzReader(f, Read, document.TypeMarkdown, ".md") }

func TestMarkdownOfEverySort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"headings of both styles": {"One\n===\n\nTwo\n---\n\n### Three ###\n", []string{"# One", "## Two", "### Three"}},
		"fenced code":             {"```go\nif x {\n\ty()\n}\n```\n", []string{"c if x {\n\ty()\n}"}},
		"a fence that never ends": {"~~~\ncode\n\nmore", []string{"c code\n\nmore"}},
		"tables":                  {"a | b\n--|--\n1 | x\\|y\n2 |\n", []string{"t a | b\n1 | x¦y\n2 |"}},
		"loose lists":             {"- a\n\n  more\n\n- b\n", []string{"l a", "l more", "l b"}},
		"a list in a quote":       {"> 1. a\n> 2. b\n", []string{"l 1. a", "l 2. b"}},
		"hard ends":               {"one  \ntwo\\\nthree\n", []string{"p one two three"}},
		"struck and code":         {"~~no~~ `a  b` **c**_d_\n", []string{"p no a b cd"}},
		"inline HTML goes":        {"a <b>b</b> <!-- c --> d\n", []string{"p a b d"}},
		"references":              {"[text][r] and [r]\n\n[r]: http://x 'title'\n", []string{"p text and r"}},
		"no front matter":         {"---\n\ntext\n", []string{"p text"}},
		"Windows line ends":       {"# A\r\n\r\nb\r\nc\r\n", []string{"# A", "p b c"}},
		"Chinese":                 {"# 标题\n\n持久化\n异步\n", []string{"# 标题", "p 持久化异步"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			extracttest.RequireLines(t, Read, document.TypeMarkdown, []byte(c.text), c.want...)
		})
	}
}

func TestALargeFileIsReadAsText(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("# no heading\n\n"), markdownBytes/14+1)
	_, blocks, err := extracttest.ReadBytes(Read, data, document.TypeMarkdown)
	if err != nil {
		extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded) // of the text
	}
	require.Equal(t, "p # no heading", extracttest.Lines(blocks[:1])[0])
}
