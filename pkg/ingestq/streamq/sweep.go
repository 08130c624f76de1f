package streamq

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
)

// Pending implements ingestq.Consumer: the single stream first, then partition by partition, in id order.
func (q *Queue) Pending(ctx context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	all, err := q.all(ctx)
	if err != nil {
		return nil, err
	}
	from, entry := single, ""
	if number, rest, ok := splitID(after); ok {
		from, entry = number, rest
	}
	var page []ingestq.Pending
	for _, p := range all {
		if p.number < from || len(page) >= n {
			continue
		}
		if p.number > from {
			entry = ""
		}
		some, err := p.Pending(ctx, minIdle, entry, n-len(page))
		if err != nil {
			return nil, err
		}
		for _, one := range some {
			one.ID = idOf(p.number, one.ID)
			page = append(page, one)
		}
	}
	return page, nil
}

// Trim implements ingestq.Consumer.
func (q *Queue) Trim(ctx context.Context) (int64, error) {
	all, err := q.all(ctx)
	if err != nil {
		return 0, err
	}
	removed, err := gather(all, func(p *part) (int64, error) { return p.Trim(ctx) })
	total := int64(0)
	for _, n := range removed {
		total += n
	}
	return total, err
}

// Watermark implements ingestq.Consumer: the smallest of all streams counts (design D5).
func (q *Queue) Watermark(ctx context.Context) (ingestq.Watermark, error) {
	all, err := q.all(ctx)
	if err != nil {
		return ingestq.Watermark{}, err
	}
	watermarks, err := gather(all, func(p *part) (ingestq.Watermark, error) { return p.Watermark(ctx) })
	if err != nil {
		return ingestq.Watermark{}, err
	}
	return smallest(watermarks, q.cluster()), nil
}

// smallest is the read watermark of all streams. The nodes of a cluster have clocks of their own: there the stream counts that waits
// longest by its own node's clock, told by the clock that is most behind.
func smallest(watermarks []ingestq.Watermark, cluster bool) ingestq.Watermark {
	var out ingestq.Watermark
	var longest time.Duration
	for _, h := range watermarks {
		if out.Now.IsZero() || h.Now.Before(out.Now) {
			out.Now = h.Now
		}
		if h.At.IsZero() {
			continue
		}
		longest = max(longest, h.Now.Sub(h.At))
		if out.At.IsZero() || h.At.Before(out.At) {
			out.At = h.At
		}
	}
	if cluster && !out.At.IsZero() {
		out.At = out.Now.Add(-longest)
	}
	return out
}

// Ping implements ingestq.Consumer: it writes the heartbeat, since a full or read-only Redis answers a PING too.
func (q *Queue) Ping(ctx context.Context) error {
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	if q.cluster() {
		return each(all, func(p *part) error { return p.Queue.Ping(ctx) })
	}
	return all[len(all)-1].Ping(ctx)
}

// Run implements ingestq.Consumer: one heartbeat tells for all partitions that the member lives, on a cluster one for each.
func (q *Queue) Run(ctx context.Context) error {
	ingestq.Member{
		Queue: "streamq", HeartbeatTTL: q.cfg.HeartbeatTTL, ZombieInterval: q.cfg.ZombieInterval,
		Beat: q.beat, RemoveZombies: q.removeZombies, Log: q.log,
	}.Live(ctx)
	q.depart()
	q.leaveAll(context.WithoutCancel(ctx))
	return nil
}

// beat writes the heartbeat of the partitions, and that of the single stream while it is there.
func (q *Queue) beat(ctx context.Context) error {
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	err = q.Ping(ctx)
	if all[0].number == single && !q.cluster() {
		err = errors.Join(err, all[0].Queue.Ping(ctx))
	}
	return err
}

func (q *Queue) removeZombies(ctx context.Context) error {
	all, err := q.all(ctx)
	if err != nil {
		return err
	}
	return each(all, func(p *part) error {
		_, err := p.RemoveZombies(ctx)
		return err
	})
}

// leaveAll ends the heartbeat, and the membership where nothing is pending. A Redis that does not answer is no error.
func (q *Queue) leaveAll(ctx context.Context) {
	all, err := q.all(ctx)
	if err != nil {
		q.log.WarnContext(ctx, "streamq: did not leave the group", slog.Any("error", err))
		return
	}
	_ = each(all, func(p *part) error { p.Leave(ctx); return nil })
}
