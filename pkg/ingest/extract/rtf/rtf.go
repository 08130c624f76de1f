// Package rtf reads rich-text files (RTF).
package rtf

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/ole"
)

const (
	// maxDepth bounds nested groups: real documents stay below 50.
	maxDepth = 1000
	// maxWord bounds a control word.
	maxWord = 64
	// maxCells bounds a row.
	maxCells = 1024
	// maxTable bounds the fonts, and the styles, that are remembered.
	maxTable = 10_000
	// maxMargin bounds the text of headers and footers.
	maxMargin = 64 << 10
)

// fontPages are the code pages of \fcharset.
var fontPages = map[int]int{
	77: 10000, 128: 932, 129: 949, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255, 178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250,
}

// dropped are the groups whose content is no text of the document; so are all that begin with \*.
var dropped = map[string]bool{
	"colortbl": true, "pict": true, objectData: true, "objclass": true, "objname": true, "objalias": true, "shprslt": true, "sp": true, "fldinst": true, "themedata": true, "datafield": true, "listtable": true, "listoverridetable": true,
	"revtbl": true, "rsidtbl": true, "generator": true, "xmlnstbl": true, "bkmkstart": true, "bkmkend": true, "atnid": true, "atnauthor": true,
	"annotation": true, "nonshppict": true, "filetbl": true, "listtext": true, "pntext": true, "xe": true, "tc": true, "template": true,
}

// objectData is the group of an embedded object's bytes, which are read in the body alone.
const objectData = "objdata"

// margins are the groups of headers and footers.
var margins = map[string]bool{
	"header": true, "headerl": true, "headerr": true, "headerf": true, "footer": true, "footerl": true, "footerr": true, "footerf": true,
}

// Read reads the text of a file as a program shows it: paragraphs, headings by outline level or style, lists, tables, text boxes, what is
// shown of embedded objects, and the files that these are, behind the paragraph or table that they stand in. Hidden and deleted text is
// dropped; headers and footers too, unless they are asked for or are all text that there is.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	r := &reader{ctx: ctx, in: in, out: out, src: bufio.NewReaderSize(in.Stream(), 32<<10), fonts: map[int]int{}, styles: map[int]int{}, page: 1252}
	r.state.skip = 1
	if err := r.run(); err != nil {
		return ingest.Extraction{}, err
	}
	if err := r.close(); err != nil {
		return ingest.Extraction{}, err
	}
	if !r.began {
		return ingest.Extraction{}, document.Corrupt("the file does not begin as rich text does")
	}
	return ingest.Extraction{Title: r.title.String()}, nil
}

// ReadPart reads a rich text that stands in a document of another kind, without the files in it.
func ReadPart(ctx context.Context, raw string, out *document.Sink) error {
	_, err := Read(ctx, &document.Input{File: strings.NewReader(raw), Size: int64(len(raw)), Progress: func(int, int) {}}, out)
	return err
}

// The places that text goes to.
type place int

const (
	toBody place = iota
	toNowhere
	toFonts
	toStyles
	toTitle
	toInfo   // of a document: nothing but its title is taken
	toShape  // of a drawing: nothing but the text in it is taken
	toMargin // a header or footer
	toObject // the bytes of an embedded object, in hexadecimal
)

// state is what a group has; its end restores that of the group around it.
type state struct {
	to      place
	page    int // code page of the font; 0: the document's
	skip    int // characters that stand in place of each \u
	hidden  bool
	level   int // heading level; 0: none
	list    bool
	inTable bool
	note    bool // a footnote, which is read where it is referred to
}

type reader struct {
	ctx context.Context //nolint:containedctx // lives for one document
	in  *document.Input
	out *document.Sink
	src *bufio.Reader

	state
	stack   []state
	began   bool
	starred bool // \* was read: the next control word names a group that old programs do not know
	fresh   bool // a group has just begun
	pending int  // characters still to pass over behind a \u
	read    int64

	page   int // the document's code page
	font   int // number of the font being defined
	fonts  map[int]int
	style  int // number of the style being defined
	name   strings.Builder
	styles map[int]int // style → heading level

	margin strings.Builder // of all headers and footers

	object  []byte     // of the embedded object being read
	half    int        // hexadecimal digits of its last byte: 0 or 1
	objects []ole.File // that were read since the last paragraph

	bytes []byte   // of the code page, not decoded yet
	units []uint16 // of \u, not decoded yet
	text  strings.Builder
	title strings.Builder

	table *document.TableWriter
	row   []string
}

func (r *reader) run() error {
	for {
		if err := r.in.Advance(r.ctx, r.read, r.in.Size); err != nil {
			return err
		}
		c, err := r.next()
		if err != nil {
			return ended(err)
		}
		switch c {
		case '{':
			if len(r.stack) >= maxDepth {
				return document.OverLimit("read rtf: groups nested deeper than %d", maxDepth)
			}
			r.decode()
			r.stack = append(r.stack, r.state)
			r.fresh = true
			continue
		case '}':
			r.decode()
			switch r.to {
			case toStyles:
				r.defined()
			case toObject:
				if n := len(r.stack); n == 0 || r.stack[n-1].to != toObject {
					r.embedded()
				}
			default:
			}
			if n := len(r.stack); n > 0 && r.to == toBody && r.stack[n-1].to == toShape {
				if err := r.paragraph(); err != nil {
					return err
				}
			}
			if n := len(r.stack); r.note && n > 0 && !r.stack[n-1].note {
				r.add("]")
			}
			if n := len(r.stack); n > 0 {
				r.state, r.stack = r.stack[n-1], r.stack[:n-1]
			}
			if len(r.stack) == 0 && r.began {
				return nil // what stands behind the last group is no part of the document
			}
		case '\\':
			err = r.control()
		case '\r', '\n', 0:
		default:
			if r.to == toObject {
				r.hex(c)
				break
			}
			err = r.literal(c)
		}
		if err != nil {
			return ended(err)
		}
		r.fresh = false
	}
}

// ended makes the end of the file the end of the text: a file that was cut off is read as far as it goes.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func (r *reader) next() (byte, error) {
	c, err := r.src.ReadByte()
	r.read++
	return c, err
}

// control reads what a backslash begins.
func (r *reader) control() error {
	c, err := r.next()
	if err != nil {
		return err
	}
	if !letter(c) {
		return r.symbol(c)
	}
	word := []byte{c}
	for {
		if c, err = r.next(); err != nil || !letter(c) || len(word) >= maxWord {
			break
		}
		word = append(word, c)
	}
	number := []byte{}
	for err == nil && (c >= '0' && c <= '9' || c == '-' && len(number) == 0) && len(number) < 12 {
		number = append(number, c)
		c, err = r.next()
	}
	if err == nil && c != ' ' {
		r.read--
		err = r.src.UnreadByte()
	}
	n, bad := strconv.Atoi(string(number))
	if wordErr := r.word(string(word), n, bad == nil); wordErr != nil {
		return wordErr
	}
	return err
}

// symbol reads a control symbol.
func (r *reader) symbol(c byte) error {
	switch c {
	case '\'':
		hex := make([]byte, 2)
		n, err := io.ReadFull(r.src, hex)
		r.read += int64(n)
		if err != nil {
			return err
		}
		if v, bad := strconv.ParseUint(string(hex), 16, 8); bad == nil {
			return r.literal(byte(v))
		}
		return nil
	case '*':
		r.starred = r.starred || r.fresh
		return nil
	case '~':
		return r.put("\u00A0")
	case '_':
		return r.put("-")
	case '\r', '\n':
		return r.paragraph()
	case '\\', '{', '}':
		return r.literal(c)
	}
	return nil
}

// word acts on a control word; has: it has a number.
func (r *reader) word(word string, n int, has bool) error {
	if word == objectData && r.to == toBody {
		r.starred, r.to = false, toObject
		return nil
	}
	if r.starred {
		r.starred = false
		if r.to = toNowhere; inShape(word) && len(r.stack) > 0 && r.stack[len(r.stack)-1].to == toBody {
			r.to = toShape
		}
		return nil
	}
	if r.to == toNowhere && word != "bin" {
		return nil
	}
	switch word {
	case "rtf":
		r.began = true
	case "ansicpg":
		r.page = n
	case "mac":
		r.page = 10000
	case "fonttbl":
		r.to = toFonts
	case "stylesheet":
		r.to = toStyles
	case "info":
		r.to = toInfo
	case "title":
		if r.to == toInfo {
			r.to = toTitle
		}
	case "bin": // raw bytes follow
		return r.raw(max(n, 0))
	case "u":
		r.unicode(n)
	case "uc":
		r.skip = min(max(n, 0), 16)
	case "f":
		r.useFont(n)
	case "fcharset":
		if r.to == toFonts && len(r.fonts) < maxTable {
			r.fonts[r.font] = fontPages[n]
		}
	case "s":
		if r.to == toStyles {
			r.style = n
			return nil
		}
		r.level = r.styles[n]
	case "outlinelevel":
		if r.to == toBody && n >= 0 && n < 9 {
			r.level = min(n+1, 6)
		}
	default:
		return r.format(word, !has || n != 0)
	}
	return nil
}

// signs are the control words that stand for characters.
var signs = map[string]string{
	"line": "\n", "softline": "\n", "tab": "\t", "emdash": "—", "endash": "–", "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "bullet": "•",
}

// format acts on words of formatting and on those that stand for characters; on is false for a word with the number 0.
func (r *reader) format(word string, on bool) error {
	if sign, ok := signs[word]; ok {
		return r.put(sign)
	}
	switch word {
	case "v", "deleted":
		r.decode()
		r.hidden = on
	case "plain":
		r.decode()
		r.hidden = false
	case "pard":
		r.level, r.list, r.inTable = 0, false, false
	case "ls":
		r.list = on
	case "intbl":
		r.inTable = on
	case "par", "sect", "page":
		return r.paragraph()
	case "cell", "nestcell":
		return r.endCell()
	case "row", "nestrow":
		return r.endRow()
	case "footnote":
		r.note = true
		return r.put(" [")
	case "shptxt", "dptxbxtext":
		if r.to == toShape {
			r.to = toBody
			return r.paragraph() // that the drawing stands in
		}
	default:
		switch {
		case dropped[word]:
			r.to = toNowhere
		case margins[word] && r.to == toBody:
			r.to = toMargin
		}
	}
	return nil
}

// inShape tells the words that begin a drawing, of newer programs and of old ones.
func inShape(word string) bool { return word == "shpinst" || word == "do" }

func (r *reader) useFont(n int) {
	r.decode()
	if r.to == toFonts {
		r.font = n
		return
	}
	r.state.page = r.fonts[n]
}

// unicode takes a UTF-16 unit; negative numbers are those above 32,767.
func (r *reader) unicode(n int) {
	if len(r.bytes) > 0 {
		r.decode()
	}
	r.units = append(r.units, uint16(n))
	r.pending = r.skip
}

// literal takes one byte of text.
func (r *reader) literal(c byte) error {
	if r.pending > 0 {
		r.pending--
		return nil
	}
	if len(r.units) > 0 {
		r.decode()
	}
	r.bytes = append(r.bytes, c)
	if len(r.bytes) < 4096 {
		return nil
	}
	r.decodeWhole()
	return r.full()
}

// decodeWhole decodes what is held but a character's beginning at its end.
func (r *reader) decodeWhole() {
	// A lead byte of a two-byte charset is above 0x7F: up to the last ASCII byte nothing is cut.
	at := len(r.bytes)
	for at > 0 && r.bytes[at-1] > 0x7F {
		at--
	}
	if at == 0 {
		at = len(r.bytes)
	}
	rest := string(r.bytes[at:])
	r.bytes = r.bytes[:at]
	r.decode()
	r.bytes = append(r.bytes, rest...)
}

// decode turns what is held into text.
func (r *reader) decode() {
	switch {
	case len(r.units) > 0:
		r.add(string(utf16.Decode(r.units)))
		r.units = r.units[:0]
	case len(r.bytes) > 0:
		page := r.state.page
		if page == 0 {
			page = r.page
		}
		text := r.bytes
		if c, ok := charset.OfPage(page); ok && c.Enc != nil {
			if plain, err := c.Enc.NewDecoder().Bytes(r.bytes); err == nil {
				text = plain
			}
		}
		r.add(string(text))
		r.bytes = r.bytes[:0]
	}
}

// put adds a character that a control word stands for.
func (r *reader) put(text string) error {
	if r.pending > 0 {
		r.pending--
		return nil
	}
	r.decode()
	r.add(text)
	return r.full()
}

// add puts text where it belongs.
func (r *reader) add(text string) {
	switch r.to {
	case toBody:
		if !r.hidden {
			r.text.WriteString(text)
		}
	case toStyles:
		if r.name.Len() < 256 {
			r.name.WriteString(text)
		}
	case toTitle:
		if r.title.Len() < 4*document.MaxTitleRunes {
			r.title.WriteString(text)
		}
	case toMargin:
		if !r.hidden && r.margin.Len() < maxMargin {
			r.margin.WriteString(text)
		}
	case toNowhere, toFonts, toInfo, toShape, toObject:
	}
}

// full sends a paragraph that grows beyond a block.
func (r *reader) full() error {
	if r.text.Len() < document.MaxBlockBytes || len(r.row) > 0 {
		return nil
	}
	return r.paragraph()
}

// defined ends the definition of a style: "heading 2" is its name in every language of Word.
func (r *reader) defined() {
	name := strings.ToLower(strings.TrimSuffix(strings.TrimSpace(r.name.String()), ";"))
	r.name.Reset()
	if len(r.styles) >= maxTable {
		return
	}
	if n, ok := strings.CutPrefix(name, "heading "); ok {
		if level, err := strconv.Atoi(n); err == nil && level > 0 {
			r.styles[r.style] = min(level, 6)
		}
	} else if name == "title" {
		r.styles[r.style] = 1
	}
	r.style = 0
}

// paragraph ends a paragraph, or a line of a cell.
func (r *reader) paragraph() error {
	r.decode()
	if r.to == toMargin {
		r.add("\n")
	}
	if r.to != toBody {
		return nil
	}
	if r.note {
		r.add(" ")
		return nil
	}
	if r.inTable && r.text.Len() < document.MaxBlockBytes {
		r.text.WriteByte('\n')
		return nil
	}
	if err := r.endTable(); err != nil {
		return err
	}
	return r.send()
}

// send sends the text that was gathered.
func (r *reader) send() error {
	b := ingest.Block{Kind: ingest.BlockParagraph, Text: r.text.String()}
	r.text.Reset()
	switch {
	case r.level > 0:
		b.Kind, b.Level, b.Text = ingest.BlockHeading, r.level, document.Squeeze(b.Text)
	case r.list:
		b.Kind = ingest.BlockList
	}
	if err := r.out.Block(b); err != nil {
		return err
	}
	objects := r.objects
	r.objects = nil
	for _, f := range objects {
		if err := f.Read(r.ctx, r.in, r.out, 0); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) endCell() error {
	r.decode()
	if r.to != toBody {
		return nil
	}
	r.row = append(r.row, r.text.String())
	r.text.Reset()
	if len(r.row) >= maxCells {
		return r.endRow()
	}
	return nil
}

func (r *reader) endRow() error {
	r.decode()
	row := r.row
	r.row = nil
	if len(row) == 0 {
		return nil
	}
	if r.table == nil {
		r.table = &document.TableWriter{Out: r.out}
	}
	return r.table.Row(row)
}

func (r *reader) endTable() error {
	if err := r.endRow(); err != nil || r.table == nil {
		return err
	}
	table := r.table
	r.table = nil
	return table.Flush()
}

// close sends what is left at the end.
func (r *reader) close() error {
	r.decode()
	if len(r.row) > 0 && strings.TrimSpace(r.text.String()) != "" {
		if err := r.endCell(); err != nil {
			return err
		}
	}
	if err := r.endTable(); err != nil {
		return err
	}
	if err := r.send(); err != nil || r.out.Chars > 0 && !r.in.Limits.HeadersFooters {
		return err
	}
	for line := range strings.Lines(r.margin.String()) {
		if err := r.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: line}); err != nil {
			return err
		}
	}
	return nil
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
