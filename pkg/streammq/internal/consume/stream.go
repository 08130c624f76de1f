package consume

import (
	"context"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// single is a member on a single stream.
type single struct{ *Subscriber }

// A single stream has no leases: each of its consumers reads what is new, and what fences an entry is the consumer and
// the delivery count that Redis names for it. Worker 0 reads, worker 1 claims, under a name of its own: the two run
// beside each other, and one must not take the other's entry for its own.
const (
	readNumber  = 0
	claimNumber = 1
)

func (s single) startStream(ctx, loops context.Context, taking, running *sync.WaitGroup) error {
	src := s.here()
	err := s.mq.Client.Do(ctx, s.createGroup(src, s.cfg.Start)).Error()
	if err != nil && !stream.IsError(err, "BUSYGROUP") {
		s.warn(ctx, "streammq: group cannot be made yet", err)
	}
	s.beatOnStream(ctx) // before the first read: what a member without a heartbeat holds is anybody's
	core.Every(loops, running, s.cfg.Renew, s.beatOnStream)
	core.Every(loops, running, s.cfg.ClaimIdle/3, s.touchAll)
	if s.cfg.Role != RoleClaim {
		w := NewWorker(s.Subscriber, src, s.name, "")
		s.launch(ctx, readNumber, w, loopOf(w).readStream)
	}
	if s.cfg.Role != RoleMain {
		w := NewWorker(s.Subscriber, src, s.name+core.ClaimSuffix, "")
		s.launch(ctx, claimNumber, w, func(ctx context.Context) error { return s.claimStream(ctx, w) })
	}
	keeper(s).startKeepers(ctx, taking)
	return nil
}

// beatOnStream notes that the member lives, while the stream is there. As in renew, it is not abandoned at a stop.
func (s single) beatOnStream(ctx context.Context) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease/2)
	defer cancel()
	if !s.there(call) {
		return
	}
	_, _, err := s.join(call)
	s.failed(ctx, "streammq: heartbeat failed", err)
}

// touchAll tells Redis that the entries of running batches are not forgotten.
func (s single) touchAll(ctx context.Context) {
	for _, w := range Owned(s.Subscriber) {
		if open := w.stillOpen(); len(open) > 0 {
			s.failed(ctx, "streammq: idle reset failed", w.Touch(ctx, open))
		}
	}
}

// readStream begins with what this consumer's name has pending from before: no other process has that name.
// A subscriber that claims too does so with each of its reads where the server can: it need not wait for the claimer's turn.
func (l loops) readStream(ctx context.Context) error {
	l.Claims = ""
	if l.cfg.Role == RoleBoth {
		able, err := l.CanClaim(ctx)
		if err != nil {
			return err
		}
		if able {
			l.Claims = stream.Millis(l.cfg.ClaimIdle)
		}
	}
	if err := l.takeUp(ctx, l.ClaimOwn); err != nil {
		return err
	}
	if _, err := l.claimAll(ctx, nil); err != nil {
		return err
	}
	return l.main(ctx)
}

// claimAll goes on while there is something to claim, and returns the time until it should be called again.
func (l loops) claimAll(ctx context.Context, dead []string) (time.Duration, error) {
	idle, wait := l.cfg.ClaimIdle, l.cfg.PendingScan
	if l.cfg.Role == RoleMain {
		idle = fence.Never // its own only
	}
	for {
		got, err := l.Claim(ctx, l.cfg.ClaimBatch, idle, dead)
		if err != nil {
			return 0, err
		}
		if err := l.Handle(ctx, got, false); err != nil {
			return 0, err
		}
		if len(got.Entries) == 0 {
			if got.Wait >= 0 {
				wait = min(wait, max(got.Wait, time.Millisecond))
			}
			return wait, nil
		}
	}
}

// claimStream looks for entries of dead and silent consumers, every PendingScan.
func (s single) claimStream(ctx context.Context, w *Worker) error {
	if err := loopOf(w).pausing(ctx); err != nil {
		return err
	}
	if err := loopOf(w).takeUp(ctx, w.ClaimOwn); err != nil {
		return err
	}
	for {
		if err := loopOf(w).pausing(ctx); err != nil {
			return err
		}
		var dead []string
		_, gone, err := s.beat(ctx, s.cfg.Lease)
		if err != nil {
			return err
		}
		for _, name := range gone {
			dead = append(dead, name, name+core.ClaimSuffix)
		}
		wait, err := loopOf(w).claimAll(ctx, dead)
		if err != nil {
			return err
		}
		w.wait(ctx, wait)
	}
}
