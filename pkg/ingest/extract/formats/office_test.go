package formats_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// sheetParts are the parts of a workbook with one cell, names and contents.
func sheetParts() []string {
	return []string{
		"[Content_Types].xml", `<Types/>`, "_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="/XL/Workbook.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="One" r:id="a"/></sheets></workbook>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="http://x/worksheet" Target="Worksheets/Sheet1.xml"/>` +
			`<Relationship Id="s" Type="http://x/sharedStrings" Target="SharedStrings.xml"/></Relationships>`,
		"xl/sharedstrings.xml", `<sst><si><t>of the cell</t></si></sst>`,
		"xl/worksheets/sheet1.xml", `<worksheet><sheetData><row><c t="s"><v>0</v></c></row></sheetData></worksheet>`,
	}
}

// wide is an XML part in UTF-16.
func wide(order binary.AppendByteOrder, mark, text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune(mark + text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

// Names of parts are compared without case (OPC, 7.2.3.5), and programs on Windows wrote them with backslashes: office programs open both.
func TestPartsAreFoundWhateverTheirCase(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(string) string{
		"lower case":  strings.ToLower,
		"upper case":  strings.ToUpper,
		"backslashes": func(s string) string { return strings.ReplaceAll(s, "/", `\`) },
		"a slash":     func(s string) string { return "/" + s },
	} {
		parts := sheetParts()
		for i := 0; i < len(parts); i += 2 {
			parts[i] = change(parts[i])
		}
		ex, lines, err := readFile(t, "a.xlsx", string(extracttest.ZipOf(t, parts...)))
		require.NoError(t, err, name)
		require.Equal(t, document.TypeXLSX, ex.MediaType, name)
		require.Equal(t, []string{"## One", "p of the cell"}, lines, name)
	}
	text := strings.ReplaceAll(extracttest.SmallBody, "the text", "of Word")
	ex, lines, err := readFile(t, "a.docx", string(extracttest.ZipOf(t, `WORD\Document2.xml`, text, `_rels\.rels`, `<Relationships><Relationship Type="http://x/officeDocument" Target="word/document2.xml"/></Relationships>`)))
	require.NoError(t, err)
	require.Equal(t, document.TypeDOCX, ex.MediaType)
	require.Equal(t, []string{"p of Word"}, lines)
}

// Two members whose names differ in their case alone are two.
func TestMembersThatDifferInCase(t *testing.T) {
	t.Parallel()
	book := extracttest.ZipOf(t, "META-INF/container.xml", `<container><rootfiles><rootfile full-path="b.opf"/></rootfiles></container>`,
		"b.opf", `<package><manifest><item id="1" href="A.xhtml" media-type="application/xhtml+xml"/><item id="2" href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="1"/><itemref idref="2"/></spine></package>`,
		"a.xhtml", `<p>small</p>`, "A.xhtml", `<p>large</p>`)
	_, lines, err := readFile(t, "a.epub", string(book))
	require.NoError(t, err)
	require.Equal(t, []string{"p large", "p small"}, lines)
}

// XML may be in UTF-16 too (XML, 4.3.3), whatever its declaration says.
func TestPartsInUTF16(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func(string) string{
		"little": func(s string) string {
			return wide(binary.LittleEndian, "\ufeff", `<?xml version="1.0" encoding="UTF-16"?>`+s)
		},
		"big": func(s string) string {
			return wide(binary.BigEndian, "\ufeff", `<?xml version="1.0" encoding="utf-16"?>`+s)
		},
		"declared as UTF-8": func(s string) string {
			return wide(binary.LittleEndian, "\ufeff", `<?xml version="1.0" encoding="UTF-8"?>`+s)
		},
		"without a mark": func(s string) string {
			return wide(binary.LittleEndian, "", `<?xml version="1.0" encoding="UTF-16LE"?>`+s)
		},
		"without a mark, big": func(s string) string { return wide(binary.BigEndian, "", s) },
		"UTF-8 with a mark":   func(s string) string { return "\ufeff" + s },
		"another, as it says": func(s string) string {
			return `<?xml version="1.0" encoding="windows-1251"?>` + strings.ReplaceAll(s, "Ж", "\xc6")
		},
	} {
		body := strings.ReplaceAll(extracttest.SmallBody, "the text", "of Ж")
		_, lines, err := readFile(t, "a.docx", string(extracttest.ZipOf(t, "word/document.xml", in(body))))
		require.NoError(t, err, name)
		require.Equal(t, []string{"p of Ж"}, lines, name)
	}
	// A run of text is bounded there too, also one of characters with a byte that is "<" elsewhere.
	long := wide(binary.LittleEndian, "\ufeff", `<w:document><w:body><w:p><w:r><w:t>`+strings.Repeat("\u4e3c", 5<<20)+`</w:t></w:r></w:p></w:body></w:document>`)
	_, _, err := readFile(t, "a.docx", string(extracttest.ZipStoredFirst(t, "word/document.xml", long)))
	require.ErrorContains(t, err, "a single element of more than")
}
