package xlsx

import (
	"context"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// texts are the elements that hold text.
var texts = []string{"t"}

// readBeside reads what stands beside the rows of a sheet.
func readBeside(ctx context.Context, a *office.Archive, rels *office.Relations, in *document.Input, out *document.Sink) error {
	if drawing := rels.ByKind["drawing"]; drawing != "" {
		inside, err := a.RelationsOf(drawing)
		if err != nil {
			return err
		}
		graphics := a.GraphicsOf(inside)
		if err := a.Visit(drawing, &office.Paragraphs{Out: out, Texts: texts, Ends: []string{"p"}, Graphics: graphics}); err != nil {
			return err
		}
		if err := graphics.Send(ctx, in, out, 0); err != nil {
			return err
		}
	}
	if !in.Limits.Comments {
		return nil
	}
	return a.Visit(rels.ByKind["comments"], &office.Paragraphs{Out: out, Texts: texts, Ends: []string{"comment"}})
}
