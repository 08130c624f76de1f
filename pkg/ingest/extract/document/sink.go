package document

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	// MaxBlockBytes bounds one block; longer ones are cut at white space or between characters.
	MaxBlockBytes = 64 << 10
	// MaxTitleRunes bounds a title taken from a document.
	MaxTitleRunes = 200
)

// Sink takes what a reader finds, cleans it, counts it and passes it on.
type Sink struct {
	Emit         func(ingest.Block) error
	limits       Limits
	bytes        int64
	Chars        int64
	FirstHeading string
	Warnings     []string // what the text is without: at most ingest.MaxWarnings
	Readers      []string // name and version of each reader that has sent blocks, the document's own first
}

// NewSink makes a sink that passes blocks on to emit.
func NewSink(limits Limits, emit func(ingest.Block) error) *Sink {
	return &Sink{Emit: emit, limits: limits}
}

// ReadBy notes a reader.
func (s *Sink) ReadBy(reader string) {
	if !slices.Contains(s.Readers, reader) {
		s.Readers = append(s.Readers, reader)
	}
}

// Block sends one block; text that is empty after cleaning is dropped.
// Errors: LIMIT_EXCEEDED over the text cap, or that of the receiver.
func (s *Sink) Block(b ingest.Block) error {
	b.Text = CleanText(b.Text, b.Kind == ingest.BlockCode)
	for len(b.Text) > 0 {
		piece := b
		piece.Text, b.Text = cutBlock(b.Text)
		piece.Text = trimBlock(piece.Text, b.Kind == ingest.BlockCode)
		if piece.Text == "" {
			continue
		}
		if err := s.send(piece); err != nil {
			return err
		}
	}
	return nil
}

// Inside returns what takes the blocks of a file that the document embeds on that page (0: it has none): its headings become paragraphs, for
// what stands behind it belongs to the document's own heading.
func (s *Sink) Inside(page int) func(ingest.Block) error {
	return func(b ingest.Block) error {
		b.Page = page
		if b.Kind == ingest.BlockHeading {
			b.Kind, b.Level = ingest.BlockParagraph, 0
		}
		return s.Block(b)
	}
}

// Warn notes what the text is without, for the user.
func (s *Sink) Warn(format string, args ...any) {
	if len(s.Warnings) < ingest.MaxWarnings {
		text := []rune(CleanText(fmt.Sprintf(format, args...), false))
		s.Warnings = append(s.Warnings, string(text[:min(len(text), ingest.MaxWarningRunes)]))
	}
}

func (s *Sink) send(b ingest.Block) error {
	s.bytes += int64(len(b.Text))
	if s.bytes > s.limits.MaxTextBytes {
		return OverLimit("read: more than %d bytes of text", s.limits.MaxTextBytes)
	}
	s.Chars += int64(utf8.RuneCountInString(b.Text))
	if s.FirstHeading == "" && b.Kind == ingest.BlockHeading {
		s.FirstHeading = b.Text
	}
	return s.Emit(b)
}

// cutBlock takes the first piece of text, of at most maxBlockBytes.
func cutBlock(text string) (piece, rest string) {
	if len(text) <= MaxBlockBytes {
		return text, ""
	}
	window := text[:MaxBlockBytes]
	for _, gap := range []byte("\n ") {
		if i := strings.LastIndexByte(window, gap); i > MaxBlockBytes/2 {
			return text[:i], text[i:]
		}
	}
	end := MaxBlockBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], text[end:]
}

// CleanText makes text valid UTF-8 without control characters, with \n as the only line end.
func CleanText(text string, code bool) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if strings.IndexFunc(text, unwanted) >= 0 {
		text = strings.ReplaceAll(text, "\r\n", "\n")
		text = strings.Map(func(r rune) rune {
			switch {
			case r == '\r' || r == '\v' || r == '\f' || r == '\u0085' || r == '\u2028' || r == '\u2029':
				return '\n'
			case unwanted(r):
				return -1
			}
			return r
		}, text)
	}
	return trimBlock(text, code)
}

// unwanted are controls, line ends other than \n, byte order marks and non-characters.
func unwanted(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\uFEFF', '\uFFFE', '\uFFFF', '\u2028', '\u2029', '\u00AD':
		return true
	}
	return r < ' ' || (r >= 0x7F && r < 0xA0)
}

// trimBlock trims white space; code keeps the indentation of its first line.
func trimBlock(text string, code bool) string {
	if !code {
		return strings.TrimSpace(text)
	}
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	for {
		end := strings.IndexByte(text, '\n')
		if end < 0 || strings.TrimSpace(text[:end]) != "" {
			return text
		}
		text = text[end+1:]
	}
}

// CleanTitle makes a title one line of bounded length.
func CleanTitle(title string) string {
	title = strings.Join(strings.Fields(CleanText(title, false)), " ")
	if utf8.RuneCountInString(title) <= MaxTitleRunes {
		return title
	}
	return string([]rune(title)[:MaxTitleRunes])
}

// Squeeze joins the lines of running text: one space for white space, none between East Asian neighbours.
func Squeeze(text string) string {
	fields := strings.Fields(text)
	if len(fields) < 2 {
		return strings.Join(fields, "")
	}
	var b strings.Builder
	b.Grow(len(text))
	rest := text
	for i, f := range fields {
		at := strings.Index(rest, f)
		if i > 0 && (!strings.ContainsRune(rest[:at], '\n') || !wideNeighbours(fields[i-1], f)) {
			b.WriteByte(' ')
		}
		b.WriteString(f)
		rest = rest[at+len(f):]
	}
	return b.String()
}

// wideNeighbours tells whether a line that ends in left and one that begins with right join without a space.
func wideNeighbours(left, right string) bool {
	l, _ := utf8.DecodeLastRuneInString(left)
	r, _ := utf8.DecodeRuneInString(right)
	return Wide(l) && Wide(r)
}

// Wide are characters of scripts written without spaces: Han, Kana, and full-width forms and punctuation.
func Wide(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) ||
		(r >= 0x3000 && r <= 0x303F) || (r >= 0xFF00 && r <= 0xFFEF)
}

// CheckBlock tells what is wrong with a block that came from a child.
func CheckBlock(b ingest.Block) error {
	switch b.Kind {
	case ingest.BlockHeading, ingest.BlockParagraph, ingest.BlockTable, ingest.BlockCode, ingest.BlockList:
	default:
		return fmt.Errorf("block of unknown kind %q", b.Kind)
	}
	switch {
	case strings.TrimSpace(b.Text) == "":
		return errors.New("block without text")
	case len(b.Text) > MaxBlockBytes:
		return fmt.Errorf("block of %d bytes, more than %d", len(b.Text), MaxBlockBytes)
	case !utf8.ValidString(b.Text):
		return errors.New("block that is not UTF-8")
	case strings.IndexByte(b.Text, 0) >= 0:
		return errors.New("block with a NUL")
	case b.Page < 0 || b.Level < 0 || b.Level > 6:
		return fmt.Errorf("block on page %d of level %d", b.Page, b.Level)
	}
	return nil
}

// Paragraphs cuts recognised text at its empty lines and joins the lines of each piece.
func Paragraphs(text string) []string {
	var out []string
	for piece := range strings.SplitSeq(strings.ReplaceAll(text, "\f", "\n\n"), "\n\n") {
		if piece = Squeeze(piece); piece != "" {
			out = append(out, piece)
		}
	}
	return out
}
