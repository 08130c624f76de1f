package suite

import (
	"time"

	"github.com/millweir/millweir/pkg/dlq"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
)

// Letters is the desk for dead letters of the ingest queue. With Redis it serves the dead letter stream on both roads: after a
// switch to Kafka the letters of the old road are still there.
func (p *Parts) Letters(s Shared, app *Application) *dlq.Desk {
	var book ingestq.LetterBook
	if p.Redis != nil {
		if b, err := redisq.NewLetters(p.Redis, queueConfig(s.Queue)); err == nil { // the stream may be off
			book = b
		}
	}
	return dlq.New(dlq.Deps{
		Book: book, Store: p.Store, App: app, Kafka: s.Queue.Kind == QueueKafka, Log: p.Env.Log, Now: time.Now,
	})
}
