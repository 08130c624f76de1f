package mail

import (
	"context"

	"github.com/jhillyerd/enmime/v2"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/html"
)

// ReadWebArchive reads a web page that was saved with its files as one message (MHTML, RFC 2557): the page, then the pages in its frames.
// Its pictures are left out, as those of other web pages are.
func ReadWebArchive(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	if in.Size > messageBytes {
		return ingest.Extraction{}, document.OverLimit("the web archive has %d bytes, more than %d", in.Size, messageBytes)
	}
	e, err := parser.ReadEnvelope(in.Stream())
	if err != nil {
		return ingest.Extraction{}, document.Corrupt("read the web archive: %w", err)
	}
	pages := e.Root.BreadthMatchAll(func(p *enmime.Part) bool { return kindOf(p) == "text/html" && p.FirstChild == nil })
	if len(pages) == 0 {
		return ingest.Extraction{}, document.Corrupt("the web archive has no page")
	}
	part := in.Part(document.TypeHTML, pages[0].Content)
	part.Progress = in.Progress
	ex, err := html.Read(ctx, part, out)
	for _, p := range pages[1:] {
		if err == nil {
			err = html.ReadPart(ctx, string(p.Content), out)
		}
	}
	return ex, err
}
