// Package code reads source code of any language.
package code

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// pieceBytes is the size above which a declaration is sent in pieces, cut at its outermost empty lines.
	pieceBytes = 2 << 10
	// heldBytes is where a declaration is sent that has not ended yet.
	heldBytes = document.MaxBlockBytes / 2
	tabWidth  = 8
)

// Read sends each declaration as a block that keeps its lines. One begins at a line without indentation that follows an empty line and closes
// nothing. Errors: ENCODING_UNKNOWN, those of out.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	decoded, name, err := charset.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	src := bufio.NewReaderSize(decoded, document.MaxBlockBytes)
	r, done, cut := &reader{out: out}, int64(0), ""
	for {
		line, err := src.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return ingest.Extraction{}, err
		}
		done += int64(len(line))
		text := cut + string(line)
		if cut = ""; errors.Is(err, bufio.ErrBufferFull) {
			text, cut = charset.WholeRunes(text)
		}
		if err := errors.Join(in.Advance(ctx, done, in.Size), r.line(text)); err != nil {
			return ingest.Extraction{}, err
		}
		if errors.Is(err, io.EOF) {
			return ingest.Extraction{Charset: name}, r.flush()
		}
	}
}

// reader gathers the lines of a declaration.
type reader struct {
	out   *document.Sink
	lines []string
	size  int
	blank bool // the last line was empty
}

// line takes one line with its end.
func (r *reader) line(line string) error {
	blank := strings.TrimSpace(line) == ""
	if (r.blank && !blank && indent(line) == 0 && !closes(line)) || r.size > heldBytes {
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.blank = blank
	r.lines = append(r.lines, line)
	r.size += len(line)
	return nil
}

func (r *reader) flush() error {
	lines := r.lines
	r.lines, r.size = nil, 0
	return r.send(lines, r.out)
}

// send sends lines as one block, or in pieces.
func (r *reader) send(lines []string, out *document.Sink) error {
	size, outermost, cuts := 0, -1, []int(nil)
	for i, line := range lines {
		size += len(line)
		if i == 0 || strings.TrimSpace(lines[i-1]) != "" || strings.TrimSpace(line) == "" || closes(line) {
			continue
		}
		switch n := indent(line); {
		case outermost < 0 || n < outermost:
			outermost, cuts = n, []int{i}
		case n == outermost:
			cuts = append(cuts, i)
		}
	}
	if size <= pieceBytes || len(cuts) == 0 {
		return out.Block(ingest.Block{Kind: ingest.BlockCode, Text: strings.Join(lines, "")})
	}
	from := 0
	for _, to := range append(cuts, len(lines)) {
		if err := r.send(lines[from:to], out); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// indent is the width of the white space that a line begins with.
func indent(line string) int {
	n := 0
	for _, c := range line {
		switch c {
		case ' ':
			n++
		case '\t':
			n += tabWidth - n%tabWidth
		default:
			return n
		}
	}
	return n
}

// closes tells a line that ends what was begun before it.
func closes(line string) bool {
	line = strings.TrimSpace(line)
	first, _ := utf8.DecodeRuneInString(line)
	if strings.ContainsRune("})]>", first) {
		return true
	}
	word := strings.ToLower(line)
	if n := strings.IndexFunc(line, func(c rune) bool { return !unicode.IsLetter(c) }); n >= 0 {
		word = word[:n]
	}
	switch word {
	case "end", "else", "elif", "elsif", "elseif", "except", "finally", "rescue", "ensure", "catch", "fi", "done", "esac":
		return true
	}
	return false
}
