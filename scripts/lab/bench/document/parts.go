package document

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed/openai"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingest/split"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// parts are the unavoidable parts of the work, as the product has them, without anything around them.
type parts struct {
	pool     *extract.Pool
	splitter *split.Splitter
	embedder *openai.Embedder
	vectors  ingest.VectorStore
	dir      string
	readers  map[string]int // pids of the resident children
	chroma   int            // pid
	slots    int            // documents at a time
}

// newParts makes them; readers are started and warm when it returns.
func newParts(ctx context.Context, root string, w *world.World, embedURL string, slots int) (*parts, error) {
	cfg := extract.NewDefaultConfig()
	cfg.ChildFiles, cfg.IdleTimeout = 100_000, time.Hour
	p := &parts{vectors: w.Vectors, chroma: w.Chroma.PID(), slots: slots, readers: map[string]int{}}
	var err error
	if p.pool, err = extract.NewPool(cfg, slog.New(slog.DiscardHandler)); err != nil {
		return nil, err
	}
	if p.splitter, err = split.New(split.NewDefaultConfig(), 0); err != nil {
		return nil, err
	}
	ec := openai.NewDefaultConfig()
	ec.BaseURL, ec.Model = embedURL, "test"
	if p.embedder, err = openai.New(ec, nil); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp("", "millweir-bench-"); err != nil {
		return nil, err
	}
	before := proc.Children(os.Getpid())
	warm, err := mix(root, 0)
	if err == nil {
		_, err = p.extract(ctx, warm)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	for _, pid := range proc.Children(os.Getpid()) {
		if !slices.Contains(before, pid) {
			p.readers[fmt.Sprintf("reader %d", len(p.readers)+1)] = pid
		}
	}
	return p, nil
}

// close ends the readers.
func (p *parts) close() {
	_ = p.pool.Close()
	_ = os.RemoveAll(p.dir)
}

// extract reads and splits documents and returns their segments' texts.
func (p *parts) extract(ctx context.Context, docs []apiclient.Doc) ([][]string, error) {
	out := make([][]string, len(docs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.slots)
	for i, d := range docs {
		path := filepath.Join(p.dir, d.Name)
		if err := os.WriteFile(path, d.Body, 0o600); err != nil {
			return nil, err
		}
		group.Go(func() (err error) {
			if out[i], err = p.extractOne(ctx, path); err != nil {
				return fmt.Errorf("read %s: %w", d.Name, err)
			}
			return nil
		})
	}
	return out, group.Wait()
}

// extractOne reads and splits one file.
func (p *parts) extractOne(ctx context.Context, path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var texts []string
	run := p.splitter.NewRun(ingest.Chunking{})
	keep := func(segments []ingest.Segment) {
		for _, s := range segments {
			texts = append(texts, s.Text)
		}
	}
	_, err = p.pool.Extract(ctx, ingest.Source{File: f, Name: filepath.Base(path)}, func(int, int) {}, func(b ingest.Block) error {
		keep(run.Add(b))
		return nil
	})
	keep(run.Close())
	return texts, err
}

// embed makes the vectors of each document, in the product's batches.
func (p *parts) embed(ctx context.Context, texts [][]string) ([][][]float32, error) {
	out := make([][][]float32, len(texts))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(docEmbeds)
	for i, of := range texts {
		group.Go(func() error {
			for batch := range slices.Chunk(of, p.embedder.BatchSize()) {
				vectors, err := p.embedder.Embed(ctx, batch)
				if err != nil {
					return err
				}
				out[i] = append(out[i], vectors...)
			}
			return nil
		})
	}
	return out, group.Wait()
}

// upsert writes the vectors of each document into a new collection.
func (p *parts) upsert(ctx context.Context, base string, vectors [][][]float32) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(p.slots)
	for i, of := range vectors {
		var rows []ingest.Vector
		for n, v := range of {
			rows = append(rows, ingest.Vector{
				ID: fmt.Sprintf("%064d", i*100_000+n), DocumentID: fmt.Sprintf("%036d", i), Birth: fmt.Sprintf("%036d", i), Values: v,
			})
		}
		group.Go(func() error {
			for batch := range slices.Chunk(rows, vectorBatch) {
				if err := p.vectors.Upsert(ctx, base, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// index makes the full-text index of each document's segments, as the worker does before it writes their rows.
func (p *parts) index(base string, texts [][]string) error {
	var group errgroup.Group
	group.SetLimit(p.slots)
	for i, of := range texts {
		group.Go(func() error {
			rows := make([]textindex.Text, len(of))
			for n, text := range of {
				rows[n] = textindex.Text{Version: fmt.Sprintf("%036d", i), Index: n, TextHash: fmt.Sprintf("%064d", n), Text: text}
			}
			textindex.Build(base, rows)
			return nil
		})
	}
	return group.Wait()
}

// alone is what the parts took for one round of documents, each alone.
type alone struct {
	extract, index, embed, vectors cost
	segments                       int
}

// measure runs the parts one after the other.
func (p *parts) measure(ctx context.Context, docs []apiclient.Doc, base string) (a alone, err error) {
	var texts [][]string
	var vectors [][][]float32
	self := map[string]int{"self": os.Getpid()}
	reading := map[string]int{"self": os.Getpid()}
	for name, pid := range p.readers {
		reading[name] = pid
	}
	a.extract, err = measured(ctx, reading, func() (err error) {
		texts, err = p.extract(ctx, docs)
		return err
	})
	if err != nil {
		return a, err
	}
	a.index, err = measured(ctx, self, func() error { return p.index(base, texts) })
	if err != nil {
		return a, err
	}
	a.embed, err = measured(ctx, self, func() (err error) {
		vectors, err = p.embed(ctx, texts)
		return err
	})
	if err != nil {
		return a, err
	}
	for _, of := range vectors {
		a.segments += len(of)
	}
	a.vectors, err = measured(ctx, map[string]int{"self": os.Getpid(), "chroma": p.chroma}, func() error {
		return p.upsert(ctx, base, vectors)
	})
	return a, err
}

// each are all parts.
func (a alone) each() []cost { return []cost{a.extract, a.index, a.embed, a.vectors} }

// slowest is the time of the part that bounds the rate.
func (a alone) slowest() (wall float64) {
	for _, c := range a.each() {
		wall = max(wall, c.wall)
	}
	return wall
}

// sum is the time of all parts one after the other.
func (a alone) sum() (wall float64) {
	for _, c := range a.each() {
		wall += c.wall
	}
	return wall
}

// cpu is what the parts need however they are run.
func (a alone) cpu() (seconds float64) {
	for _, c := range a.each() {
		seconds += c.total()
	}
	return seconds
}

const (
	quietFor   = 300 * time.Millisecond
	quietTicks = 0.025 // CPU seconds in that time: what an idle server uses
	quietLimit = 20 * time.Second
)

// cost is what a stretch of work took.
type cost struct {
	wall float64            // seconds
	cpu  map[string]float64 // CPU seconds by who used them
}

// total is all CPU time.
func (c cost) total() float64 {
	sum := 0.0
	for _, s := range c.cpu {
		sum += s
	}
	return sum
}

// measured runs f and returns what it took; pids are the processes that count, each with its children.
// Work that a server goes on with after f counts too: it is waited for until all are quiet.
func measured(ctx context.Context, pids map[string]int, f func() error) (cost, error) {
	runtime.GC() // what was before is not to be cleaned up in here
	before, began := cpuOf(pids), time.Now()
	if err := f(); err != nil {
		return cost{}, err
	}
	c := cost{wall: time.Since(began).Seconds(), cpu: map[string]float64{}}
	quiet(ctx, pids)
	for name, s := range cpuOf(pids) {
		c.cpu[name] = s - before[name]
	}
	return c, nil
}

// quiet waits until the processes use hardly any CPU.
func quiet(ctx context.Context, pids map[string]int) {
	deadline := time.Now().Add(quietLimit)
	for last := sumOf(pids); time.Now().Before(deadline) && await.Pause(ctx, quietFor); {
		now := sumOf(pids)
		if now-last <= quietTicks*float64(len(pids)) {
			return
		}
		last = now
	}
}

// cpuOf is the CPU time so far of each process, and of its children that live.
func cpuOf(pids map[string]int) map[string]float64 {
	out := make(map[string]float64, len(pids))
	for name, pid := range pids {
		out[name] = proc.CPUSeconds(pid)
		if pid == os.Getpid() {
			continue // its children have names of their own, or count nowhere
		}
		for _, child := range proc.Children(pid) {
			out[name+"'s children"] += proc.CPUSeconds(child)
		}
	}
	return out
}

// sumOf is that of all together.
func sumOf(pids map[string]int) float64 { return cost{cpu: cpuOf(pids)}.total() }
