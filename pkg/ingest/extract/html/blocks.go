package html

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// addText adds a text token to what is being read.
func (p *htmlPage) addText(z *html.Tokenizer) error {
	if p.skipDepth > 0 {
		return nil
	}
	text := z.Text()
	if p.inTitle {
		if p.title.Len() < 4*document.MaxTitleRunes {
			p.title.Write(text[:min(len(text), 4*document.MaxTitleRunes)])
		}
		return nil
	}
	p.text.Write(text)
	if p.inCell && p.text.Len() > layoutCellBytes {
		return p.becomeLayout()
	}
	if p.text.Len() > document.MaxBlockBytes && !p.inCell {
		return p.flush()
	}
	return nil
}

// open handles a start tag.
func (p *htmlPage) open(tag atom.Atom, spans span) error {
	switch tag {
	case atom.Title:
		p.inTitle = p.title.Len() == 0
		return nil
	case atom.Br:
		p.text.WriteByte('\n')
		return nil
	case atom.Img, atom.Wbr:
		return nil
	case atom.Table:
		return p.openTable()
	case atom.Tr, atom.Td, atom.Th:
		if p.table != nil {
			return p.openCell(tag, spans)
		}
	}
	if p.inline(tag) {
		return nil
	}
	if tag == atom.Pre && p.pre > 0 {
		p.pre++
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.enter(tag)
	return nil
}

// inline reports whether a tag neither ends nor begins a block. Inside a cell none does: block elements are line ends there.
func (p *htmlPage) inline(tag atom.Atom) bool {
	if !slices.Contains(blockElements, tag) {
		return true
	}
	if p.inCell {
		p.text.WriteByte('\n')
	}
	return p.inCell
}

// enter notes what kind of block begins.
func (p *htmlPage) enter(tag atom.Atom) {
	if n := headingLevel(tag); n > 0 {
		p.heading = n
		return
	}
	switch tag {
	case atom.Pre:
		p.pre++
	case atom.Ul, atom.Menu:
		p.lists = append(p.lists, -1)
	case atom.Ol:
		p.lists = append(p.lists, 0)
	case atom.Li, atom.Dd, atom.Dt:
		p.item = true
		if n := len(p.lists); n > 0 && tag == atom.Li && p.lists[n-1] >= 0 {
			p.lists[n-1]++
			p.text.WriteString(strconv.Itoa(p.lists[n-1]) + ". ")
		}
	}
	// Lists that are never closed must not grow without bound.
	if len(p.lists) > 256 {
		p.lists = p.lists[1:]
	}
}

// close handles an end tag.
func (p *htmlPage) close(tag atom.Atom) error {
	switch tag {
	case atom.Title:
		p.inTitle = false
		return nil
	case atom.Table:
		return p.closeTable()
	case atom.Td, atom.Th, atom.Tr:
		if p.table != nil {
			return p.closeCell(tag)
		}
	}
	if p.inline(tag) {
		return nil
	}
	err := p.flush()
	switch {
	case headingLevel(tag) > 0:
		p.heading = 0
	case tag == atom.Pre && p.pre > 0:
		p.pre--
	case (tag == atom.Ul || tag == atom.Ol || tag == atom.Menu) && len(p.lists) > 0:
		p.lists = p.lists[:len(p.lists)-1]
	case tag == atom.Li || tag == atom.Dd || tag == atom.Dt:
		p.item = false
	}
	return err
}

// flush sends the text gathered so far as one block.
func (p *htmlPage) flush() error {
	text := p.text.String()
	p.text.Reset()
	b := ingest.Block{Kind: ingest.BlockParagraph, Text: text}
	switch {
	case p.heading > 0:
		b.Kind, b.Level = ingest.BlockHeading, p.heading
	case p.pre > 0:
		b.Kind = ingest.BlockCode
	case p.item:
		b.Kind = ingest.BlockList
	}
	if b.Kind != ingest.BlockCode {
		b.Text = document.Squeeze(text)
	}
	return p.out.Block(b)
}

func (p *htmlPage) openTable() error {
	p.depth++
	if p.depth > 1 || p.layout {
		p.text.WriteByte('\n')
		return nil
	}
	if err := p.flush(); err != nil {
		return err
	}
	p.table = &document.TableWriter{Out: p.out}
	p.grid, p.inCell, p.inRow = grid{}, false, false
	return nil
}

// openCell begins a cell or a row; a missing end tag of the one before is supplied.
func (p *htmlPage) openCell(tag atom.Atom, spans span) error {
	if p.layout {
		return p.flush()
	}
	if p.depth > 1 {
		p.text.WriteByte(' ')
		return nil
	}
	if err := p.closeCell(tag); err != nil {
		return err
	}
	if tag != atom.Tr {
		p.text.Reset()
		p.inCell, p.span = true, spans
	} else {
		p.inRow = true
	}
	return nil
}

func (p *htmlPage) closeCell(tag atom.Atom) error {
	if p.layout {
		return p.flush()
	}
	if p.depth > 1 {
		return nil
	}
	if p.inCell {
		p.grid.add(p.text.String(), p.span)
		p.text.Reset()
		p.inCell = false
	}
	if tag == atom.Tr && (p.inRow || p.grid.cells > 0) || p.grid.full() {
		p.inRow = false
		return p.table.Row(p.grid.take())
	}
	return nil
}

func (p *htmlPage) closeTable() error {
	if p.depth == 0 {
		return nil
	}
	p.depth--
	if p.depth > 0 {
		p.text.WriteByte('\n')
		return nil
	}
	layout := p.layout
	if err := p.closeCell(atom.Tr); err != nil {
		return err
	}
	table := p.table
	p.table, p.layout = nil, false
	if layout {
		return p.flush()
	}
	return table.Flush()
}

// becomeLayout treats the table as an arrangement of the page: its cells are read as ordinary content from
// here on.
func (p *htmlPage) becomeLayout() error {
	held := p.text.String()
	p.text.Reset()
	if p.grid.cells > 0 {
		if err := p.table.Row(p.grid.take()); err != nil {
			return err
		}
	}
	if err := p.table.Flush(); err != nil {
		return err
	}
	p.layout, p.inCell = true, false
	for _, part := range strings.Split(held, "\n\n") {
		p.text.WriteString(part)
		if err := p.flush(); err != nil {
			return err
		}
	}
	return nil
}

// headingLevel is 1–6 for a heading, 0 for anything else.
func headingLevel(tag atom.Atom) int {
	return 1 + slices.Index([]atom.Atom{atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6}, tag)
}

// blockElements end one run of text and begin another.
var blockElements = []atom.Atom{
	atom.P, atom.Div, atom.Section, atom.Article, atom.Main, atom.Header, atom.Footer, atom.Nav, atom.Aside,
	atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.Ul, atom.Ol, atom.Menu, atom.Li, atom.Dl, atom.Dt, atom.Dd,
	atom.Pre, atom.Blockquote, atom.Figure, atom.Figcaption, atom.Address, atom.Hr, atom.Form, atom.Fieldset, atom.Legend,
	atom.Details, atom.Summary, atom.Caption, atom.Tr, atom.Td, atom.Th, atom.Table, atom.Body, atom.Html, atom.Head, atom.Option, atom.Center,
}
