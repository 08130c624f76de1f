// Package pdfgen writes PDFs of plain text, for tests, drills and benchmarks.
package pdfgen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Layout of a page, in points (1/72 inch) on A4 paper.
const (
	pageWidth   = 595
	pageHeight  = 842
	margin      = 72
	fontSize    = 10
	leading     = 13
	linesOnPage = 50
	lineChars   = 88
)

// words are what the text is made of.
var words = strings.Fields(`the a worker claims one durable task from its queue and renews the lease while it makes progress
when the lease expires another process takes over with a new fence so that late writes change nothing a document
is split into segments each segment gets a vector and the version becomes visible as a whole after a crash nothing is lost
because every promise is kept in the database and not in the message broker retries wait for their due time`)

// Text returns a PDF of that many pages of English sentences, about 2.5 KB of text each. Equal arguments give
// equal bytes. Every page holds the word "PAGEMARK" with its number and the seed, e.g. PAGEMARK7X3.
func Text(pages int, seed int64) []byte {
	random := rand.New(rand.NewPCG(uint64(seed), 0x6d696c6c)) //nolint:gosec // sample text, no secret
	texts := make([][]string, pages)
	for i := range texts {
		texts[i] = append([]string{fmt.Sprintf("PAGEMARK%dX%d begins here.", i+1, seed)}, lines(random, linesOnPage-1)...)
	}
	return Pages(texts)
}

// lines fills lines with sentences.
func lines(random *rand.Rand, count int) []string {
	out := make([]string, 0, count)
	line := ""
	begin := true
	for len(out) < count {
		w := words[random.IntN(len(words))]
		if begin {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		begin = random.IntN(14) == 0
		if begin {
			w += "."
		}
		if len(line)+len(w) >= lineChars {
			out = append(out, line)
			line = ""
		}
		line = strings.TrimLeft(line+" "+w, " ")
	}
	return out
}

// Pages returns a PDF with the given lines of ASCII text on each page.
func Pages(pages [][]string) []byte { return Outlined(pages, nil, false) }

// Objects returns a PDF of these objects, numbered from 1; the first is the catalog.
func Objects(bodies ...string) []byte {
	w := &writer{}
	w.raw("%PDF-1.7\n%\xE2\xE3\xCF\xD3\n")
	for _, body := range bodies {
		w.object(body)
	}
	return w.end()
}

// Stream is the body of a stream object; entries stand in its dictionary.
func Stream(entries, content string) string {
	return fmt.Sprintf("<<%s/Length %d>>stream\n%s\nendstream", entries, len(content), content)
}

// Mark is a bookmark: its title, and its page from 1.
type Mark struct {
	Title string
	Page  int
}

// Outlined returns a PDF as Pages does, with an outline of one level. In a circle the last bookmark's successor is the first.
func Outlined(pages [][]string, marks []Mark, circle bool) []byte {
	w := &writer{}
	outline := 4 + 2*len(pages) // the first object behind the pages
	w.raw("%PDF-1.4\n%\xE2\xE3\xCF\xD3\n")
	kids := make([]string, len(pages))
	for i := range pages {
		kids[i] = fmt.Sprintf("%d 0 R", 4+2*i)
	}
	if len(marks) > 0 {
		w.object(fmt.Sprintf("<</Type/Catalog/Pages 2 0 R/Outlines %d 0 R>>", outline))
	} else {
		w.object("<</Type/Catalog/Pages 2 0 R>>")
	}
	w.object(fmt.Sprintf("<</Type/Pages/Count %d/Kids[%s]>>", len(pages), strings.Join(kids, " ")))
	w.object("<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>")
	for i, page := range pages {
		w.object(fmt.Sprintf("<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R>>",
			pageWidth, pageHeight, 5+2*i))
		content := content(page)
		w.object(Stream("", content))
	}
	if len(marks) > 0 {
		w.object(fmt.Sprintf("<</Type/Outlines/First %d 0 R/Last %d 0 R/Count %d>>", outline+1, outline+len(marks), len(marks)))
	}
	for i, m := range marks {
		next := ""
		if i < len(marks)-1 {
			next = fmt.Sprintf("/Next %d 0 R", outline+2+i)
		} else if circle {
			next = fmt.Sprintf("/Next %d 0 R", outline+1)
		}
		w.object(fmt.Sprintf("<</Title(%s)/Parent %d 0 R/Dest[%d 0 R/Fit]%s>>", m.Title, outline, 2+2*m.Page, next))
	}
	return w.end()
}

// content is a page's content stream.
func content(lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "BT /F1 %d Tf %d TL %d %d Td\n", fontSize, leading, margin, pageHeight-margin)
	for _, l := range lines {
		fmt.Fprintf(&b, "(%s) Tj T*\n", strings.NewReplacer(`\`, `\\`, "(", `\(`, ")", `\)`).Replace(l))
	}
	b.WriteString("ET")
	return b.String()
}

// writer notes where every object begins.
type writer struct {
	buf     bytes.Buffer
	offsets []int
}

func (w *writer) raw(s string) { w.buf.WriteString(s) }

func (w *writer) object(body string) {
	w.offsets = append(w.offsets, w.buf.Len())
	fmt.Fprintf(&w.buf, "%d 0 obj\n%s\nendobj\n", len(w.offsets), body)
}

func (w *writer) end() []byte {
	start := w.buf.Len()
	fmt.Fprintf(&w.buf, "xref\n0 %d\n0000000000 65535 f \n", len(w.offsets)+1)
	for _, at := range w.offsets {
		fmt.Fprintf(&w.buf, "%010d 00000 n \n", at)
	}
	fmt.Fprintf(&w.buf, "trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(w.offsets)+1, start)
	return w.buf.Bytes()
}
