package suite

import (
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/process"
)

// Application is the whole of ingest.Service: its writes and its reads.
type Application struct {
	*ingest.App
	*ingest.Reads
}

// Application makes reads and writes over one publisher; maxUpload is the most bytes of one file.
func (p *Parts) Application(s Shared, maxUpload int64) (*Application, error) {
	publisher := redisq.NewPublisher(p.Redis, queueConfig(s.Queue), p.Env.Log, time.Now, p.metrics)
	p.watch(publisher.Collector())
	policy := s.policy()
	app, err := p.app(s, ingest.Deps{Publisher: publisher, Detect: extract.Detect, Policy: policy}, maxUpload)
	if err != nil {
		return nil, err
	}
	reads, err := ingest.NewReads(ingest.ReadsDeps{
		Store: p.Store, Embedder: p.Embedder, Vectors: p.Vectors, Queue: publisher, Log: p.Env.Log,
	})
	if err != nil {
		return nil, err
	}
	return &Application{App: app, Reads: reads}, nil
}

// Services are what runs beside the gateway: the poller of watches.
func (a *Application) Services() []process.Service {
	return []process.Service{process.Named("watches", process.ServiceFunc(a.Reads.Run))}
}

var _ ingest.Service = (*Application)(nil)
