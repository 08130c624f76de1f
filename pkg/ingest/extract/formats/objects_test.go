package formats_test

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

// wordWith is a Word document with a paragraph, an object that is the part, and another paragraph.
func wordWith(t *testing.T, part, data string) string {
	t.Helper()
	return string(extracttest.ZipOf(t, "_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="word/document.xml"/></Relationships>`,
		"word/document.xml", `<w:document `+extracttest.WordXMLNS+`><w:body><w:p><w:r><w:t>before</w:t><w:object><v:shape><v:imagedata r:id="pic"/></v:shape><o:OLEObject Type="Embed" ProgID="X" r:id="o"/></w:object></w:r></w:p>`+
			`<w:p><w:r><w:t>after</w:t></w:r></w:p></w:body></w:document>`,
		"word/_rels/document.xml.rels", `<Relationships><Relationship Id="o" Type="http://x/oleObject" Target="embeddings/`+part+`"/><Relationship Id="pic" Type="http://x/image" Target="media/p.emf"/></Relationships>`,
		"word/embeddings/"+part, data))
}

// showWith is a presentation of two slides, of which the first shows the part.
func showWith(t *testing.T, part, data string) string {
	t.Helper()
	slide := func(title, more string) string {
		return `<p:sld><p:cSld><p:spTree><p:sp><p:nvSpPr><p:nvPr><p:ph type="title"/></p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>` + title + `</a:t></a:r></a:p></p:txBody></p:sp>` + more + `</p:spTree></p:cSld></p:sld>`
	}
	frame := `<p:graphicFrame><a:graphic><a:graphicData><mc:AlternateContent><mc:Choice Requires="v"><p:oleObj spid="s" name="Worksheet" r:id="o" progId="Excel.Sheet.12"><p:embed/></p:oleObj></mc:Choice>` +
		`<mc:Fallback><p:oleObj name="Worksheet" r:id="o" progId="Excel.Sheet.12"><p:embed/><p:pic/></p:oleObj></mc:Fallback></mc:AlternateContent></a:graphicData></a:graphic></p:graphicFrame>`
	return string(extracttest.ZipOf(t, "_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="ppt/presentation.xml"/></Relationships>`,
		"ppt/presentation.xml", `<p:presentation><p:sldIdLst><p:sldId id="256" r:id="a"/><p:sldId id="257" r:id="b"/></p:sldIdLst></p:presentation>`,
		"ppt/_rels/presentation.xml.rels", `<Relationships><Relationship Id="a" Type="http://x/slide" Target="slides/1.xml"/><Relationship Id="b" Type="http://x/slide" Target="slides/2.xml"/></Relationships>`,
		"ppt/slides/1.xml", slide("before", frame), "ppt/slides/2.xml", slide("after", ""),
		"ppt/slides/_rels/1.xml.rels", `<Relationships><Relationship Id="o" Type="http://x/package" Target="../embeddings/`+part+`"/></Relationships>`,
		"ppt/embeddings/"+part, data))
}

// bookWith is a workbook of two sheets, of which the first shows the part.
func bookWith(t *testing.T, part, data string) string {
	t.Helper()
	row := func(text string) string {
		return `<sheetData><row><c t="inlineStr"><is><t>` + text + `</t></is></c></row></sheetData>`
	}
	return string(extracttest.ZipOf(t, "_rels/.rels", `<Relationships><Relationship Type="http://x/officeDocument" Target="xl/workbook.xml"/></Relationships>`,
		"xl/workbook.xml", `<workbook><sheets><sheet name="One" r:id="a"/><sheet name="Two" r:id="b"/></sheets></workbook>`,
		"xl/_rels/workbook.xml.rels", `<Relationships><Relationship Id="a" Type="http://x/worksheet" Target="1.xml"/><Relationship Id="b" Type="http://x/worksheet" Target="2.xml"/></Relationships>`,
		"xl/1.xml", `<worksheet>`+row("before")+`<oleObjects><oleObject progId="X" shapeId="1" r:id="o"/></oleObjects></worksheet>`, "xl/2.xml", `<worksheet>`+row("after")+`</worksheet>`,
		"xl/_rels/1.xml.rels", `<Relationships><Relationship Id="o" Type="http://x/oleObject" Target="embeddings/`+part+`"/></Relationships>`,
		"xl/embeddings/"+part, data))
}

// packed is what Windows' packager makes of a file.
func packed(name, data string) string {
	size := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
	copied := `C:\tmp\` + name + "\x00"
	return "\x02\x00" + name + "\x00" + `C:\own\` + name + "\x00\x00\x00\x03\x00" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(copied)))) + copied + string(size) + data
}

// nativeOf is an object that a file was dragged into.
func nativeOf(name, data string) string {
	inner := packed(name, data)
	return string(extracttest.OLEStreams("\x01CompObj", "x", "\x01Ole10Native", string(binary.LittleEndian.AppendUint32(nil, uint32(len(inner))))+inner))
}

// richWith is a rich text with a paragraph, an object of the class, and another paragraph.
func richWith(class, data, more string) string {
	text := func(s string) string {
		return string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
	}
	old := "\x01\x05\x00\x00\x02\x00\x00\x00" + text(class+"\x00") + text("") + text("") + text(data)
	return `{\rtf1 before{\object\objemb{\*\objclass X}{\*\objdata ` + strings.ToUpper(hex.EncodeToString([]byte(old))) + "\r\n" + more + `}{\result {\pict 00}}}\par after\par}`
}

// The files that documents embed are read in their place; what stands behind them stays under its own heading.
func TestEmbeddedFilesAreReadInTheirPlace(t *testing.T) {
	t.Parallel()
	letter := string(extracttest.DocxOf(t, strings.NewReader(`<w:p><w:pPr><w:outlineLvl w:val="0"/></w:pPr><w:r><w:t>Inner</w:t></w:r></w:p><w:p><w:r><w:t>text</w:t></w:r></w:p>`)))
	formula := string(extracttest.OLEStreams("Equation Native", "x", "\x01Ole", "y"))
	var numbers strings.Builder
	for i := range 700_000 {
		numbers.WriteString(strconv.Itoa(i*7919) + " ")
	}
	legacy := string(extracttest.OLEStreams("WordDocument", "x"))
	for name, c := range map[string]struct {
		file, data string
		want       []string
		warning    string
	}{
		"Word, a Word document":          {"a.docx", wordWith(t, "a.docx", letter), []string{"p before", "p Inner", "p text", "p after"}, ""},
		"Word, the same in an object":    {"a.docx", wordWith(t, "o.bin", string(extracttest.OLEStreams("Package", letter))), []string{"p before", "p Inner", "p text", "p after"}, ""},
		"Word, a file dragged in":        {"a.docx", wordWith(t, "o.bin", nativeOf("notes.txt", "one\n\ntwo")), []string{"p before", "p notes.txt", "p one", "p two", "p after"}, ""},
		"Word, a formula":                {"a.docx", wordWith(t, "o.bin", formula), []string{"p before", "p after"}, ""},
		"Word, an old Word document":     {"a.docx", wordWith(t, "o.bin", legacy), []string{"p before", "p after"}, `"o.bin" was not read: `},
		"Word, bytes that nobody knows":  {"a.docx", wordWith(t, "o.bin", nativeOf("a.dat", "\x00\x01\x02")), []string{"p before", "p after"}, `"a.dat" was not read: `},
		"Word, a damaged object":         {"a.docx", wordWith(t, "o.bin", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), []string{"p before", "p after"}, `"o.bin" was not read: `},
		"Word, a package of nothing":     {"a.docx", wordWith(t, "o.bin", string(extracttest.OLEStreams("Package", ""))), []string{"p before", "p after"}, `"o.bin" was not read: `},
		"Word, a PDF":                    {"a.docx", wordWith(t, "o.bin", string(extracttest.OLEStreams("CONTENTS", string(extracttest.SimplePDF("", ""))))), []string{"p before", "p after"}, `"o.bin" was not read: it is a PDF`},
		"Word, nothing":                  {"a.docx", wordWith(t, "o.bin", ""), []string{"p before", "p after"}, ""},
		"Word, more than a tag may have": {"a.docx", wordWith(t, "a.dat", "\x00\x01"+numbers.String()), []string{"p before", "p after"}, `"a.dat" was not read: `},
		"Word, too much":                 {"a.docx", wordWith(t, "o.bin", strings.Repeat("\x00\x01\x02\x03\x04", 4<<20)), []string{"p before", "p after"}, `"word/embeddings/o.bin" was not read: `},
		"PowerPoint, a workbook":         {"a.pptx", showWith(t, "a.xlsx", bookWith(t, "o.bin", formula)), []string{"## before", "p One", "p before", "p Two", "p after", "## after"}, ""},
		"Excel, a file dragged in":       {"a.xlsx", bookWith(t, "o.bin", nativeOf(`C:\x\n.md`, "# Title\n\ntext")), []string{"## One", "p before", "p n.md", "p Title", "p text", "## Two", "p after"}, ""},
		"rich text, a Word document":     {"a.rtf", richWith("Word.Document.12", string(extracttest.OLEStreams("Package", letter)), ""), []string{"p before", "p Inner", "p text", "p after"}, ""},
		"rich text, a file dragged in":   {"a.rtf", richWith("Package", packed("ü.txt", "one"), ""), []string{"p before", "p ü.txt", "p one", "p after"}, ""},
		"rich text, a formula":           {"a.rtf", richWith("Equation.3", formula, ""), []string{"p before", "p after"}, ""},
		"rich text, bytes as they are":   {"a.rtf", richWith("Package", packed("a.txt", "one"), `\bin3 }}}`), []string{"p before", "p a.txt", "p one", "p after"}, ""},
		"rich text, half a digit":        {"a.rtf", richWith("Package", packed("a.txt", "one"), "0"), []string{"p before", "p a.txt", "p one", "p after"}, ""},
		"rich text, no mark":             {"a.rtf", strings.ReplaceAll(richWith("Package", packed("a.txt", "one"), ""), `{\*\objdata`, `{\objdata`), []string{"p before", "p a.txt", "p one", "p after"}, ""},
		"rich text, in a header":         {"a.rtf", `{\rtf1{\header head {\object{\objdata 0105}}{\object{\*\objdata 0105}}\par}}`, []string{"p head"}, ""},
		"rich text, hidden":              {"a.rtf", `{\rtf1 a{\v ` + richWith("Package", packed("a.txt", "one"), "")[6:] + `\par}`, []string{"p a"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ex, lines, err := readFile(t, c.file, c.data)
			require.NoError(t, err)
			require.Equal(t, c.want, lines)
			if c.warning == "" {
				require.Empty(t, ex.Warnings)
				return
			}
			require.Len(t, ex.Warnings, 1)
			require.Contains(t, ex.Warnings[0], c.warning)
		})
	}
}

// Who has read an embedded file stands beside the document's own reader: another version of either may read other text.
func TestReadersOfEmbeddedFilesAreNamed(t *testing.T) {
	t.Parallel()
	ex, _, err := readFile(t, "a.docx", wordWith(t, "o.bin", nativeOf("notes.txt", "one")))
	require.NoError(t, err)
	require.Regexp(t, `^docx/\d+ text/\d+$`, ex.Reader)
}
