package streammq

import (
	"context"
	"fmt"
)

// StreamProducer publishes to one single stream. It is safe for concurrent use; concurrent calls share pipelines.
type StreamProducer struct {
	p   *Producer
	key string
}

// NewStreamProducer makes a producer for the single stream with that key. With status each message has one, as on a topic
// with Topic.Status; its subscribers must have SubscriberConfig.Status too. Error: ErrStreamKey.
func (q *MQ) NewStreamProducer(key string, status bool) (*StreamProducer, error) {
	p := q.NewProducer(NewRoundRobin())
	p.single, p.status = true, status
	return &StreamProducer{p: p, key: key}, checkStreamKey(key)
}

// Publish adds messages in one pipeline, in their order. Errors as of Producer.PublishBatch.
func (p *StreamProducer) Publish(ctx context.Context, messages ...Message) ([]Receipt, error) {
	receipts := make([]Receipt, len(messages))
	entries := make([]entry, len(messages))
	for i := range messages {
		var err error
		if receipts[i], entries[i], err = p.p.prepare(p.key, &messages[i], 1); err != nil {
			return nil, fmt.Errorf("message %d for stream %s: %w", i, p.key, err)
		}
	}
	return receipts, p.p.add(ctx, receipts, entries)
}
