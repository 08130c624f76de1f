package document

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	sampleEvery = 20 * time.Millisecond
	idleRest    = 5 * time.Second
)

// watcher keeps the largest memory of a process.
type watcher struct {
	stop func()
	sum  int64 // with its children
	one  int64 // of a single child
}

// watch samples until stop is called.
func watch(ctx context.Context, p *proc.Proc) *watcher {
	w := &watcher{}
	stop := await.Beside(ctx, func(ctx context.Context) error {
		for await.Pause(ctx, sampleEvery) {
			m := p.Memory()
			w.sum = max(w.sum, m.Sum())
			for _, c := range m.Children {
				w.one = max(w.one, c)
			}
		}
		return nil
	})
	w.stop = func() { _ = stop() }
	return w
}

// Memory measures a worker idle, over the good and the hostile files, and over a long PDF against a short one.
func Memory(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	good, hostile, err := figure.Corpus(b.Root)
	if err != nil {
		return nil, err
	}
	w, client, _, err := figure.NewWorld(ctx, b, world.Options{Name: "memory", Env: []string{"EXTRACT_PARALLEL=2", "INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=100"}}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	m := meter{w: w, client: client}
	idle, _, err := m.over(ctx, nil)
	if err != nil {
		return nil, err
	}
	goodSum, _, err := m.over(ctx, good)
	if err != nil {
		return nil, fmt.Errorf("good files: %w", err)
	}
	_, hostileChild, err := m.over(ctx, hostile)
	if err != nil {
		return nil, fmt.Errorf("hostile files: %w", err)
	}
	short, _, err := m.over(ctx, []apiclient.Doc{{Name: "30.pdf", Body: pdfgen.Text(30, 30)}})
	if err != nil {
		return nil, err
	}
	long, _, err := m.over(ctx, []apiclient.Doc{{Name: "300.pdf", Body: pdfgen.Text(300, 300)}})
	if err != nil {
		return nil, err
	}
	return []figure.Figure{
		{Name: "stream-worker, idle", Measured: figure.Megabytes(idle), Unit: "MB", Asked: 120, Relation: "≤", Note: "largest of 5 s"},
		{Name: "with its children, good files", Measured: figure.Megabytes(goodSum), Unit: "MB", Asked: 250, Relation: "≤", Note: fmt.Sprintf("%d files, EXTRACT_PARALLEL=2, sampled every %s", len(good), sampleEvery)},
		{Name: "largest child, hostile files", Measured: figure.Megabytes(hostileChild), Unit: "MB", Asked: 300, Relation: "≤", Note: fmt.Sprintf("%d files", len(hostile))},
		{Name: "300-page PDF more than a 30-page one", Measured: figure.Megabytes(long - short), Unit: "MB", Asked: 50, Relation: "≤", Note: fmt.Sprintf("with children %.0f and %.0f MB", figure.Megabytes(long), figure.Megabytes(short))},
	}, nil
}

// meter measures fresh workers one after the other.
type meter struct {
	w      *world.World
	client *apiclient.Client
}

// over starts a worker, lets it work off the documents (none: rest) and returns the largest memory of it with its
// children and of one child.
func (m meter) over(ctx context.Context, docs []apiclient.Doc) (sum, child int64, err error) {
	for _, d := range docs {
		var refused *apiclient.StatusError
		if _, err := m.client.Upload(ctx, d); err != nil && !errors.As(err, &refused) {
			return 0, 0, fmt.Errorf("upload %s: %w", d.Name, err)
		} else if err != nil {
			return 0, 0, fmt.Errorf("%s is refused at upload: %w", d.Name, err)
		}
	}
	p, err := m.w.Start("stream-worker")
	if err != nil {
		return 0, 0, err
	}
	if len(docs) == 0 {
		await.Pause(ctx, idleRest) // the PDF reader is compiled in a child at the start
	}
	watching := watch(ctx, p) // at once: small files are done before the worker says that it is ready
	defer watching.stop()
	if err := p.AwaitReady(ctx, figure.StartLimit); err != nil {
		return 0, 0, err
	}
	if len(docs) == 0 {
		await.Pause(ctx, idleRest)
	} else if err := figure.Counted(ctx, m.w, 2*time.Minute, func(c map[taskstate.Status]int) bool {
		return c[taskstate.StatusQueued]+c[taskstate.StatusRunning]+c[taskstate.StatusRetrying] == 0
	}); err != nil {
		return 0, 0, err
	}
	watching.stop()
	if _, err := p.Stop(ctx, figure.StartLimit); err != nil {
		return 0, 0, err
	}
	return watching.sum, watching.one, nil
}
