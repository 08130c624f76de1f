package epub_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/epub"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

const (
	box  = `<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>`
	book = `<package><metadata><dc:title>The Book</dc:title></metadata><manifest><item id="a" href="a.xhtml" media-type="application/xhtml+xml"/>` +
		`<item id="b" href="text/b%20b.xhtml" media-type="application/xhtml+xml"/><item id="p" href="p.png" media-type="image/png"/><item id="gone" href="gone.xhtml" media-type="application/xhtml+xml"/>` +
		`</manifest><spine><itemref idref="b"/><itemref idref="gone"/><itemref idref="p"/><itemref idref="a"/></spine></package>`
)

func TestChaptersComeInTheOrderOfTheSpine(t *testing.T) {
	t.Parallel()
	data := extracttest.ZipOf(t, "META-INF/container.xml", box, "OEBPS/book.opf", book, "OEBPS/a.xhtml", "<html><body><h1>A</h1><p>second</p></body></html>",
		"OEBPS/text/b b.xhtml", "<html><head><style>no</style></head><body><h1>B</h1><p>first</p></body></html>", "OEBPS/p.png", "\x89PNG")
	ex := extracttest.RequireLines(t, epub.Read, document.TypeEPUB, data, "# B", "p first", "# A", "p second")
	require.Equal(t, "The Book", ex.Title)
}

func TestCopyProtection(t *testing.T) {
	t.Parallel()
	for how, code := range map[string]ingest.Code{
		"http://www.w3.org/2001/04/xmlenc#aes128-cbc": ingest.CodeEncrypted, "http://www.idpf.org/2008/embedding": "", "http://ns.adobe.com/pdf/enc#RC": "",
	} {
		data := extracttest.ZipOf(t, "META-INF/container.xml", box, "OEBPS/book.opf", book, "OEBPS/a.xhtml", "<p>text</p>",
			"META-INF/encryption.xml", `<encryption><enc:EncryptedData><enc:EncryptionMethod Algorithm="`+how+`"/></enc:EncryptedData></encryption>`)
		_, blocks, err := extracttest.ReadBytes(epub.Read, data, document.TypeEPUB)
		if code != "" {
			extracttest.RequirePermanent(t, err, code)
			continue
		}
		require.NoError(t, err, "fonts alone are masked")
		require.Equal(t, []string{"p text"}, extracttest.Lines(blocks))
	}
}

func TestBooksWithoutADescription(t *testing.T) {
	t.Parallel()
	for _, parts := range [][]string{{"META-INF/container.xml", box}, {"META-INF/container.xml", "<container/>"}, {"x", "y"}} {
		_, _, err := extracttest.ReadBytes(epub.Read, extracttest.ZipOf(t, parts...), document.TypeEPUB)
		extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	}
}

func FuzzEPUB(f *testing.F) { extracttest.FuzzReader(f, epub.Read, document.TypeEPUB, ".epub") }
