package installation

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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

const (
	eventClients = 1000
	eventTasks   = 10
	eventRest    = 20 * time.Second
	dialsAtOnce  = 50
)

// Events counts the statements that the database gets while 1,000 clients wait for something to happen.
func Events(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "events"}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	load := apiclient.Load{Target: client, Clients: 2, Count: eventTasks, Bytes: smallText}.Run(ctx)
	before, err := statements(ctx, w)
	if err != nil {
		return nil, err
	}
	streams := &subscribers{client: &http.Client{Transport: &http.Transport{}}}
	defer streams.close()
	if err := streams.open(ctx, procs[0].HTTP, load); err != nil {
		return nil, err
	}
	after, err := statements(ctx, w)
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "statements a second, 1,000 idle event streams", Measured: after, Unit: "/s", Asked: 5, Relation: "≤", Note: fmt.Sprintf("over %d tasks; %.2g/s without streams; MariaDB's Questions", eventTasks, before)},
		{Name: "ingest-api with them", Measured: figure.Megabytes(procs[0].Memory().Self), Unit: "MB"},
	}, nil
}

// statements is how many statements a second the database answers while nothing happens, without our own.
func statements(ctx context.Context, w *world.World) (float64, error) {
	await.Pause(ctx, 3*time.Second) // what the opening of streams caused is over
	read := func() (int64, error) {
		var name string
		var n int64
		err := w.DB.Reader().QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n)
		return n, err
	}
	first, err := read()
	if err != nil {
		return 0, err
	}
	started := time.Now()
	await.Pause(ctx, eventRest)
	last, err := read()
	return float64(last-first-1) / time.Since(started).Seconds(), err
}

// subscribers are open event streams.
type subscribers struct {
	client *http.Client
	mu     sync.Mutex
	bodies []*http.Response
}

// open opens the streams and waits for the first event of each.
func (s *subscribers) open(ctx context.Context, base string, load *apiclient.Record) error {
	var ids []string
	for id := range load.Accepted {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return fmt.Errorf("no task was accepted")
	}
	group := &errgroup.Group{}
	group.SetLimit(dialsAtOnce)
	for i := range eventClients {
		group.Go(func() error { return s.subscribe(ctx, base+"/api/knowledge/tasks/"+ids[i%len(ids)]+"/events") })
	}
	return group.Wait()
}

// subscribe opens one stream and reads its first event.
func (s *subscribers) subscribe(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	res, err := s.client.Do(req) //nolint:bodyclose // close does
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.bodies = append(s.bodies, res) //nolint:bodyclose // close does
	s.mu.Unlock()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "data:") {
			return nil
		}
	}
	return fmt.Errorf("%s answers %s and ends without an event: %w", url, res.Status, lines.Err())
}

// close ends all streams.
func (s *subscribers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.bodies {
		_ = r.Body.Close() // the server sees it
	}
}
