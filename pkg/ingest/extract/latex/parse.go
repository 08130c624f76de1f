package latex

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

// parser reads one stretch of the source: the whole, which gives blocks, or an argument, which gives one text.
type parser struct {
	*source
	pos, end int
	nested   int // 0: the whole
	preamble bool
	text     strings.Builder
	notes    []string // footnotes of the paragraph being read
	lists    []list
	item     bool // the text being read belongs to an item

	tables int // open ones; only the outermost makes rows
	rows   *document.TableWriter
	cells  []string
}

// list is an open list; number is that of its last item, -1: its items have none.
type list struct{ number int }

// run reads to the end.
func (p *parser) run() error {
	for p.pos < p.end {
		if p.nested == 0 {
			if err := p.in.Advance(p.ctx, int64(p.pos), int64(p.end)); err != nil {
				return err
			}
		}
		if err := p.step(); err != nil {
			return err
		}
	}
	return nil
}

// step reads a command, a character that means something, or the plain text up to the next of them.
func (p *parser) step() error {
	switch c := p.tex[p.pos]; c {
	case '\\':
		return p.command()
	case '%':
		p.comment()
	case '\n':
		return p.lineEnd()
	case '$':
		return p.dollar()
	case '{', '}':
		p.pos++
	case '~':
		p.pos++
		p.write(" ")
	case '&':
		p.pos++
		p.nextCell()
	case '-', '`', '\'':
		p.ligature()
	default:
		n := strings.IndexAny(p.tex[p.pos:p.end], "\\%\n${}~&-`'")
		if n < 0 {
			n = p.end - p.pos
		}
		p.write(p.tex[p.pos : p.pos+n])
		p.pos += n
	}
	if p.text.Len() > document.MaxBlockBytes && p.nested == 0 && p.tables == 0 {
		return p.flush()
	}
	return nil
}

// rest is what is not read yet.
func (p *parser) rest() string { return p.tex[p.pos:p.end] }

// write adds text, unless it stands before the document begins.
func (p *parser) write(text string) {
	if !p.preamble {
		p.text.WriteString(text)
	}
}

// comment passes a comment, its line's end and the white space that the next line begins with.
func (p *parser) comment() {
	n := strings.IndexByte(p.rest(), '\n')
	if n < 0 {
		p.pos = p.end
		return
	}
	p.pos += n + 1
	p.pos += len(p.rest()) - len(strings.TrimLeft(p.rest(), " \t"))
	if strings.HasPrefix(p.rest(), "\n") {
		p.pos-- // a line that is empty behind a comment ends the paragraph
	}
}

// lineEnd is white space, or the end of a paragraph before an empty line.
func (p *parser) lineEnd() error {
	rest := strings.TrimLeft(p.rest()[1:], " \t")
	if !strings.HasPrefix(rest, "\n") {
		p.pos++
		p.write("\n")
		return nil
	}
	p.pos = p.end - len(strings.TrimLeft(rest, " \t\n"))
	return p.flush()
}

// dollar reads a formula, which does not go on behind its paragraph.
func (p *parser) dollar() error {
	mark := "$"
	if strings.HasPrefix(p.rest(), "$$") {
		mark = "$$"
	}
	from := p.pos + len(mark)
	to := p.find(from, mark)
	for to < p.end && p.tex[to-1] == '\\' {
		to = p.find(to+1, mark)
	}
	if to+len(mark) > p.end || strings.Contains(p.tex[from:to], "\n\n") {
		p.pos = from
		p.write(mark)
		return nil
	}
	p.pos = to + len(mark)
	if mark == "$$" {
		return p.formula(p.tex[from:to])
	}
	p.write("$" + p.tex[from:to] + "$")
	return nil
}

// formula sends one that stands in a line of its own.
func (p *parser) formula(text string) error {
	if p.nested > 0 || p.tables > 0 {
		p.write(" $" + text + "$ ")
		return nil
	}
	if err := p.flush(); err != nil || p.preamble {
		return err
	}
	return p.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: document.Squeeze(text)})
}

// ligature reads dashes and quotes.
func (p *parser) ligature() {
	for _, l := range [][2]string{{"---", "—"}, {"--", "–"}, {"``", "“"}, {"''", "”"}} {
		if strings.HasPrefix(p.rest(), l[0]) {
			p.pos += len(l[0])
			p.write(l[1])
			return
		}
	}
	p.write(p.tex[p.pos : p.pos+1])
	p.pos++
}

// flush sends the text read so far, and its footnotes.
func (p *parser) flush() error {
	if p.nested > 0 || p.tables > 0 {
		p.write("\n")
		return nil
	}
	b := ingest.Block{Kind: ingest.BlockParagraph, Text: document.Squeeze(p.take())}
	if p.item || len(p.lists) > 0 {
		b.Kind = ingest.BlockList
	}
	p.item = false
	if err := p.out.Block(b); err != nil {
		return err
	}
	notes := p.notes
	p.notes = nil
	for _, note := range notes {
		if err := p.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: note}); err != nil {
			return err
		}
	}
	return nil
}

// finish sends what is open at the end.
func (p *parser) finish() error {
	if p.tables > 0 {
		p.tables = 1
		if err := p.nextRow(); err != nil {
			return err
		}
		p.tables = 0
		if err := p.rows.Flush(); err != nil {
			return err
		}
	}
	return p.flush()
}

// take empties the text.
func (p *parser) take() string {
	text := p.text.String()
	p.text.Reset()
	return text
}

// argument reads one in braces and returns where it lies; ok false: there is none.
func (p *parser) argument() (from, to int, ok bool) {
	at := p.end - len(strings.TrimLeft(p.rest(), " \t\n"))
	if at >= p.end {
		return 0, 0, false
	}
	to = int(p.ends[at])
	if to == 0 || to >= p.end {
		return 0, 0, false
	}
	p.pos = to + 1
	return at + 1, to, true
}

// raw reads an argument as it is written.
func (p *parser) raw() string {
	from, to, _ := p.argument()
	return strings.TrimSpace(p.tex[from:to])
}

// options passes arguments in square brackets that follow at once, and returns the first as it is written.
func (p *parser) options() (first string, ok bool) {
	for strings.HasPrefix(p.rest(), "[") {
		rest := p.rest()[:min(len(p.rest()), optionBytes)]
		depth, at := 0, -1
		for i := 1; i < len(rest) && at < 0; i++ {
			switch {
			case rest[i] == '{':
				depth++
			case rest[i] == '}':
				depth--
			case rest[i] == ']' && depth == 0:
				at = i
			}
		}
		if at < 0 {
			return first, ok
		}
		if !ok {
			first, ok = rest[1:at], true
		}
		p.pos += at + 1
	}
	return first, ok
}

// inner reads an argument as text. Nested too deep, it is left to be read in its place.
func (p *parser) inner() (string, error) {
	if p.nested >= maxNesting {
		return "", nil
	}
	from, to, ok := p.argument()
	if !ok {
		return "", nil
	}
	q := &parser{source: p.source, pos: from, end: to, nested: p.nested + 1}
	if err := q.run(); err != nil {
		return "", err
	}
	p.notes = append(p.notes, q.notes...)
	return document.Squeeze(q.take()), nil
}

// nextCell begins the next cell of a row.
func (p *parser) nextCell() {
	switch {
	case p.tables == 1:
		p.cells = append(p.cells, p.take())
	case p.tables > 1 || p.nested > 0:
		p.write(" ")
	default:
		p.write("&")
	}
}

// nextRow ends a row of a table, or a line.
func (p *parser) nextRow() error {
	if p.tables != 1 {
		p.write("\n")
		return nil
	}
	cells := append(p.cells, p.take())
	p.cells = nil
	return p.rows.Row(cells)
}

// accent puts a mark on the letter that follows.
func (p *parser) accent(mark rune) error {
	letter := ""
	if from, to, ok := p.argument(); ok {
		letter = p.tex[from:to]
	} else {
		p.pos = p.end - len(strings.TrimLeft(p.rest(), " "))
		if strings.HasPrefix(p.rest(), `\`) {
			p.pos++
			letter = p.name()
			p.pos = p.end - len(strings.TrimLeft(p.rest(), " "))
		} else if r, n := utf8.DecodeRuneInString(p.rest()); n > 0 {
			letter = string(r)
			p.pos += n
		}
	}
	letter = strings.TrimPrefix(strings.TrimSpace(letter), `\`) // \i and \j are letters for accents
	if r, n := utf8.DecodeRuneInString(letter); n > 0 && unicode.IsLetter(r) {
		letter = norm.NFC.String(string(r)+string(mark)) + letter[n:]
	}
	p.write(letter)
	return nil
}

// name reads a command's name: letters, or one other character.
func (p *parser) name() string {
	rest := p.rest()
	n := 0
	for n < len(rest) && (rest[n]|0x20 >= 'a' && rest[n]|0x20 <= 'z' || rest[n] == '@') {
		n++
	}
	if n == 0 {
		_, n = utf8.DecodeRuneInString(rest)
	}
	p.pos += n
	return rest[:n]
}

// begin opens a list's item.
func (p *parser) begin(label string) error {
	if err := p.flush(); err != nil {
		return err
	}
	p.item = true
	if n := len(p.lists); n > 0 && p.lists[n-1].number >= 0 && label == "" {
		p.lists[n-1].number++
		label = strconv.Itoa(p.lists[n-1].number) + "."
	}
	if label != "" {
		p.write(label + " ")
	}
	return nil
}
