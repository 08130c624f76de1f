// Package xmldoc reads XML of any vocabulary: DocBook, JATS, TEI and feeds by the names of their elements, data as labelled lines.
package xmldoc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// maxDepth bounds nesting: real documents stay below 60.
	maxDepth = 512
	// maxToken bounds one tag, comment or run of text in bytes, which the parser holds whole.
	maxToken = 4 << 20
	// declarationBytes is where an XML declaration ends at the latest.
	declarationBytes = 512
)

// Read reads a document as a stream. Elements that are named like titles are headings, the level by their nesting; known names are
// paragraphs, lists, code and tables; any other element that holds only text is a line "name: text", unless that is data in base64.
// Comments, processing instructions and attributes are not read, but for those of Excel that name a sheet or place a cell. No entity is
// resolved but the characters that HTML 4 names, the five of XML and numbers; others stay as they are written.
// Errors: CORRUPT, LIMIT_EXCEEDED, ENCODING_UNKNOWN, those of out.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	cs, err := charset.Find(in, declared)
	if err != nil {
		return ingest.Extraction{}, err
	}
	src, err := cs.Reader(in.Stream())
	if err != nil {
		return ingest.Extraction{}, err
	}
	bound := &tokenBound{src: src}
	buffered := bufio.NewReader(bound)
	// The parser refuses every version but 1.0; the charset is known.
	if head, _ := buffered.Peek(declarationBytes); xmlDeclaration.Match(head) {
		_, _ = buffered.Discard(len(xmlDeclaration.Find(head)))
	}
	dec := xml.NewDecoder(buffered)
	dec.Strict = false // an entity that only the document type defines is no reason to refuse the whole
	dec.Entity = xml.HTMLEntity
	w := &walker{ctx: ctx, out: out}
	for {
		tok, err := dec.RawToken()
		bound.token = dec.InputOffset()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return ingest.Extraction{}, damage(err)
		}
		if err := w.token(tok); err != nil {
			return ingest.Extraction{}, err
		}
		if err := in.Advance(ctx, bound.token, in.Size); err != nil {
			return ingest.Extraction{}, err
		}
	}
	if len(w.open) > 0 {
		return ingest.Extraction{}, document.Corrupt("read xml: the document ends inside the element %q", w.open[len(w.open)-1].name)
	}
	err = w.flush(&element{})
	if w.binary > 0 {
		out.Warn("%d elements hold data in base64, which is not read", w.binary)
	}
	return ingest.Extraction{Charset: cs.Name}, err
}

// damage marks the parser's own errors as such; limits and faults of reading pass as they are.
func damage(err error) error {
	if strings.HasPrefix(err.Error(), "XML syntax error") || strings.HasPrefix(err.Error(), "xml: ") {
		return document.Corrupt("read xml: %w", err)
	}
	return err
}

var (
	xmlDeclaration  = regexp.MustCompile(`^\s*<\?xml\s[^>]*\?>`)
	charsetDeclared = regexp.MustCompile(`^\s*<\?xml\s[^>]*encoding\s*=\s*["']([A-Za-z0-9._:-]{2,40})["']`)
)

// declared finds the charset that the XML declaration names.
func declared(head []byte) string {
	if m := charsetDeclared.FindSubmatch(head[:min(len(head), declarationBytes)]); m != nil {
		return string(m[1])
	}
	return ""
}

// tokenBound ends the reading when the parser asks for more than maxToken bytes without a token.
type tokenBound struct {
	src         io.Reader
	read, token int64 // bytes read in all, and up to the last token's end
}

// Read implements io.Reader.
func (b *tokenBound) Read(buf []byte) (int, error) {
	n, err := b.src.Read(buf)
	if b.read += int64(n); b.read-b.token > maxToken {
		return 0, document.OverLimit("read xml: a single tag, comment or text of more than %d bytes", maxToken)
	}
	return n, err
}

// What declarations of entities are made of.
const (
	named  = `[^\s%;"'<>]+`
	quoted = `(?:"[^"]*"|'[^']*')`
	file   = `(?:SYSTEM|PUBLIC\s+` + quoted + `)\s+` + quoted
)

var (
	// textless matches declarations that no text comes of: of files of another format, and of parameters for the definition.
	textless = regexp.MustCompile(`<!ENTITY\s+(?:%\s+` + named + `\s+(?:` + quoted + `|` + file + `)|` + named + `\s+` + file + `\s+NDATA\s+` + named + `)\s*>`)
	// parameter matches the use of one.
	parameter = regexp.MustCompile(`%` + named + `;`)
)

// doctype allows a document type that names its definition. It refuses one that defines entities of its own, unless no text comes
// of them.
func doctype(d xml.Directive) error {
	rest := textless.ReplaceAll(d, nil)
	if bytes.Contains(bytes.ToUpper(rest), []byte("<!ENTITY")) || len(rest) < len(d) && parameter.Match(d) {
		return ingest.Permanent(ingest.CodeCorrupt, "Resolve the document's own entities, for example with xmllint --noent, and upload the result.",
			"read xml: the document type defines entities, which are not resolved")
	}
	return nil
}
