// Package detect tells what a file is by its content. It opens and decompresses nothing.
package detect

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// HeadBytes is as much of a file's beginning as Detect looks at.
	HeadBytes = 64 << 10
	// pdfJunkBytes is how far into a file its PDF header may begin.
	pdfJunkBytes = 1024
	// tailBytes is where a PDF's end mark is looked for.
	tailBytes = 2048
)

// Type tells a document's media type from its content; the name decides only between kinds of text. It
// decompresses nothing and reads at most head, a zip's directory (≤ 4 MiB) and a few sectors, so it is safe
// in a process that answers requests. head is the file's beginning (up to HeadBytes), r the whole file of
// size bytes, name the user's file name. Errors: *ingest.Failure, permanent, with a remedy (EMPTY_FILE,
// UNSUPPORTED_TYPE, ENCRYPTED, CORRUPT, LIMIT_EXCEEDED), or that of reading r.
func Type(head []byte, r io.ReaderAt, size int64, name string) (mediaType string, err error) {
	head = head[:min(len(head), HeadBytes)]
	if size == 0 || len(head) == 0 {
		return "", ingest.Permanent(ingest.CodeEmpty, document.RemedyEmpty, "the file is empty")
	}
	ext := strings.ToLower(filepath.Ext(name))
	if ext == "" {
		if whole := "." + strings.ToLower(filepath.Base(name)); codeNames[whole] {
			ext = whole // Makefile, Dockerfile
		}
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), bytes.HasPrefix(head, []byte("PK\x05\x06")):
		return detectZip(head, r, size, ext)
	case bytes.HasPrefix(head, oleMagic):
		return detectOLE(r, size)
	case isPDF(head, r, size, ext):
		return document.TypePDF, nil
	}
	return detectPlain(head, size, ext)
}

// File reads a file's head and calls Detect.
func File(r io.ReaderAt, size int64, name string) (string, error) {
	return Config{}.File(r, size, name)
}

func readHead(r io.ReaderAt, size int64) ([]byte, error) {
	head := make([]byte, min(size, HeadBytes))
	n, err := r.ReadAt(head, 0)
	if err != nil && (err != io.EOF || n < len(head)) {
		return nil, fmt.Errorf("read the file's head: %w", err)
	}
	return head, nil
}

// isPDF accepts junk before the header only when name or end say PDF too.
func isPDF(head []byte, r io.ReaderAt, size int64, ext string) bool {
	at := bytes.Index(head[:min(len(head), pdfJunkBytes+8)], []byte("%PDF-"))
	if at < 0 {
		return false
	}
	if at == 0 || ext == ".pdf" {
		return true
	}
	tail := make([]byte, min(size, tailBytes))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return false
	}
	return bytes.Contains(tail, []byte("%%EOF")) && bytes.Contains(tail, []byte("startxref"))
}

// detectPlain tells the kinds of text from each other and everything else from text.
func detectPlain(head []byte, size int64, ext string) (string, error) {
	switch {
	case bytes.HasPrefix(head, []byte(`{\rtf`)):
		return document.TypeRTF, nil
	case bytes.HasPrefix(head, []byte(document.TNEFHead)):
		return document.TypeTNEF, nil
	case isMailbox(head):
		return document.TypeMBOX, nil
	case isMail(head, ext):
		if isWebArchive(head) {
			return document.TypeMHTML, nil
		}
		return document.TypeEML, nil
	}
	sniffed := mimetype.Detect(head)
	if kind, known := binaryKind(sniffed); known {
		return "", document.Unsupported("%s, which is not supported%s", kind, misnamed(ext))
	}
	text, ok := plainText(head, size)
	if !ok {
		return "", document.Unsupported("the content is binary data of no known kind%s", misnamed(ext))
	}
	if strings.TrimSpace(text) == "" && size <= int64(len(head)) {
		return "", ingest.Permanent(ingest.CodeEmpty, document.RemedyEmpty, "the file holds only white space")
	}
	if kind, ok := exported(text, ext); ok {
		return kind, nil
	}
	if binaryExtension(ext) {
		return "", ingest.Permanent(ingest.CodeUnsupportedType,
			"Check that this is the right file; if it is text, give it a name that ends in .txt.",
			"the name ends in %s, but the content is text", ext)
	}
	if bytes.Contains(head[:min(len(head), 1024)], []byte("<fulfillmentToken")) {
		return "", document.Encrypted("a licence for a protected e-book (ACSM), not the book")
	}
	return textKind(text, ext), nil
}

// textKind chooses among the text types; only here the name has a say.
func textKind(text, ext string) string {
	start := strings.ToLower(strings.TrimLeft(text[:min(len(text), 1024)], "\uFEFF \t\r\n"))
	page := strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
	switch ext {
	case ".md", ".markdown", ".mdown", ".mkd":
		if !page {
			return document.TypeMarkdown
		}
	case ".html", ".htm", ".xhtml":
		if strings.Contains(text, "<") {
			return document.TypeHTML
		}
	case ".ipynb":
		if strings.HasPrefix(start, "{") {
			return document.TypeIPYNB
		}
	case ".srt", ".vtt":
		if strings.Contains(text, "-->") {
			return document.TypeSubtitles
		}
	case ".json", ".jsonl", ".ndjson":
		return document.TypeJSON
	case ".csv", ".tsv":
		return document.TypeCSV
	default:
		if codeNames[ext] && !page {
			return document.TypeCode
		}
	}
	switch {
	case page, strings.HasPrefix(start, "<?xml") && strings.Contains(text, "<html"):
		return document.TypeHTML
	case ext == "" && mimetype.Detect([]byte(text)).Is("text/html"):
		return document.TypeHTML
	case ext == "" && (strings.HasPrefix(start, "{") || strings.HasPrefix(start, "[")) && mimetype.Detect([]byte(text)).Is("application/json"):
		return document.TypeJSON
	case strings.HasPrefix(start, "<?xml"), xmlExtension(ext) && strings.HasPrefix(start, "<"):
		return document.TypeXML
	case isLaTeX(text, ext):
		return document.TypeLaTeX
	}
	return document.TypeText
}

// isLaTeX tells source of LaTeX by its name and a command, or by the command that it begins with.
func isLaTeX(text, ext string) bool {
	if ext == ".tex" || ext == ".ltx" || ext == ".latex" {
		return strings.Contains(text, `\`)
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '%' {
			continue
		}
		return strings.HasPrefix(line, `\documentclass`) || strings.HasPrefix(line, `\documentstyle`)
	}
	return false
}

// xmlExtension are names of XML whose declaration may be missing.
func xmlExtension(ext string) bool {
	switch ext {
	case ".xml", ".rss", ".atom", ".dbk", ".docbook", ".jats", ".nxml", ".tei":
		return true
	}
	return false
}

// binaryKind names the content when it is of a known kind that is not plain text.
func binaryKind(m *mimetype.MIME) (string, bool) {
	switch base, _, _ := strings.Cut(m.String(), ";"); base {
	case "image/svg+xml":
		return "a picture (SVG)", true
	case "application/octet-stream", document.TypePDF:
		// A text about PDFs may hold the mark; isPDF has looked closer.
		return "", false
	}
	for p := m; p != nil; p = p.Parent() {
		if p.Is("text/plain") {
			return "", false
		}
	}
	return "a file of type " + m.String(), true
}

// plainText decodes the head and tells whether it is text.
func plainText(head []byte, size int64) (string, bool) {
	if c, ok := charset.ByMark(head); ok {
		body := head[c.Skip:]
		if len(body) == 0 {
			return "", true
		}
		body = body[:len(body)-len(body)%4]
		text, err := c.Enc.NewDecoder().Bytes(body)
		return string(text), err == nil && (c.Name == "utf-8" || charset.Decodes(c, body) || len(body) < 16)
	}
	whole := head
	if size > int64(len(head)) {
		whole, _ = charset.WholeRunes(head)
	}
	if utf8.Valid(whole) && bytes.IndexByte(whole, 0) < 0 {
		return string(whole), controlShare(whole) <= charset.MaxControlShare
	}
	sample := head[:min(len(head), 8<<10)]
	if bytes.IndexByte(sample, 0) < 0 {
		// Some other charset: which one is decided when it is read.
		return string(bytes.ToValidUTF8(head, []byte("?"))), controlShare(sample) <= charset.MaxControlShare
	}
	c, ok := charset.Guess(sample)
	if !ok || !(strings.HasPrefix(c.Name, "utf-16") || strings.HasPrefix(c.Name, "utf-32")) {
		return "", false
	}
	text, err := c.Enc.NewDecoder().Bytes(sample)
	return string(text), err == nil
}

// controlShare is the share of control bytes that text does not have.
func controlShare(data []byte) float64 {
	n := 0
	for _, c := range data {
		if (c < ' ' && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != 0x1B) || c == 0x7F {
			n++
		}
	}
	return float64(n) / float64(max(len(data), 1))
}

// misnamed adds the name's claim to a message when it contradicts the content.
func misnamed(ext string) string {
	switch ext {
	case ".pdf", ".docx", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".epub", ".rtf", ".eml", ".msg", ".html", ".htm", ".md", ".txt":
		return " (although the name ends in " + ext + ")"
	}
	return ""
}

// exported tells what other programs export under the old names of Excel and Word, which open it: a page, XML, or lines with tabs.
func exported(text, ext string) (mediaType string, ok bool) {
	if ext != ".xls" && ext != ".doc" {
		return "", false
	}
	switch kind := textKind(text, ""); kind {
	case document.TypeHTML, document.TypeXML:
		return kind, true
	}
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return document.TypeCSV, ext == ".xls" && strings.Contains(first, "\t")
}

// binaryExtension are names whose content cannot be text.
func binaryExtension(ext string) bool {
	switch ext {
	case ".pdf", ".docx", ".doc", ".xlsx", ".xls", ".pptx", ".ppt", ".odt", ".ods", ".odp", ".epub", ".msg", ".zip", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".exe":
		return true
	}
	return false
}
