package mirror

import (
	"context"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

const (
	circleEvery = 100 * time.Millisecond // at least, between the beginnings of two circles
	mostGot     = 32                     // copies of one Read: RabbitMQ passes so many single acknowledgements on at once
)

// Queue is a queue of deliveries that are made of the copies: for a runner that works while no other queue is there. A copy was rotated
// when its delivery is read, so there is nothing to acknowledge, and nothing of it is lost with the process. It brings QUEUED tasks only:
// retries and takeovers are found in the table.
type Queue struct {
	*Mirror
	open    func() bool              // whether anything is to be read now
	letters ingestq.DeadLetterWriter // of the queue of deliveries; nil: none

	mu    sync.Mutex // one Read at a time
	link  *link
	drain *drainer
	mark  string
	next  time.Time // when the next circle may begin
	read  int64     // deliveries so far
	wait  pause.Backoff
}

var _ ingestq.PendingQueue = (*Queue)(nil)

// NewQueue makes a Queue over copies; open says whether anything is to be read at the moment, and letters, which may be nil, takes dead
// letters once it is there.
func NewQueue(m *Mirror, open func() bool, letters ingestq.DeadLetterWriter) *Queue {
	return &Queue{Mirror: m, open: open, letters: letters, wait: pause.Backoff{First: firstRedial, Most: mostRedial}}
}

// Name implements ingestq.Consumer.
func (q *Queue) Name() string { return q.d.Name }

// Read implements ingestq.Consumer: it goes on in the circle where the Read before has ended.
func (q *Queue) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if rest := q.next.Sub(q.d.Clock()); !q.open() || rest > 0 {
		if !q.open() || rest > block {
			rest = block
		}
		pause.For(ctx, rest)
		return nil, nil
	}
	ds, err := q.circle(ctx, n)
	if err != nil {
		q.leave()
		if ctx.Err() == nil {
			q.set("", err)
			pause.For(ctx, min(q.wait.Next(), max(block, firstRedial)))
		}
		return nil, ingestq.Failure(ctx, "read copies", err)
	}
	q.wait.Reset()
	return ds, nil
}

// circle takes some copies, rotates them and returns those that can run.
func (q *Queue) circle(ctx context.Context, n int) (out []ingestq.Delivery, err error) {
	if q.link == nil {
		if err := q.enter(ctx); err != nil {
			return nil, err
		}
	}
	var got []taken
	for len(got) < min(n, q.cfg.Prefetch, mostGot) {
		d, found, err := q.drain.drain.get()
		if err != nil {
			return nil, err
		}
		if found {
			got = append(got, read(d))
		}
		if !found || d.CorrelationId == q.mark { // all were met
			q.drain.known.begin()
			q.mark, q.next = q.drain.session.mark(), q.d.Clock().Add(circleEvery)
			break
		}
	}
	q.drain.acts()
	met := map[string]bool{}
	q.drain.visit = &visit{Visit: Visit{Each: func(_ context.Context, copies []Copy) error {
		for _, c := range copies {
			if c.Status == taskstate.StatusQueued && !met[c.Task.ID] {
				met[c.Task.ID] = true
				q.read++
				out = append(out, ingestq.Decoded(fmt.Sprintf("0-%d", q.read), ingestq.DeliveryOf(c.Task)))
			}
		}
		return nil
	}}}
	if err := q.drain.settle(ctx, got, q.mark); err != nil {
		return nil, err
	}
	if q.drain.away {
		q.drain.away = false
		return nil, taskstate.ErrUnavailable
	}
	return out, nil
}

// enter connects.
func (q *Queue) enter(ctx context.Context) error {
	l, err := dial(ctx, q.cfg, q.d.Name)
	if err != nil {
		return err
	}
	warning, err := l.declare()
	if err == nil {
		var s *session
		if s, err = q.session(l, warning); err == nil {
			s.known.begin()
			q.link, q.drain, q.mark = l, &drainer{session: s}, s.mark()
			return nil
		}
	}
	l.close()
	return err
}

// leave ends the connection.
func (q *Queue) leave() {
	if q.link != nil {
		q.link.close()
		q.link, q.drain = nil, nil
	}
}

// Run implements ingestq.Consumer.
func (q *Queue) Run(ctx context.Context) error {
	<-ctx.Done()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave()
	return nil
}

// Ping implements ingestq.Consumer.
func (q *Queue) Ping(context.Context) error {
	if !q.open() {
		return nil
	}
	_, err := q.Health()
	return err
}

// Stats implements ingestq.Consumer: the copies are no deliveries that wait.
func (q *Queue) Stats(context.Context) (ingestq.Stats, error) { return ingestq.Stats{Lag: -1}, nil }

// Watermark implements ingestq.Consumer: how far the group has read is not known.
func (q *Queue) Watermark(context.Context) (ingestq.Watermark, error) {
	return ingestq.Watermark{}, ingestq.ErrNoWatermark
}

// DeadLetters implements ingestq.DeadLetterWriter: while the queue of deliveries is away the rows go on owing theirs.
func (q *Queue) DeadLetters(ctx context.Context, letters []ingestq.DeadLetter) error {
	if q.letters == nil {
		return fmt.Errorf("no queue takes dead letters: %w", ingestq.ErrUnavailable)
	}
	return q.letters.DeadLetters(ctx, letters)
}

// Quarantine implements ingestq.Consumer: what cannot be decoded stays in the queue and was not delivered.
func (q *Queue) Quarantine(context.Context, ingestq.Delivery) error { return nil }

// Ack implements ingestq.Consumer; the copy went to the tail when it was read.
func (q *Queue) Ack(context.Context, ...string) error { return nil }

// Publish implements ingestq.Publisher: the copies are there.
func (q *Queue) Publish(_ context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	return make([]string, len(envelopes)), nil
}

// Adopt implements ingestq.PendingQueue.
func (q *Queue) Adopt(context.Context, ...string) (map[string]bool, error) { return nil, nil }

// Requeue implements ingestq.PendingQueue.
func (q *Queue) Requeue(context.Context, []ingestq.Copy) (int, error) { return 0, nil }

// Pending implements ingestq.PendingQueue.
func (q *Queue) Pending(context.Context, time.Duration, string, int) ([]ingestq.Pending, error) {
	return nil, nil
}

// Unpin implements ingestq.PendingQueue.
func (q *Queue) Unpin(context.Context, time.Duration, ...string) error { return nil }

// Trim implements ingestq.PendingQueue.
func (q *Queue) Trim(context.Context) (int64, error) { return 0, nil }

// get takes the oldest copy; false: there is none.
func (c *channel) get() (d amqp.Delivery, found bool, err error) {
	err = c.link.limited(func() (err error) {
		d, found, err = c.ch.Get(c.link.cfg.Queue, false)
		return err
	})
	return d, found, wrap("take a copy", err)
}
