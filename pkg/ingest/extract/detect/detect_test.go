package detect_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

func TestDetectNamesWhatItIs(t *testing.T) {
	t.Parallel()
	docx := extracttest.DocxOf(t, strings.NewReader("<w:p/>"))
	exe := append([]byte("MZ\x90\x00\x03\x00\x00\x00"), make([]byte, 500)...)
	utf16text := []byte{0xFF, 0xFE}
	for _, u := range utf16.Encode([]rune("死信队列 and text")) {
		utf16text = binary.LittleEndian.AppendUint16(utf16text, u)
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
		code ingest.Code
		says string
	}{
		{"a.pdf", []byte("%PDF-1.7\n"), document.TypePDF, "", ""},
		{"notes.txt", []byte("A PDF begins with %PDF-1.7 at its start."), document.TypeText, "", ""},
		{"a.docx", docx, document.TypeDOCX, "", ""},
		{"a.pdf", docx, document.TypeDOCX, "", ""},
		{"a.zip", extracttest.DocxOf(t, nil), "", ingest.CodeUnsupportedType, "zip archive"},
		{"a.docx", extracttest.DocxOf(t, nil), "", ingest.CodeCorrupt, "no word/document.xml"},
		{"a.docx", docx[:len(docx)-30], "", ingest.CodeCorrupt, "cut off"},
		{"a.docx", extracttest.DocxOf(t, extracttest.Repeated("<w:p/>", 1_000_000)), "", ingest.CodeLimitExceeded, "more than 100"},
		{"a.docx", extracttest.OLEFile("Root Entry", "EncryptionInfo", "EncryptedPackage"), "", ingest.CodeEncrypted, "password"},
		{"a.docx", extracttest.OLEFile("Root Entry", "ENCRYPTIONINFO", "ENCRYPTEDPACKAGE"), "", ingest.CodeEncrypted, "password"},
		{"a.docx", extracttest.OLEFile("Root Entry", "DRMEncryptedDataSpace", "EncryptedPackage"), "", ingest.CodeEncrypted, "rights management"},
		{"a.doc", extracttest.OLEFile("Root Entry", "\tDRMContent"), "", ingest.CodeEncrypted, "rights management"},
		{"a.acsm", []byte("<?xml version=\"1.0\"?>\n<fulfillmentToken xmlns=\"http://ns.adobe.com/adept\"/>"), "", ingest.CodeEncrypted, "ACSM"},
		{"a.pages", extracttest.ZipOf(t, "Index/Document.iwa", "x"), "", ingest.CodeUnsupportedType, "Pages"},
		{"a.ppt", extracttest.OLEFile("Root Entry", "PowerPoint Document"), "", ingest.CodeUnsupportedType, "PPT"},
		{"a.doc", extracttest.OLEFile("Root Entry", "WordDocument"), "", ingest.CodeUnsupportedType, "DOC"},
		{"a.xls", extracttest.OLEFile("Root Entry", "Workbook"), "", ingest.CodeUnsupportedType, "XLS"},
		{"report.pdf", exe, "", ingest.CodeUnsupportedType, "although the name ends in .pdf"},
		{"report.pdf", []byte("<html>404</html>"), "", ingest.CodeUnsupportedType, "content is text"},
		{"a.txt", []byte{1, 2, 3, 0, 5, 6, 0xFF, 0xFE, 0, 0, 7}, "", ingest.CodeUnsupportedType, "binary"},
		{"a.txt", nil, "", ingest.CodeEmpty, "empty"},
		{"a.txt", []byte(" \n\t "), "", ingest.CodeEmpty, "white space"},
		{"a.md", []byte("<p align=center>x</p>\n# T"), document.TypeMarkdown, "", ""},
		{"a.md", []byte("<!DOCTYPE html><p>x"), document.TypeHTML, "", ""},
		{"a.txt", []byte("<b>not a page"), document.TypeText, "", ""},
		{"page", []byte("<!doctype HTML><p>x"), document.TypeHTML, "", ""},
		{"a.htm", []byte("<p>x"), document.TypeHTML, "", ""},
		{"a.json", []byte(`{"a":1}`), document.TypeJSON, "", ""},
		{"a.csv", []byte("a,b\n1,2\n"), document.TypeCSV, "", ""},
		{"a.log", []byte("2026-11-21 started\n"), document.TypeText, "", ""},
		{"a.xml", []byte("<?xml version=\"1.0\"?><a>b</a>"), document.TypeXML, "", ""},
		{"a.txt", []byte("\uFEFF<?xml version=\"1.0\"?>\n<a>b</a>"), document.TypeXML, "", ""},
		{"feed.rss", []byte("<rss><channel/></rss>"), document.TypeXML, "", ""},
		{"a.tex", []byte("\\section{A}"), document.TypeLaTeX, "", ""},
		{"a.tex", []byte("no command"), document.TypeText, "", ""},
		{"a", []byte("% a comment\n\n\\documentclass{article}"), document.TypeLaTeX, "", ""},
		{"a.txt", []byte("A text begins with\n\\documentclass{article}"), document.TypeText, "", ""},
		{"a.go", []byte("package a"), document.TypeCode, "", ""},
		{"A.PY", []byte("import os"), document.TypeCode, "", ""},
		{"src/Makefile", []byte("all:\n\ttrue"), document.TypeCode, "", ""},
		{"a.js", []byte("<!doctype html><p>404"), document.TypeHTML, "", ""},
		{"a.ts", []byte("\x47\x40\x00\x10\x00\x00"), "", ingest.CodeUnsupportedType, "binary"},
		{"a.xml", []byte("no element"), document.TypeText, "", ""},
		{"a.xml", []byte("<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\"/>"), document.TypeHTML, "", ""},
		{"a.svg", []byte("<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>"), "", ingest.CodeUnsupportedType, "SVG"},
		{"a.txt", []byte(`{\rtf1 hello}`), document.TypeRTF, "", ""},
		{"a.msg", extracttest.OLEFile("Root Entry", "__properties_version1.0"), document.TypeMSG, "", ""},
		{"a.msg", []byte("only text"), "", ingest.CodeUnsupportedType, "content is text"},
		{"a.txt", utf16text, document.TypeText, "", ""},
		{"a.txt", append([]byte(strings.Repeat("x", detect.HeadBytes-1)), "中"...), document.TypeText, "", ""},
	} {
		t.Run(c.name+" "+c.says+c.want, func(t *testing.T) {
			t.Parallel()
			got, err := detect.File(bytes.NewReader(c.data), int64(len(c.data)), c.name)
			require.Equal(t, c.want, got)
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			extracttest.RequirePermanent(t, err, c.code)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestDetectOfManyEntriesReadsOnlyTheEnd(t *testing.T) {
	t.Parallel()
	data := extracttest.ManyNames(70_000)
	r := &extracttest.CountingReader{Reader: bytes.NewReader(data)}
	_, err := detect.Type(data[:detect.HeadBytes], r, int64(len(data)), "x.docx")
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	require.LessOrEqual(t, r.N, int64(70<<10))
}

func FuzzDetect(f *testing.F) {
	for _, s := range extracttest.Samples(f) {
		f.Add(extracttest.CorpusFile(f, s.File), s.File)
	}
	f.Add(extracttest.OLEFile("EncryptedPackage"), "a.docx")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		mediaType, err := detect.File(bytes.NewReader(data), int64(len(data)), name)
		if err != nil {
			extracttest.RequirePermanent(t, err)
			return
		}
		_, ok := formats.For(mediaType)
		require.True(t, ok)
	})
}

func TestArchivesOfOtherKindsAreNamed(t *testing.T) {
	t.Parallel()
	for member, says := range map[string]string{
		"xl/workbook.bin": "XLSB", "visio/document.xml": "Visio", "AndroidManifest.xml": "Android", "META-INF/MANIFEST.MF": "Java", "readme.txt": "a zip archive",
		"word/documents.xml": "a zip archive", "word/document.xml.bak": "a zip archive", "Content.xml": "a zip archive",
	} {
		data := extracttest.ZipOf(t, "first", "x", member, "y")
		_, err := detect.File(bytes.NewReader(data), int64(len(data)), "a.zip")
		extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
		require.ErrorContains(t, err, says, member)
	}
	for member, want := range map[string]string{
		"word/document.xml": document.TypeDOCX, "word/document2.xml": document.TypeDOCX, `word\document.xml`: document.TypeDOCX, "word/document17.xml": document.TypeDOCX, "Word/Document.xml": document.TypeDOCX,
		`XL\Workbook.xml`: document.TypeXLSX, "PPT/presentation.XML": document.TypePPTX,
		"xl/workbook.xml": document.TypeXLSX, "ppt/presentation.xml": document.TypePPTX, "META-INF/container.xml": document.TypeEPUB, "content.xml": document.TypeODT,
	} {
		data := extracttest.ZipOf(t, member, "x")
		got, err := detect.File(bytes.NewReader(data), int64(len(data)), "anything")
		require.NoError(t, err, member)
		require.Equal(t, want, got)
	}
}

func TestOpenDocumentsSayWhatTheyAre(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"text": document.TypeODT, "text-template": document.TypeODT, "spreadsheet": document.TypeODS, "presentation": document.TypeODP, "graphics": "", "formula": "",
	} {
		data := extracttest.ZipStoredFirst(t, "mimetype", "application/vnd.oasis.opendocument."+kind, "content.xml", "x")
		got, err := detect.File(bytes.NewReader(data), int64(len(data)), "a.odt")
		require.Equal(t, want, got)
		if want == "" {
			extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
		}
	}
}

// A compound file's directory is a chain of sectors: one that leads in a circle, out of the file or nowhere ends the look.
func TestCompoundFilesThatLeadAstray(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(file []byte){
		"in a circle":          func(b []byte) { binary.LittleEndian.PutUint32(b[512+4:], 1) },
		"out of the file":      func(b []byte) { binary.LittleEndian.PutUint32(b[48:], 0x00FFFFFF) },
		"to no sector":         func(b []byte) { binary.LittleEndian.PutUint32(b[48:], 0xFFFFFFFE) },
		"a table far away":     func(b []byte) { binary.LittleEndian.PutUint32(b[76:], 0x7FFFFFFF) },
		"sectors of odd sizes": func(b []byte) { binary.LittleEndian.PutUint16(b[30:], 31) },
		"names too long":       func(b []byte) { binary.LittleEndian.PutUint16(b[1024+64:], 0xFFFF) },
		"cut off":              func(b []byte) { clear(b[600:]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := extracttest.OLEFile("Root Entry", "Something")
			change(file)
			r := &extracttest.CountingReader{Reader: bytes.NewReader(file)}
			_, err := detect.File(r, int64(len(file)), "a.doc")
			extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
			require.Less(t, r.N, int64(1<<20))
		})
	}
	for stream, says := range map[string]string{
		"Book": "XLS", "PowerPoint Document": "PPT", "Contents": "compound",
	} {
		file := extracttest.OLEFile("Root Entry", stream)
		_, err := detect.File(bytes.NewReader(file), int64(len(file)), "a")
		require.ErrorContains(t, err, says)
	}
	_, err := detect.File(strings.NewReader("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"), 8, "a.doc")
	extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
}

func TestJunkBeforeAPDFNeedsAnotherSign(t *testing.T) {
	t.Parallel()
	junk := "HTTP/1.1 200 OK\r\n\r\n"
	for name, c := range map[string]struct{ file, text, want string }{
		"named so":                 {"a.pdf", junk + "%PDF-1.7\n", document.TypePDF},
		"with a PDF's end":         {"a.bin", junk + "%PDF-1.7\nstartxref\n0\n%%EOF", document.TypePDF},
		"with neither":             {"a.txt", junk + "%PDF-1.7\n", document.TypeText},
		"far behind":               {"a.pdf", strings.Repeat("x", 2000) + "%PDF-1.7\n", ""},
		"with half of a PDF end":   {"a.log", junk + "%PDF-1.7\n%%EOF", document.TypeText},
		"the mark is a text's own": {"a.md", "`%PDF-` begins a PDF", document.TypeMarkdown},
	} {
		got, err := detect.File(strings.NewReader(c.text), int64(len(c.text)), c.file)
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.want == "", err != nil, name)
	}
}

type brokenDisk struct{}

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

var errDisk = errors.New("input/output error")

func TestAFileThatCannotBeReadIsNoBadDocument(t *testing.T) {
	t.Parallel()
	_, err := detect.File(brokenDisk{}, 100, "a.txt")
	require.ErrorIs(t, err, errDisk)
	require.False(t, ingest.AsFailure(err).Permanent, "the disk's fault is not the document's")
}
