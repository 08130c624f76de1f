package detect_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

func fileOf(t *testing.T, name, content string) (string, error) {
	t.Helper()
	return detect.File(strings.NewReader(content), int64(len(content)), name)
}

func utf16Of(order binary.AppendByteOrder, mark bool, text string) string {
	var b []byte
	if mark {
		b = order.AppendUint16(b, 0xFEFF)
	}
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

func TestTextOfAnyCharsetIsText(t *testing.T) {
	t.Parallel()
	gb, err := simplifiedchinese.GB18030.NewEncoder().String(strings.Repeat("持久化异步入库任务。", 20))
	require.NoError(t, err)
	sjis, err := japanese.ShiftJIS.NewEncoder().String(strings.Repeat("これは日本語の文書です。", 20))
	require.NoError(t, err)
	for name, content := range map[string]string{
		"GB18030":                    gb,
		"Shift JIS":                  sjis,
		"UTF-16 little, with a mark": utf16Of(binary.LittleEndian, true, "text 中文"),
		"UTF-16 big, with a mark":    utf16Of(binary.BigEndian, true, "text 中文"),
		"UTF-8 with a mark":          "\xEF\xBB\xBFtext",
		"terminal colours":           "\x1b[31mred\x1b[0m and " + strings.Repeat("more text ", 10),
		"one control in much text":   strings.Repeat("text ", 100) + "\x07",
		"form feeds":                 "page one\fpage two",
		"a character cut at the end": strings.Repeat("a", detect.HeadBytes-1) + "中文",
		"latin text":                 "Stra\xdfe und Gr\xf6\xdfe, \xfcber die Br\xfccke",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fileOf(t, "a.txt", content)
			require.NoError(t, err)
			require.Equal(t, document.TypeText, got)
		})
	}
}

func TestBinaryDataUnderATextsName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ content, says string }{
		"PNG":            {"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"},
		"JPEG":           {"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image/jpeg"},
		"ELF":            {"\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 50), "application/x-"},
		"gzip":           {"\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip"},
		"NULs":           {"text\x00\x01\x02\x03\x04\x05more\x00\x00\x00", "binary"},
		"only controls":  {strings.Repeat("\x01\x02", 100), "binary"},
		"a NUL and text": {strings.Repeat("text ", 50) + "\x00\xff\xfe\xfd" + strings.Repeat("\x00\x80", 100), "binary"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := fileOf(t, "notes.txt", c.content)
			extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestTextUnderABinaryName(t *testing.T) {
	t.Parallel()
	for _, ext := range []string{".pdf", ".docx", ".doc", ".xlsx", ".xls", ".pptx", ".odt", ".epub", ".zip", ".png", ".exe", ".PDF"} {
		_, err := fileOf(t, "a"+ext, "this is only text")
		extracttest.RequirePermanent(t, err, ingest.CodeUnsupportedType)
		require.ErrorContains(t, err, strings.ToLower(ext))
		require.Contains(t, ingest.AsFailure(err).Remedy, ".txt")
	}
}

func TestTheNameChoosesAmongTexts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, content, want string }{
		"Markdown by name":              {"a.markdown", "text", document.TypeMarkdown},
		"a page called Markdown":        {"a.md", "\xEF\xBB\xBF \n<HTML><p>x", document.TypeHTML},
		"HTML by name":                  {"a.HTM", "text <b>bold</b>", document.TypeHTML},
		"HTML without a tag":            {"a.html", "only text", document.TypeText},
		"XHTML":                         {"a.xml", `<?xml version="1.0"?><html xmlns="x"><p>x</p></html>`, document.TypeHTML},
		"a notebook":                    {"a.ipynb", `{"cells": []}`, document.TypeIPYNB},
		"no notebook":                   {"a.ipynb", "text", document.TypeText},
		"subtitles":                     {"a.srt", "1\n00:00:01,000 --> 00:00:02,000\na", document.TypeSubtitles},
		"lines of JSON":                 {"a.ndjson", "{}\n{}\n", document.TypeJSON},
		"JSON without a name":           {"data", `{"a": [1, 2]}`, document.TypeJSON},
		"no JSON without a name":        {"data", `{a: 1}`, document.TypeText},
		"a table":                       {"a.tsv", "a\tb\n", document.TypeCSV},
		"a program":                     {"main.go", "package main\n", document.TypeCode},
		"a page that Excel opens":       {"a.xls", "<html><body><table><tr><td>1</table>", document.TypeHTML},
		"a piece of one":                {"a.XLS", "<table><tr><td>1</td></tr></table>", document.TypeHTML},
		"Excel's XML":                   {"a.xls", `<?xml version="1.0"?><Workbook/>`, document.TypeXML},
		"lines with tabs for Excel":     {"a.xls", "a\tb\n1\t2\n", document.TypeCSV},
		"a page that Word opens":        {"a.doc", "<html><body><p>x", document.TypeHTML},
		"a name with dots and a folder": {"../../x.tar.md", "# x", document.TypeMarkdown},
	} {
		got, err := fileOf(t, c.file, c.content)
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
}

func TestWhiteSpaceOnlyIsEmpty(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", " ", "\n\r\n\t", "\xEF\xBB\xBF", "\xFF\xFE", "\u3000\u00a0"} {
		_, err := fileOf(t, "a.txt", content)
		extracttest.RequirePermanent(t, err, ingest.CodeEmpty)
	}
}
