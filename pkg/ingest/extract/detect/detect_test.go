package detect_test

import (
	"bytes"
	"encoding/binary"
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
		{"a.xml", []byte("<?xml version=\"1.0\"?><a>b</a>"), document.TypeText, "", ""},
		{"a.svg", []byte("<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>"), "", ingest.CodeUnsupportedType, "SVG"},
		{"a.rtf", []byte(`{\rtf1 hello}`), "", ingest.CodeUnsupportedType, "RTF"},
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
