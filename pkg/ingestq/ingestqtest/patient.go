package ingestqtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// patient repeats what can be done twice when a server or this process was held up for longer than a call may take, and
// notes each such failure.
type patient struct {
	ingestq.PendingQueue
	stalls *stalls
}

// patiently wraps what a bench makes, and unwraps what it is given back. The test fails when more calls failed than the
// server's stalls explain.
func (b Bench) patiently(t *testing.T) Bench {
	stalls := watchStalls(t, b.Probe)
	member, kill, rest := b.Member, b.Kill, b.Rest
	b.Member = func() ingestq.PendingQueue { return patient{member(), stalls} }
	b.Kill = func(m ingestq.PendingQueue) { kill(m.(patient).PendingQueue) }
	wipe := b.Wipe
	b.Wipe = func() {
		stalls.wiped()
		wipe()
	}
	if rest != nil {
		b.Rest = func(m ingestq.PendingQueue) { rest(m.(patient).PendingQueue) }
	}
	return b
}

func (p patient) again(ctx context.Context, what string, call func() error) error {
	for began := time.Now(); ; {
		tried := time.Now()
		err := call()
		p.stalls.note(what, tried, err)
		if !errors.Is(err, ingestq.ErrUnavailable) || ctx.Err() != nil || time.Since(began) > waitLimit {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (p patient) Ack(ctx context.Context, ids ...string) error {
	return p.again(ctx, "Ack", func() error { return p.PendingQueue.Ack(ctx, ids...) })
}

func (p patient) Adopt(ctx context.Context, ids ...string) (found map[string]bool, err error) {
	err = p.again(ctx, "Adopt", func() (err error) { found, err = p.PendingQueue.Adopt(ctx, ids...); return err })
	return found, err
}

func (p patient) Pending(ctx context.Context, minIdle time.Duration, after string, n int) (page []ingestq.Pending, err error) {
	err = p.again(ctx, "Pending", func() (err error) { page, err = p.PendingQueue.Pending(ctx, minIdle, after, n); return err })
	return page, err
}

func (p patient) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	return p.again(ctx, "Quarantine", func() error { return p.PendingQueue.Quarantine(ctx, d) })
}

func (p patient) Unpin(ctx context.Context, idle time.Duration, ids ...string) error {
	return p.again(ctx, "Unpin", func() error { return p.PendingQueue.Unpin(ctx, idle, ids...) })
}

func (p patient) Watermark(ctx context.Context) (h ingestq.Watermark, err error) {
	err = p.again(ctx, "Watermark", func() (err error) { h, err = p.PendingQueue.Watermark(ctx); return err })
	return h, err
}

func (p patient) Stats(ctx context.Context) (s ingestq.Stats, err error) {
	err = p.again(ctx, "Stats", func() (err error) { s, err = p.PendingQueue.Stats(ctx); return err })
	return s, err
}

func (p patient) Ping(ctx context.Context) error {
	return p.again(ctx, "Ping", func() error { return p.PendingQueue.Ping(ctx) })
}

// Read, Publish and Requeue are not repeated here: what they did before they failed is the test's to know.
func (p patient) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	began := time.Now()
	out, err := p.PendingQueue.Read(ctx, n, block)
	p.stalls.note("Read", began, err)
	return out, err
}

func (p patient) Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	began := time.Now()
	ids, err := p.PendingQueue.Publish(ctx, envelopes)
	p.stalls.note("Publish", began, err)
	return ids, err
}

func (p patient) Requeue(ctx context.Context, copies []ingestq.Copy) (int, error) {
	began := time.Now()
	n, err := p.PendingQueue.Requeue(ctx, copies)
	p.stalls.note("Requeue", began, err)
	return n, err
}
