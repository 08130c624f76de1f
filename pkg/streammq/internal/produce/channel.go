package produce

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// listen reads replies of FastStream, which come on a Pub/Sub channel, until ctx ends. What is published while no connection
// listens is lost: the request ends with ErrNoReply.
func (r *Requester) listen(ctx context.Context) {
	heard := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
		select {
		case <-r.ready:
		default:
			if s.Kind == "subscribe" {
				close(r.ready) // the one goroutine that reads this connection calls this
			}
		}
	})
	for pause := model.DefaultErrorBackoff; ctx.Err() == nil; pause = min(2*pause, model.MaxErrorBackoff) {
		began := r.mq.Cfg.Now()
		// On a connection of its own: where it is given back the subscription ends.
		err := r.mq.Client.Dedicated(func(c rueidis.DedicatedClient) error {
			return c.Receive(heard, c.B().Subscribe().Channel(r.name).Build(), r.hear)
		})
		if ctx.Err() != nil {
			return
		}
		if r.mq.Cfg.Now().Sub(began) > model.MaxErrorBackoff {
			pause = model.DefaultErrorBackoff
		}
		r.mq.Cfg.Log.WarnContext(ctx, "streammq: reading replies failed", slog.String("requester", r.name), slog.Any("error", err))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (r *Requester) hear(m rueidis.PubSubMessage) {
	_, headers, body, err := wire.DecodeEnvelope([]byte(m.Message))
	if err != nil || !r.give(headers[wire.FastStreamCorrelationID], answer{reply: Reply{Payload: body, Headers: headers}}) {
		r.mq.Observe(model.Event{Kind: model.EventLateReply, Partition: -1, Member: r.cfg.Name, Count: 1})
	}
}

// give hands an answer to who waits for it; false: nobody does any more. The first counts.
func (r *Requester) give(id string, a answer) bool {
	r.mu.Lock()
	replied := r.open[id]
	delete(r.open, id)
	r.mu.Unlock()
	if replied == nil {
		return false
	}
	replied <- a
	return true
}
