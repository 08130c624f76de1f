package gateway

import (
	"time"

	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/queue"
)

// DeadLetters is the service for dead letters of the ingest queue. With Redis it serves the dead letter stream on both transports:
// after a switch to Kafka the dead letters of the old transport are still there. On Kafka it has the records that could not be
// read too.
func DeadLetters(p *documents.Parts, s documents.Shared, app *Application) *dlq.Service {
	d := dlq.Deps{Store: p.Store, App: app, Kafka: s.Queue.Kind == queue.Kafka, Log: p.Env.Log, Now: time.Now}
	if t, ok := p.Transports[queue.Redis]; ok {
		d.Reader = t.DeadLetters()
	}
	if t, ok := p.Transports[queue.Kafka]; ok {
		d.Raw = t.DeadLetters()
	}
	return dlq.New(d)
}
