package consume

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// loop is the loop of a partition's owner: all that is pending, in order, whoever had it, then what is new; each only
// when somebody asks.
func (c *Consumer) loop(w *Worker) func(context.Context) error {
	return func(ctx context.Context) error {
		defer c.desk.Drop(w)
		for after, more := "", true; more; {
			err := c.read(ctx, w, func(n int) (fence.Fetched, error) {
				got, err := w.Recover(ctx, n, after)
				after, more = got.Last, got.Last != ""
				return got, err
			})
			if err != nil {
				return err
			}
		}
		for {
			var got fence.Fetched
			err := c.read(ctx, w, func(n int) (f fence.Fetched, err error) {
				got, err = w.Fetch(ctx, n)
				return got, err
			})
			if err != nil {
				return err
			}
			if got.Last != "" && len(got.Entries) == 0 {
				if err := loopOf(w).await(ctx, got); err != nil {
					return err
				}
			}
		}
	}
}

// read reads once what somebody asks for, and hands it over.
func (c *Consumer) read(ctx context.Context, w *Worker, read func(n int) (fence.Fetched, error)) error {
	n, err := c.desk.Demand(ctx, w.stopping, w.cfg.Batch)
	if err != nil {
		return err
	}
	var deliveries []*model.Delivery
	got, err := read(n)
	if err == nil {
		w.count(got)
		deliveries, err = c.openAll(ctx, w, got)
	}
	c.desk.Hand(w, n, deliveries)
	return err
}

// openAll are the deliveries of a read; none of them when one could not be opened: they are read again.
func (c *Consumer) openAll(ctx context.Context, w *Worker, got fence.Fetched) ([]*model.Delivery, error) {
	parcels, err := w.Unpack(ctx, got.Entries)
	if err != nil {
		return nil, err
	}
	deliveries := make([]*model.Delivery, 0, len(parcels))
	for i := range parcels {
		if parcels[i].Bad != nil {
			deliveries = append(deliveries, malformed(w, &parcels[i]))
			continue
		}
		d, err := c.open(ctx, w, &parcels[i])
		if err != nil {
			return nil, err
		}
		if d != nil {
			deliveries = append(deliveries, d)
		}
	}
	w.acks.Flush(ctx)
	if _, err := w.acks.Verdict(); err != nil {
		return nil, err
	}
	return deliveries, nil
}

// open is a parcel as a Poll returns it; nil when it is none of this group's, was completed before, or
// became a dead letter because nobody ever settled it.
func (c *Consumer) open(ctx context.Context, w *Worker, p *fence.Parcel) (*model.Delivery, error) {
	if w.unanswered(p) {
		return nil, w.buryUnanswered(ctx, p)
	}
	if !p.ForOthers(w.Group) {
		open, err := w.WriteStatus(ctx, p, model.StateProcessing, nil)
		if err != nil {
			return nil, err
		}
		if open {
			d, _ := w.offer(p)
			d.Fields = p.Fields
			return d, nil
		}
	}
	w.acks.Add(ctx, fence.Held{Id: p.Id, Deliveries: p.Deliveries})
	return nil, nil
}

// malformed is an entry that cannot be read, as it came.
func malformed(w *Worker, p *fence.Parcel) *model.Delivery {
	d, _ := w.offer(p)
	d.Err, d.Fields = p.Bad, p.Fields
	return d
}

// Nack puts deliveries off, as RetryAfter does: below zero the delay is the policy's, and after the last attempt the
// DeadLetterPolicy decides. It returns how many were still this member's; one whose entry cannot be read is not put off but
// treated as by Reject. Each is settled by a script of its own.
// Errors: ctx's, ErrUnavailable and ErrFull, after which the call may be repeated: what it settled is left as it is.
func (c *Consumer) Nack(ctx context.Context, delay time.Duration, deliveries ...*model.Delivery) (int, error) {
	return settleAll(ctx, model.RetryAfter(delay, model.ErrNacked), deliveries)
}

// Retry puts deliveries off by the policy, with the cause in their status. It returns and fails as Nack.
func (c *Consumer) Retry(ctx context.Context, cause error, deliveries ...*model.Delivery) (int, error) {
	return settleAll(ctx, model.Retry(cause), deliveries)
}

// Reject ends deliveries, as Fail does: no attempt can cure them, and the DeadLetterPolicy decides. It returns and fails as Nack.
func (c *Consumer) Reject(ctx context.Context, cause error, deliveries ...*model.Delivery) (int, error) {
	return settleAll(ctx, model.Fail(cause), deliveries)
}

// settleAll settles deliveries one by one, and returns how many were still held.
func settleAll(ctx context.Context, result model.Result, deliveries []*model.Delivery) (int, error) {
	total := 0
	var errs []error
	for _, d := range deliveries {
		switch err := model.Settle(d, ctx, result); {
		case err == nil:
			total++
		case !errors.Is(err, model.ErrNotHeld) && !errors.Is(err, model.ErrSettled):
			errs = append(errs, err)
		}
	}
	return total, errors.Join(errs...)
}

// Ack acknowledges deliveries and returns how many were still this member's. The others belong to another owner by now,
// were handed out again, or were settled before, and are left as they are.
// Errors: ctx's and ErrUnavailable, after which the call may be repeated.
func (c *Consumer) Ack(ctx context.Context, deliveries ...*model.Delivery) (int, error) {
	type lease struct {
		partition int
		epoch     string
	}
	batches := map[lease][]*model.Delivery{}
	for _, d := range deliveries {
		if s := settlementOf(d); s != nil && s.begin() != nil {
			continue
		}
		of := lease{d.Partition, d.Epoch}
		batches[of] = append(batches[of], d)
	}
	total := 0
	var errs []error
	for of, batch := range batches {
		q := c.sub.mq
		r := &fence.Reader{Mq: q, Src: q.Source(c.sub.cfg.Topic, of.partition), Group: c.sub.cfg.Group, Consumer: c.sub.name, Epoch: of.epoch, Deletes: c.sub.cfg.Delete}
		n, err := c.ackOf(ctx, r, batch)
		total += n
		for _, d := range batch {
			if s := settlementOf(d); s != nil {
				s.end(err == nil)
			}
		}
		errs = append(errs, err)
	}
	return total, errors.Join(errs...)
}

// settlementOf is how a delivery is settled; nil: nobody handed it out.
func settlementOf(d *model.Delivery) *settlement {
	s, _ := model.HandedOutBy(d).(*settlement)
	return s
}

// ackOf acknowledges deliveries of one lease.
func (c *Consumer) ackOf(ctx context.Context, r *fence.Reader, batch []*model.Delivery) (int, error) {
	slices.SortFunc(batch, func(a, b *model.Delivery) int { return stream.CompareIDs(a.ID, b.ID) }) // the script looks at the pending list once, from the first to the last
	items := make([]fence.Held, len(batch))
	for i, d := range batch {
		items[i] = fence.Held{Id: d.ID, Deliveries: d.Deliveries}
		if d.Err != nil {
			continue
		}
		p := &fence.Parcel{Raw: wire.Raw{Id: d.ID, Deliveries: d.Deliveries}, Entry: wire.Entry{Headers: d.Headers}}
		if _, err := r.WriteStatus(ctx, p, model.StateCompleted, nil); err != nil {
			return 0, model.Failure(ctx, "write the status of "+d.UUID, err)
		}
	}
	total := 0
	for some := range slices.Chunk(items, ackBatch) {
		n, err := r.Ack(ctx, some)
		if err != nil {
			c.note(r, model.Event{Kind: model.EventFailed, Of: model.EventAcked, Count: len(some), Err: err})
			return total, model.Failure(ctx, "acknowledge in "+r.Src.Stream(), err)
		}
		n = max(0, n) // below zero: the lease is lost
		total += n
		c.note(r, model.Event{Kind: model.EventAcked, Count: n})
		c.note(r, model.Event{Kind: model.EventRefused, Of: model.EventAcked, Count: len(some) - n})
	}
	return total, nil
}

func (c *Consumer) note(r *fence.Reader, e model.Event) {
	if e.Count > 0 {
		e.Topic, e.Partition, e.Group, e.Member = r.Src.Topic, r.Src.Part, r.Group, c.sub.cfg.Member
		r.Mq.Observe(e)
	}
}

// NewConsumer makes a consumer; Run makes it work. Errors: those of ConsumerConfig.Validate.
func NewConsumer(q *core.Core, cfg ConsumerConfig) (*Consumer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s, err := NewSubscriber(q, cfg.subscriber())
	if err != nil {
		return nil, err
	}
	if cfg.Name != "" {
		s.name = cfg.Name
	}
	c := &Consumer{sub: s, rest: cfg.RestAfter, desk: desk.NewDesk(), last: q.Cfg.Now()}
	s.pull, s.away = c.loop, c.resting
	return c, nil
}
