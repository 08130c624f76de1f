package ingestqtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// patient repeats what can be done twice when a server or this process was held up for longer than a call may take, and
// notes each such failure.
type patient struct {
	ingestq.PendingQueue
	stalls *stalls
}

// patiently wraps what a bench makes, and unwraps what it is given back. The test fails when more calls failed than the
// server's stalls explain.
func (b Bench) patiently(t *testing.T) Bench {
	stalls := watchStalls(t, b.Probe)
	member, kill, rest := b.Member, b.Kill, b.Rest
	b.Member = func() ingestq.PendingQueue { return patient{member(), stalls} }
	b.Kill = func(m ingestq.PendingQueue) { kill(m.(patient).PendingQueue) }
	wipe := b.Wipe
	b.Wipe = func() {
		stalls.wiped()
		wipe()
	}
	if rest != nil {
		b.Rest = func(m ingestq.PendingQueue) { rest(m.(patient).PendingQueue) }
	}
	return b
}

func (p patient) again(ctx context.Context, what string, call func() error) error {
	for began := time.Now(); ; {
		tried := time.Now()
		err := call()
		p.stalls.note(what, tried, err)
		if !errors.Is(err, ingestq.ErrUnavailable) || ctx.Err() != nil || time.Since(began) > waitLimit {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (p patient) Ack(ctx context.Context, ids ...string) error {
	return p.again(ctx, "Ack", func() error { return p.PendingQueue.Ack(ctx, ids...) })
}

func (p patient) Adopt(ctx context.Context, ids ...string) (found map[string]bool, err error) {
	err = p.again(ctx, "Adopt", func() (err error) { found, err = p.PendingQueue.Adopt(ctx, ids...); return err })
	return found, err
}

func (p patient) Pending(ctx context.Context, minIdle time.Duration, after string, n int) (page []ingestq.Pending, err error) {
	err = p.again(ctx, "Pending", func() (err error) { page, err = p.PendingQueue.Pending(ctx, minIdle, after, n); return err })
	return page, err
}

func (p patient) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	return p.again(ctx, "Quarantine", func() error { return p.PendingQueue.Quarantine(ctx, d) })
}

func (p patient) Unpin(ctx context.Context, idle time.Duration, ids ...string) error {
	return p.again(ctx, "Unpin", func() error { return p.PendingQueue.Unpin(ctx, idle, ids...) })
}

func (p patient) Watermark(ctx context.Context) (h ingestq.Watermark, err error) {
	err = p.again(ctx, "Watermark", func() (err error) { h, err = p.PendingQueue.Watermark(ctx); return err })
	return h, err
}

func (p patient) Stats(ctx context.Context) (s ingestq.Stats, err error) {
	err = p.again(ctx, "Stats", func() (err error) { s, err = p.PendingQueue.Stats(ctx); return err })
	return s, err
}

func (p patient) Ping(ctx context.Context) error {
	return p.again(ctx, "Ping", func() error { return p.PendingQueue.Ping(ctx) })
}

// Read, Publish and Requeue are not repeated here: what they did before they failed is the test's to know.
func (p patient) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	began := time.Now()
	out, err := p.PendingQueue.Read(ctx, n, block)
	p.stalls.note("Read", began, err)
	return out, err
}

func (p patient) Publish(ctx context.Context, envelopes []*pb.TaskEnvelope) ([]string, error) {
	began := time.Now()
	ids, err := p.PendingQueue.Publish(ctx, envelopes)
	p.stalls.note("Publish", began, err)
	return ids, err
}

func (p patient) Requeue(ctx context.Context, copies []ingestq.Copy) (int, error) {
	began := time.Now()
	n, err := p.PendingQueue.Requeue(ctx, copies)
	p.stalls.note("Requeue", began, err)
	return n, err
}

const (
	probePause = 20 * time.Millisecond
	probeTime  = 10 * time.Second // of one probe; a server that is silent for longer is asked again
	// enoughStall is how much of a call's time the server must have been silent to explain its failure: a quarter of it, and
	// this much at most.
	enoughStall = 400 * time.Millisecond
	// stallLast is how long after a stall a call may still fail: connections were given up.
	stallLast = 3 * time.Second
	// wipeLast is how long after its queue was wiped a member may need to make its group again: it waits up to 5 s where
	// groups were lost again and again.
	wipeLast = 6 * time.Second
)

// stalls asks a server all the time how it is, and judges each ErrUnavailable by what it measured in the same moments: one
// that no silence of the server or of this process explains is a fault of the implementation. It is safe for concurrent use.
type stalls struct {
	probe func(ctx context.Context) error

	mu     sync.Mutex
	silent []span // in order of time: from a probe's beginning, or its due time, to its end
	failed []call
	wipes  []time.Time
}

// span is a time in which an answer was waited for; broken says that none came.
type span struct {
	from, to time.Time
	broken   bool
}

// call is one that failed with ErrUnavailable.
type call struct {
	what     string
	from, to time.Time
	err      error
}

// watchStalls measures until the test ends, and fails it then when a failure is not explained.
func watchStalls(t *testing.T, probe func(ctx context.Context) error) *stalls {
	s := &stalls{probe: probe}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		count, err := s.judge()
		if count > 0 {
			t.Logf("%d calls failed with ErrUnavailable", count)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return s
}

// watch probes until ctx ends.
func (s *stalls) watch(ctx context.Context) {
	ticker := time.NewTicker(probePause)
	defer ticker.Stop()
	due := time.Now()
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, probeTime)
		err := s.probe(bounded)
		cancel()
		s.asked(due, time.Now(), err != nil && ctx.Err() == nil)
		due = time.Now().Add(probePause)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// asked notes one probe that was due at from; one that was answered at once is not kept.
func (s *stalls) asked(from, to time.Time, broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if broken || to.Sub(from) > probePause {
		s.silent = append(s.silent, span{from, to, broken})
	}
}

// wiped notes that the queue has lost all it had: for a while that explains a failure like a lost connection.
func (s *stalls) wiped() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipes = append(s.wipes, time.Now())
}

// note keeps a call that failed with ErrUnavailable.
func (s *stalls) note(what string, from time.Time, err error) {
	if !errors.Is(err, ingestq.ErrUnavailable) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, call{what, from, time.Now(), err})
}

// judge returns how many calls failed, and an error that names those which nothing explains.
func (s *stalls) judge() (count int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.failed {
		if !s.explains(c) {
			err = errors.Join(err, fmt.Errorf("%s failed after %s while the server answered: %w", c.what, c.to.Sub(c.from).Round(time.Millisecond), c.err))
		}
	}
	return len(s.failed), err
}

// explains tells whether the server was silent for enough of a call's time, and a while before it.
func (s *stalls) explains(c call) bool {
	for _, at := range s.wipes {
		if !c.to.Before(at) && c.from.Before(at.Add(wipeLast)) {
			return true
		}
	}
	need, silent := min(c.to.Sub(c.from)/4, enoughStall), time.Duration(0)
	for _, one := range s.silent {
		from, to := one.from, one.to
		if to.Before(c.from.Add(-stallLast)) || from.After(c.to) {
			continue
		}
		if one.broken {
			return true
		}
		silent += to.Sub(from)
	}
	return silent > 0 && silent >= max(need, enoughStall/4)
}
