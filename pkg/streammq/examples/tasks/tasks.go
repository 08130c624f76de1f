// Package tasks is an example: three streams of tasks with names of their own (asr-tasks, kb-tasks, export-tasks), whose
// publisher hands out an id, whose main workers read what is new, whose claiming workers take what a dead or silent
// worker has left, and whose states can be asked for by that id.
package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/streammq"
)

// The streams, and the group of workers that each of them has.
const (
	ASR    = "asr-tasks"
	KB     = "kb-tasks"
	Export = "export-tasks"
	Group  = "workers"
)

// Task is what a message carries, as JSON.
type Task struct {
	File string `json:"file"`
}

// Publisher takes tasks in.
type Publisher struct {
	streams map[string]*streammq.StreamProducer
}

// NewPublisher makes a publisher for the three streams; their messages have a status.
func NewPublisher(q *streammq.MQ) (*Publisher, error) {
	p := &Publisher{streams: map[string]*streammq.StreamProducer{}}
	for _, key := range []string{ASR, KB, Export} {
		producer, err := q.NewStreamProducer(key, true)
		if err != nil {
			return nil, err
		}
		p.streams[key] = producer
	}
	return p, nil
}

// Submit adds a task and returns its id. Errors: as of StreamProducer.Publish.
func (p *Publisher) Submit(ctx context.Context, stream string, task Task) (string, error) {
	payload, err := streammq.JSON{}.Encode(task)
	if err != nil {
		return "", err
	}
	producer, ok := p.streams[stream]
	if !ok {
		return "", fmt.Errorf("stream %q: %w", stream, streammq.ErrStreamKey)
	}
	receipts, err := producer.Publish(ctx, streammq.Message{Payload: payload})
	if err != nil {
		return "", err
	}
	return receipts[0].UUID, nil
}

// StateOf tells how far a task is; unknown ids, and those of tasks that ended three days ago, are ErrNotFound.
func StateOf(ctx context.Context, q *streammq.MQ, id string) (streammq.Status, error) {
	all, err := q.Statuses(ctx, id)
	if err != nil {
		return streammq.Status{}, err
	}
	status, ok := all[id]
	if !ok {
		return status, fmt.Errorf("task %s: %w", id, streammq.ErrNotFound)
	}
	return status, nil
}

// NewMain makes a worker that reads what is new. Its name must be of this process alone.
func NewMain(q *streammq.MQ, stream, name string, run func(context.Context, Task) error) (*streammq.Subscriber, error) {
	return q.NewSubscriber(worker(stream, name, streammq.RoleMain, run))
}

// NewClaiming makes a worker that runs nothing new: it takes what workers have left that died (at the end of their
// heartbeat), or that have not touched an entry for ten minutes. A task that runs longer is touched, and not taken.
func NewClaiming(q *streammq.MQ, stream, name string, run func(context.Context, Task) error) (*streammq.Subscriber, error) {
	c := worker(stream, name, streammq.RoleClaim, run)
	c.ClaimIdle, c.PendingScan = 10*time.Minute, time.Second
	return q.NewSubscriber(c)
}

func worker(stream, name string, role streammq.Role, run func(context.Context, Task) error) streammq.SubscriberConfig {
	c := streammq.NewDefaultStreamConfig(stream, Group, name, streammq.Handle(streammq.JSON{},
		func(ctx context.Context, task Task, _ *streammq.Delivery) streammq.Result {
			return streammq.FromError(run(ctx, task))
		}))
	c.Role, c.Status = role, true
	c.Retry = streammq.RetryPolicy{MaxAttempts: 3, Backoff: 200 * time.Millisecond, MaxBackoff: time.Minute}
	// Clean-up at the start, and every ten minutes: names of workers that are dead and have nothing in hand go; those that
	// have something keep it until a claiming worker has taken it.
	c.Janitor = streammq.JanitorConfig{Interval: 10 * time.Minute, MinIdle: time.Second, MaxPending: 0}
	return c
}
