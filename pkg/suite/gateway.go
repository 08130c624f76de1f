package suite

import (
	"context"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/app"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingest/watch"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/pkg/tasks"
)

// Application is the whole of ingest.Service: its writes and its reads.
type Application struct {
	*app.App
	*query.Reads
	*watch.Watches
	*tasks.Explainer
}

// Application makes reads and writes over one publisher; maxUpload is the most bytes of one file.
func (p *Parts) Application(s Shared, maxUpload int64) (*Application, error) {
	publisher, stats, err := p.publisher(s)
	if err != nil {
		return nil, err
	}
	policy := s.policy()
	a, err := p.app(s, ingest.Deps{Publisher: publisher, Detect: detect.Type, Policy: policy}, maxUpload)
	if err != nil {
		return nil, err
	}
	p.Env.Ready.Register("uploads", func(ctx context.Context) error { return p.uploads(ctx, a, true) })
	reads, err := query.NewReads(query.ReadsDeps{Store: p.Store, Embedder: p.Embedder, Vectors: p.Vectors, Queue: stats, Log: p.Env.Log})
	if err != nil {
		return nil, err
	}
	var events tasks.Events
	if s.Queue.Kind == QueueKafka {
		events = outbox.NewReader(p.Store, s.Kafka.Topic)
	}
	watches := watch.NewWatches(p.Store, p.Env.Log)
	return &Application{App: a, Reads: reads, Watches: watches, Explainer: tasks.NewExplainer(p.Store, events, ingest.Descriptions())}, nil
}

// publisher adds deliveries after their commit, and stats counts them. On the Kafka transport a delivery is an event of the row's
// own transaction: there is nothing to add.
func (p *Parts) publisher(s Shared) (ingestq.Publisher, query.QueueStats, error) {
	if s.Queue.Kind == QueueKafka {
		p.watch(p.kafka.Collector(time.Now))
		return nil, p.kafka, nil
	}
	publisher, err := p.redisPublisher(s.Queue)
	if err != nil {
		return nil, nil, err
	}
	p.watch(publisher.Collector())
	return publisher, publisher, nil
}

// Services are what runs beside the gateway: the poller of watches, and what uploads left behind.
func (a *Application) Services() []process.Service {
	return []process.Service{
		process.Named("watches", process.ServiceFunc(a.Watches.Run)),
		process.Named("receiver", process.ServiceFunc(a.RunReceiver)),
	}
}

var _ ingest.Service = (*Application)(nil)
