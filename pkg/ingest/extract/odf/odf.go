// Package odf reads OpenDocument texts, sheets and presentations (ODT, ODS, ODP).
package odf

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

const (
	// maxRepeat bounds how often a repeated cell with text is written: programs repeat the last, empty one to the sheet's edge.
	maxRepeat = 64
	// maxCells bounds a row.
	maxCells = 1024
)

// Read reads content.xml from its start: headings, paragraphs, lists and tables in their order, footnotes where they are referred to.
// Charts and documents within the document (objects) are read behind what they stand in. Deleted text and comments are dropped. A slide is
// a page; a sheet begins with its name as a heading.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	a, err := office.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	lock := &manifest{}
	if err := a.Visit("META-INF/manifest.xml", lock); err != nil {
		return ingest.Extraction{}, err
	}
	if lock.encrypted {
		return ingest.Extraction{}, document.Encrypted("the document is protected by a password")
	}
	part, err := a.Open("content.xml")
	if err != nil {
		return ingest.Extraction{}, err
	}
	if part == nil {
		return ingest.Extraction{}, document.Corrupt("the archive has no content.xml")
	}
	defer part.Close()
	c := &content{ctx: ctx, in: in, out: out, archive: a, part: part, hidden: map[string]bool{}, styles: newStyles()}
	if in.MediaType == document.TypeODT {
		if err := a.Visit("styles.xml", &c.styles); err != nil {
			return ingest.Extraction{}, err
		}
	}
	if err := part.Walk(c); err != nil {
		return ingest.Extraction{}, err
	}
	if err := c.sendObjects(); err != nil {
		return ingest.Extraction{}, err
	}
	for _, note := range c.notes {
		if err := out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: note}); err != nil {
			return ingest.Extraction{}, err
		}
	}
	title, err := a.Title("meta.xml")
	return ingest.Extraction{Title: title, Pages: c.page}, err
}

// manifest tells whether the parts are encrypted.
type manifest struct {
	office.Attributes
	encrypted bool
}

// Start implements office.Visitor.
func (m *manifest) Start(name string, _ []xml.Attr) error {
	m.encrypted = m.encrypted || name == "encryption-data"
	return nil
}

// styles knows what the styles of paragraphs are based on.
type styles struct {
	office.Attributes
	name    string // of the style being read
	basedOn map[string]string
}

func newStyles() styles { return styles{basedOn: map[string]string{}} }

// Start implements office.Visitor.
func (s *styles) Start(name string, attrs []xml.Attr) error {
	if name != "style" {
		return nil
	}
	s.name = office.Attr(attrs, "name")
	if office.Attr(attrs, "family") == "paragraph" && len(s.basedOn) < archive.MaxEntries {
		s.basedOn[s.name] = office.Attr(attrs, "parent-style-name")
	}
	return nil
}

// title tells whether a style is the one of titles, or based on it.
func (s *styles) title(name string) bool {
	for range 12 {
		if name == "Title" {
			return true
		}
		name = s.basedOn[name]
	}
	return false
}

// paragraph is a heading or paragraph being read; a text box or note puts one inside another.
type paragraph struct {
	text  strings.Builder
	level int // of a heading; 0: none
}

// content visits content.xml.
type content struct {
	ctx     context.Context //nolint:containedctx // lives for one document
	in      *document.Input
	out     *document.Sink
	archive *office.Archive
	part    *office.Part
	object  bool     // the part is an object of the document: a chart, or a document of its own
	objects []string // folders of the objects that were met
	sent    int      // of them

	drop     office.Dropped
	page     int // of a presentation
	open     []*paragraph
	lists    int
	title    int // depth inside the frame of a slide's title
	frames   []bool
	notes    []string // bodies of notes, with their marks
	inNote   int
	note     strings.Builder
	citation bool

	tables  int // open ones; only the outermost makes rows
	table   *document.TableWriter
	row     []string
	above   []string // the row before, for cells that are covered by those above
	cell    strings.Builder
	repeat  int
	own     int    // cells of the row that are not covered by the one before them
	fresh   bool   // the row has a text of its own
	covered bool   // the cell being read is
	across  int    // cells that the last one that is not covered still covers
	spread  string // text of that one
	sheet   string // name of a sheet without rows so far
	styles  styles
	hidden  map[string]bool // styles of hidden sheets
}

// dropped are elements whose whole content is left out.
func dropped(name string) bool {
	switch name {
	case "tracked-changes", "annotation", "annotation-end", "forms", "scripts", "font-face-decls", "sequence-decls",
		"variable-decls", "user-field-decls", "calculation-settings", "content-validations", "table-source", "shapes", "header", "footer",
		"tracked-change", "object-ole", "binary-data", "desc", "title":
		return true
	}
	return false
}

// marginal tells whether a frame holds what stands on every slide: its number, the date, a footer.
func marginal(attrs []xml.Attr) bool {
	switch office.Attr(attrs, "class") {
	case "page-number", "date-time", "footer", "header":
		return true
	}
	return false
}

// hiddenSheet tells whether a hidden sheet begins that is not to be read, and warns of it.
func (c *content) hiddenSheet(name string, attrs []xml.Attr) bool {
	hidden := name == "table" && c.tables == 0 && c.in.MediaType == document.TypeODS && c.hidden[office.Attr(attrs, "style-name")] && !c.in.Limits.HiddenSheets
	if hidden && !c.drop.Now() {
		c.out.Warn("the hidden sheet %q was not read", document.Squeeze(office.Attr(attrs, "name")))
	}
	return hidden
}

// Start implements office.Visitor.
func (c *content) Start(name string, attrs []xml.Attr) error {
	if c.drop.Start(name, dropped(name) && !(c.object && name == "title") || marginal(attrs) || c.hiddenSheet(name, attrs)) {
		return nil
	}
	switch name {
	case "h", "p":
		if err := c.part.Advance(c.ctx, c.in); err != nil {
			return err
		}
		p := &paragraph{}
		if name == "h" {
			level, _ := strconv.Atoi(office.Attr(attrs, "outline-level"))
			p.level = min(max(level, 1), 6)
		} else if c.in.MediaType == document.TypeODT && c.styles.title(office.Attr(attrs, "style-name")) {
			p.level = 1
		}
		c.open = append(c.open, p)
	case "s":
		n, _ := strconv.Atoi(office.Attr(attrs, "c"))
		c.write(strings.Repeat(" ", min(max(n, 1), maxRepeat)))
	case "tab":
		c.write("\t")
	case "line-break":
		c.write("\n")
	case "list":
		c.lists++
	case "note":
		c.inNote++
	case "note-citation":
		c.citation = true
	case "page":
		c.page++
		if c.page > c.in.Limits.MaxPages {
			return document.OverLimit("the presentation has more than %d slides", c.in.Limits.MaxPages)
		}
	case "frame", "custom-shape":
		isTitle := office.Attr(attrs, "class") == "title"
		c.frames = append(c.frames, isTitle)
		if isTitle {
			c.title++
		}
	case "object":
		folder := path.Clean(office.Attr(attrs, "href"))
		if !c.object && len(c.objects) < maxCells && !slices.Contains(c.objects, folder) {
			c.objects = append(c.objects, folder)
		}
	default:
		return c.startTable(name, attrs)
	}
	return nil
}

// sendObjects sends what the objects that were met say, each once, behind the paragraph or table that they stand in. Their headings become
// paragraphs, and objects within them are not read.
func (c *content) sendObjects() error {
	if len(c.open) > 0 || c.tables > 0 {
		return nil
	}
	for ; c.sent < len(c.objects); c.sent++ {
		part, err := c.archive.Open(path.Join(c.objects[c.sent], "content.xml"))
		if err != nil {
			return err
		}
		if part == nil {
			continue
		}
		out := document.NewSink(c.in.Limits, c.out.Inside(c.page))
		err = part.Walk(&content{ctx: c.ctx, in: c.in, out: out, archive: c.archive, part: part, object: true, hidden: map[string]bool{}, styles: newStyles()})
		part.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// startTable handles the elements of tables.
func (c *content) startTable(name string, attrs []xml.Attr) error {
	switch name {
	case "table":
		if c.tables++; c.tables > 1 {
			return nil
		}
		c.table, c.row, c.above = &document.TableWriter{Out: c.out, Page: c.page}, nil, nil
		c.cell.Reset()
		if c.in.MediaType != document.TypeODS {
			return nil
		}
		c.sheet = document.Squeeze(office.Attr(attrs, "name"))
	case "table-cell", "covered-table-cell":
		if c.tables == 1 {
			n, _ := strconv.Atoi(office.Attr(attrs, "number-columns-repeated"))
			c.repeat = max(n, 1)
			c.cell.Reset()
			if c.covered = name == "covered-table-cell"; !c.covered {
				n, _ = strconv.Atoi(office.Attr(attrs, "number-columns-spanned"))
				c.across = n - 1
			}
		}
	case "style":
		return c.styles.Start(name, attrs)
	case "table-properties":
		if office.Attr(attrs, "display") == "false" && len(c.hidden) < maxCells {
			c.hidden[c.styles.name] = true
		}
	}
	return nil
}

// End implements office.Visitor.
func (c *content) End(name string) error {
	if c.drop.End(name) {
		return nil
	}
	switch name {
	case "h", "p":
		return errors.Join(c.endParagraph(), c.sendObjects())
	case "list":
		c.lists = max(c.lists-1, 0)
	case "note-citation":
		c.citation = false
	case "note":
		c.endNote()
	case "frame", "custom-shape":
		if n := len(c.frames); n > 0 {
			if c.frames[n-1] {
				c.title--
			}
			c.frames = c.frames[:n-1]
		}
	case "table-cell", "covered-table-cell":
		c.endCell()
	case "table-row":
		return c.endRow()
	case "table":
		if c.tables--; c.tables == 0 {
			return errors.Join(c.table.Flush(), c.sendObjects())
		}
		c.tables = max(c.tables, 0)
	}
	return nil
}

// Text implements office.Visitor.
func (c *content) Text(data []byte) error {
	switch {
	case c.drop.Now():
	case c.citation:
		c.mark(string(data))
	default:
		c.write(string(data))
	}
	return nil
}

// write adds to the paragraph being read.
func (c *content) write(text string) {
	if n := len(c.open); n > 0 && c.open[n-1].text.Len() < document.MaxBlockBytes {
		c.open[n-1].text.WriteString(text)
	}
}

// mark puts a note's number into the text that refers to it, and before the note.
func (c *content) mark(number string) {
	number = "[" + strings.TrimSpace(number) + "]"
	c.write(number)
	c.note.WriteString(number)
}

func (c *content) endNote() {
	if c.inNote--; c.inNote == 0 {
		if len(c.notes) < maxCells*maxRepeat {
			c.notes = append(c.notes, c.note.String())
		}
		c.note.Reset()
	}
	c.inNote = max(c.inNote, 0)
}

func (c *content) endCell() {
	if c.tables != 1 {
		return
	}
	text := strings.TrimSpace(c.cell.String())
	c.cell.Reset()
	c.fresh = c.fresh || text != ""
	if !c.covered {
		c.spread = text
	}
	n := min(c.repeat, maxRepeat)
	if text == "" && !c.covered && c.repeat > maxRepeat {
		n = 1 // a cell somewhere far out follows, or none
	}
	for range n {
		if len(c.row) < maxCells {
			c.row = append(c.row, c.repeated(text))
		}
	}
}

// repeated is what stands in the next column: of a covered cell the text of the one that covers it, if it has none.
func (c *content) repeated(text string) string {
	at := len(c.row)
	if c.covered && c.across > 0 {
		c.across--
		return cmp.Or(text, c.spread)
	}
	c.own++
	if c.covered && text == "" && at < len(c.above) {
		return c.above[at]
	}
	return text
}

// endRow sends a row without the empty cells at its end.
func (c *content) endRow() error {
	row := c.row
	if c.tables != 1 || len(row) == 0 {
		return nil
	}
	own, fresh := c.own, c.fresh
	c.row, c.above, c.own, c.fresh, c.across = nil, row, 0, false, 0
	if !fresh {
		return nil
	}
	for len(row) > 1 && row[len(row)-1] == "" {
		row = row[:len(row)-1]
	}
	if name := c.sheet; name != "" {
		c.sheet = ""
		if err := c.out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: 2, Text: name}); err != nil {
			return err
		}
	}
	return c.table.Row(document.TitleRow(row, own))
}

// endParagraph puts a paragraph where it belongs: a note, a cell, or a block.
func (c *content) endParagraph() error {
	n := len(c.open)
	if n == 0 {
		return nil
	}
	p := c.open[n-1]
	c.open = c.open[:n-1]
	text := p.text.String()
	switch {
	case strings.TrimSpace(text) == "":
		return nil
	case c.inNote > 0:
		if c.note.Len() < document.MaxBlockBytes {
			c.note.WriteString(" " + strings.TrimSpace(text))
		}
		return nil
	case c.tables > 0:
		if c.cell.Len() < document.MaxBlockBytes {
			c.cell.WriteString(text + "\n")
		}
		return nil
	}
	b := ingest.Block{Kind: ingest.BlockParagraph, Page: c.page, Text: text}
	switch {
	case p.level > 0:
		b.Kind, b.Level, b.Text = ingest.BlockHeading, p.level, document.Squeeze(text)
	case c.title > 0:
		b.Kind, b.Level, b.Text = ingest.BlockHeading, 2, document.Squeeze(text)
	case c.lists > 0:
		b.Kind = ingest.BlockList
	}
	return c.out.Block(b)
}
