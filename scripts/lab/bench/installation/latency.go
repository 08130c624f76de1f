package installation

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

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
