package installation

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	latencyWarm    = 5
	latencyUploads = 100
	latencyPoll    = 3 * time.Millisecond // the measured time is too long by a half of it on average
	latencyIdle    = 50 * time.Millisecond
)

// Latency uploads 10 KB texts one after the other to an idle all-in-one and asks for the task until it has succeeded:
// that is the transaction that makes the version visible.
func Latency(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, err := world.New(ctx, b, world.Options{Name: "latency", Alone: true})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	p, err := w.StartDev(ctx, world.FreeAddr())
	if err != nil {
		return nil, err
	}
	client := apiclient.NewClient(p.HTTP)
	var times, answers []time.Duration
	for i := range latencyWarm + latencyUploads {
		answered, visible, err := once(ctx, client, apiclient.Text(i, 10*figure.Kilobyte))
		if err != nil {
			return nil, err
		}
		if i >= latencyWarm {
			times, answers = append(times, visible), append(answers, answered)
		}
		await.Pause(ctx, latencyIdle)
	}
	waits, err := queueing(ctx, filepath.Join(w.Data(), "millweir.db"))
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d uploads, one after the other", latencyUploads)
	return []figure.Figure{
		{Name: "10 KB text → searchable, p50", Measured: figure.Ms(figure.Percentile(times, 50)), Unit: "ms", Asked: 150, Relation: "≤", Note: note},
		{Name: "10 KB text → searchable, p99", Measured: figure.Ms(figure.Percentile(times, 99)), Unit: "ms"},
		{Name: "  of it the answer 202, p50", Measured: figure.Ms(figure.Percentile(answers, 50)), Unit: "ms"},
		{Name: "  of it queueing (commit → claimed), p50", Measured: figure.Ms(figure.Percentile(waits, 50)), Unit: "ms", Asked: 20, Relation: "≤", Note: "from the transitions"},
		{Name: "  queueing, p99", Measured: figure.Ms(figure.Percentile(waits, 99)), Unit: "ms"},
	}, nil
}

// once uploads one document and returns when the 202 came and when it was visible; the first one is searched for as well.
func once(ctx context.Context, client *apiclient.Client, d apiclient.Doc) (answered, visible time.Duration, err error) {
	started := time.Now()
	task, err := client.Upload(ctx, d)
	if err != nil {
		return 0, 0, fmt.Errorf("upload: %w", err)
	}
	answered = time.Since(started)
	_, err = client.Await(ctx, task.TaskID, taskstate.StatusSucceeded, figure.StartLimit, latencyPoll)
	visible = time.Since(started)
	if err != nil {
		return 0, 0, err
	}
	hits, err := client.Search(ctx, "", string(d.Body[:600]), 1)
	if err == nil && (len(hits) == 0 || hits[0].FileName != d.Name) {
		err = fmt.Errorf("%s is done and not found: %v", d.Name, hits)
	}
	return answered, visible, err
}

// queueing are the times from the accept to the claim in a SQLite file.
func queueing(ctx context.Context, path string) ([]time.Duration, error) {
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: "sqlite:" + path})
	if err != nil {
		return nil, err
	}
	defer db.Close() //nolint:errcheck // only read
	logs, err := tables.Logs(ctx, db.Reader())
	var out []time.Duration
	for _, log := range logs {
		if len(log) > 1 && log[1].Reason == taskstate.ReasonClaimed {
			out = append(out, log[1].CreatedAt.Sub(log[0].CreatedAt))
		}
	}
	return out, err
}

const (
	retryTasks = 1000
	smallText  = 400 // bytes
	// Uploads are spread and their waits long, so that all tasks wait at the same time and become due at a rate
	// that one Chroma can keep up with: lateness is measured, not the speed of the vector store.
	retryClients = 5
	retryEvery   = 200 * time.Millisecond
	retryWait    = 50 * time.Second
)

// Lateness lets 1,000 tasks fail once on a service that is down, brings it back and compares each retry's start with its time.
func Lateness(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "lateness", Embedder: &embedtest.Options{}, Env: []string{
		"INGEST_WORKER_CONCURRENCY=128",
		fmt.Sprintf("INGEST_REDIS_RETRY_BASE_BACKOFF_MS=%d", retryWait.Milliseconds()), fmt.Sprintf("INGEST_REDIS_RETRY_MAX_BACKOFF_MS=%d", retryWait.Milliseconds()),
	}}, "ingest-api", "stream-worker", "reclaimer")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Fail})
	load := apiclient.Load{Target: client, Clients: retryClients, Count: retryTasks, Bytes: smallText, Every: retryEvery}.Run(ctx)
	if err := figure.Counted(ctx, w, retryWait, func(c map[taskstate.Status]int) bool { return c[taskstate.StatusRetrying] == retryTasks }); err != nil {
		return nil, err // the first is due already: the machine is too slow for these figures
	}
	w.Embed.Clear()
	a := figure.Audit(w, load)
	a.Stream = nil // deliveries that nobody reads any more are settled after ten minutes; not what is measured here
	if err := a.Settled(ctx, figure.SettleLimit); err != nil {
		return nil, err
	}
	if err := a.Run(ctx); err != nil {
		return nil, err
	}
	logs, err := tables.Logs(ctx, w.DB.Reader())
	if err != nil {
		return nil, err
	}
	var late []time.Duration
	early := 0
	for _, log := range logs {
		for i := 1; i < len(log); i++ {
			if log[i-1].To == taskstate.StatusRetrying && log[i].To == taskstate.StatusRunning {
				d := log[i].CreatedAt.Sub(log[i-1].NextRetryAt)
				late = append(late, d)
				if d < 0 {
					early++
				}
			}
		}
	}
	note := fmt.Sprintf("%d retries of %d tasks, MariaDB and Redis, worker and reclaimer with 128 slots each", len(late), retryTasks)
	return []figure.Figure{
		{Name: "retry lateness, p50", Measured: figure.Ms(figure.Percentile(late, 50)), Unit: "ms", Note: note},
		{Name: "retry lateness, p99", Measured: figure.Ms(figure.Percentile(late, 99)), Unit: "ms", Asked: 250, Relation: "≤"},
		{Name: "retries before their time", Measured: float64(early), Unit: "", Asked: 0, Relation: "≤"},
	}, nil
}

const (
	takeoverTasks = 20
	takeoverLease = 5 * time.Second
)

// Takeover kills a worker that holds 20 tasks while another one with 20 free slots is there.
func Takeover(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "takeover", Embedder: &embedtest.Options{}, Env: []string{
		"INGEST_WORKER_CONCURRENCY=20", "INGEST_LEASE_MS=5000",
	}}, "ingest-api", "stream-worker")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Hang})
	load := apiclient.Load{Target: client, Clients: 4, Count: takeoverTasks, Bytes: smallText}.Run(ctx)
	if err := figure.Counted(ctx, w, figure.StartLimit, func(c map[taskstate.Status]int) bool { return c[taskstate.StatusRunning] == takeoverTasks }); err != nil {
		return nil, err
	}
	if _, err := w.StartReady(ctx, "stream-worker"); err != nil {
		return nil, err
	}
	await.Pause(ctx, 2*time.Second) // so that the leases are somewhere in their life
	killed := time.Now()
	procs[1].Kill()
	var waits []time.Duration
	if err := await.Until(ctx, figure.StartLimit, 100*time.Millisecond, func(ctx context.Context) error {
		logs, err := tables.Logs(ctx, w.DB.Reader())
		waits = waits[:0]
		for _, log := range logs {
			if last := log[len(log)-1]; last.Reason == taskstate.ReasonTakeover {
				waits = append(waits, last.CreatedAt.Sub(killed))
			}
		}
		if err == nil && len(waits) < takeoverTasks {
			err = fmt.Errorf("%d of %d tasks were taken over", len(waits), takeoverTasks)
		}
		return err
	}); err != nil {
		return nil, err
	}
	w.Embed.Clear()
	a := figure.Audit(w, load)
	a.Stream = nil
	if err := a.Settled(ctx, figure.SettleLimit); err != nil {
		return nil, err
	}
	return []figure.Figure{{
		Name: "kill -9 → all 20 tasks run again", Measured: figure.Percentile(waits, 100).Seconds(), Unit: "s",
		Asked: takeoverLease.Seconds() + 2, Relation: "≤", Note: fmt.Sprintf("lease %s; the first after %.2f s", takeoverLease, figure.Percentile(waits, 0).Seconds()),
	}}, a.Run(ctx)
}
