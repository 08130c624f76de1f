package docx

import (
	"context"
	"encoding/xml"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// docxParagraph is a paragraph being read; text boxes put one inside another.
type docxParagraph struct {
	text    strings.Builder
	style   string
	outline int
	number  numbered
}

// docxBody visits the parts that hold text.
type docxBody struct {
	ctx    context.Context //nolint:containedctx // lives for one document
	in     *document.Input
	out    *document.Sink
	styles *docxStyles
	lists  *numberings

	part *office.Part

	open     []*docxParagraph
	drop     office.Dropped
	inText   bool
	props    int // depth inside paragraph properties
	hidden   bool
	note     string // number of the note being read
	tables   int
	table    *document.TableWriter
	cells    []string
	above    []string // the row before, for cells that are merged with those above
	cell     strings.Builder
	span     int  // columns that the cell takes
	own      int  // cells of the row, however many columns they take
	merged   bool // with the cell above
	inRunPrs bool
	formula  formula
	margin   *margin // nil: what stands beside the text is not read
	graphics *office.Graphics
	chunks   chunks
}

// read visits one part, whose relationships may be known already (nil: they are not); a name that the archive does not have is skipped.
func (d *docxBody) read(a *office.Archive, name string, rels *office.Relations) error {
	p, err := a.Open(name)
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	if rels == nil {
		if rels, err = a.RelationsOf(name); err != nil {
			return err
		}
	}
	d.part, d.graphics, d.chunks = p, a.GraphicsOf(rels), chunks{a, rels}
	return p.Walk(d)
}

func (d *docxBody) Start(name string, attrs []xml.Attr) error {
	if d.drop.Start(name, dropped(name, attrs)) {
		return nil
	}
	d.startMargin(name, attrs)
	d.graphics.Start(name, attrs)
	switch name {
	case "p":
		if err := d.part.Advance(d.ctx, d.in); err != nil {
			return err
		}
		d.open = append(d.open, &docxParagraph{})
	case "pPr":
		d.props++
	case "rPr":
		d.inRunPrs = true
	case "r":
		d.hidden = false
	case "t":
		d.inText = true
	case "altChunk":
		return d.chunk(office.Attr(attrs, "id"))
	case "footnote", "endnote":
		d.note = office.Attr(attrs, "id")
	case "tbl":
		if d.tables++; d.tables == 1 {
			d.table, d.cells, d.above = &document.TableWriter{Out: d.out}, nil, nil
			d.cell.Reset()
		}
	case "tc":
		if d.tables == 1 {
			d.cell.Reset()
			d.span, d.merged = 1, false
		}
	case "gridSpan", "gridBefore", "vMerge":
		d.startCell(name, office.Attr(attrs, "val"))
	default:
		d.startInside(name, attrs)
	}
	return nil
}

// maxSpan bounds the columns of one cell.
const maxSpan = 64

// startCell notes how a cell lies in the grid: a cell of several columns is repeated in each, so that every value stands under its header.
func (d *docxBody) startCell(name, val string) {
	n, err := strconv.Atoi(val)
	switch {
	case d.tables != 1:
	case name == "vMerge":
		d.merged = val != "restart"
	case err != nil || n < 1:
	case name == "gridSpan":
		d.span = min(n, maxSpan)
	case len(d.cells) == 0:
		d.cells = make([]string, min(n, maxSpan))
	}
}

// dropped are the elements whose whole content is left out.
func dropped(name string, attrs []xml.Attr) bool {
	switch name {
	case "del", "moveFrom", "instrText", "delText", "sdtPr", "binData":
		return true
	case "footnote", "endnote":
		kind := office.Attr(attrs, "type")
		return kind != "" && kind != "normal"
	}
	return strings.HasSuffix(name, "Change") && strings.Contains(name, "Pr")
}

// startInside handles what stands inside a paragraph.
func (d *docxBody) startInside(name string, attrs []xml.Attr) {
	p := d.paragraph()
	if p == nil {
		return
	}
	if d.props > 0 {
		switch name {
		case "pStyle":
			p.style = office.Attr(attrs, "val")
		case "outlineLvl":
			p.outline = outlineLevel(office.Attr(attrs, "val"))
		case "numId":
			p.number.list = office.Attr(attrs, "val")
		case "ilvl":
			p.number.level = levelOf(office.Attr(attrs, "val"))
		}
		return
	}
	if d.inRunPrs {
		if name == "vanish" && office.Attr(attrs, "val") != "0" && office.Attr(attrs, "val") != "false" {
			d.hidden = true
		}
		return
	}
	p.text.WriteString(d.formula.start(name, attrs))
	switch name {
	case "tab", "ptab":
		p.text.WriteByte('\t')
	case "br", "cr":
		p.text.WriteByte('\n')
	case "noBreakHyphen":
		p.text.WriteByte('-')
	case "footnoteReference", "endnoteReference":
		p.text.WriteString("[" + office.Attr(attrs, "id") + "]")
	}
}

func (d *docxBody) End(name string) error {
	if d.drop.End(name) {
		return nil
	}
	if mark := d.formula.end(name); mark != "" && d.paragraph() != nil {
		d.paragraph().text.WriteString(mark)
	}
	switch name {
	case "p":
		return errors.Join(d.endParagraph(), d.sendGraphics(), d.sendMargin())
	case "pPr":
		d.props = max(d.props-1, 0)
	case "rPr":
		d.inRunPrs = false
	case "t":
		d.inText = false
	case "tbl", "tr", "tc":
		return errors.Join(d.endTable(name), d.sendGraphics(), d.sendMargin())
	case "sectPr": // the last section's stands behind all paragraphs
		return d.sendMargin()
	}
	return nil
}

func (d *docxBody) Text(data []byte) error {
	p := d.paragraph()
	if d.drop.Now() || !d.inText || d.hidden || p == nil {
		return nil
	}
	if d.formula.depth > 0 {
		p.text.WriteString(d.formula.before(string(data)))
	}
	p.text.Write(data)
	if p.text.Len() > document.MaxBlockBytes {
		text := p.text.String()
		p.text.Reset()
		return d.send(text, p)
	}
	return nil
}

func (d *docxBody) paragraph() *docxParagraph {
	if len(d.open) == 0 {
		return nil
	}
	return d.open[len(d.open)-1]
}

func (d *docxBody) endParagraph() error {
	p := d.paragraph()
	if p == nil {
		return nil
	}
	d.open = d.open[:len(d.open)-1]
	text := p.text.String()
	if n, item := d.numberOf(p); item {
		if number := d.lists.next(n); number != "" && strings.TrimSpace(text) != "" {
			text = number + " " + text
		}
	}
	if d.note != "" && strings.TrimSpace(text) != "" {
		text = "[" + d.note + "] " + strings.TrimSpace(text)
		d.note = ""
	}
	return d.send(text, p)
}

// numberOf is the list that a paragraph is an item of: its own, or else that of its style. ok is false: of none.
func (d *docxBody) numberOf(p *docxParagraph) (n numbered, ok bool) {
	if n = p.number; n.list == "" {
		style := inherited(d.styles.numbers, d.styles.basedOn, p.style)
		n = numbered{list: style.list, level: max(n.level, style.level)}
	}
	return n, n.list != "" && n.list != "0"
}

// send passes a paragraph on, or puts it into the cell that it stands in.
func (d *docxBody) send(text string, p *docxParagraph) error {
	if d.tables > 0 {
		if strings.TrimSpace(text) != "" {
			d.cell.WriteString(text + "\n")
		}
		if d.cell.Len() > document.MaxBlockBytes {
			return d.endTable("tr")
		}
		return nil
	}
	b := ingest.Block{Kind: ingest.BlockParagraph, Text: text}
	level := p.outline
	if level == 0 {
		level = inherited(d.styles.levels, d.styles.basedOn, p.style)
	}
	if level > 0 {
		b.Kind, b.Level, b.Text = ingest.BlockHeading, level, document.Squeeze(text)
	} else if _, item := d.numberOf(p); item {
		b.Kind = ingest.BlockList
	}
	return d.out.Block(b)
}

// sendGraphics sends what charts, diagrams and embedded files say: behind the paragraph or table that they stand in.
func (d *docxBody) sendGraphics() error {
	if d.tables > 0 || len(d.open) > 0 {
		return nil
	}
	return d.graphics.Send(d.ctx, d.in, d.out, 0)
}

func (d *docxBody) endTable(name string) error {
	if d.tables == 0 {
		return nil
	}
	if d.tables > 1 {
		// A table inside a cell is read as that cell's text.
		if name == "tbl" {
			d.tables--
		}
		return nil
	}
	switch name {
	case "tc":
		text := d.cell.String()
		if at := len(d.cells); d.merged && at < len(d.above) && strings.TrimSpace(text) == "" {
			text = d.above[at]
		}
		for range max(d.span, 1) {
			d.cells = append(d.cells, text)
		}
		d.own++
		d.cell.Reset()
		if len(d.cells) < 1024 {
			return nil
		}
		fallthrough
	case "tr":
		if d.cell.Len() > 0 {
			d.cells = append(d.cells, d.cell.String())
			d.cell.Reset()
		}
		cells, own := d.cells, d.own
		d.cells, d.own = nil, 0
		if len(cells) == 0 {
			return nil
		}
		d.above = slices.Clone(cells)
		return d.table.Row(document.TitleRow(cells, own))
	case "tbl":
		d.tables--
		return d.table.Flush()
	}
	return nil
}
