package docx

import (
	"encoding/xml"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// marginBytes bounds the comments of a document, and the text of one header, which are held.
const marginBytes = 4 << 20

// margin is what stands beside the text: comments, headers and footers. A setting has each read.
type margin struct {
	archive  *office.Archive
	rels     *office.Relations
	comments *comments
	pending  []string        // numbers of comments that the open paragraph or table refers to
	section  []string        // parts that an open section refers to
	seen     map[string]bool // parts, and texts of parts, that were sent
}

// startMargin notes what an element refers to.
func (d *docxBody) startMargin(name string, attrs []xml.Attr) {
	m := d.margin
	switch {
	case m == nil:
	case name == "commentReference" && m.comments != nil:
		m.pending = append(m.pending, office.Attr(attrs, "id"))
	case (name == "headerReference" || name == "footerReference") && d.in.Limits.HeadersFooters:
		if part := m.rels.ByID[office.Attr(attrs, "id")]; part != "" && !m.seen[part] {
			m.seen[part] = true
			m.section = append(m.section, part)
		}
	}
}

// sendMargin sends what was referred to: behind a paragraph or table, not inside.
func (d *docxBody) sendMargin() error {
	m := d.margin
	if m == nil || d.tables > 0 || len(d.open) > 0 {
		return nil
	}
	pending, section := m.pending, m.section
	m.pending, m.section = nil, nil
	for _, id := range pending {
		if err := m.comments.send(d.out, id); err != nil {
			return err
		}
	}
	for _, name := range section {
		if err := d.header(name); err != nil {
			return err
		}
	}
	return nil
}

// header sends a header or footer whose text none before it had.
func (d *docxBody) header(name string) error {
	var blocks []ingest.Block
	var text strings.Builder
	held := document.NewSink(document.Limits{MaxTextBytes: marginBytes}, func(b ingest.Block) error {
		b.Kind, b.Level = ingest.BlockParagraph, 0 // no section of the text
		blocks = append(blocks, b)
		text.WriteString(b.Text + "\n")
		return nil
	})
	part := &docxBody{ctx: d.ctx, in: d.in, out: held, styles: d.styles, lists: d.lists}
	if err := part.read(d.margin.archive, name, nil); err != nil || d.margin.seen[text.String()] {
		return err
	}
	d.margin.seen[text.String()] = true
	for _, b := range blocks {
		if err := d.out.Block(b); err != nil {
			return err
		}
	}
	return nil
}

// comments visits the part of that name.
type comments struct {
	drop   office.Dropped
	texts  map[string]string
	order  []string // numbers
	bytes  int
	id     string
	text   strings.Builder
	inText bool
}

// Start implements office.Visitor.
func (c *comments) Start(name string, attrs []xml.Attr) error {
	if c.drop.Start(name, dropped(name, attrs)) {
		return nil
	}
	switch name {
	case "comment":
		c.id = office.Attr(attrs, "id")
		c.text.Reset()
		if author := document.CleanTitle(office.Attr(attrs, "author")); author != "" {
			c.text.WriteString("Comment by " + author + ": ")
		} else {
			c.text.WriteString("Comment: ")
		}
	case "t":
		c.inText = true
	case "tab", "br", "cr":
		c.text.WriteByte(' ')
	}
	return nil
}

// End implements office.Visitor.
func (c *comments) End(name string) error {
	if c.drop.End(name) {
		return nil
	}
	switch name {
	case "t":
		c.inText = false
	case "p":
		c.text.WriteByte('\n')
	case "comment":
		if c.bytes += c.text.Len(); c.bytes > marginBytes || len(c.order) >= archive.MaxEntries {
			return document.OverLimit("comments of more than %d bytes, or more than %d", marginBytes, archive.MaxEntries)
		}
		c.texts[c.id] = c.text.String()
		c.order = append(c.order, c.id)
	}
	return nil
}

// Text implements office.Visitor.
func (c *comments) Text(data []byte) error {
	if c.inText && !c.drop.Now() && c.text.Len() < document.MaxBlockBytes {
		c.text.Write(data)
	}
	return nil
}

// send sends a comment, once.
func (c *comments) send(out *document.Sink, id string) error {
	text := c.texts[id]
	delete(c.texts, id)
	if head, body, _ := strings.Cut(text, ":"); head == "" || strings.TrimSpace(body) == "" {
		return nil
	}
	return out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: text})
}

// newMargin reads the comments, if they are asked for. Nil: nothing beside the text is.
func newMargin(a *office.Archive, rels *office.Relations, limits document.Limits) (*margin, error) {
	if !limits.Comments && !limits.HeadersFooters {
		return nil, nil
	}
	m := &margin{archive: a, rels: rels, seen: map[string]bool{}}
	if limits.Comments {
		m.comments = &comments{texts: map[string]string{}}
		return m, a.Visit(rels.ByKind["comments"], m.comments)
	}
	return m, nil
}
