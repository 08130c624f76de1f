package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	pollGrace = 250 * time.Millisecond // that a Poll whose ctx ended waits for reads under way
	askEvery  = time.Second            // an empty Poll asks the server at most so often whether it is there
	ackBatch  = 500                    // deliveries of one acknowledging script
)

// ConsumerConfig is what a Consumer needs; the fields mean what they mean in SubscriberConfig.
// NewDefaultConsumerConfig gives every default.
type ConsumerConfig struct {
	Topic  string
	Group  string
	Member string
	// Name is the member's name of this start, for one that takes an ended one's place in the same process; no two live
	// members may share it. Empty: Member and a random part.
	Name  string
	Start string
	// Batch is the most entries of one read of one partition.
	Batch     int
	Lease     time.Duration
	Renew     time.Duration
	Rebalance time.Duration
	Cap       int
	// RestAfter is how long after its last Poll the member gives its partitions to those that poll; 0: never.
	// Kafka's max.poll.interval.ms. The next Poll takes part again.
	RestAfter time.Duration
	// Retry, RetryMode, DeadLetters and DeadLetterStream are the policies of Nack, Retry and Reject.
	Retry            model.RetryPolicy
	RetryMode        model.RetryMode
	DeadLetters      model.DeadLetterPolicy
	DeadLetterStream string
	MaxUnanswered    int
	MoverBatch       int
	MoverEvery       time.Duration
	Retention        model.Retention
	TrimEvery        time.Duration
	Delete           model.DeletePolicy
	// DeadLetterRetention is what is kept of dead letters.
	DeadLetterRetention model.Retention
	Janitor             JanitorConfig
	StopTimeout         time.Duration
}

// NewDefaultConsumerConfig has the defaults of contract §6; a member that does not poll keeps its partitions.
func NewDefaultConsumerConfig(topic, group string) ConsumerConfig {
	s := NewDefaultSubscriberConfig(topic, group, nil)
	return ConsumerConfig{
		Topic: topic, Group: group, Member: s.Member, Start: s.Start, Batch: model.MaxBatch, Lease: s.Lease, Renew: s.Renew,
		Rebalance: s.Rebalance, Retry: s.Retry, RetryMode: s.RetryMode, DeadLetters: s.DeadLetters,
		MaxUnanswered: s.MaxUnanswered, MoverBatch: s.MoverBatch, MoverEvery: s.MoverEvery, Retention: s.Retention, TrimEvery: s.TrimEvery,
		Janitor: s.Janitor, StopTimeout: s.StopTimeout,
	}
}

// subscriber is the configuration of what a Consumer is built on; no handler is ever called.
func (c ConsumerConfig) subscriber() SubscriberConfig {
	s := NewDefaultSubscriberConfig(c.Topic, c.Group, func(context.Context, *model.Delivery) model.Result { return model.Success() })
	s.Member, s.Start, s.Batch, s.ClaimBatch = c.Member, c.Start, c.Batch, c.Batch
	s.Lease, s.Renew, s.Rebalance, s.Cap = c.Lease, c.Renew, c.Rebalance, c.Cap
	s.Retention, s.TrimEvery, s.Janitor, s.StopTimeout = c.Retention, c.TrimEvery, c.Janitor, c.StopTimeout
	s.Retry, s.RetryMode, s.DeadLetters, s.DeadLetterStream = c.Retry, c.RetryMode, c.DeadLetters, c.DeadLetterStream
	s.MoverBatch, s.MoverEvery = c.MoverBatch, c.MoverEvery
	s.MaxUnanswered, s.Delete, s.DeadLetterRetention = c.MaxUnanswered, c.Delete, c.DeadLetterRetention
	return s
}

// Validate names every setting that is out of its range; its error wraps ErrConfig, ErrTopicName or ErrGroupName.
func (c ConsumerConfig) Validate() error {
	var p model.Problems
	p.Refuse(c.RestAfter < 0, "RestAfter %s: must not be negative", c.RestAfter)
	if c.Name != "" {
		p.Check(model.CheckName(c.Name, model.ErrGroupName))
	}
	return errors.Join(p.Err(), c.subscriber().Validate())
}

// Consumer is a member of a group whose caller asks for messages: Kafka's poll. Leases, epochs, rebalance and healing are
// the Subscriber's. A partition's messages come in their order; a new owner is first given all that is pending, whoever
// has it. What was handed out and not acknowledged stays pending with this member until then, or until a read failed
// without an answer: then it is handed out again. It is safe for concurrent use.
//
// Ack, Nack, Retry and Reject settle many deliveries; a Delivery's own methods of these names settle one, and tell why not.
type Consumer struct {
	sub  *Subscriber
	rest time.Duration
	desk *desk.Desk

	mu      sync.Mutex
	polls   int       // that wait now
	last    time.Time // when the last one ended
	yielded bool
	asked   time.Time // when the server was last asked whether it is there
	fault   error     // of that
}

// Name is the member's name of this start: the consumer that Redis names.
func (c *Consumer) Name() string { return c.sub.Name() }

// Partitions are the numbers of the partitions that this member owns now, in no order.
func (c *Consumer) Partitions() []int { return c.sub.Partitions() }

// Run owns partitions until ctx ends; then it gives them up and returns nil. What was handed out may still be
// acknowledged until another member takes its partition. Errors: as of Subscriber.Run.
func (c *Consumer) Run(ctx context.Context) error { return c.sub.Run(ctx) }

// Poll waits up to block for messages and returns at most n (n ≥ 1), possibly none. One that cannot be read has Err.
// After ctx ended it may still answer, without an error, what was read for it meanwhile.
// Errors: ctx's; ErrUnknownTopic when the topic was deleted; ErrUnavailable when nothing came because the server does not answer.
func (c *Consumer) Poll(ctx context.Context, n int, block time.Duration) ([]*model.Delivery, error) {
	if ctx.Err() != nil {
		return nil, model.Failure(ctx, "poll "+c.sub.cfg.Topic, ctx.Err())
	}
	c.begin()
	defer c.end()
	deliveries := c.desk.Poll(ctx, max(1, n), block, pollGrace)
	switch {
	case len(deliveries) > 0:
		return deliveries, nil
	case ctx.Err() != nil:
		return nil, model.Failure(ctx, "poll "+c.sub.cfg.Topic, ctx.Err())
	default:
		return nil, c.ask(ctx)
	}
}

// begin notes a Poll, and lets the member take part again at once if it rested.
func (c *Consumer) begin() {
	rested := c.resting()
	c.mu.Lock()
	c.polls++
	c.yielded = false
	c.mu.Unlock()
	if rested {
		c.sub.lookNow()
	}
}

func (c *Consumer) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polls--
	c.last = c.sub.mq.Cfg.Now()
}

// resting tells that the member leaves its partitions to others.
func (c *Consumer) resting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.yielded || c.rest > 0 && c.polls == 0 && c.sub.mq.Cfg.Now().Sub(c.last) > c.rest
}

// Yield gives all partitions up at once, for the others, until the next Poll; for a process that still works on what it
// has and wants no more. What was read and no Poll has taken is left pending, for the next owner.
func (c *Consumer) Yield() {
	c.mu.Lock()
	c.yielded = true
	c.mu.Unlock()
	c.sub.stopWorkers()
	c.sub.lookNow()
}

// ask tells whether the server is there; a Poll that found nothing cannot know.
func (c *Consumer) ask(ctx context.Context) error {
	q := c.sub.mq
	if c.sub.gone.Load() {
		return fmt.Errorf("poll %s: %w", c.sub.cfg.Topic, model.ErrUnknownTopic)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := q.Cfg.Now(); c.asked.IsZero() || now.Sub(c.asked) >= askEvery || now.Before(c.asked) || c.fault != nil {
		call, cancel := context.WithTimeout(ctx, core.WriteTimeout)
		defer cancel()
		c.fault = model.Failure(ctx, "poll "+c.sub.cfg.Topic, q.Client.Do(call, q.Client.B().Ping().Build()).Error())
		c.asked = now
	}
	return c.fault
}

// DeskOf is where the Polls of a consumer wait.
func DeskOf(c *Consumer) *desk.Desk { return c.desk }

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
				if err := w.await(ctx, got); err != nil {
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
	s := newSubscriber(q, cfg.subscriber())
	if cfg.Name != "" {
		s.name = cfg.Name
	}
	c := &Consumer{sub: s, rest: cfg.RestAfter, desk: desk.NewDesk(), last: q.Cfg.Now()}
	s.pull, s.away = c.loop, c.resting
	return c, nil
}
