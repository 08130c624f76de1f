package suite

import (
	"time"

	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
)

// DeadLetters is the service for dead letters of the ingest queue. With Redis it serves the dead letter stream on both transports: after a
// switch to Kafka the dead letters of the old transport are still there. On Kafka it has the records that could not be read too.
func (p *Parts) DeadLetters(s Shared, app *Application) *dlq.Service {
	var book ingestq.DeadLetterReader
	if p.Redis != nil {
		if b, err := redisq.NewDeadLetters(p.Redis, queueConfig(s.Queue)); err == nil { // the stream may be off
			book = b
		}
	}
	var raw ingestq.DeadLetterReader
	if p.kafka != nil {
		raw = kafkaq.NewDeadLetters(p.kafka, p.producer)
	}
	return dlq.New(dlq.Deps{
		Reader: book, Raw: raw, Store: p.Store, App: app, Kafka: s.Queue.Kind == QueueKafka, Log: p.Env.Log, Now: time.Now,
	})
}
