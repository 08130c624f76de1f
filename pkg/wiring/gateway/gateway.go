// Package gateway puts together the application that a gateway serves: its writes, its reads and the dead letters.
package gateway

import (
	"context"

	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingest/rerank"
	"github.com/millweir/millweir/pkg/ingest/watch"
	"github.com/millweir/millweir/pkg/ingest/workflows"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/queue"
	"github.com/millweir/millweir/pkg/workflow"
)

// Application is the whole of ingest.Service: its writes and its reads.
type Application struct {
	*app.App
	*query.Reads
	*watch.Watches
	*tasks.Explainer
	Workflows *workflow.Registry
	Bulk      *bulk.Operations
	Checks    *checks.Checks
}

// New makes reads and writes over one publisher; maxUpload is the most bytes of one file.
func New(p *documents.Parts, s documents.Shared, search Search, maxUpload int64) (*Application, error) {
	publisher, length, err := p.Transports[s.Queue.Kind].Publisher()
	if err != nil {
		return nil, err
	}
	a, err := p.Application(s, ingest.Deps{Publisher: publisher, Detect: s.Accept.Type, Adopts: true, Policy: s.Policy()}, maxUpload)
	if err != nil {
		return nil, err
	}
	p.Env.Ready.Register("uploads", func(ctx context.Context) error { return p.CheckUploads(ctx, a, true) })
	deps := query.ReadsDeps{
		Store: p.Store, Catalog: a.Catalog, Embedder: embed.ForQueries(p.Embedder), Earlier: embed.AllForQueries(p.Earlier), Vectors: p.Vectors, Index: a.Index, Queue: length, Log: p.Env.Log,
		Open: a.Folder.Open, TextWeight: search.TextWeight,
	}
	if cfg, ok := search.rerank(); ok {
		if deps.Reranker, err = rerank.New(cfg, p.Env.Metrics); err != nil {
			return nil, err
		}
		deps.RerankTop = search.RerankTop
	}
	reads := query.NewReads(deps)
	p.Watch(reads.Lengths())
	var events tasks.Events
	if s.Queue.Kind == queue.Kafka {
		events = outbox.NewReader(p.Store, s.Kafka.Topic)
	}
	known, err := p.Workflows(s.Workflows, a, nil)
	if err != nil {
		return nil, err
	}
	about := ingest.Descriptions()
	about[workflow.Type] = workflow.Records{}.Describe()
	return &Application{
		App: a, Reads: reads, Watches: watch.NewWatches(p.Store, p.Env.Log), Explainer: tasks.NewExplainer(p.Store, events, publisher, about), Workflows: known,
		Bulk: workflows.NewBulk(a, p.Store), Checks: checks.New(p.Store, a.Service),
	}, nil
}

// Services are what runs beside the gateway: the poller of watches, and what uploads left behind.
func (a *Application) Services() []process.Service {
	return []process.Service{
		process.Named("watches", process.ServiceFunc(a.Watches.Run)),
		process.Named("receiver", process.ServiceFunc(a.RunReceiver)),
	}
}

var _ ingest.Service = (*Application)(nil)
