package rival

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq"
)

const (
	mqBatch      = 256 // entries of one read, as FastStream's
	mqPartitions = 4
)

// streamMQ is pkg/streammq by itself: no table behind it, as the other two of its comparison have none.
type streamMQ struct {
	cfg    Config
	client rueidis.Client
	mq     *streammq.MQ
	p      *streammq.Producer
}

// Prepare implements System.
func (s *streamMQ) Prepare(ctx context.Context) error {
	s.Close()
	err := flushRedis(ctx, s.cfg.Redis)
	if err != nil {
		return err
	}
	s.client, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.cfg.Redis}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return err
	}
	if s.mq, err = streammq.New(s.client, streammq.NewDefaultConfig()); err != nil {
		return err
	}
	s.p = s.mq.NewProducer(nil)
	_, err = s.mq.CreateTopic(ctx, streammq.Topic{Name: topic, Partitions: mqPartitions})
	return err
}

// Submit implements System.
func (s *streamMQ) Submit(ctx context.Context, n int) error {
	return inChunks(ctx, n, mqBatch, 2, func(ctx context.Context, size int) error {
		messages := make([]streammq.Message, size)
		for i := range messages {
			messages[i].Payload = Payload(0)
		}
		_, err := s.p.PublishBatch(ctx, topic, messages)
		return err
	})
}

// Send implements System.
func (s *streamMQ) Send(ctx context.Context, payload []byte, committed func()) error {
	_, err := s.p.Publish(ctx, topic, streammq.Message{Payload: payload})
	committed()
	return err
}

// Work implements System.
func (s *streamMQ) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	cfg := streammq.NewDefaultSubscriberConfig(topic, consumers, func(_ context.Context, d *streammq.Delivery) streammq.Result {
		handle(d.Payload)
		return streammq.Success()
	})
	cfg.Batch = mqBatch
	sub, err := s.mq.NewSubscriber(cfg)
	if err != nil {
		return nil, err
	}
	return beside(ctx, sub.Run), nil
}

// Drained implements System.
func (s *streamMQ) Drained(ctx context.Context, _ int) (bool, error) {
	stats, err := s.mq.GroupStats(ctx, topic, consumers)
	if errors.Is(err, streammq.ErrNotFound) {
		return false, nil // the worker has not made its group yet
	}
	for _, p := range stats {
		if p.Lag+p.Pending > 0 {
			return false, err
		}
	}
	return err == nil, err
}

// Close implements System.
func (s *streamMQ) Close() {
	if s.client != nil {
		s.client.Close()
	}
	s.client = nil
}
