package extract

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// hostileFile is a document made to exhaust its reader.
type hostileFile struct {
	name  string
	make  func(t testing.TB) []byte
	codes []ingest.Code // nil: text is fine too
}

func hostileFiles() []hostileFile {
	limit, damaged := []ingest.Code{ingest.CodeLimitExceeded}, []ingest.Code{ingest.CodeCorrupt}
	return []hostileFile{
		{"bomb_1g.docx", func(t testing.TB) []byte { return bomb(t, 1024) }, limit},
		{"bomb_lying.docx", lyingBomb, append(damaged, limit...)},
		{"bomb_one_token.docx", func(t testing.TB) []byte {
			return extracttest.DocxOf(t, io.MultiReader(strings.NewReader("<w:p><w:r><w:t>"), extracttest.Noise(16<<20), strings.NewReader("</w:t></w:r></w:p>")))
		}, limit},
		{"many_entries.docx", func(testing.TB) []byte { return extracttest.ManyNames(70_000) }, limit},
		{"deep_xml.docx", func(t testing.TB) []byte {
			return extracttest.DocxOf(t, strings.NewReader(strings.Repeat("<w:sdt>", 100_000)))
		}, limit},
		{"deep_noise.docx", func(t testing.TB) []byte {
			return extracttest.DocxOf(t, strings.NewReader(strings.Repeat("<w:sdt>", 600)+strings.Repeat("</w:sdt>", 600)))
		}, limit},
		{"many_paras.docx", func(t testing.TB) []byte {
			return extracttest.DocxOf(t, extracttest.Repeated("<w:p></w:p>", 3_000_000))
		}, limit},
		{"many_attributes.docx", func(t testing.TB) []byte {
			var b strings.Builder
			for i := range 400_000 {
				b.WriteString(" a" + strconv.Itoa(i) + `="` + strconv.Itoa(i*7919) + `"`)
			}
			return extracttest.DocxOf(t, strings.NewReader("<w:p"+b.String()+"/>"))
		}, limit},
		{"html_deep.html", func(testing.TB) []byte {
			return []byte(strings.Repeat("<div>", 60_000) + "DEEPTEXT" + strings.Repeat("</div>", 60_000))
		}, nil},
		{"html_tables.html", func(testing.TB) []byte {
			return []byte("<html>" + strings.Repeat("<table><tr><td>x", 200_000))
		}, nil},
		{"html_attributes.html", func(testing.TB) []byte { return []byte("<html><p " + strings.Repeat("a=b ", 2_000_000) + ">text") }, nil},
		{"html_tag.html", func(testing.TB) []byte { return []byte("<html><p title=\"" + strings.Repeat("x", 20<<20)) }, limit},
		{"html_lists.html", func(testing.TB) []byte { return []byte("<html>" + strings.Repeat("<ol><li>x", 300_000)) }, nil},
		{"md_nested.md", func(testing.TB) []byte { return []byte(strings.Repeat("> ", 20_000) + "deep") }, nil},
		{"md_brackets.md", func(testing.TB) []byte {
			return []byte(strings.Repeat("[", 50_000) + "x" + strings.Repeat("](", 50_000))
		}, nil},
		{"md_stars.md", func(testing.TB) []byte { return []byte(strings.Repeat("*a **b ", 30_000)) }, nil},
		{"one_line.txt", func(testing.TB) []byte { return bytes.Repeat([]byte("中文"), 4<<20) }, nil},
		{"pdf_deep_array.pdf", func(testing.TB) []byte {
			return extracttest.SimplePDF("/X "+strings.Repeat("[", 300_000)+strings.Repeat("]", 300_000), "")
		}, nil},
		{"pdf_deep_dict.pdf", func(testing.TB) []byte {
			return extracttest.SimplePDF("/X "+strings.Repeat("<</A ", 100_000)+"1"+strings.Repeat(">>", 100_000), "")
		}, nil},
		{"pdf_many_pages.pdf", func(testing.TB) []byte {
			return []byte("%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 9999>>endobj\n3 0 obj<</Type/Pages/Parent 2 0 R/Kids[2 0 R]/Count 9999>>endobj\ntrailer<</Size 4/Root 1 0 R>>\nstartxref\n0\n%%EOF")
		}, damaged},
		{"pdf_much_text.pdf", func(testing.TB) []byte {
			return extracttest.SimplePDF("", "BT /F1 1 Tf "+strings.Repeat("(aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa) Tj ", 150_000)+"ET")
		}, nil},
	}
}

// bomb is a Word document of many MiB, made of the same compressed MiB over and over.
func bomb(t testing.TB, mib int) []byte {
	var once bytes.Buffer
	deflate, err := flate.NewWriter(&once, flate.BestCompression)
	require.NoError(t, err)
	_, err = io.Copy(deflate, io.LimitReader(&extracttest.Loop{Text: "<w:p/>"}, 1<<20/6*6))
	require.NoError(t, err)
	require.NoError(t, deflate.Flush())
	body := append(bytes.Repeat(once.Bytes(), mib), 3, 0) // and an empty last block
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "word/document.xml", Method: zip.Deflate,
		CompressedSize64: uint64(len(body)), UncompressedSize64: uint64(mib) * (1 << 20 / 6 * 6)})
	require.NoError(t, err)
	_, err = w.Write(body)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return buf.Bytes()
}

// lyingBomb declares a small size for a member that grows to 1 GB.
func lyingBomb(t testing.TB) []byte {
	return extracttest.Lying(bomb(t, 1024), 1000)
}
