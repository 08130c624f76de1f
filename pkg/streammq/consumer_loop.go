package streammq

import "context"

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

// open is a parcel as a Poll answers it; nil when it is none of this group's, was completed before, or
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
