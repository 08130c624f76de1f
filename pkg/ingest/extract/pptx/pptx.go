// Package pptx reads PowerPoint presentations (OOXML).
package pptx

import (
	"context"
	"encoding/xml"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// Read reads the slides in the order in which they are shown, each as a page: its title as a heading, its text and tables, then what its
// charts, diagrams and embedded files say, then its notes, and with in.Limits.Comments what was remarked on it.
// Hidden slides are read too: they are part of the file that was given.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	a, err := office.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	main, rels, err := a.Main("ppt/presentation.xml")
	if err != nil {
		return ingest.Extraction{}, err
	}
	show := &presentation{}
	if err := a.Visit(main, show); err != nil {
		return ingest.Extraction{}, err
	}
	if len(show.slides) > in.Limits.MaxPages {
		return ingest.Extraction{}, document.OverLimit("the presentation has %d slides, more than %d", len(show.slides), in.Limits.MaxPages)
	}
	for i, id := range show.slides {
		if err := ctx.Err(); err != nil {
			return ingest.Extraction{}, err
		}
		if err := readSlide(ctx, a, rels.ByID[id], i+1, in, out); err != nil {
			return ingest.Extraction{}, err
		}
		in.Progress(i+1, len(show.slides))
	}
	title, err := a.Title("docProps/core.xml")
	if strings.EqualFold(title, "PowerPoint Presentation") { // what PowerPoint writes for a file without one
		title = ""
	}
	return ingest.Extraction{Title: title, Pages: len(show.slides)}, err
}

// readSlide reads one slide and its notes.
func readSlide(ctx context.Context, a *office.Archive, name string, page int, in *document.Input, out *document.Sink) error {
	if name == "" {
		return nil
	}
	rels, err := a.RelationsOf(name)
	if err != nil {
		return err
	}
	graphics := a.GraphicsOf(rels)
	if err := a.Visit(name, &slide{out: out, page: page, graphics: graphics}); err != nil {
		return err
	}
	if err := graphics.Send(ctx, in, out, page); err != nil {
		return err
	}
	if err := a.Visit(rels.ByKind["notesSlide"], &slide{out: out, page: page, notes: true}); err != nil || !in.Limits.Comments {
		return err
	}
	// What was remarked on a slide is the text of each remark, or since PowerPoint 2021 its paragraphs.
	return a.Visit(rels.ByKind["comments"], &office.Paragraphs{Out: out, Page: page, Texts: []string{"t", "text"}, Ends: []string{"p", "text"}})
}

// presentation lists the slides' relationships in the order of the show.
type presentation struct {
	office.Attributes
	slides []string
}

// Start implements office.Visitor.
func (p *presentation) Start(name string, attrs []xml.Attr) error {
	if name != "sldId" || len(p.slides) > archive.MaxEntries {
		return nil
	}
	for _, a := range attrs { // id is the slide's number, r:id its relationship
		if a.Name.Local == "id" && a.Name.Space != "" {
			p.slides = append(p.slides, a.Value)
		}
	}
	return nil
}

// slide reads the shapes of one slide, or of its notes.
type slide struct {
	out   *document.Sink
	page  int
	notes bool

	graphics *office.Graphics // nil for notes

	drop   office.Dropped
	shape  string // type of the shape's placeholder: title, ctrTitle, body, …
	inText bool
	bullet bool
	text   strings.Builder // of the paragraph being read
	title  strings.Builder // paragraphs of the title

	table          *document.TableWriter
	cells          []string
	above          []string // the row before, for cells that are merged with those above
	cell           strings.Builder
	own            int  // cells of the row that are not covered by the one before them
	fresh          bool // the row has a text of its own
	hmerge, vmerge bool // the cell is covered by the one before it, by the one above
}

// maxColumns bounds the columns in which a text is repeated.
const maxColumns = 1024

// Start implements office.Visitor.
func (s *slide) Start(name string, attrs []xml.Attr) error {
	if s.drop.Start(name, false) {
		return nil
	}
	s.graphics.Start(name, attrs)
	switch name {
	case "sp", "graphicFrame":
		s.shape = ""
	case "ph":
		s.shape = office.Attr(attrs, "type")
	case "pPr":
		s.bullet = office.Attr(attrs, "lvl") != ""
	case "buChar", "buAutoNum", "buBlip":
		s.bullet = true
	case "buNone":
		s.bullet = false
	case "t":
		s.inText = true
	case "br":
		s.text.WriteByte('\n')
	case "tab":
		s.text.WriteByte('\t')
	case "tbl":
		s.table, s.above = &document.TableWriter{Out: s.out, Page: s.page}, nil
	case "tc":
		s.hmerge, s.vmerge = office.Attr(attrs, "hMerge") == "1", office.Attr(attrs, "vMerge") == "1"
	}
	return nil
}

// End implements office.Visitor.
func (s *slide) End(name string) error {
	if s.drop.End(name) {
		return nil
	}
	switch name {
	case "t":
		s.inText = false
	case "p":
		return s.paragraph()
	case "sp":
		return s.endShape()
	case "tc":
		s.endCell()
	case "tr":
		cells, own, fresh := s.cells, s.own, s.fresh
		s.cells, s.own, s.fresh = nil, 0, false
		s.above = cells
		if s.table != nil && fresh {
			return s.table.Row(document.TitleRow(cells, own))
		}
	case "tbl":
		if table := s.table; table != nil {
			s.table = nil
			return table.Flush()
		}
	}
	return nil
}

// endCell adds a cell to its row. One that is covered repeats the cell above or before it.
func (s *slide) endCell() {
	text, at := s.cell.String(), len(s.cells)
	s.cell.Reset()
	switch {
	case text != "":
		s.fresh = true
	case at >= maxColumns:
	case s.vmerge && at < len(s.above):
		text = s.above[at]
	case s.hmerge && at > 0:
		text = s.cells[at-1]
	}
	if !s.hmerge {
		s.own++
	}
	s.cells = append(s.cells, text)
}

// Text implements office.Visitor.
func (s *slide) Text(data []byte) error {
	if s.inText && !s.drop.Now() && s.text.Len() < document.MaxBlockBytes {
		s.text.Write(data)
	}
	return nil
}

// paragraph ends a paragraph: it is part of a title or a cell, or a block.
func (s *slide) paragraph() error {
	text := s.text.String()
	s.text.Reset()
	bullet := s.bullet
	s.bullet = false
	switch {
	case s.shape == "sldNum" || s.shape == "dt" || s.shape == "ftr" || s.shape == "hdr" || s.shape == "sldImg":
		return nil // what stands on every slide, and the picture of the slide above its notes
	case s.table != nil:
		if strings.TrimSpace(text) != "" && s.cell.Len() < document.MaxBlockBytes {
			s.cell.WriteString(text + "\n")
		}
		return nil
	case s.shape == "title" || s.shape == "ctrTitle":
		s.title.WriteString(text + "\n")
		return nil
	}
	b := ingest.Block{Kind: ingest.BlockParagraph, Page: s.page, Text: text}
	if bullet {
		b.Kind = ingest.BlockList
	}
	return s.out.Block(b)
}

func (s *slide) endShape() error {
	title := s.title.String()
	s.title.Reset()
	level := 2
	if s.shape == "ctrTitle" {
		level = 1
	}
	s.shape = ""
	return s.out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: level, Page: s.page, Text: document.Squeeze(title)})
}
