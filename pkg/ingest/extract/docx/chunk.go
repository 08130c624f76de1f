package docx

import (
	"path"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
	"github.com/millweir/millweir/pkg/ingest/extract/ole"
)

// chunkBytes bounds a file that stands in for a part of the text, which is held.
const chunkBytes = 16 << 20

// chunks are where files lie that stand in for a part of the text.
type chunks struct {
	archive *office.Archive
	rels    *office.Relations
}

// chunk reads such a file in its place: in a table it becomes the text of its cell. Errors: LIMIT_EXCEEDED, those of the archive.
func (d *docxBody) chunk(id string) error {
	name := d.chunks.rels.ByID[id]
	data, err := d.chunks.archive.Bytes(name, chunkBytes)
	if err != nil || len(data) == 0 {
		return err
	}
	emit := d.out.Block
	if d.tables > 0 {
		emit = func(b ingest.Block) error { return d.send(b.Text, &docxParagraph{}) }
	}
	return ole.Inside(d.ctx, d.in, d.out, path.Base(name), data, 0, emit)
}
