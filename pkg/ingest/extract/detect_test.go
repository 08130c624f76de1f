package extract

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestDetectNamesWhatItIs(t *testing.T) {
	t.Parallel()
	docx := docxOf(t, strings.NewReader("<w:p/>"))
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
		{"a.pdf", []byte("%PDF-1.7\n"), typePDF, "", ""},
		{"notes.txt", []byte("A PDF begins with %PDF-1.7 at its start."), typeText, "", ""},
		{"a.docx", docx, typeDOCX, "", ""},
		{"a.pdf", docx, typeDOCX, "", ""},
		{"a.zip", docxOf(t, nil), "", ingest.CodeUnsupportedType, "zip archive"},
		{"a.docx", docxOf(t, nil), "", ingest.CodeCorrupt, "no word/document.xml"},
		{"a.docx", docx[:len(docx)-30], "", ingest.CodeCorrupt, "cut off"},
		{"a.docx", docxOf(t, repeated("<w:p/>", 1_000_000)), "", ingest.CodeLimitExceeded, "more than 100"},
		{"a.docx", oleFile("Root Entry", "EncryptionInfo", "EncryptedPackage"), "", ingest.CodeEncrypted, "password"},
		{"a.doc", oleFile("Root Entry", "WordDocument"), "", ingest.CodeUnsupportedType, "DOC"},
		{"a.xls", oleFile("Root Entry", "Workbook"), "", ingest.CodeUnsupportedType, "XLS"},
		{"report.pdf", exe, "", ingest.CodeUnsupportedType, "although the name ends in .pdf"},
		{"report.pdf", []byte("<html>404</html>"), "", ingest.CodeUnsupportedType, "content is text"},
		{"a.txt", []byte{1, 2, 3, 0, 5, 6, 0xFF, 0xFE, 0, 0, 7}, "", ingest.CodeUnsupportedType, "binary"},
		{"a.txt", nil, "", ingest.CodeEmpty, "empty"},
		{"a.txt", []byte(" \n\t "), "", ingest.CodeEmpty, "white space"},
		{"a.md", []byte("<p align=center>x</p>\n# T"), typeMarkdown, "", ""},
		{"a.md", []byte("<!DOCTYPE html><p>x"), typeHTML, "", ""},
		{"a.txt", []byte("<b>not a page"), typeText, "", ""},
		{"page", []byte("<!doctype HTML><p>x"), typeHTML, "", ""},
		{"a.htm", []byte("<p>x"), typeHTML, "", ""},
		{"a.json", []byte(`{"a":1}`), typeJSON, "", ""},
		{"a.csv", []byte("a,b\n1,2\n"), typeCSV, "", ""},
		{"a.log", []byte("2026-11-21 started\n"), typeText, "", ""},
		{"a.xml", []byte("<?xml version=\"1.0\"?><a>b</a>"), typeText, "", ""},
		{"a.svg", []byte("<?xml version=\"1.0\"?><svg xmlns=\"http://www.w3.org/2000/svg\"/>"), "", ingest.CodeUnsupportedType, "SVG"},
		{"a.rtf", []byte(`{\rtf1 hello}`), "", ingest.CodeUnsupportedType, "RTF"},
		{"a.txt", utf16text, typeText, "", ""},
		{"a.txt", append([]byte(strings.Repeat("x", HeadBytes-1)), "中"...), typeText, "", ""},
	} {
		t.Run(c.name+" "+c.says+c.want, func(t *testing.T) {
			t.Parallel()
			got, err := DetectFile(bytes.NewReader(c.data), int64(len(c.data)), c.name)
			require.Equal(t, c.want, got)
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			requirePermanent(t, err, c.code)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestDetectOfManyEntriesReadsOnlyTheEnd(t *testing.T) {
	t.Parallel()
	data := manyNames(70_000)
	r := &countingReader{Reader: bytes.NewReader(data)}
	_, err := Detect(data[:HeadBytes], r, int64(len(data)), "x.docx")
	requirePermanent(t, err, ingest.CodeLimitExceeded)
	require.LessOrEqual(t, r.n, int64(70<<10))
}

func FuzzDetect(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(corpusFile(f, s.File), s.File)
	}
	f.Add(oleFile("EncryptedPackage"), "a.docx")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		mediaType, err := DetectFile(bytes.NewReader(data), int64(len(data)), name)
		if err != nil {
			requirePermanent(t, err)
			return
		}
		_, ok := readerFor(mediaType)
		require.True(t, ok)
	})
}
