// Package csv reads tables of separated values (CSV, TSV) in any common charset.
package csv

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/charset"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
)

const (
	// recordBytes bounds a record, which may go over many lines inside of quotes. A quote that opens a longer one is a character.
	recordBytes = 256 << 10
	// sampleLines is from how many lines the separator is guessed.
	sampleLines = 20
	// sampleBytes is how much of the beginning holds them.
	sampleBytes = 32 << 10
)

// Read reads the records as the rows of one table, whose first row is its header.
func Read(ctx context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	decoded, name, err := charset.Open(in)
	if err != nil {
		return ingest.Extraction{}, err
	}
	src := bufio.NewReaderSize(decoded, sampleBytes)
	head, err := src.Peek(sampleBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return ingest.Extraction{}, err
	}
	r := &records{ctx: ctx, in: in, src: src, table: document.TableWriter{Out: out}, comma: separator(string(head))}
	return ingest.Extraction{Charset: name}, r.run()
}

// separator is the character that parts the first lines into the same number of fields, most often and into most of them.
func separator(head string) rune {
	lines := strings.SplitN(head, "\n", sampleLines+1)
	if len(lines) > 1 {
		lines = lines[:len(lines)-1] // the last may be cut
	}
	best, most := ',', 0
	for _, c := range ",\t;|" {
		counts := map[int]int{}
		for _, l := range lines {
			if n := strings.Count(l, string(c)); n > 0 {
				counts[n]++
			}
		}
		for n, times := range counts {
			if score := times*100 + n; score > most {
				best, most = c, score
			}
		}
	}
	return best
}

// records reads record by record.
type records struct {
	ctx   context.Context //nolint:containedctx // lives for one document
	in    *document.Input
	src   *bufio.Reader
	table document.TableWriter
	comma rune

	held strings.Builder // lines of a record whose quotes are open
	open bool
	done int64
}

func (r *records) run() error {
	for {
		line, err := r.src.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if addErr := r.line(line); addErr != nil {
			return addErr
		}
		if err != nil {
			break
		}
	}
	if err := r.giveUp(); err != nil {
		return err
	}
	return r.table.Flush()
}

// line takes a line: it ends a record unless a quote is open.
func (r *records) line(line string) error {
	r.done += int64(len(line))
	if err := r.in.Advance(r.ctx, r.done, r.in.Size); err != nil {
		return err
	}
	r.held.WriteString(line)
	if strings.Count(line, `"`)%2 == 1 {
		r.open = !r.open
	}
	switch {
	case !r.open:
		record := r.held.String()
		r.held.Reset()
		return r.record(record)
	case r.held.Len() > recordBytes:
		return r.giveUp()
	}
	return nil
}

// giveUp reads what a quote that never ends holds, line by line.
func (r *records) giveUp() error {
	held := r.held.String()
	r.held.Reset()
	r.open = false
	for line := range strings.Lines(held) {
		if err := r.record(strings.ReplaceAll(line, `"`, "")); err != nil {
			return err
		}
	}
	return nil
}

// record sends one record.
func (r *records) record(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	c := csv.NewReader(strings.NewReader(text))
	c.Comma, c.LazyQuotes, c.FieldsPerRecord = r.comma, true, -1
	for {
		fields, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			fields = strings.Split(text, string(r.comma)) // quotes in odd places: the fields as they are
		}
		if rowErr := r.table.Row(fields); rowErr != nil || err != nil {
			return rowErr
		}
	}
}
