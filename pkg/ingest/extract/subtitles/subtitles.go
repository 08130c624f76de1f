// Package subtitles reads what is said in a film or a talk (SRT, WebVTT).
package subtitles

import (
	"bufio"
	"context"
	"errors"
	"io"
	"regexp"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// passageBytes is where a passage ends with its sentence, and twice that where it ends anyway.
	passageBytes = 600
	// lineBytes is the most of one line that is read.
	lineBytes = 64 << 10
)

var (
	timing = regexp.MustCompile(`^\s*(?:(\d{1,3}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}\s+-->\s`)
	number = regexp.MustCompile(`^\s*\d+\s*$`)
	marks  = regexp.MustCompile(`<[^<>]{0,200}>|\{\\[^{}]{0,200}\}`)
)

// Read joins what is shown to passages, each behind the time at which it begins. Numbers, times, comments and styles are dropped.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	decoded, name, err := charset.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	src := bufio.NewReaderSize(decoded, lineBytes)
	r := &reader{out: out}
	for {
		line, err := src.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return ingest.Extraction{}, err
		}
		if addErr := errors.Join(ctx.Err(), r.line(strings.TrimRight(string(line), "\r\n"))); addErr != nil {
			return ingest.Extraction{}, addErr
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	return ingest.Extraction{Charset: name}, r.flush()
}

type reader struct {
	out  *document.Sink
	cue  bool   // a time was read: what follows, up to an empty line, is shown
	last string // shown line: programs that scroll repeat it
	when string // the passage begins
	text strings.Builder
}

// line takes one line.
func (r *reader) line(line string) error {
	switch at := timing.FindStringSubmatch(line); {
	case at != nil:
		r.cue = true
		if r.text.Len() == 0 {
			hours := at[1]
			if hours == "" {
				hours = "00"
			}
			r.when = hours + ":" + at[2] + ":" + at[3]
		}
		return nil
	case strings.TrimSpace(line) == "":
		r.cue = false
		return nil
	case !r.cue || number.MatchString(line) && r.text.Len() == 0:
		return nil // a number, a name of a cue, a comment, a style
	}
	line = strings.TrimSpace(marks.ReplaceAllString(line, ""))
	if line == "" || line == r.last {
		return nil
	}
	r.last = line
	if r.text.Len() > 0 {
		r.text.WriteByte('\n')
	}
	r.text.WriteString(line)
	ended := strings.ContainsAny(line[max(0, len(line)-3):], ".!?。！？…")
	if n := r.text.Len(); n > 2*passageBytes || (n > passageBytes && ended) {
		return r.flush()
	}
	return nil
}

// flush sends the passage.
func (r *reader) flush() error {
	text := document.Squeeze(r.text.String())
	r.text.Reset()
	if text == "" {
		return nil
	}
	return r.out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: "[" + r.when + "] " + text})
}
