package mq

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
)

const (
	mqRate    = 500
	mqSeconds = 10
	mqWarm    = mqRate // messages that count for nothing
	mqWaiting = 10_000
	mqRetries = 2_000
)

// latencies publishes one message at a time at a fixed rate, whatever becomes of those before.
func (r *mqRig) latencies(ctx context.Context) ([]figure.Figure, error) {
	if err := r.fresh(ctx, 4, false); err != nil {
		return nil, err
	}
	total := mqWarm + mqRate*mqSeconds
	due, sent, started := make([]time.Time, total), make([]time.Time, total), make([]atomic.Int64, total)
	var left atomic.Int64
	left.Store(int64(total))
	all := make(chan struct{})
	stop, err := r.subscribe(ctx, func(_ context.Context, d *streammq.Delivery) streammq.Result {
		now := time.Now().UnixNano()
		i, err := strconv.Atoi(string(d.Payload))
		if err == nil && started[i].CompareAndSwap(0, now) && left.Add(-1) == 0 {
			close(all)
		}
		return streammq.FromError(err)
	}, nil)
	if err != nil {
		return nil, err
	}
	p := r.mq.NewProducer(nil)
	group, calls := errgroup.WithContext(ctx)
	group.SetLimit(64)
	began := time.Now().Add(100 * time.Millisecond)
	for i := range total {
		due[i] = began.Add(time.Duration(i) * time.Second / mqRate)
		if sleepUntil(due[i]); ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			sent[i] = time.Now()
			_, err := p.Publish(calls, mqTopic, streammq.Message{Payload: []byte(strconv.Itoa(i))})
			return err
		})
	}
	err = group.Wait()
	if err == nil {
		err = await.Closed(ctx, all)
	}
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	var took, late []time.Duration
	for i := mqWarm; i < total; i++ {
		took = append(took, time.Unix(0, started[i].Load()).Sub(due[i]))
		late = append(late, sent[i].Sub(due[i]))
	}
	note := fmt.Sprintf("one message a call, time to send → handler, open loop, %d s, 4 partitions", mqSeconds)
	return []figure.Figure{
		{Name: "publish → handler at 500/s, p50", Measured: figure.Ms(figure.Percentile(took, 50)), Unit: "ms", Asked: 0.8, Relation: "≤", Note: note},
		{Name: "publish → handler at 500/s, p99", Measured: figure.Ms(figure.Percentile(took, 99)), Unit: "ms", Asked: 4, Relation: "≤"},
		{Name: "of it, until this program sent the message, p50", Measured: figure.Ms(figure.Percentile(late, 50)), Unit: "ms"},
	}, nil
}

// sleepUntil sleeps as the kernel can, to some 0.1 ms. A timer of the runtime's is up to a millisecond late in a process that has
// nothing else to do: as long as all that is measured here.
func sleepUntil(at time.Time) {
	for wait := time.Until(at); wait > 0; wait = time.Until(at) {
		rest := syscall.NsecToTimespec(wait.Nanoseconds())
		_ = syscall.Nanosleep(&rest, nil) // a signal ends it early
	}
}

// lateness puts 10,000 messages off for long, then fails others once, which are to run again after a second.
func (r *mqRig) lateness(ctx context.Context) ([]figure.Figure, error) {
	if err := r.fresh(ctx, 4, false); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	failed, late := map[string]time.Time{}, []time.Duration{}
	waiting, all := make(chan struct{}), make(chan struct{})
	var off atomic.Int64
	stop, err := r.subscribe(ctx, func(_ context.Context, d *streammq.Delivery) streammq.Result {
		now := time.Now()
		if string(d.Payload) == "waits" {
			if off.Add(1) == mqWaiting {
				close(waiting)
			}
			return streammq.RetryAfter(time.Hour, nil)
		}
		mu.Lock()
		defer mu.Unlock()
		if at, again := failed[d.UUID]; again {
			if late = append(late, now.Sub(at)-time.Second); len(late) == mqRetries {
				close(all)
			}
			return streammq.Success()
		}
		failed[d.UUID] = now
		return streammq.RetryAfter(time.Second, nil)
	}, nil)
	if err != nil {
		return nil, err
	}
	err = r.failing(ctx, waiting, all)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d retries, 200/s, %d others wait", mqRetries, mqWaiting)
	return []figure.Figure{
		{Name: "retry after 1 s: lateness, p50", Measured: figure.Ms(figure.Percentile(late, 50)), Unit: "ms", Note: note},
		{Name: "retry after 1 s: lateness, p99", Measured: figure.Ms(figure.Percentile(late, 99)), Unit: "ms", Asked: 50, Relation: "≤"},
	}, nil
}

// failing publishes what is put off for long and, when that waits, what fails once.
func (r *mqRig) failing(ctx context.Context, waiting, all <-chan struct{}) error {
	p := r.mq.NewProducer(nil)
	long := make([]streammq.Message, mqWaiting/10)
	for i := range long {
		long[i].Payload = []byte("waits")
	}
	for range 10 {
		if _, err := p.PublishBatch(ctx, mqTopic, long); err != nil {
			return err
		}
	}
	if err := await.Closed(ctx, waiting); err != nil {
		return err
	}
	for range mqRetries / 2 {
		if _, err := p.PublishBatch(ctx, mqTopic, []streammq.Message{{Payload: []byte("fails")}, {Payload: []byte("fails")}}); err != nil {
			return err
		}
		await.Pause(ctx, 10*time.Millisecond)
	}
	return await.Closed(ctx, all)
}
