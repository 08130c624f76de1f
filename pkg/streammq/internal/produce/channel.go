package produce

import (
	"context"
	"log/slog"
	"sync"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
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
		_ = stream.Sleep(ctx, pause) // the loop ends with ctx
	}
}

func (r *Requester) hear(m rueidis.PubSubMessage) {
	_, headers, body, err := wire.DecodeEnvelope([]byte(m.Message))
	if err != nil || !r.give(headers[wire.FastStreamCorrelationID], answer{reply: Reply{Payload: body, Headers: headers}}) {
		r.mq.Observe(model.Event{Kind: model.EventLateReply, Partition: -1, Member: r.cfg.Name, Count: 1})
	}
}

// Run reads replies until ctx ends; then it removes their stream and returns nil. It goes on through every failure of the
// server. Error: ErrRunning.
func (r *Requester) Run(ctx context.Context) error {
	r.mu.Lock()
	ran := r.ran
	r.ran = true
	r.mu.Unlock()
	if ran {
		return model.ErrRunning
	}
	if r.cfg.Format != wire.FormatOwn {
		r.listen(ctx)
		return nil
	}
	var running sync.WaitGroup
	defer r.leave(ctx)
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lost := make(chan struct{}, 1) // the stream was made again
	core.Every(ctx, &running, r.cfg.TTL/3, func(ctx context.Context) { r.keep(ctx, lost) })
	pause := model.DefaultErrorBackoff
	for after := "0"; ctx.Err() == nil; {
		next, err := r.read(ctx, after)
		select {
		case <-lost:
			next = "0"
		default:
		}
		if after = next; err == nil || ctx.Err() != nil {
			pause = model.DefaultErrorBackoff
			continue
		}
		r.mq.Cfg.Log.WarnContext(ctx, "streammq: reading replies failed", slog.String("requester", r.name), slog.Any("error", err))
		_ = stream.Sleep(ctx, pause) // the loop ends with ctx
		pause = min(2*pause, model.MaxErrorBackoff)
	}
	return nil
}
