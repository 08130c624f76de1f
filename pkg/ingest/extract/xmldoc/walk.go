package xmldoc

import (
	"context"
	"encoding/xml"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/html"
	"github.com/millweir/millweir/pkg/ingest/extract/office"
)

const (
	// labelledRunes is the length up to which the text of an element of an unknown name stands behind that name.
	labelledRunes = 200
	// recordBytes is where a long run of labelled lines is sent.
	recordBytes = 4 << 10
	// maxCells is how many cells of a row are held.
	maxCells = 1024
)

// role is what an element's name says about its text.
type role byte

const (
	unknown   role = iota // inside a paragraph a part of it, else a block, or a labelled line
	inline                // part of the text around it
	paragraph             // running text
	block                 // holds blocks
	title                 // a heading
	listItem              // what is in it is a list item
	code                  // white space counts
	plain                 // one paragraph, whatever is in it: a citation, a caption
	figure                // titles in it are no headings
	table
	row
	cell
	wrapper // what is about the element around it: its title is that one's
	dropped
)

// roles are names of DocBook, JATS, TEI, XHTML, RSS, Atom and Excel's XML of 2003, in lower case.
var roles = byName(map[role]string{
	inline:    `a abbr acronym b bold br break em emphasis hi i ins italic lb math monospace q roman sc small span strike strong sub sup tt u underline`,
	paragraph: `p para simpara ab l line subtitle attribution disp-formula verse-line dt dd`,
	block: `abstract appendix article back blockquote body book channel chapter content def-item def-list description disp-quote div div1 div2 div3
		div4 dl encoded feed itemizedlist list ol orderedlist part preface rss sec sect1 sect2 sect3 sect4 sect5 section summary tbody tei text tfoot
		tgroup thead ul variablelist varlistentry worksheet`,
	title:    `title article-title book-title head bridgehead heading h1 h2 h3 h4 h5 h6`,
	listItem: `listitem list-item li`,
	code:     `programlisting screen pre preformat literallayout synopsis eg`,
	plain:    `ref mixed-citation element-citation biblioentry bibliomixed biblstruct bibl caption`,
	figure:   `figure fig table-wrap informalfigure example formalpara note tip warning important caution sidebar boxed-text mediaobject`,
	table:    `table informaltable`,
	row:      `row tr`,
	cell:     `entry td th cell`,
	wrapper:  `info articleinfo bookinfo chapterinfo sectioninfo front front-stub article-meta book-meta title-group teiheader filedesc titlestmt`,
	dropped:  `script style indexterm tex-math binary binary-data binarydata bindata`, // pictures of FictionBook, OpenDocument and Word
})

func byName(names map[role]string) map[string]role {
	m := map[string]role{}
	for r, list := range names {
		for name := range strings.FieldsSeq(list) {
			m[name] = r
		}
	}
	return m
}

// element is one that is open.
type element struct {
	name   string
	role   role
	holds  bool // elements that are not inline
	titled bool // it has a title
	still  bool // titles in it are no headings
	list   bool // it is a list item or lies in one
	cited  bool // it lies in one paragraph
	span   int  // of a cell: the columns beside its own that it takes
	binary bool // a part of its text was data in base64: all of it is
}

// walker turns tokens into blocks.
type walker struct {
	ctx  context.Context //nolint:containedctx // lives for one document
	out  *document.Sink
	open []*element
	feed bool // RSS or Atom: escaped HTML in it is read as such

	text   strings.Builder // of the block being read
	filled bool            // text holds more than white space
	record strings.Builder // labelled lines
	drop   int             // depth inside of a dropped element
	binary int             // elements whose text is data in base64

	tables int // open ones; only the outermost makes rows
	rows   *document.TableWriter
	cells  []string
	inCell bool
}

func (w *walker) token(tok xml.Token) error {
	switch tok := tok.(type) {
	case xml.StartElement:
		if len(w.open)+w.drop >= maxDepth {
			return document.OverLimit("read xml: elements nested deeper than %d", maxDepth)
		}
		return w.start(strings.ToLower(tok.Name.Local), tok.Attr)
	case xml.EndElement:
		return w.end(strings.ToLower(tok.Name.Local))
	case xml.CharData:
		return w.addText(tok)
	case xml.Directive:
		return doctype(tok)
	}
	return nil
}

// start opens an element.
func (w *walker) start(name string, attrs []xml.Attr) error {
	named := roles[name]
	if w.drop > 0 || named == dropped {
		w.drop++
		return nil
	}
	e, around := &element{name: name, role: named}, &element{role: block}
	if n := len(w.open); n > 0 {
		around = w.open[n-1]
	} else {
		if named == inline {
			e.role = unknown
		}
		w.feed = name == "rss" || name == "feed" || name == "rdf"
	}
	e.still, e.list, e.cited = around.still, around.list, around.cited
	w.adjust(e, around)
	w.open = append(w.open, e)
	if e.role == inline {
		switch {
		case name == "br" || name == "break" || name == "lb", w.inCell && named != inline && named != unknown:
			w.text.WriteByte('\n')
		case e.cited && named != inline && w.filled:
			w.text.WriteByte(' ') // a part of a citation
		}
		return nil
	}
	around.holds = true
	if err := w.flush(around); err != nil {
		return err
	}
	switch e.role {
	case table:
		if w.tables++; w.tables == 1 {
			w.rows = &document.TableWriter{Out: w.out}
			return w.flushRecord()
		}
	case cell:
		w.inCell = true
		e.span = number(attrs, "MergeAcross")
		if empty := number(attrs, "Index") - 1 - len(w.cells); empty > 0 { // Excel leaves empty cells out
			w.cells = append(w.cells, make([]string, empty)...)
		}
	case block:
		if name == "worksheet" {
			return w.out.Block(ingest.Block{Kind: ingest.BlockHeading, Level: 1, Text: document.Squeeze(office.Attr(attrs, "Name"))})
		}
	default:
	}
	return nil
}

// number is the value of an attribute that counts cells; 0: it counts none that a row may have.
func number(attrs []xml.Attr, name string) int {
	n, err := strconv.Atoi(office.Attr(attrs, name))
	if err != nil || n < 0 || n > maxCells {
		return 0
	}
	return n
}

// adjust changes an element's role by where it stands.
func (w *walker) adjust(e, around *element) {
	running := around.role == paragraph || around.role == listItem || around.role == inline || w.filled
	switch {
	case w.inCell, e.cited, around.role == title, around.role == code,
		running && (e.role == unknown || e.role == title):
		e.role = inline
	case e.role == table, e.role == figure:
		e.still = true
	case e.role == plain:
		e.still, e.cited = true, true
	case e.name == "item" && w.feed, e.name == "entry" && w.feed && w.tables == 0:
		e.role = block
	case (e.role == row || e.role == cell) && w.tables == 0:
		e.role = unknown
	case e.role == title && e.still:
		e.role = paragraph
	case e.role == listItem, e.name == "item" && around.name == "list":
		e.role, e.list = listItem, true
	}
}

// end closes the element that is open last.
func (w *walker) end(name string) error {
	if w.drop > 0 {
		w.drop--
		return nil
	}
	n := len(w.open)
	if n == 0 || w.open[n-1].name != name {
		return document.Corrupt("read xml: </%s> ends an element that is not open", name)
	}
	e := w.open[n-1]
	if err := w.close(e); err != nil {
		return err
	}
	w.open = w.open[:n-1]
	if n > 1 && e.titled && e.role == wrapper {
		w.open[n-2].titled = true
	}
	return nil
}

func (w *walker) close(e *element) error {
	switch e.role {
	case inline:
		return nil
	case cell:
		w.inCell = false
		if w.cells = append(append(w.cells, w.take()), make([]string, e.span)...); len(w.cells) < maxCells {
			return nil
		}
		cells := w.cells // a row longer than that is sent in parts
		w.cells = nil
		return w.rows.Row(cells)
	case row:
		cells := w.cells
		w.cells = nil
		w.take()
		if err := w.flushRecord(); err != nil {
			return err
		}
		return w.rows.Row(cells)
	case table:
		if err := w.flush(e); err != nil {
			return err
		}
		if w.tables--; w.tables > 0 {
			return nil
		}
		rows := w.rows
		w.rows = nil
		return rows.Flush()
	case unknown:
		if !e.holds {
			return w.leaf(e)
		}
	default:
	}
	if err := w.flush(e); err != nil {
		return err
	}
	return w.flushRecord()
}

// take empties the text.
func (w *walker) take() string {
	text := w.text.String()
	w.text.Reset()
	w.filled = false
	return text
}

func (w *walker) addText(data []byte) error {
	if w.drop > 0 || len(w.open) == 0 {
		return nil
	}
	w.text.Write(data)
	w.filled = w.filled || strings.TrimSpace(string(data)) != ""
	if w.text.Len() < document.MaxBlockBytes {
		return nil
	}
	if w.inCell { // no cell, but a document inside a frame
		return errors.Join(w.rows.Flush(), w.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: document.Squeeze(w.take())}))
	}
	e := w.open[len(w.open)-1]
	e.holds = true // too long to be a line
	return w.flush(e)
}

// leaf adds an element of an unknown name that holds only text to the record that its neighbours make.
func (w *walker) leaf(e *element) error {
	if !w.filled {
		w.take()
		return nil
	}
	text := document.Squeeze(w.text.String())
	if e.binary || len([]rune(text)) > labelledRunes {
		return w.flush(e)
	}
	w.take()
	if w.record.Len() > recordBytes {
		if err := w.flushRecord(); err != nil {
			return err
		}
	}
	w.record.WriteString(e.name + ": " + text + "\n")
	return nil
}

func (w *walker) flushRecord() error {
	text := w.record.String()
	w.record.Reset()
	return w.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: text})
}

var tagged = regexp.MustCompile(`<(?:p|br|div|a|b|i|em|strong|ul|ol|li|h[1-6]|img|table|span|blockquote|pre)\b[^<>]*>`)

// flush sends the text read so far as a block of the element e.
func (w *walker) flush(e *element) error {
	if !w.filled {
		w.take()
		return nil
	}
	if err := w.flushRecord(); err != nil {
		return err
	}
	text := w.take()
	if e.role == unknown && (e.binary || isBase64(text)) {
		if !e.binary {
			w.binary++
		}
		e.binary = true
		return nil
	}
	b := ingest.Block{Kind: ingest.BlockParagraph, Text: text}
	switch {
	case e.role == code:
		b.Kind = ingest.BlockCode
		return w.out.Block(b)
	case w.feed && e.role != title && tagged.MatchString(text):
		return html.ReadPart(w.ctx, text, w.out)
	case e.role == title:
		b.Kind, b.Level = ingest.BlockHeading, w.level(e)
	case e.list:
		b.Kind = ingest.BlockList
	}
	b.Text = document.Squeeze(text)
	return w.out.Block(b)
}

// isBase64 tells data in base64 from text, which has words, and from sequences of few letters.
func isBase64(text string) bool {
	const least, line = 200, 40
	if len(text) < least {
		return false
	}
	var upper, lower, digit bool
	size, short := 0, false // of the line; the last one may be short
	for _, c := range []byte(text) {
		switch {
		case c == ' ' || c == '\n' || c == '\r' || c == '\t':
			short = short || size > 0 && size < line
			size = 0
			continue
		case 'A' <= c && c <= 'Z':
			upper = true
		case 'a' <= c && c <= 'z':
			lower = true
		case '0' <= c && c <= '9':
			digit = true
		case c != '+' && c != '/' && c != '-' && c != '_' && c != '=':
			return false
		}
		if size++; short {
			return false
		}
	}
	return upper && lower && digit
}

// level is a heading's: one more than the titled elements around the one whose title it is.
func (w *walker) level(title *element) int {
	if digit := title.name[len(title.name)-1]; title.name[0] == 'h' && digit >= '1' && digit <= '6' {
		return int(digit - '0')
	}
	level, owner := 1, slices.Index(w.open, title)-1
	for owner >= 0 && w.open[owner].role == inline {
		owner--
	}
	if owner < 0 {
		return level
	}
	for _, e := range w.open[:owner] {
		if e.titled {
			level++
		}
	}
	w.open[owner].titled = true
	return min(level, 6)
}
