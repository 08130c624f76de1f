package installation

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	paidBatches  = 100
	paidBatch    = 4
	paidMiddle   = 50
	paidInFlight = 2      // embedding calls of one document at the same time
	paidBytes    = 60_000 // gives more than paidBatches batches in segments of 32 tokens
)

// Paid kills a worker in the middle of a long document; what the next one pays for a second time can only be what was under way.
func Paid(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "paid", Embedder: &embedtest.Options{}, Env: []string{
		fmt.Sprintf("EMBEDDING_BATCH_SIZE=%d", paidBatch), "CHUNK_SIZE=32", "CHUNK_OVERLAP=0", "INGEST_LEASE_MS=2000",
	}}, "ingest-api", "stream-worker")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: 30 * time.Millisecond})
	load := apiclient.Load{Target: client, Clients: 1, Count: 1, Bytes: paidBytes}.Run(ctx)
	if err := await.Closed(ctx, w.Embed.Wait(paidMiddle)); err != nil {
		return nil, err
	}
	procs[1].Kill()
	if _, err := w.StartReady(ctx, "stream-worker"); err != nil {
		return nil, err
	}
	a := figure.Audit(w, load)
	a.Stream = nil
	if err := a.Settled(ctx, figure.SettleLimit); err != nil {
		return nil, err
	}
	times := map[string]int{}
	for _, e := range w.Embed.Effects() {
		if e.Paid {
			times[e.TextsHash]++
		}
	}
	twice := 0
	for _, n := range times {
		twice += n - 1
	}
	if len(times) < paidBatches {
		return nil, fmt.Errorf("the document has %d batches, must have at least %d", len(times), paidBatches)
	}
	return []figure.Figure{{
		Name: "batches paid twice after a kill -9", Measured: float64(twice), Asked: paidInFlight, Relation: "≤",
		Note: fmt.Sprintf("document of %d batches, killed after %d; %d in flight at a time", len(times), paidMiddle, paidInFlight),
	}}, a.Run(ctx)
}
