package embedtest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/local"
)

// Fake is an embedder in the process, with the local embedder's vectors. Set its fields before the first call.
// It is safe for concurrent use.
type Fake struct {
	Key  string // model key; empty: "fake/1"
	Size int    // batch size; 0: 16
	// Before, when set, is called for each batch before it is embedded, with its number (1-based) over all callers.
	// An error fails the call; a block is a slow service.
	Before func(ctx context.Context, n int, texts []string) error

	mu      sync.Mutex
	calls   int
	effects []Effect
}

var _ ingest.Embedder = (*Fake)(nil)

// Model is Key and the local embedder's dimension.
func (f *Fake) Model() ingest.Model {
	if f.Key == "" {
		return ingest.Model{Key: "fake/1", Dim: local.Dim}
	}
	return ingest.Model{Key: f.Key, Dim: local.Dim}
}

// BatchSize is Size, or 16.
func (f *Fake) BatchSize() int {
	if f.Size == 0 {
		return 16
	}
	return f.Size
}

// Embed returns the local embedder's vectors, after Before.
func (f *Fake) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	c, _ := embed.CallFrom(ctx)
	effect := Effect{
		At: time.Now().UTC(), Task: c.TaskID, Fence: c.Fence, Batch: c.Batch, TextsHash: embed.BatchHash(texts), Texts: len(texts),
	}
	f.mu.Lock()
	f.calls++
	n := f.calls
	f.mu.Unlock()
	var err error
	if f.Before != nil {
		err = f.Before(ctx, n, texts)
	}
	if err == nil {
		err = ctx.Err()
	}
	effect.Paid = err == nil
	f.mu.Lock()
	f.effects = append(f.effects, effect)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return local.New().Embed(ctx, texts)
}

// Effects returns the log so far.
func (f *Fake) Effects() []Effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.effects)
}
