package docx_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/docx"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

const marginBody = `<w:p><w:commentRangeStart w:id="0"/><w:r><w:t>first</w:t><w:commentReference w:id="0"/></w:r></w:p>
	<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t><w:commentReference w:id="1"/></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
	<w:p><w:pPr><w:sectPr><w:headerReference w:type="default" r:id="h1"/><w:footerReference w:type="default" r:id="f1"/></w:sectPr></w:pPr><w:r><w:t>second</w:t></w:r></w:p>
	<w:p><w:r><w:t>third</w:t></w:r></w:p>
	<w:sectPr><w:headerReference w:type="default" r:id="h2"/><w:headerReference w:type="first" r:id="h1"/><w:footerReference r:id="f2"/><w:footerReference r:id="none"/></w:sectPr>`

// marginDocument has two sections with the same header and other footers, and three comments, of which nothing refers to the last.
func marginDocument(t *testing.T) []byte {
	t.Helper()
	part := func(text string) string {
		return `<w:hdr><w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>` + text + `</w:t></w:r></w:p></w:hdr>`
	}
	return extracttest.ZipOf(t,
		"_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="h1" Type="http://x/header" Target="h1.xml"/><Relationship Id="h2" Type="http://x/header" Target="h2.xml"/>
			<Relationship Id="f1" Type="http://x/footer" Target="f1.xml"/><Relationship Id="f2" Type="http://x/footer" Target="f2.xml"/>
			<Relationship Id="none" Type="http://x/footer" Target="none.xml"/><Relationship Id="c" Type="http://x/comments" Target="c.xml"/></Relationships>`,
		"word/h1.xml", part("Head"), "word/h2.xml", part("Head"), "word/f1.xml", part("Foot one"), "word/f2.xml", part("Foot two"),
		"word/c.xml", `<w:comments><w:comment w:id="0" w:author="Ann"><w:p><w:r><w:t>Why?</w:t></w:r></w:p><w:p><w:r><w:t>Really.</w:t></w:r></w:p></w:comment>
			<w:comment w:id="1"><w:p><w:r><w:t>of a cell</w:t></w:r><w:del><w:r><w:t>no</w:t></w:r></w:del></w:p></w:comment>
			<w:comment w:id="2" w:author="Bo"><w:p><w:r><w:t>alone</w:t></w:r></w:p></w:comment><w:comment w:id="3" w:author="Bo"><w:p/></w:comment></w:comments>`,
		"word/document.xml", `<w:document `+extracttest.WordXMLNS+` xmlns:r="r"><w:body>`+marginBody+`</w:body></w:document>`)
}

func TestWhatStandsBesideTheTextIsReadWhenAskedFor(t *testing.T) {
	t.Parallel()
	data := marginDocument(t)
	for name, c := range map[string]struct {
		limits document.Limits
		want   []string
	}{
		"neither":  {document.Limits{}, []string{"p first", "t a | b", "p second", "p third"}},
		"headers":  {document.Limits{HeadersFooters: true}, []string{"p first", "t a | b", "p second", "p Head", "p Foot one", "p third", "p Foot two"}},
		"comments": {document.Limits{Comments: true}, []string{"p first", "p Comment by Ann: Why?\nReally.", "t a | b", "p Comment: of a cell", "p second", "p third", "p Comment by Bo: alone"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, marginLines(t, data, c.limits))
		})
	}
}

func marginLines(t *testing.T, data []byte, limits document.Limits) []string {
	t.Helper()
	limits.MaxTextBytes = 1 << 20
	var blocks []ingest.Block
	in := &document.Input{File: bytes.NewReader(data), Size: int64(len(data)), MediaType: document.TypeDOCX, Limits: limits, Progress: func(int, int) {}}
	_, err := docx.Read(t.Context(), in, document.NewSink(limits, func(b ingest.Block) error {
		blocks = append(blocks, b)
		return nil
	}))
	require.NoError(t, err)
	return extracttest.Lines(blocks)
}

func TestCommentsWithoutEndAreRefused(t *testing.T) {
	t.Parallel()
	noise, err := io.ReadAll(extracttest.Noise(60_000))
	require.NoError(t, err)
	comments := "<w:comments>" + strings.Repeat(`<w:comment w:id="1"><w:p><w:r><w:t>`+string(noise)+`</w:t></w:r></w:p></w:comment>`, 80) + "</w:comments>"
	data := extracttest.DocxOf(t, strings.NewReader("<w:p/>"), "comments", comments)
	limits := document.Limits{MaxTextBytes: 64 << 20, Comments: true}
	in := &document.Input{File: bytes.NewReader(data), Size: int64(len(data)), MediaType: document.TypeDOCX, Limits: limits, Progress: func(int, int) {}}
	_, err = docx.Read(t.Context(), in, document.NewSink(limits, func(ingest.Block) error { return nil }))
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	require.ErrorContains(t, err, "comments of more than")
}
