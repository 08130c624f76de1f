package docx

import (
	"fmt"
	"io"
	"path"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// chunkBytes bounds a file that stands in for a part of the text, which is held.
const chunkBytes = 16 << 20

// chunks are where files lie that stand in for a part of the text; the zero value has none.
type chunks struct {
	archive *office.Archive
	rels    *office.Relations
}

// chunk reads such a file in its place: in a table it becomes the text of its cell. Errors: LIMIT_EXCEEDED, those of the archive.
func (d *docxBody) chunk(id string) error {
	if d.chunks.archive == nil || d.in.Inner == nil {
		return nil
	}
	name := d.chunks.rels.ByID[id]
	p, err := d.chunks.archive.Open(name)
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	data, err := io.ReadAll(io.LimitReader(p, chunkBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", name, err)
	case len(data) > chunkBytes:
		return document.OverLimit("%s has more than %d bytes", name, chunkBytes)
	case len(data) == 0:
		return nil
	case d.tables == 0:
		return d.in.Inner(d.ctx, path.Base(name), data, d.out, 0)
	}
	held := document.NewSink(document.Limits{MaxTextBytes: chunkBytes}, func(b ingest.Block) error { return d.send(b.Text, &docxParagraph{}) })
	err = d.in.Inner(d.ctx, path.Base(name), data, held, 0)
	for _, w := range held.Warnings {
		d.out.Warn("%s", w)
	}
	return err
}
