package formats_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// letterOf is a Word document whose body refers to files by the numbers of their places, from 1 on.
func letterOf(t *testing.T, body string, files ...string) []byte {
	t.Helper()
	rels := `<Relationships>`
	members := []string{"_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`}
	for i := 0; i < len(files); i += 2 {
		rels += `<Relationship Id="c` + string(rune('1'+i/2)) + `" Type="http://x/aFChunk" Target="` + files[i] + `"/>`
		members = append(members, "word/"+files[i], files[i+1])
	}
	members = append(members, "word/_rels/document.xml.rels", rels+`</Relationships>`, "word/document.xml",
		`<?xml version="1.0" encoding="UTF-8"?><w:document `+extracttest.WordXMLNS+`><w:body>`+body+`</w:body></w:document>`)
	return extracttest.ZipOf(t, members...)
}

// Programs that make Word documents out of pages put the page into the document as it is.
func TestFilesThatStandInForTheTextOfAWordDocument(t *testing.T) {
	t.Parallel()
	const page = `<html><head><title>no</title></head><body><h1>Offer</h1><p>first <b>and</b> second</p><ul><li>item</li></ul></body></html>`
	paragraph := func(text string) string { return `<w:p><w:r><w:t>` + text + `</w:t></w:r></w:p>` }
	one, two := `<w:altChunk r:id="c1"/>`, `<w:altChunk r:id="c2"/>`
	message := "MIME-Version: 1.0\r\nContent-Type: multipart/related; type=\"text/html\"; boundary=\"x\"\r\n\r\n--x\r\nContent-Type: text/html; charset=\"utf-8\"\r\n" +
		"Content-Transfer-Encoding: quoted-printable\r\nContent-Location: file:///C:/fake/document.html\r\n\r\n" + strings.ReplaceAll(page, "first", "f=C3=BCrst") + "\r\n--x--\r\n"
	inner := string(letterOf(t, paragraph("inside")+one, "a.html", `<p>deeper</p>`))
	for name, c := range map[string]struct {
		data     []byte
		want     []string
		warnings int
	}{
		"a page":            {letterOf(t, paragraph("before")+one+paragraph("after"), "afchunk.htm", page), []string{"p before", "# Offer", "p first and second", "l item", "p after"}, 0},
		"a page as message": {letterOf(t, one, "afchunk.mht", message), []string{"# Offer", "p fürst and second", "l item"}, 0},
		"its charset":       {letterOf(t, one, "a.html", `<meta charset="windows-1252"><p>caf`+"\xe9"+`</p>`), []string{"p café"}, 0},
		"two":               {letterOf(t, two+one, "a.html", "<p>a</p>", "b.txt", "plain\ntext"), []string{"p plain\ntext", "p a"}, 0},
		"a Word document":   {letterOf(t, one, "b.docx", inner), []string{"p inside", "p deeper"}, 0},
		"rich text":         {letterOf(t, one, "b.rtf", `{\rtf1 rich\par}`), []string{"p rich"}, 0},
		"in a cell":         {letterOf(t, `<w:tbl><w:tr><w:tc>`+one+`</w:tc><w:tc>`+paragraph("b")+`</w:tc></w:tr></w:tbl>`, "a.html", "<p>in</p><p>side</p>"), []string{"t in side | b"}, 0},
		"none of that name": {letterOf(t, one+paragraph("rest")), []string{"p rest"}, 0},
		"what nobody reads": {letterOf(t, one+paragraph("rest"), "b.bin", "\x00\x01\x02\x03"), []string{"p rest"}, 1},
		"empty":             {letterOf(t, one+paragraph("rest"), "b.html", ""), []string{"p rest"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ex, lines, err := readFile(t, "letter.docx", string(c.data))
			require.NoError(t, err)
			require.Equal(t, c.want, lines)
			require.Len(t, ex.Warnings, c.warnings, ex.Warnings)
		})
	}
}
