package streammq

import (
	"context"
	"log/slog"
	"sync"
)

// writeTrim trims what a producer writes to.
type writeTrim struct {
	keep  Retention
	every int

	mu    sync.Mutex
	since map[source]int // messages added since the last trim
}

// Trimming returns a producer that also trims: a partition after each every messages that it added there. So a topic that
// nobody consumes does not grow without end. What a group has not finished stays, as with every trim. The publish that it falls
// to waits for it; a trim that fails is logged, and tried again after as many messages more.
// Errors: ErrConfig when the retention is negative or keeps all, or every is below 1.
func (p *Producer) Trimming(keep Retention, every int) (*Producer, error) {
	var bad problems
	bad.refuse(keep.MaxLen < 0 || keep.MaxAge < 0 || keep == (Retention{}), "Retention %+v: must keep less than all, and not be negative", keep)
	bad.refuse(every < 1, "every %d: at least 1", every)
	q := *p
	q.trims = &writeTrim{keep: keep, every: every, since: map[source]int{}}
	return &q, bad.err()
}

// Trimming is Producer.Trimming for a single stream.
func (p *StreamProducer) Trimming(keep Retention, every int) (*StreamProducer, error) {
	q, err := p.p.Trimming(keep, every)
	return &StreamProducer{p: q, key: p.key}, err
}

// added counts messages and trims when it is time.
func (t *writeTrim) added(ctx context.Context, p *Producer, s source, n int) {
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
	if _, err := p.mq.trim(ctx, s, t.keep); err != nil && ctx.Err() == nil {
		p.mq.cfg.Log.WarnContext(ctx, "streammq: trim failed", slog.String("stream", s.stream()), slog.Any("error", err))
	}
}
