package ingesttest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
)

// Clock is the clock of SQLite and of the application.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *Clock {
	return &Clock{now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
}

// Now moves on by a microsecond at each look, as real clocks do.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// LineExtractor makes a paragraph of every line; a line "# x" is a heading, "!crash" fails.
type LineExtractor struct{}

func (LineExtractor) Fingerprint() string { return "lines/1" }

func (LineExtractor) Extract(ctx context.Context, src ingest.Source, progress func(int, int), emit func(ingest.Block) error) (ingest.Extraction, error) {
	found := ingest.Extraction{MediaType: "text/plain", Reader: "lines/1"}
	scanner := bufio.NewScanner(io.NewSectionReader(src.File, 0, 1<<40))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "" {
			continue
		}
		if title, ok := strings.CutPrefix(line, "# "); ok {
			found.Title = title
			continue
		}
		if line == "!corrupt" {
			return found, ingest.Permanent(ingest.CodeCorrupt, "Repair it.", "the text says that it is corrupt")
		}
		found.Chars += int64(len(line))
		if err := emit(ingest.Block{Kind: ingest.BlockParagraph, Text: line}); err != nil {
			return found, err
		}
	}
	progress(1, 1)
	return found, errors.Join(scanner.Err(), ctx.Err())
}

// Attachments gives away the lines "@name text".
func (LineExtractor) Attachments(ctx context.Context, src ingest.Source, _ func(int, int), visit func(string, io.Reader) error) error {
	scanner := bufio.NewScanner(io.NewSectionReader(src.File, 0, 1<<40))
	for scanner.Scan() {
		line := strings.TrimSpace(scanner.Text())
		if line == "!corrupt" {
			return ingest.Permanent(ingest.CodeCorrupt, "Repair it.", "the text says that it is corrupt")
		}
		if rest, is := strings.CutPrefix(line, "@"); is {
			name, text, _ := strings.Cut(rest, " ")
			if err := errors.Join(ctx.Err(), visit(name, strings.NewReader(text))); err != nil {
				return err
			}
		}
	}
	return scanner.Err()
}

// BlockSplitter makes a segment of every block.
type BlockSplitter struct{ Version string }

func (s BlockSplitter) Fingerprint(ingest.Chunking) string { return "blocks/" + s.Version }

func (s BlockSplitter) NewRun(ingest.Chunking) ingest.SplitRun { return &blockRun{suffix: s.Version} }

type blockRun struct {
	n      int
	suffix string
}

func (r *blockRun) Add(b ingest.Block) []ingest.Segment {
	r.n++
	return []ingest.Segment{{Index: r.n - 1, Text: b.Text + r.suffix, HeadingPath: []string{"h"}, ByteStart: int64(r.n), ByteEnd: int64(r.n + 1), Tokens: 1}}
}

func (r *blockRun) Close() []ingest.Segment { return nil }

// Embedder makes a vector out of the text's hash and counts what is paid for.
type Embedder struct {
	mu     sync.Mutex
	Model_ ingest.Model
	Size   int // dimensions of its vectors; 0: the model's
	Batch  int
	Paid   map[string]int
	Fail   func(texts []string) error
}

func newEmbedder() *Embedder {
	return &Embedder{Model_: ingest.Model{Key: "hash/1", Dim: 8}, Batch: 3, Paid: map[string]int{}}
}

func (e *Embedder) Model() ingest.Model { return e.Model_ }

func (e *Embedder) BatchSize() int { return e.Batch }

func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.Fail != nil {
		if err := e.Fail(texts); err != nil {
			return nil, err
		}
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if len(text) < 1000 {
			e.Paid[text]++
		}
		out[i] = VectorOfText(text, cmp.Or(e.Size, e.Model_.Dim))
	}
	return out, ctx.Err()
}

func VectorOfText(text string, dim int) []float32 {
	sum := sha256.Sum256([]byte(text))
	out := make([]float32, dim)
	for i := range out {
		out[i] = float32(sum[i%len(sum)]) + 1
	}
	return out
}

// Vectors is a VectorStore in memory.
type Vectors struct {
	mu   sync.Mutex
	Rows map[string]map[string]ingest.Vector // by base, by id
	Fail func(op string) error

	Forget   bool // keep nothing: for tests of memory
	Stubborn bool // Delete says that it has deleted, and has not
}

func newVectors() *Vectors { return &Vectors{Rows: map[string]map[string]ingest.Vector{}} }

func (s *Vectors) do(op string, f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Fail != nil {
		if err := s.Fail(op); err != nil {
			return err
		}
	}
	f()
	return nil
}

func (s *Vectors) Upsert(_ context.Context, base string, rows []ingest.Vector) error {
	return s.do("upsert", func() {
		if s.Rows[base] == nil {
			s.Rows[base] = map[string]ingest.Vector{}
		}
		if s.Forget {
			return
		}
		for _, r := range rows {
			s.Rows[base][r.ID] = r
		}
	})
}

func (s *Vectors) Delete(_ context.Context, base string, ids []string) error {
	return s.do("delete", func() {
		for _, id := range ids {
			if s.Stubborn {
				return
			}
			delete(s.Rows[base], id)
		}
	})
}

// values are those of a vector; sweepers may be at work beside the test.
func (s *Vectors) values(base, id string) []float32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Rows[base][id].Values
}

func (s *Vectors) Query(context.Context, string, []float32, int, []string) ([]ingest.Hit, error) {
	return nil, nil
}

func (s *Vectors) Get(_ context.Context, base string, ids []string, _ bool) (map[string]ingest.Vector, error) {
	out := map[string]ingest.Vector{}
	err := s.do("get", func() {
		for _, id := range ids {
			if v, ok := s.Rows[base][id]; ok {
				out[id] = v
			}
		}
	})
	return out, err
}

func (s *Vectors) List(_ context.Context, base string, offset, limit int) ([]string, error) {
	var out []string
	err := s.do("list", func() {
		for id := range s.Rows[base] {
			out = append(out, id)
		}
	})
	slices.Sort(out)
	out = out[min(offset, len(out)):]
	return out[:min(limit, len(out))], err
}

func (s *Vectors) Drop(_ context.Context, base string) error {
	return s.do("drop", func() { delete(s.Rows, base) })
}

func (s *Vectors) Ping(context.Context) error { return nil }
