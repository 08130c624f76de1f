package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/pause"
)

const (
	roundEvery  = 15 * time.Minute // without a reason
	countEvery  = time.Second      // of looks at the queue's length
	differEvery = 10 * time.Second // of rounds for a queue of another length than is known: somebody may hold copies for a moment
	onePace     = time.Millisecond // of each copy: at most 1,000 a second
	visitFactor = 10               // so many times RABBITMQ_PREFETCH a visit takes at once
	againEvery  = time.Second      // until a rotation that was refused is tried again
)

// drainer goes round the queue.
type drainer struct {
	*session
	away     bool          // the database was away last time
	differed time.Time     // when a round began for the length of the queue
	strays   int           // copies without a row in this round
	held     bool          // the channel has copies that were taken and will not be acknowledged
	pace     time.Duration // of each copy
	visit    *visit        // of a rehydrator; nil: none
}

func newDrainer(s *session) *drainer { return &drainer{session: s, pace: onePace} }

// run goes round at once and then whenever there is a reason, until ctx or the connection ends.
func (d *drainer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := d.round(ctx); err != nil {
			return err
		}
		if err := d.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rest returns when there is a reason for a round.
func (d *drainer) rest(ctx context.Context) error {
	next := time.NewTimer(roundEvery)
	defer next.Stop()
	count := time.NewTicker(countEvery)
	defer count.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
			return nil
		case <-next.C:
			return nil
		case <-count.C:
			least := d.known.copies() // first: what is known by now is in the queue
			ready, err := d.drain.ready()
			if err != nil {
				return err
			}
			d.ready.Store(int64(ready))
			d.publishing.Lock() // what a batch under way has brought is known then
			most := d.known.copies()
			d.publishing.Unlock()
			if now := d.d.Clock(); (ready < least || ready > most) && now.Sub(d.differed) >= differEvery {
				d.differed = now
				return nil
			}
		}
	}
}

// round takes every copy that was there when it began.
func (d *drainer) round(ctx context.Context) error {
	d.publishing.Lock() // no batch is under way that would carry the mark of the round before
	d.known.begin()
	mark := d.mark()
	d.publishing.Unlock()
	d.strays = 0
	for over := false; !over; {
		if !d.databaseBack(ctx) {
			return nil
		}
		feed, err := d.drain.consume(d.most())
		if err != nil {
			return err
		}
		d.acts()
		over, err = d.circle(ctx, feed, mark)
		rest, stopErr := feed.stop() // of a connection that has ended it fails too
		if stopErr == nil && len(rest) > 0 {
			stopErr = d.settle(ctx, rest, mark)
		}
		if err = errors.Join(err, stopErr); err != nil {
			return err
		}
	}
	d.unknown.Store(int64(d.strays))
	q, err := d.drain.queue()
	if err != nil {
		return err
	}
	d.known.end(q.Consumers == 0)
	return nil
}

// most is how many copies are taken at once. A visit goes as fast as it can; the mirror that acts has time.
func (d *drainer) most() int {
	if d.visit == nil {
		return d.cfg.Prefetch
	}
	return max(d.cfg.Prefetch, min(visitFactor*d.cfg.Prefetch, mostRows))
}

// circle takes copies until all were met (over), the database is away or ctx has ended.
func (d *drainer) circle(ctx context.Context, feed *feed, mark string) (over bool, err error) {
	for ctx.Err() == nil {
		began := d.d.Clock()
		copies, err := feed.take()
		if err != nil {
			return false, err
		}
		if err := d.settle(ctx, copies, mark); err != nil || d.away {
			return false, err
		}
		// All were met when the queue is empty, or a copy was published in this very round.
		over, rest := len(copies) == 0, time.Duration(len(copies))*d.pace-d.d.Clock().Sub(began)
		for _, c := range copies {
			over = over || c.CorrelationId == mark
		}
		if d.visit != nil {
			if over, rest, err = d.visit.over(copies, d.d.Clock(), d.drain.ready); err != nil {
				return false, err
			}
		}
		if over || !pause.For(ctx, rest) {
			return over, nil
		}
	}
	return false, nil
}

// databaseBack waits while the database is away: nothing is taken then. It reports whether ctx goes on.
func (d *drainer) databaseBack(ctx context.Context) bool {
	for d.away {
		if err := d.d.DB.Ping(ctx); err == nil {
			d.away = false
			break
		}
		if !pause.For(ctx, againEvery) {
			return false
		}
	}
	return ctx.Err() == nil
}

// settle reads the rows of copies that were taken, acknowledges those whose task has ended and rotates the others.
func (d *drainer) settle(ctx context.Context, copies []taken, mark string) error {
	if len(copies) == 0 {
		return nil
	}
	crash.Point("mirror.after_take")
	ids := make([]uuid.UUID, 0, len(copies))
	for _, c := range copies {
		if c.envelope != nil {
			ids = append(ids, c.id)
		}
	}
	found, err := d.rows.of(ctx, ids)
	if err != nil {
		d.databaseAway(ctx, err)
		d.away = true
	}
	var rotate, ended []taken
	for _, c := range copies {
		status, exists := found[c.id]
		switch {
		case exists && !unfinished(status) && !(d.visit != nil && d.visit.Look):
			d.known.remove(c.id) // before: the task may be replayed at this moment, and is copied anew then
			ended = append(ended, c)
			continue
		case !exists && !d.away && c.CorrelationId != mark: // else it was counted in this round
			d.strays++
		}
		rotate = append(rotate, c)
	}
	if len(ended) > 0 {
		if err := d.acknowledge(ended, len(rotate) == 0); err != nil {
			return err
		}
		crash.Point("mirror.after_ack")
	}
	var failed error
	if d.visit != nil && !d.away { // first: a process that dies in it leaves no second copies
		failed = d.visit.each(ctx, copies, found)
	}
	return errors.Join(d.rotate(ctx, rotate, mark), failed)
}

// rotate publishes copies at the tail and acknowledges each once that is confirmed. It goes on until all are: a copy that was given back
// would be at the head again, with one more delivery counted.
func (d *drainer) rotate(ctx context.Context, copies []taken, mark string) error {
	for len(copies) > 0 {
		messages := make([]amqp.Publishing, len(copies))
		for i, c := range copies {
			messages[i] = again(c, mark)
		}
		results := d.drain.send(context.WithoutCancel(ctx), messages) // else a stop would leave two copies of each
		crash.Point("mirror.after_rotation")
		d.note(ctx, results)
		var left, done []taken
		bind := false
		for i, r := range results {
			switch r.result {
			case confirmed:
				d.known.met(copies[i], mark)
				done = append(done, copies[i])
				continue
			case failed:
				d.held = true
				return fmt.Errorf("rotate: %s", r.reason)
			case returned:
				bind = true
			case refused, timedOut:
			}
			left = append(left, copies[i])
		}
		if err := d.acknowledge(done, len(left) == 0); err != nil {
			return err
		}
		if bind {
			if err := d.bindAgain(ctx); err != nil {
				return err
			}
		}
		if len(left) > 0 && !pause.For(ctx, againEvery) {
			d.held = true
			return nil
		}
		copies = left
	}
	return nil
}

// acknowledge acknowledges copies that have another at the tail, or need none, in one message if nothing else of the channel's is left:
// RabbitMQ drops what it has not yet passed on to a quorum queue (measured: all beyond 32 messages) when the connection ends.
func (d *drainer) acknowledge(done []taken, all bool) error {
	if all = all && !d.held; all && len(done) > 0 {
		done = done[len(done)-1:]
	}
	for _, c := range done {
		if err := c.Ack(all); err != nil {
			return wrap("acknowledge copies", err)
		}
	}
	return nil
}
