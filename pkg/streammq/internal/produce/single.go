package produce

import (
	"context"
	"fmt"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// StreamProducer publishes to one single stream. It is safe for concurrent use; concurrent calls share pipelines.
type StreamProducer struct {
	p   *Producer
	key string
}

// NewStreamProducer makes a producer for a single stream. Error: ErrStreamKey.
func NewStreamProducer(q *core.Core, key string, status bool) (*StreamProducer, error) {
	p := NewProducer(q, NewRoundRobin())
	p.single, p.status = true, status
	return &StreamProducer{p: p, key: key}, model.CheckStreamKey(key)
}

// Publish adds messages in one pipeline, in their order. Errors as of Producer.PublishBatch.
func (p *StreamProducer) Publish(ctx context.Context, messages ...model.Message) ([]model.Receipt, error) {
	receipts := make([]model.Receipt, len(messages))
	entries := make([]wire.Entry, len(messages))
	for i := range messages {
		var err error
		if receipts[i], entries[i], err = p.p.prepare(p.key, &messages[i], 1); err != nil {
			return nil, fmt.Errorf("message %d for stream %s: %w", i, p.key, err)
		}
	}
	return receipts, p.p.add(ctx, receipts, entries)
}

// NewFastStreamProducer makes a producer for a stream that FastStream reads. Errors: ErrStreamKey, ErrConfig.
func NewFastStreamProducer(q *core.Core, key string, format wire.Format, status bool) (*StreamProducer, error) {
	p, err := NewStreamProducer(q, key, status)
	if err != nil {
		return nil, err
	}
	if format == wire.FormatOwn || !wire.Known(format) {
		return nil, fmt.Errorf("%w: Format %q: %s or %s", model.ErrConfig, format, wire.FormatFastStream, wire.FormatFastStreamJSON)
	}
	p.p.format = format
	return p, nil
}

// Trimming is Producer.Trimming for a single stream.
func (p *StreamProducer) Trimming(keep model.Retention, every int) (*StreamProducer, error) {
	q, err := p.p.Trimming(keep, every)
	return &StreamProducer{p: q, key: p.key}, err
}
