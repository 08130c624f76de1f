// Package xlsx reads Excel workbooks (OOXML). It streams: a library that was tried first (excelize) takes more memory than a child has for
// 60,000 rows of ten different texts.
package xlsx

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

// maxColumns is up to where a row keeps its empty cells: what stands beyond follows without them.
const maxColumns = 1024

// Read reads the sheets in their order, row by row: each begins with its name as a heading, and its first row stands above every piece.
// Dates are written as 2006-01-02 15:04:05, shares in percent, other numbers without their format. Text boxes, charts, diagrams and
// embedded files follow the rows of their sheet. Hidden sheets are read with in.Limits.HiddenSheets only, comments on cells with
// in.Limits.Comments.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	a, err := office.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	main, rels, err := a.Main("xl/workbook.xml")
	if err != nil {
		return ingest.Extraction{}, err
	}
	book := &workbook{}
	if err := a.Visit(main, book); err != nil {
		return ingest.Extraction{}, err
	}
	formats := &styles{codes: map[int]string{}}
	if err := a.Visit(rels.ByKind["styles"], formats); err != nil {
		return ingest.Extraction{}, err
	}
	texts := &sharedStrings{}
	if err := a.Visit(rels.ByKind["sharedStrings"], texts); err != nil {
		return ingest.Extraction{}, err
	}
	for i, s := range book.sheets {
		if s.hidden && !in.Limits.HiddenSheets {
			out.Warn("the hidden sheet %q was not read", s.name)
			continue
		}
		part := rels.ByID[s.relation]
		beside, err := a.RelationsOf(part)
		if err != nil {
			return ingest.Extraction{}, err
		}
		r := &sheetReader{ctx: ctx, book: book, formats: formats, texts: texts, out: out, name: s.name, table: document.TableWriter{Out: out}, graphics: a.GraphicsOf(beside)}
		if err := a.Visit(part, r); err != nil {
			return ingest.Extraction{}, err
		}
		if err := r.table.Flush(); err != nil {
			return ingest.Extraction{}, err
		}
		if err := r.graphics.Send(ctx, in, out, 0); err != nil {
			return ingest.Extraction{}, err
		}
		if err := readBeside(ctx, a, beside, in, out); err != nil {
			return ingest.Extraction{}, err
		}
		in.Progress(i+1, len(book.sheets))
	}
	title, err := a.Title("docProps/core.xml")
	return ingest.Extraction{Title: title}, err
}

// workbook lists the sheets.
type workbook struct {
	office.Attributes
	sheets    []sheet
	since1904 bool // dates count from then
}

// sheet is an entry of the workbook.
type sheet struct {
	name, relation string
	hidden         bool
}

// Start implements office.Visitor.
func (w *workbook) Start(name string, attrs []xml.Attr) error {
	switch name {
	case "workbookPr":
		w.since1904 = isOn(office.Attr(attrs, "date1904"))
	case "sheet":
		if len(w.sheets) > archive.MaxEntries {
			return document.OverLimit("the workbook has more than %d sheets", archive.MaxEntries)
		}
		state := office.Attr(attrs, "state")
		w.sheets = append(w.sheets, sheet{office.Attr(attrs, "name"), office.Attr(attrs, "id"), state == "hidden" || state == "veryHidden"})
	}
	return nil
}

func isOn(val string) bool { return val == "1" || val == "true" }

// Bounds of the shared strings, which are held.
const (
	textBytes = 64 << 20
	maxTexts  = 8 << 20
)

// sharedStrings are the texts of cells, each of which is kept once, one behind the other.
type sharedStrings struct {
	all    []byte
	ends   []uint32
	inText bool
	drop   office.Dropped
}

// Start implements office.Visitor.
func (s *sharedStrings) Start(name string, _ []xml.Attr) error {
	if s.drop.Start(name, name == office.Phonetic) {
		return nil
	}
	s.inText = name == "t"
	return nil
}

// End implements office.Visitor.
func (s *sharedStrings) End(name string) error {
	if s.drop.End(name) {
		return nil
	}
	s.inText = false
	if name == "si" {
		if s.ends = append(s.ends, uint32(len(s.all))); len(s.ends) > maxTexts {
			return document.OverLimit("the workbook has more than %d texts", maxTexts)
		}
	}
	return nil
}

// Text implements office.Visitor.
func (s *sharedStrings) Text(data []byte) error {
	if !s.inText || s.drop.Now() {
		return nil
	}
	if s.all = append(s.all, data...); len(s.all) > textBytes {
		return document.OverLimit("the workbook's texts have more than %d bytes", textBytes)
	}
	return nil
}

// at is the text of that number; "": there is none.
func (s *sharedStrings) at(number string) string {
	n, err := strconv.Atoi(strings.TrimSpace(number))
	if err != nil || n < 0 || n >= len(s.ends) {
		return ""
	}
	from := uint32(0)
	if n > 0 {
		from = s.ends[n-1]
	}
	return string(s.all[from:s.ends[n]])
}

// sheetReader reads the rows of a sheet.
type sheetReader struct {
	ctx     context.Context //nolint:containedctx // lives for one sheet
	book    *workbook
	formats *styles
	texts   *sharedStrings
	out     *document.Sink
	name    string // "" when the heading was sent
	table   document.TableWriter

	row    []string
	column int // of the cell being read
	kind   string
	style  int
	value  strings.Builder
	inside bool // of a value or an inline text
	drop   office.Dropped

	graphics *office.Graphics
}

// Start implements office.Visitor.
func (r *sheetReader) Start(name string, attrs []xml.Attr) error {
	if r.drop.Start(name, name == office.Phonetic) {
		return nil
	}
	switch name {
	case "row":
		r.row = r.row[:0]
		return r.ctx.Err()
	case "c":
		r.column = columnOf(office.Attr(attrs, "r"), len(r.row))
		r.kind = office.Attr(attrs, "t")
		r.style, _ = strconv.Atoi(office.Attr(attrs, "s"))
		r.value.Reset()
	case "v", "t":
		r.inside = true
	default:
		r.graphics.Start(name, attrs)
	}
	return nil
}

// Text implements office.Visitor.
func (r *sheetReader) Text(data []byte) error {
	if r.inside && !r.drop.Now() && r.value.Len() < document.MaxBlockBytes {
		r.value.Write(data)
	}
	return nil
}

// End implements office.Visitor.
func (r *sheetReader) End(name string) error {
	if r.drop.End(name) {
		return nil
	}
	switch name {
	case "v", "t":
		r.inside = false
	case "c":
		r.cell()
	case "row":
		return r.endRow()
	}
	return nil
}

// cell puts a cell at its place in the row. One that is far out follows the last.
func (r *sheetReader) cell() {
	text := r.shown()
	if text == "" || len(r.row) >= 2*maxColumns {
		return
	}
	for r.column < maxColumns && len(r.row) < r.column {
		r.row = append(r.row, "")
	}
	r.row = append(r.row, text)
}

// shown is what a cell shows.
func (r *sheetReader) shown() string {
	raw := r.value.String()
	switch r.kind {
	case "s":
		return r.texts.at(raw)
	case "b":
		if isOn(raw) {
			return "TRUE"
		}
		return "FALSE"
	case "", "n":
		return r.formats.number(raw, r.style, r.book.since1904)
	}
	return raw // a text of its own, that of a formula, an error, a date
}

// endRow sends a row, the first one below the sheet's name.
func (r *sheetReader) endRow() error {
	if len(r.row) == 0 {
		return nil
	}
	if name := r.name; name != "" {
		r.name = ""
		if err := r.out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: 2, Text: document.Squeeze(name)}); err != nil {
			return err
		}
	}
	err := r.table.Row(r.row)
	r.row = r.row[:0]
	return err
}

// columnOf is the column (from 0) of a reference such as "AB12"; next: there is none.
func columnOf(reference string, next int) int {
	n := 0
	for i := 0; i < len(reference) && i < 4 && reference[i] >= 'A' && reference[i] <= 'Z'; i++ {
		n = 26*n + int(reference[i]-'A') + 1
	}
	if n == 0 {
		return next
	}
	return n - 1
}
