package rival

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/pause"
)

const (
	arriveLimit = 30 * time.Second // after the last task was sent
	sendersMax  = 512              // an open loop that the system cannot follow must not eat the memory
	warmup      = time.Second      // not counted
)

// probe keeps when each task of an open loop was due, committed and started, in nanoseconds after began; 0: not yet.
type probe struct {
	began     time.Time
	due       []int64
	committed []atomic.Int64
	started   []atomic.Int64
	left      atomic.Int64
	all       chan struct{}
}

func newProbe(n int) *probe {
	p := &probe{due: make([]int64, n), committed: make([]atomic.Int64, n), started: make([]atomic.Int64, n), all: make(chan struct{})}
	p.left.Store(int64(n))
	return p
}

func (p *probe) now() int64 { return max(1, int64(time.Since(p.began))) }

// handle is the handler: a task that comes twice counts once.
func (p *probe) handle(payload []byte) {
	n, err := numberOf(payload)
	if err != nil || n < 1 || n > len(p.started) || !p.started[n-1].CompareAndSwap(0, p.now()) {
		return
	}
	if p.left.Add(-1) == 0 {
		close(p.all)
	}
}

// latency sends tasks at a steady rate, however slow the answers are, and tells how long after that each one started.
func latency(ctx context.Context, s System, cfg Config) (Reply, error) {
	warm := int(warmup.Seconds() * float64(cfg.Rate))
	p := newProbe(cfg.Rate*cfg.Seconds + warm)
	stop, err := s.Work(ctx, p.handle)
	if err != nil {
		return Reply{}, err
	}
	pause.For(ctx, warmup/2) // the workers connect
	err = p.send(ctx, s, cfg.Rate)
	if err == nil {
		select {
		case <-p.all:
		case <-time.After(arriveLimit):
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	return p.reply(warm), err
}

// send sends all tasks, each at its time.
func (p *probe) send(ctx context.Context, s System, rate int) error {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, sendersMax)
	p.began = time.Now()
	for i := range p.due {
		at := time.Duration(i) * time.Second / time.Duration(rate)
		p.due[i] = int64(at)
		if wait := at - time.Since(p.began); wait > 0 && !pause.For(ctx, wait) {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			err := s.Send(ctx, Payload(i+1), func() { p.committed[i].Store(p.now()) })
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return fmt.Errorf("send: %w", *err)
	}
	return ctx.Err()
}

// reply sums up, without the first warm tasks.
func (p *probe) reply(warm int) Reply {
	var sent, commit []time.Duration
	for i := warm; i < len(p.due); i++ {
		at := p.started[i].Load()
		if at == 0 {
			continue
		}
		sent = append(sent, time.Duration(at-p.due[i]))
		// A handler may start before its sender has been told of the commit.
		commit = append(commit, time.Duration(max(0, at-p.committed[i].Load())))
	}
	r := Reply{
		Tasks: len(p.due), SentP50: percentile(sent, 50), SentP99: percentile(sent, 99), SentMax: percentile(sent, 100),
		CommitP50: percentile(commit, 50), CommitP99: percentile(commit, 99),
	}
	if left := p.left.Load(); left > 0 {
		r.Note = fmt.Sprintf("%d of %d never arrived", left, len(p.due))
	}
	return r
}

// percentile is in milliseconds: the smallest value that p per cent of all do not exceed; it sorts the values. None: 0.
func percentile(values []time.Duration, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := int(float64(len(values))*p/100+0.9999) - 1
	return float64(values[max(0, min(at, len(values)-1))].Microseconds()) / 1000
}
