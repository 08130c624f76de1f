// Package docx reads Word documents (OOXML).
package docx

import (
	"context"
	"encoding/xml"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/archive"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

// Read streams a Word document: headings, paragraphs, lists and tables in their order, then the notes. Files of other formats that
// stand in for a part of the text (w:altChunk: pages, mostly) or are embedded are read in their place.
// Comments follow their paragraph, headers and footers their section, once each, when in.Limits asks for them.
// Insertions are kept and deletions dropped, as if all changes had been accepted.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	a, err := office.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	main, rels, err := a.Main("word/document.xml", "word/document2.xml")
	if err != nil {
		return ingest.Extraction{}, err
	}
	styles := &docxStyles{levels: map[string]int{}, basedOn: map[string]string{}, numbers: map[string]numbered{}}
	if err := a.Visit(rels.ByKind["styles"], styles); err != nil {
		return ingest.Extraction{}, err
	}
	lists := newNumberings()
	if err := a.Visit(rels.ByKind["numbering"], lists); err != nil {
		return ingest.Extraction{}, err
	}
	title, err := a.Title("docProps/core.xml")
	if err != nil {
		return ingest.Extraction{}, err
	}
	margin, err := newMargin(a, rels, in.Limits)
	if err != nil {
		return ingest.Extraction{}, err
	}
	body := &docxBody{ctx: ctx, in: in, out: out, styles: styles, lists: lists, margin: margin}
	if err := body.read(a, main, rels); err != nil {
		return ingest.Extraction{}, err
	}
	for _, kind := range []string{"footnotes", "endnotes"} {
		if err := body.read(a, rels.ByKind[kind], nil); err != nil {
			return ingest.Extraction{}, err
		}
	}
	if margin != nil && margin.comments != nil { // those that nothing refers to
		for _, id := range margin.comments.order {
			if err := margin.comments.send(out, id); err != nil {
				return ingest.Extraction{}, err
			}
		}
	}
	return ingest.Extraction{Title: title}, nil
}

// bulleted is the list of a style that is one by its name; a number of its own follows in the style, if it has any.
const bulleted = "list"

// docxStyles knows which paragraph styles are headings and which are lists.
type docxStyles struct {
	office.Attributes
	levels  map[string]int // style id → heading level 1–6; 0: none
	basedOn map[string]string
	numbers map[string]numbered
	id      string
}

func (s *docxStyles) Start(name string, attrs []xml.Attr) error {
	switch name {
	case "style":
		s.id = office.Attr(attrs, "styleId")
		if len(s.levels) > archive.MaxEntries {
			return document.OverLimit("more than %d styles", archive.MaxEntries)
		}
		s.levels[s.id] = 0
	case "name":
		s.named(strings.ToLower(office.Attr(attrs, "val")))
	case "basedOn":
		s.basedOn[s.id] = office.Attr(attrs, "val")
	case "outlineLvl":
		if s.levels[s.id] == 0 {
			s.levels[s.id] = outlineLevel(office.Attr(attrs, "val"))
		}
	case "numPr":
		if s.numbers[s.id].list == "" {
			s.numbers[s.id] = numbered{list: bulleted}
		}
	case "numId", "ilvl":
		n := s.numbers[s.id]
		if name == "numId" {
			n.list = office.Attr(attrs, "val")
		} else {
			n.level = levelOf(office.Attr(attrs, "val"))
		}
		s.numbers[s.id] = n
	}
	return nil
}

// named takes the level from a built-in style's name, which is English in every language of Word.
func (s *docxStyles) named(name string) {
	if n, ok := strings.CutPrefix(name, "heading "); ok {
		if level, err := strconv.Atoi(n); err == nil && level > 0 {
			s.levels[s.id] = min(level, 6)
		}
	}
	if name == "title" {
		s.levels[s.id] = 1
	}
	if strings.HasPrefix(name, "list ") {
		s.numbers[s.id] = numbered{list: bulleted}
	}
}

// inherited is what a style has, or else the nearest of those that it is based on; zero: none of them has it.
func inherited[T comparable](has map[string]T, basedOn map[string]string, id string) (value T) {
	var none T
	for range 12 {
		if value = has[id]; value != none || basedOn[id] == "" {
			return value
		}
		id = basedOn[id]
	}
	return none
}

// outlineLevel turns w:outlineLvl (0-based; 9 is body text) into a heading level.
func outlineLevel(val string) int {
	n, err := strconv.Atoi(val)
	if err != nil || n < 0 || n > 8 {
		return 0
	}
	return min(n+1, 6)
}
