// Package latex reads LaTeX source.
package latex

import (
	"context"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/plaintext"
)

const (
	// sourceBytes is the most that is read as LaTeX, as it is held whole. A larger file is read as plain text.
	sourceBytes = 4 << 20
	// maxNesting bounds footnotes in captions in cells: what lies deeper is read as text around its braces.
	maxNesting = 16
	// optionBytes is where an argument in square brackets ends at the latest.
	optionBytes = 512
)

// Read reads the text between \begin{document} and its end, or the whole of a part of a document: headings, paragraphs, lists, tables,
// verbatim text as code, formulas as their source. Comments, labels and drawings are dropped; a file that it includes is a warning.
// Commands that the document defines are not followed. Errors: ENCODING_UNKNOWN, those of out.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Size > sourceBytes {
		return plaintext.Read(ctx, in, out)
	}
	src, name, err := charset.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	raw, err := io.ReadAll(io.LimitReader(src, 4*sourceBytes))
	if err != nil {
		return ingest.Extraction{}, err
	}
	text := strings.ReplaceAll(string(raw), "\r\n", "\n")
	d := &source{ctx: ctx, in: in, out: out, tex: text, ends: matchBraces(text), found: map[string]int{}, levels: headingLevels(text)}
	p := &parser{source: d, end: len(text), preamble: hasBody(text)}
	if err := p.run(); err != nil {
		return ingest.Extraction{}, err
	}
	return ingest.Extraction{Title: d.title, Charset: name}, p.finish()
}

// hasBody reports whether the document begins somewhere: in a line, and not in a comment.
func hasBody(text string) bool {
	for line := range strings.Lines(text) {
		if at := strings.Index(line, `\begin{document}`); at >= 0 && !strings.Contains(strings.ReplaceAll(line[:at], `\%`, ""), "%") {
			return true
		}
	}
	return false
}

// source is a document that is read.
type source struct {
	ctx    context.Context //nolint:containedctx // lives for one document
	in     *document.Input
	out    *document.Sink
	tex    string
	ends   []int32        // where a brace opens → where it closes; 0: no brace that does
	found  map[string]int // what ends something → where it stood last, len(tex): nowhere behind
	levels map[string]int
	title  string
}

// matchBraces finds the pairs of braces. An unmatched one stands alone.
func matchBraces(text string) []int32 {
	ends := make([]int32, len(text))
	var open []int32
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '%':
			if n := strings.IndexByte(text[i:], '\n'); n >= 0 {
				i += n
			} else {
				i = len(text)
			}
		case '{':
			open = append(open, int32(i))
		case '}':
			if n := len(open); n > 0 {
				ends[open[n-1]] = int32(i)
				open = open[:n-1]
			}
		}
	}
	return ends
}

// headings are the commands of headings, from the highest.
var headings = []string{"title", "part", "chapter", "section", "subsection", "subsubsection", "frametitle", "paragraph", "subparagraph"}

// headingLevels numbers the kinds of headings by those that the text has.
func headingLevels(text string) map[string]int {
	levels := map[string]int{}
	level := 1
	for _, name := range headings {
		levels[name] = level
		command := `\` + name
		if strings.Contains(text, command+"{") || strings.Contains(text, command+"*") || strings.Contains(text, command+"[") {
			level = min(level+1, 6)
		}
	}
	return levels
}

// find looks for what ends something, from a position behind those of earlier calls; len(tex): it stands nowhere behind.
func (d *source) find(from int, what string) int {
	at, known := d.found[what]
	if known && at >= from {
		return at
	}
	at = len(d.tex)
	if n := strings.Index(d.tex[from:], what); n >= 0 {
		at = from + n
	}
	d.found[what] = at
	return at
}
