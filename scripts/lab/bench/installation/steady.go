package installation

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	steadyMinutes = 30 // BENCH_MINUTES says otherwise
	steadyClients = 4
	steadyEvery   = 200 * time.Millisecond // of one client: 20 documents a second in all
	steadySample  = time.Second
	steadyParts   = 5 // of the time: the first warms up, the second and the last are compared
	// A process grows by up to 32 MB of garbage before its first collection (process.FewerCollections), an idle one slowly.
	steadyGrowth = 40 // MB
)

// SteadyTime is how long the load lasts.
func SteadyTime() time.Duration {
	return time.Duration(figure.Setting("BENCH_MINUTES", steadyMinutes)) * time.Minute
}

// Steady uploads small documents at an even rate for long and compares the memory of each process early and late.
func Steady(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "steady", Embedder: &embedtest.Options{}}, "ingest-api", "stream-worker", "reclaimer")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	limit := SteadyTime()
	under, end := context.WithTimeout(ctx, limit)
	defer end()
	sampled := make(chan [][]int64, 1)
	go func() { sampled <- sample(under, procs) }()
	load := apiclient.Load{Target: client, Clients: steadyClients, Bytes: smallText, Every: steadyEvery}.Run(under)
	samples := <-sampled
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	a := figure.Audit(w, load)
	if err := a.Settled(ctx, figure.SettleLimit); err != nil {
		return nil, err
	}
	if err := a.Run(ctx); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%s, %d documents, a sample every %s; means of the 2nd and the last fifth", limit, len(load.Accepted), steadySample)
	var out []figure.Figure
	for i, p := range procs {
		early, late := part(samples[i], 1), part(samples[i], steadyParts-1)
		out = append(out, figure.Figure{
			Name: p.Name + ", growth of memory", Measured: late - early, Unit: "MB", Asked: steadyGrowth, Relation: "≤",
			Note: fmt.Sprintf("%.1f and %.1f MB: %s", early, late, note),
		})
	}
	return out, nil
}

// sample reads the resident memory of each process until ctx ends.
func sample(ctx context.Context, procs []*proc.Proc) [][]int64 {
	out := make([][]int64, len(procs))
	for await.Pause(ctx, steadySample) {
		for i, p := range procs {
			out[i] = append(out[i], p.Memory().Self)
		}
	}
	return out
}

// part is the mean of the n-th part of the samples, MB.
func part(samples []int64, n int) float64 {
	size := len(samples) / steadyParts
	if size == 0 {
		return 0
	}
	sum := int64(0)
	for _, s := range samples[n*size : (n+1)*size] {
		sum += s
	}
	return figure.Megabytes(sum) / float64(size)
}
