package xlsx

import (
	"context"
	"encoding/xml"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// readBeside reads what stands beside the rows of a sheet.
func readBeside(ctx context.Context, a *office.Archive, rels *office.Relations, in *document.Input, out *document.Sink) error {
	if drawing := rels.ByKind["drawing"]; drawing != "" {
		inside, err := a.RelationsOf(drawing)
		if err != nil {
			return err
		}
		graphics := a.GraphicsOf(inside)
		if err := a.Visit(drawing, &paragraphs{out: out, ends: "p", graphics: graphics}); err != nil {
			return err
		}
		if err := graphics.Send(ctx, in, out, 0); err != nil {
			return err
		}
	}
	if !in.Limits.Comments {
		return nil
	}
	return a.Visit(rels.ByKind["comments"], &paragraphs{out: out, ends: "comment"})
}

// paragraphs sends the texts within elements of a name.
type paragraphs struct {
	out      *document.Sink
	ends     string
	graphics *office.Graphics
	drop     office.Dropped
	inText   bool
	text     strings.Builder
}

// Start implements office.Visitor.
func (p *paragraphs) Start(name string, attrs []xml.Attr) error {
	if p.drop.Start(name, name == phonetic) {
		return nil
	}
	p.graphics.Start(name, attrs)
	switch name {
	case "t":
		p.inText = true
	case "br":
		p.text.WriteByte('\n')
	}
	return nil
}

// End implements office.Visitor.
func (p *paragraphs) End(name string) error {
	if p.drop.End(name) {
		return nil
	}
	p.inText = p.inText && name != "t"
	if name != p.ends {
		return nil
	}
	text := p.text.String()
	p.text.Reset()
	return p.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: text})
}

// Text implements office.Visitor.
func (p *paragraphs) Text(data []byte) error {
	if p.inText && !p.drop.Now() && p.text.Len() < document.MaxBlockBytes {
		p.text.Write(data)
	}
	return nil
}
