package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/desk"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
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
