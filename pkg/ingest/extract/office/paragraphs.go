package office

import (
	"encoding/xml"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// Phonetic is an element that says how a text is pronounced.
const Phonetic = "rPh"

// Paragraphs is a Visitor that sends what the elements Texts say, as one paragraph up to the end of one of Ends.
type Paragraphs struct {
	Out         *document.Sink
	Page        int // 0: none
	Texts, Ends []string
	Graphics    *Graphics
	drop        Dropped
	inText      bool
	text        strings.Builder
}

// Start implements Visitor.
func (p *Paragraphs) Start(name string, attrs []xml.Attr) error {
	if p.drop.Start(name, name == Phonetic) {
		return nil
	}
	p.Graphics.Start(name, attrs)
	switch {
	case slices.Contains(p.Texts, name):
		p.inText = true
	case name == "br":
		p.text.WriteByte('\n')
	}
	return nil
}

// End implements Visitor.
func (p *Paragraphs) End(name string) error {
	if p.drop.End(name) {
		return nil
	}
	p.inText = p.inText && !slices.Contains(p.Texts, name)
	if !slices.Contains(p.Ends, name) {
		return nil
	}
	text := p.text.String()
	p.text.Reset()
	return p.Out.Block(ingest.Block{Kind: ingest.BlockParagraph, Page: p.Page, Text: text})
}

// Text implements Visitor.
func (p *Paragraphs) Text(data []byte) error {
	if p.inText && !p.drop.Now() && p.text.Len() < document.MaxBlockBytes {
		p.text.Write(data)
	}
	return nil
}
