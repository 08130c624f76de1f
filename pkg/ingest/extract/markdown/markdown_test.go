package markdown

import (
	"testing"

	"github.com/stretchr/testify/require"

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
