package streammq

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// loop is the loop of a partition's owner: all that is pending, in order, whoever had it, then what is new; each only
// when somebody asks.
func (c *Consumer) loop(w *worker) func(context.Context) error {
	return func(ctx context.Context) error {
		defer c.desk.drop(w)
		for after, more := "", true; more; {
			err := c.read(ctx, w, func(n int) (fetched, error) {
				got, err := w.recover(ctx, n, after)
				after, more = got.last, got.last != ""
				return got, err
			})
			if err != nil {
				return err
			}
		}
		for {
			var got fetched
			err := c.read(ctx, w, func(n int) (f fetched, err error) {
				got, err = w.fetch(ctx, n)
				return got, err
			})
			if err != nil {
				return err
			}
			if got.last != "" && len(got.entries) == 0 {
				if err := w.await(ctx, got); err != nil {
					return err
				}
			}
		}
	}
}

// read reads once what somebody asks for, and hands it over.
func (c *Consumer) read(ctx context.Context, w *worker, read func(n int) (fetched, error)) error {
	n, err := c.desk.demand(ctx, w.stopping, w.sub.cfg.Batch)
	if err != nil {
		return err
	}
	var deliveries []*Delivery
	got, err := read(n)
	if err == nil {
		w.count(got)
		deliveries, err = c.openAll(ctx, w, got)
	}
	c.desk.hand(w, n, deliveries)
	return err
}

// openAll are the deliveries of a read; none of them when one could not be opened: they are read again.
func (c *Consumer) openAll(ctx context.Context, w *worker, got fetched) ([]*Delivery, error) {
	parcels, err := w.unpack(ctx, got.entries)
	if err != nil {
		return nil, err
	}
	deliveries := make([]*Delivery, 0, len(parcels))
	for i := range parcels {
		if parcels[i].bad != nil {
			deliveries = append(deliveries, w.malformed(&parcels[i]))
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
	w.acks.flush(ctx)
	if _, err := w.acks.verdict(); err != nil {
		return nil, err
	}
	return deliveries, nil
}

// open is a parcel as a Poll returns it; nil when it is none of this group's, was completed before, or
// became a dead letter because nobody ever settled it.
func (c *Consumer) open(ctx context.Context, w *worker, p *parcel) (*Delivery, error) {
	if w.unanswered(p) {
		return nil, w.buryUnanswered(ctx, p)
	}
	if !p.forOthers(w.group) {
		open, err := w.writeStatus(ctx, p, StateProcessing, nil)
		if err != nil {
			return nil, err
		}
		if open {
			d, _ := w.offer(p)
			d.Fields = p.fields
			return d, nil
		}
	}
	w.acks.add(ctx, held{p.id, p.deliveries})
	return nil, nil
}

// malformed is an entry that cannot be read, as it came.
func (w *worker) malformed(p *parcel) *Delivery {
	d, _ := w.offer(p)
	d.Err, d.Fields = p.bad, p.fields
	return d
}

// Nack puts deliveries off, as RetryAfter does: below zero the delay is the policy's, and after the last attempt the
// DeadLetterPolicy decides. It returns how many were still this member's; one whose entry cannot be read is not put off but
// treated as by Reject. Each is settled by a script of its own.
// Errors: ctx's, ErrUnavailable and ErrFull, after which the call may be repeated: what it settled is left as it is.
func (c *Consumer) Nack(ctx context.Context, delay time.Duration, deliveries ...*Delivery) (int, error) {
	return settleAll(ctx, RetryAfter(delay, errNacked), deliveries)
}

// Retry puts deliveries off by the policy, with the cause in their status. It returns and fails as Nack.
func (c *Consumer) Retry(ctx context.Context, cause error, deliveries ...*Delivery) (int, error) {
	return settleAll(ctx, Retry(cause), deliveries)
}

// Reject ends deliveries, as Fail does: no attempt can cure them, and the DeadLetterPolicy decides. It returns and fails as Nack.
func (c *Consumer) Reject(ctx context.Context, cause error, deliveries ...*Delivery) (int, error) {
	return settleAll(ctx, Fail(cause), deliveries)
}

// settleAll settles deliveries one by one, and returns how many were still held.
func settleAll(ctx context.Context, result Result, deliveries []*Delivery) (int, error) {
	total := 0
	var errs []error
	for _, d := range deliveries {
		switch err := d.settle(ctx, result); {
		case err == nil:
			total++
		case !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrSettled):
			errs = append(errs, err)
		}
	}
	return total, errors.Join(errs...)
}

// Ack acknowledges deliveries and returns how many were still this member's. The others belong to another owner by now,
// were handed out again, or were settled before, and are left as they are.
// Errors: ctx's and ErrUnavailable, after which the call may be repeated.
func (c *Consumer) Ack(ctx context.Context, deliveries ...*Delivery) (int, error) {
	type lease struct {
		partition int
		epoch     string
	}
	batches := map[lease][]*Delivery{}
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
		r := &reader{mq: q, src: q.source(c.sub.cfg.Topic, of.partition), group: c.sub.cfg.Group, consumer: c.sub.name, epoch: of.epoch, deletes: c.sub.cfg.Delete}
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
func settlementOf(d *Delivery) *settlement {
	s, _ := handedOutBy(d).(*settlement)
	return s
}

// ackOf acknowledges deliveries of one lease.
func (c *Consumer) ackOf(ctx context.Context, r *reader, batch []*Delivery) (int, error) {
	slices.SortFunc(batch, func(a, b *Delivery) int { return stream.CompareIDs(a.ID, b.ID) }) // the script looks at the pending list once, from the first to the last
	items := make([]held, len(batch))
	for i, d := range batch {
		items[i] = held{d.ID, d.Deliveries}
		if d.Err != nil {
			continue
		}
		p := &parcel{raw: raw{id: d.ID, deliveries: d.Deliveries}, entry: entry{headers: d.Headers}}
		if _, err := r.writeStatus(ctx, p, StateCompleted, nil); err != nil {
			return 0, failure(ctx, "write the status of "+d.UUID, err)
		}
	}
	total := 0
	for len(items) > 0 {
		some := items[:min(ackBatch, len(items))]
		items = items[len(some):]
		n, err := r.ack(ctx, some)
		if err != nil {
			c.note(r, Event{Kind: EventFailed, Of: EventAcked, Count: len(some), Err: err})
			return total, failure(ctx, "acknowledge in "+r.src.stream(), err)
		}
		n = max(0, n) // below zero: the lease is lost
		total += n
		c.note(r, Event{Kind: EventAcked, Count: n})
		c.note(r, Event{Kind: EventRefused, Of: EventAcked, Count: len(some) - n})
	}
	return total, nil
}

func (c *Consumer) note(r *reader, e Event) {
	if e.Count > 0 {
		e.Topic, e.Partition, e.Group, e.Member = r.src.topic, r.src.part, r.group, c.sub.cfg.Member
		r.mq.observe(e)
	}
}
