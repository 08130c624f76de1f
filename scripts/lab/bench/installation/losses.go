package installation

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	flushTasks   = 10_000
	flushRest    = 3 * time.Second
	backlogTasks = 100_000
	backlogBatch = 500
	backlogWatch = time.Minute
)

// Flushall loses the stream with 10,000 queued tasks, waits until all are on it again, and lets workers run them.
func Flushall(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "flushall", Env: []string{"INGEST_WORKER_CONCURRENCY=32", "INGEST_LEASE_MS=10000"}}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	uploading := time.Now()
	load := apiclient.Load{Target: client, Clients: 16, Count: flushTasks, Bytes: smallText}.Run(ctx)
	rate := flushTasks / time.Since(uploading).Seconds()
	if _, err := w.StartReady(ctx, "reclaimer"); err != nil { // sweeps, and takes no new task
		return nil, err
	}
	// What was accepted less than the slack (2 s) before the loss counts as lost only once readers have come that far
	// (design D5), and nobody reads here.
	await.Pause(ctx, flushRest)
	if err := w.Stream.Do(ctx, "FLUSHALL"); err != nil {
		return nil, err
	}
	flushed := time.Now()
	copies := 0
	if err := await.Until(ctx, time.Minute, 100*time.Millisecond, func(ctx context.Context) error {
		entries, err := w.Stream.Entries(ctx)
		copies = 0
		for _, n := range entries {
			copies += n
		}
		if err == nil && len(entries) < flushTasks {
			err = fmt.Errorf("%d of %d tasks are on the stream", len(entries), flushTasks)
		}
		return err
	}); err != nil {
		return nil, err
	}
	back := time.Since(flushed)
	draining := time.Now()
	if _, err := w.StartReady(ctx, "stream-worker"); err != nil {
		return nil, err
	}
	a := figure.Audit(w, load)
	if err := a.Settled(ctx, figure.SettleLimit); err != nil {
		return nil, err
	}
	drain := flushTasks / time.Since(draining).Seconds()
	note := fmt.Sprintf("accepted %.0f/s through HTTP with 16 clients; drained %.0f documents/s into Chroma by one worker", rate, drain)
	return []figure.Figure{
		{Name: "FLUSHALL, 10,000 queued → all back on the stream", Measured: back.Seconds(), Unit: "s", Asked: 15, Relation: "≤", Note: note},
		{Name: "entries beyond one for each task", Measured: float64(copies - flushTasks), Asked: 0, Relation: "≤", Note: "every task succeeded once, by the audit of all logs"},
	}, a.Run(ctx)
}

// Backlog queues 100,000 tasks as an API does, commit then XADD, and counts what the sweep adds without a reason.
func Backlog(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, err := world.New(ctx, b, world.Options{Name: "backlog"})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	client, err := redisclient.New(w.Redis.URL(""))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	queue := redisq.NewPublisher(client, redisq.NewDefaultConfig(w.Redis.URL("")), slog.New(slog.DiscardHandler), time.Now, nil)
	started := time.Now()
	for range backlogTasks / backlogBatch {
		tasks, err := w.DB.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) { return newTasks() })
		if err == nil {
			err = taskrun.Publish(ctx, queue, tasks)
		}
		if err != nil {
			return nil, err
		}
	}
	rate := backlogTasks / time.Since(started).Seconds()
	if _, err := w.StartReady(ctx, "reclaimer"); err != nil {
		return nil, err
	}
	await.Pause(ctx, backlogWatch)
	n, err := w.Stream.Len(ctx, world.StreamKey)
	return []figure.Figure{{
		Name: "added again in 60 s, 100,000 queued, no worker", Measured: float64(n - backlogTasks), Asked: 0, Relation: "≤",
		Note: fmt.Sprintf("submitted and published %.0f tasks/s in batches of %d", rate, backlogBatch),
	}}, err
}

// newTasks makes a batch of tasks.
func newTasks() ([]taskstate.NewTask, error) {
	out := make([]taskstate.NewTask, backlogBatch)
	for i := range out {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		out[i] = taskstate.NewTask{
			Task:  taskstate.Task{ID: id.String(), UserID: "local", Type: "document", Channel: "http", MaxAttempts: 10},
			Actor: taskstate.Actor{Kind: taskstate.ActorUser, Name: "local"},
		}
	}
	return out, nil
}

const (
	paidKills    = 10
	paidBatches  = 250 // 1,000 segments
	paidBatch    = 4
	paidEach     = 22 // requests between two kills
	paidInFlight = 2  // embedding calls of one document at the same time
	paidBytes    = 84_000
)

// Paid kills the worker of a long document ten times; what the next one pays for a second time can only be what was under way.
func Paid(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "paid", Embedder: &embedtest.Options{}, Env: []string{
		fmt.Sprintf("EMBEDDING_BATCH_SIZE=%d", paidBatch), "CHUNK_SIZE=32", "CHUNK_OVERLAP=0", "INGEST_LEASE_MS=2000", "INGEST_MAX_CRASHES=20",
	}}, "ingest-api", "stream-worker")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: 30 * time.Millisecond})
	load := apiclient.Load{Target: client, Clients: 1, Count: 1, Bytes: paidBytes}.Run(ctx)
	worker := procs[1]
	for n := range paidKills {
		if err := await.Closed(ctx, w.Embed.Wait((n+1)*paidEach)); err != nil {
			return nil, err
		}
		worker.Kill()
		if worker, err = w.StartReady(ctx, "stream-worker"); err != nil {
			return nil, err
		}
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
		Name: "batches paid twice after ten kill -9", Measured: float64(twice), Asked: paidKills * paidInFlight, Relation: "≤",
		Note: fmt.Sprintf("document of %d batches of %d segments, killed after every %d requests; %d in flight at a time", len(times), paidBatch, paidEach, paidInFlight),
	}}, a.Run(ctx)
}

const (
	budgetPerMinute = 1200
	budgetDocuments = 40
	budgetBytes     = 6000             // about 12 batches of paidBatch segments of 32 tokens
	budgetWarm      = 5 * time.Second  // from the first request: the workers come to it
	budgetWindow    = 30 * time.Second // then watched
)

// Budget lets two workers share a budget of requests with a service that refuses half of them, and counts what reaches the service.
func Budget(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "budget", Embedder: &embedtest.Options{}, Env: []string{
		fmt.Sprintf("EMBEDDING_BATCH_SIZE=%d", paidBatch), fmt.Sprintf("EMBEDDING_REQUESTS_PER_MINUTE=%d", budgetPerMinute), "CHUNK_SIZE=32", "CHUNK_OVERLAP=0",
	}}, "ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Throttle, Match: func(embedtest.Effect) bool { return rand.IntN(2) == 0 }})
	load := apiclient.Load{Target: client, Clients: 4, Count: budgetDocuments, Bytes: budgetBytes}.Run(ctx)
	a := figure.Audit(w, load)
	if err := a.Settled(ctx, 2*figure.SettleLimit); err != nil {
		return nil, err
	}
	effects := w.Embed.Effects()
	from := effects[0].At.Add(budgetWarm)
	to := from.Add(budgetWindow)
	if last := effects[len(effects)-1].At; last.Before(to) {
		return nil, fmt.Errorf("%d requests ended after %v, must last for %v", len(effects), last.Sub(effects[0].At), budgetWarm+budgetWindow)
	}
	asked := 0
	for _, e := range effects {
		if e.At.After(from) && e.At.Before(to) {
			asked++
		}
	}
	var attempts int
	if err := w.DB.Reader().QueryRowContext(ctx, `SELECT COALESCE(SUM(attempt_count), 0) FROM ingest_task`).Scan(&attempts); err != nil {
		return nil, err
	}
	share := float64(asked) / (budgetPerMinute * budgetWindow.Minutes())
	note := fmt.Sprintf("%d requests in %v, two workers, half of them refused with 429; %d requests in all", asked, budgetWindow, len(effects))
	return []figure.Figure{
		{Name: "requests ÷ the budget", Measured: share, Asked: 1.05, Relation: "≤", Note: note},
		{Name: "requests ÷ the budget", Measured: share, Asked: 0.95, Relation: "≥", Note: note},
		{Name: "attempts counted", Measured: float64(attempts), Asked: 0, Relation: "≤", Note: "every document succeeded, by the audit of all logs"},
	}, a.Run(ctx)
}

const (
	editBytes = 900_000 // 300 pages of 3,000 characters
	edits     = 10
)

// Edit puts a sentence into a long document again and again, each time elsewhere, and counts what is embedded and written for it.
func Edit(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "edit", Embedder: &embedtest.Options{}}, "ingest-api", "stream-worker")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	doc := apiclient.Text(1, editBytes)
	t, err := client.Upload(ctx, doc)
	if err != nil {
		return nil, err
	}
	ended := func(id string) error {
		_, err := client.Await(ctx, id, taskstate.StatusSucceeded, figure.SettleLimit, 50*time.Millisecond)
		return err
	}
	if err := ended(t.TaskID); err != nil {
		return nil, err
	}
	paid := func() (texts int) {
		for _, e := range w.Embed.Effects() {
			texts += e.Texts
		}
		return texts
	}
	all := paid()
	var segments, written, most int
	for n := range edits {
		before := paid()
		at := bytes.IndexByte(doc.Body[(n+1)*len(doc.Body)/(edits+2):], '.') + (n+1)*len(doc.Body)/(edits+2) + 1
		doc.Body = slices.Concat(doc.Body[:at], fmt.Appendf(nil, " This sentence %d was put in later.", n), doc.Body[at:])
		doc.Key = fmt.Sprintf("edit-%d", n)
		edit, err := client.Replace(ctx, t.DocumentID, doc)
		if err == nil {
			err = ended(edit.TaskID)
		}
		if err != nil {
			return nil, err
		}
		var fresh int
		if err := w.DB.Reader().QueryRowContext(ctx, `SELECT COUNT(*), SUM(CASE WHEN birth_version_id = version_id THEN 1 ELSE 0 END) FROM knowledge_segment WHERE version = ?`, n+2).
			Scan(&segments, &fresh); err != nil {
			return nil, err
		}
		written, most = written+fresh, max(most, fresh, paid()-before)
	}
	note := fmt.Sprintf("%d edits of a document of %d segments; the most of one edit was %d", edits, segments, most)
	return []figure.Figure{
		{Name: "texts embedded for an edit, mean", Measured: float64(paid()-all) / edits, Asked: 3, Relation: "≤", Note: note},
		{Name: "vectors written for an edit, mean", Measured: float64(written) / edits, Asked: 3, Relation: "≤", Note: note},
	}, nil
}
