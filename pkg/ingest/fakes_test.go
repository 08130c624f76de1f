package ingest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// testClock is the clock of SQLite and of the application.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *testClock {
	return &testClock{now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
}

// Now moves on by a microsecond at each look, as real clocks do.
func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// lineExtractor makes a paragraph of every line; a line "# x" is a heading, "!crash" fails.
type lineExtractor struct{}

func (lineExtractor) Fingerprint() string { return "lines/1" }

func (lineExtractor) Extract(ctx context.Context, src Source, progress func(int, int), emit func(Block) error) (Extraction, error) {
	found := Extraction{MediaType: "text/plain", Reader: "lines/1"}
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
			return found, Permanent(CodeCorrupt, "Repair it.", "the text says that it is corrupt")
		}
		found.Chars += int64(len(line))
		if err := emit(Block{Kind: BlockParagraph, Text: line}); err != nil {
			return found, err
		}
	}
	progress(1, 1)
	return found, errors.Join(scanner.Err(), ctx.Err())
}

// blockSplitter makes a segment of every block.
type blockSplitter struct{ version string }

func (s blockSplitter) Fingerprint() string { return "blocks/" + s.version }
func (s blockSplitter) NewRun() SplitRun    { return &blockRun{suffix: s.version} }

type blockRun struct {
	n      int
	suffix string
}

func (r *blockRun) Add(b Block) []Segment {
	r.n++
	return []Segment{{Index: r.n - 1, Text: b.Text + r.suffix, HeadingPath: []string{"h"}, ByteStart: int64(r.n), ByteEnd: int64(r.n + 1), Tokens: 1}}
}

func (r *blockRun) Close() []Segment { return nil }

// hashEmbedder makes a vector out of the text's hash and counts what is paid for.
type hashEmbedder struct {
	mu    sync.Mutex
	model Model
	batch int
	paid  map[string]int
	fail  func(texts []string) error
}

func newEmbedder() *hashEmbedder {
	return &hashEmbedder{model: Model{Key: "hash/1", Dim: 8}, batch: 3, paid: map[string]int{}}
}

func (e *hashEmbedder) Model() Model   { return e.model }
func (e *hashEmbedder) BatchSize() int { return e.batch }

func (e *hashEmbedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		if err := e.fail(texts); err != nil {
			return nil, err
		}
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		if len(text) < 1000 {
			e.paid[text]++
		}
		out[i] = vectorOfText(text, e.model.Dim)
	}
	return out, ctx.Err()
}

func vectorOfText(text string, dim int) []float32 {
	sum := sha256.Sum256([]byte(text))
	out := make([]float32, dim)
	for i := range out {
		out[i] = float32(sum[i%len(sum)]) + 1
	}
	return out
}

// memoryVectors is a VectorStore in memory.
type memoryVectors struct {
	mu   sync.Mutex
	rows map[string]map[string]Vector // by base, by id
	fail func(op string) error

	forget bool // keep nothing: for tests of memory
}

func newVectors() *memoryVectors { return &memoryVectors{rows: map[string]map[string]Vector{}} }

func (s *memoryVectors) do(op string, f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(op); err != nil {
			return err
		}
	}
	f()
	return nil
}

func (s *memoryVectors) Upsert(_ context.Context, base string, rows []Vector) error {
	return s.do("upsert", func() {
		if s.rows[base] == nil {
			s.rows[base] = map[string]Vector{}
		}
		if s.forget {
			return
		}
		for _, r := range rows {
			s.rows[base][r.ID] = r
		}
	})
}

func (s *memoryVectors) Delete(_ context.Context, base string, ids []string) error {
	return s.do("delete", func() {
		for _, id := range ids {
			delete(s.rows[base], id)
		}
	})
}

// values are those of a vector; sweepers may be at work beside the test.
func (s *memoryVectors) values(base, id string) []float32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[base][id].Values
}

func (s *memoryVectors) Query(context.Context, string, []float32, int, []string) ([]Hit, error) {
	return nil, nil
}

func (s *memoryVectors) Get(_ context.Context, base string, ids []string, _ bool) (map[string]Vector, error) {
	out := map[string]Vector{}
	err := s.do("get", func() {
		for _, id := range ids {
			if v, ok := s.rows[base][id]; ok {
				out[id] = v
			}
		}
	})
	return out, err
}

func (s *memoryVectors) List(_ context.Context, base string, offset, limit int) ([]string, error) {
	var out []string
	err := s.do("list", func() {
		for id := range s.rows[base] {
			out = append(out, id)
		}
	})
	slices.Sort(out)
	out = out[min(offset, len(out)):]
	return out[:min(limit, len(out))], err
}

func (s *memoryVectors) Drop(_ context.Context, base string) error {
	return s.do("drop", func() { delete(s.rows, base) })
}

func (s *memoryVectors) Ping(context.Context) error { return nil }
