package produce

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"unicode/utf8"

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

// inFormat makes an entry one of FastStream's. Error: ErrMalformed.
func (p *Producer) inFormat(e *wire.Entry, m *model.Message) error {
	if p.format == wire.FormatOwn {
		return nil
	}
	if p.format == wire.FormatFastStreamJSON && !utf8.Valid(e.Payload) {
		return fmt.Errorf("payload: %w: %s carries valid UTF-8 only, %s any bytes", model.ErrMalformed, wire.FormatFastStreamJSON, wire.FormatFastStream)
	}
	e.Format, e.MaxRetries = p.format, m.MaxAttempts
	if e.Headers[wire.FastStreamCorrelationID] == "" {
		e.Headers[wire.FastStreamCorrelationID] = e.Headers[model.HeaderUUID]
	}
	return nil
}

// writeTrim trims what a producer writes to.
type writeTrim struct {
	keep  model.Retention
	every int

	mu    sync.Mutex
	since map[core.Source]int // messages added since the last trim
}

// Trimming returns a producer that also trims: a partition after each every messages that it added there. So a topic that
// nobody consumes does not grow without end. What a group has not finished stays, as with every trim. The publish that it falls
// to waits for it; a trim that fails is logged, and tried again after as many messages more.
// Errors: ErrConfig when the retention is negative or keeps all, or every is below 1.
func (p *Producer) Trimming(keep model.Retention, every int) (*Producer, error) {
	var bad model.Problems
	bad.Refuse(keep.MaxLen < 0 || keep.MaxAge < 0 || keep == (model.Retention{}), "Retention %+v: must keep less than all, and not be negative", keep)
	bad.Refuse(every < 1, "every %d: at least 1", every)
	q := *p
	q.trims = &writeTrim{keep: keep, every: every, since: map[core.Source]int{}}
	return &q, bad.Err()
}

// Trimming is Producer.Trimming for a single stream.
func (p *StreamProducer) Trimming(keep model.Retention, every int) (*StreamProducer, error) {
	q, err := p.p.Trimming(keep, every)
	return &StreamProducer{p: q, key: p.key}, err
}

// added counts messages and trims when it is time.
func (t *writeTrim) added(ctx context.Context, p *Producer, s core.Source, n int) {
	t.mu.Lock()
	t.since[s] += n
	due := t.since[s] >= t.every
	if due {
		t.since[s] = 0
	}
	t.mu.Unlock()
	if !due {
		return
	}
	if _, err := p.mq.TrimSource(ctx, s, t.keep); err != nil && ctx.Err() == nil {
		p.mq.Cfg.Log.WarnContext(ctx, "streammq: trim failed", slog.String("stream", s.Stream()), slog.Any("error", err))
	}
}
