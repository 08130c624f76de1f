package engine

import (
	"context"
	"errors"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/mirror"
)

const (
	rawName  = "bench" // of queue, exchange and routing key
	rawBytes = 600     // about those of a copy
	rawBatch = 500     // messages of a batch
)

// broker is RabbitMQ by itself: what a program could do that did nothing else.
type broker struct {
	conn *amqp.Connection
	ch   *amqp.Channel
	cfg  mirror.Config
}

func openBroker(url string) (*broker, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	b := &broker{conn: conn, cfg: mirror.NewDefaultConfig(url)}
	if b.ch, err = conn.Channel(); err == nil {
		err = b.ch.Confirm(false)
	}
	if err == nil { // a queue as that of the copies
		_, err = b.ch.QueueDeclare(rawName, true, false, false, false, amqp.Table{
			"x-queue-type": "quorum", "x-delivery-limit": int64(b.cfg.DeliveryLimit), "x-max-length": int64(b.cfg.QueueMaxLength), "x-overflow": b.cfg.Overflow,
		})
	}
	if err == nil {
		err = b.ch.ExchangeDeclare(rawName, "topic", true, false, false, false, nil)
	}
	if err == nil {
		err = b.ch.QueueBind(rawName, rawName, rawName, false, nil)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return b, nil
}

func (b *broker) close() { _ = b.conn.Close() } // its queue goes with the server

// length is how many messages of a queue nobody has taken.
func (b *broker) length(queue string) (int, error) {
	q, err := b.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return q.Messages, err
}

// publish publishes n messages and waits for the confirms of so many at a time.
func (b *broker) publish(ctx context.Context, n, atOnce int) (time.Duration, error) {
	body := make([]byte, rawBytes)
	began := time.Now()
	for left := n; left > 0; left -= atOnce {
		if err := b.batch(ctx, body, min(left, atOnce)); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (b *broker) batch(ctx context.Context, body []byte, n int) error {
	waits := make([]*amqp.DeferredConfirmation, n)
	for i := range waits {
		var err error
		message := amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}
		if waits[i], err = b.ch.PublishWithDeferredConfirmWithContext(ctx, rawName, rawName, true, false, message); err != nil {
			return err
		}
	}
	for _, w := range waits {
		if ok, err := w.WaitContext(ctx); err != nil || !ok {
			return errors.Join(err, errors.New("a message was not confirmed"))
		}
	}
	return nil
}

// rotate takes n messages, so many at once, publishes them at the tail and acknowledges them.
func (b *broker) rotate(ctx context.Context, n, atOnce int) (time.Duration, error) {
	ch, err := b.conn.Channel()
	if err != nil {
		return 0, err
	}
	defer ch.Close() //nolint:errcheck // what it holds goes back
	if err := ch.Qos(atOnce, 0, false); err != nil {
		return 0, err
	}
	in, err := ch.ConsumeWithContext(ctx, rawName, "", false, false, false, false, nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	for left := n; left > 0; {
		var last amqp.Delivery
		count := min(left, atOnce)
		for range count {
			select {
			case last = <-in:
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
		if err := b.batch(ctx, last.Body, count); err != nil {
			return 0, err
		}
		if err := last.Ack(true); err != nil {
			return 0, err
		}
		left -= count
	}
	return time.Since(began), nil
}

// tap notes when each copy is published for the first time: the exchange gives it to a queue of the tap's own too.
func (b *broker) tap(ctx context.Context, n int) (seen func(context.Context) (map[string]time.Time, int, error), err error) {
	ch, err := b.conn.Channel()
	if err != nil {
		return nil, err
	}
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err == nil {
		err = ch.QueueBind(q.Name, b.cfg.RoutingKey, b.cfg.Exchange, false, nil)
	}
	if err != nil {
		return nil, err
	}
	in, err := ch.ConsumeWithContext(ctx, q.Name, "", true, true, false, false, nil)
	if err != nil {
		return nil, err
	}
	times, bytes, all := make(map[string]time.Time, n), 0, make(chan struct{})
	go func() {
		defer close(all)
		for d := range in {
			if _, known := times[d.MessageId]; !known {
				times[d.MessageId] = time.Now()
				bytes += len(d.Body)
			}
			if len(times) == n {
				return
			}
		}
	}()
	return func(ctx context.Context) (map[string]time.Time, int, error) {
		defer ch.Close() //nolint:errcheck // its queue goes with it
		select {
		case <-all:
			return times, bytes / max(1, len(times)), nil
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}, nil
}
