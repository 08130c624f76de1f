// Package plaintext reads text of any charset, JSON among it.
package plaintext

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// paragraphBytes is where text without blank lines is cut, at a line end.
	paragraphBytes = 4 << 10
	// lineBytes is the most of one line that is held.
	lineBytes = document.MaxBlockBytes
)

// Read reads plain text of any charset: paragraphs end at blank lines.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	src, name, err := charset.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	t := &textReader{in: in, out: out, unescape: in.MediaType == document.TypeJSON}
	if err := t.run(ctx, bufio.NewReaderSize(src, lineBytes)); err != nil {
		return ingest.Extraction{}, err
	}
	return ingest.Extraction{Charset: name}, nil
}

// textReader gathers lines to paragraphs.
type textReader struct {
	in       *document.Input
	out      *document.Sink
	unescape bool // JSON: \uXXXX become characters
	held     strings.Builder
	cut      string // the beginning of a character that the end of a part cut off
	done     int64
}

func (t *textReader) run(ctx context.Context, src *bufio.Reader) error {
	for {
		line, err := src.ReadSlice('\n')
		if addErr := t.line(ctx, string(line), !errors.Is(err, bufio.ErrBufferFull)); addErr != nil {
			return addErr
		}
		switch {
		case err == nil || errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return t.flush()
		default:
			return err
		}
	}
}

// line takes a line, or a part of one longer than lineBytes when whole is false.
func (t *textReader) line(ctx context.Context, line string, whole bool) error {
	t.done += int64(len(line))
	line, t.cut = t.cut+line, ""
	if !whole {
		line, t.cut = charset.WholeRunes(line)
	}
	if err := t.in.Advance(ctx, t.done, t.in.Size); err != nil {
		return err
	}
	if whole && strings.TrimSpace(line) == "" {
		return t.flush()
	}
	if t.held.Len()+len(line) > paragraphBytes && t.held.Len() > 0 && strings.HasSuffix(t.held.String(), "\n") {
		if err := t.flush(); err != nil {
			return err
		}
	}
	t.held.WriteString(line)
	if t.held.Len() >= document.MaxBlockBytes {
		return t.flush()
	}
	return nil
}

func (t *textReader) flush() error {
	text := t.held.String()
	t.held.Reset()
	if t.unescape {
		text = unescapeJSON(text)
	}
	return t.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: text})
}

var jsonEscapes = regexp.MustCompile(`(?:\\\\)|(?:\\u[0-9a-fA-F]{4})+`)

// unescapeJSON turns runs of \uXXXX into characters, so that escaped text can be found; controls stay
// escaped.
func unescapeJSON(text string) string {
	if !strings.Contains(text, `\u`) {
		return text
	}
	return jsonEscapes.ReplaceAllStringFunc(text, func(run string) string {
		if run == `\\` {
			return run
		}
		units := make([]uint16, 0, len(run)/6)
		for i := 0; i < len(run); i += 6 {
			n, err := strconv.ParseUint(run[i+2:i+6], 16, 16)
			if err != nil || n < ' ' || n == '"' || n == '\\' {
				return run
			}
			units = append(units, uint16(n))
		}
		return string(utf16.Decode(units))
	})
}
