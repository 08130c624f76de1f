package docx

import (
	"context"
	"encoding/xml"
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
	list    bool
}

// docxBody visits the parts that hold text.
type docxBody struct {
	ctx    context.Context //nolint:containedctx // lives for one document
	in     *document.Input
	out    *document.Sink
	styles *docxStyles

	part     *office.Part
	reported int64

	open     []*docxParagraph
	skip     int    // depth inside dropped content
	choices  []bool // for each open mc:AlternateContent: a choice was taken
	inText   bool
	props    int // depth inside paragraph properties
	hidden   bool
	note     string // number of the note being read
	tables   int
	table    *document.TableWriter
	cells    []string
	cell     strings.Builder
	inRunPrs bool
}

// read visits one part; a name that the archive does not have is skipped.
func (d *docxBody) read(a *office.Archive, name string) error {
	p, err := a.Open(name)
	if err != nil || p == nil {
		return err
	}
	defer p.Close()
	d.part, d.reported = p, 0
	return p.Walk(d)
}

func (d *docxBody) Start(name string, attrs []xml.Attr) error {
	if d.skip > 0 {
		d.skip++
		return nil
	}
	if d.dropped(name, attrs) {
		d.skip = 1
		return nil
	}
	switch name {
	case "p":
		if err := d.report(); err != nil {
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
	case "footnote", "endnote":
		d.note = office.Attr(attrs, "id")
	case "tbl":
		if d.tables++; d.tables == 1 {
			d.table, d.cells = &document.TableWriter{Out: d.out}, nil
			d.cell.Reset()
		}
	case "tc":
		if d.tables == 1 {
			d.cell.Reset()
		}
	case "AlternateContent":
		d.choices = append(d.choices, false)
	default:
		d.startInside(name, attrs)
	}
	return nil
}

// dropped are the elements whose whole content is left out.
func (d *docxBody) dropped(name string, attrs []xml.Attr) bool {
	switch name {
	case "del", "moveFrom", "instrText", "delText", "sdtPr", "binData", "object":
		return true
	case "footnote", "endnote":
		kind := office.Attr(attrs, "type")
		return kind != "" && kind != "normal"
	case "Choice", "Fallback":
		// The first alternative only: the others say the same for older programs.
		n := len(d.choices)
		if n == 0 {
			return false
		}
		taken := d.choices[n-1]
		d.choices[n-1] = true
		return taken
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
			p.list = office.Attr(attrs, "val") != "0"
		}
		return
	}
	if d.inRunPrs {
		if name == "vanish" && office.Attr(attrs, "val") != "0" && office.Attr(attrs, "val") != "false" {
			d.hidden = true
		}
		return
	}
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
	if d.skip > 0 {
		d.skip--
		return nil
	}
	switch name {
	case "p":
		return d.endParagraph()
	case "pPr":
		d.props = max(d.props-1, 0)
	case "rPr":
		d.inRunPrs = false
	case "t":
		d.inText = false
	case "tbl", "tr", "tc":
		return d.endTable(name)
	case "AlternateContent":
		if n := len(d.choices); n > 0 {
			d.choices = d.choices[:n-1]
		}
	}
	return nil
}

func (d *docxBody) Text(data []byte) error {
	p := d.paragraph()
	if d.skip > 0 || !d.inText || d.hidden || p == nil {
		return nil
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
	if d.note != "" && strings.TrimSpace(text) != "" {
		text = "[" + d.note + "] " + strings.TrimSpace(text)
		d.note = ""
	}
	return d.send(text, p)
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
	switch {
	case level > 0:
		b.Kind, b.Level, b.Text = ingest.BlockHeading, level, document.Squeeze(text)
	case p.list || inherited(d.styles.listed, d.styles.basedOn, p.style):
		b.Kind = ingest.BlockList
	}
	return d.out.Block(b)
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
		d.cells = append(d.cells, d.cell.String())
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
		cells := d.cells
		d.cells = nil
		if len(cells) == 0 {
			return nil
		}
		return d.table.Row(cells)
	case "tbl":
		d.tables--
		return d.table.Flush()
	}
	return nil
}

// report tells how much of the part was read, in KiB.
func (d *docxBody) report() error {
	if d.part.Done()-d.reported < document.ProgressBytes {
		return nil
	}
	d.reported = d.part.Done()
	d.in.Progress(int(d.reported>>10), int(max(d.part.Size(), d.reported)>>10))
	return d.ctx.Err()
}
