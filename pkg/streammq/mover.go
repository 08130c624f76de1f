package streammq

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// wakeMover tells the mover of this process that something is due after a delay; it wakes for the earliest.
func (s *Subscriber) wakeMover(delay time.Duration) {
	for at := s.mq.cfg.Now().Add(delay); ; {
		select {
		case s.mover <- at:
			return
		case other := <-s.mover: // the mover is busy, and has not yet seen this one
			if other.Before(at) {
				at = other
			}
		}
	}
}

// moveAll adds republished messages to their streams when they are due, until ctx ends. All members do it; a script
// sees to it that each item is moved once.
func (s *Subscriber) moveAll(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := s.mq.cfg.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-s.mover:
			if at.Before(next) {
				next = at
			}
		case <-timer.C:
			next = s.mq.cfg.Now().Add(s.moveRound(ctx))
		}
		// MoverEvery is a bound also for a clock that was set back.
		timer.Reset(min(s.cfg.MoverEvery, max(time.Millisecond, next.Sub(s.mq.cfg.Now()))))
	}
}

// moveRound moves what is due and returns the time until it should be called again.
func (s *Subscriber) moveRound(ctx context.Context) time.Duration {
	pause := s.cfg.MoverEvery
	// A batch of each in turn: a partition with many must not make the others late.
	for sources := s.retrySources(); len(sources) > 0 && ctx.Err() == nil; {
		var full []source
		for _, src := range sources {
			n, next, err := s.mq.moveDue(ctx, src, s.cfg.MoverBatch)
			if err != nil && ctx.Err() == nil {
				s.warn(ctx, "streammq: moving retries failed", err)
			}
			if err == nil && next >= 0 {
				pause = min(pause, next)
			}
			if err == nil && n == s.cfg.MoverBatch {
				full = append(full, src)
			}
		}
		sources = full
	}
	return pause
}

// retrySources have the retry sets that this member looks at: the topic's, or on a cluster those of its partitions.
func (s *Subscriber) retrySources() []source {
	if s.cfg.StreamKey != "" || s.mq.cfg.Layout == LayoutSingle {
		return []source{s.here()}
	}
	var sources []source
	for _, w := range s.owned() {
		sources = append(sources, w.src)
	}
	return sources
}

// moveDue moves up to most items and returns how many were due, and the time until the next one is, or -1.
func (q *MQ) moveDue(ctx context.Context, src source, most int) (int, time.Duration, error) {
	answer, err := q.run(ctx, q.scripts.retryDue, []string{src.retry()}, strconv.Itoa(most)).ToArray()
	if err != nil {
		return 0, 0, failure(ctx, "list retries", err)
	}
	names, err := answer[0].AsStrSlice()
	if err != nil {
		return 0, 0, err
	}
	ms, err := answer[1].AsInt64()
	if err != nil {
		return 0, 0, err
	}
	return len(names), time.Duration(ms) * time.Millisecond, q.move(ctx, src, names)
}

func (q *MQ) move(ctx context.Context, src source, names []string) error {
	reads := make(rueidis.Commands, len(names))
	for i, name := range names {
		reads[i] = q.client.B().Hgetall().Key(src.item(name)).Build()
	}
	var calls []scriptCall
	for i, r := range q.client.DoMulti(ctx, reads...) {
		fields, err := r.AsStrMap()
		if err != nil && !isRedisError(err, "WRONGTYPE") {
			return failure(ctx, "read retry item", err)
		}
		to, ok := src.target(fields)
		if !ok {
			calls = append(calls, scriptCall{q.scripts.retryQuarantine, []string{src.retry(), src.quarantine()}, []string{names[i]}})
			continue
		}
		keys := []string{src.retry(), src.item(names[i]), to.stream()}
		calls = append(calls, scriptCall{q.scripts.retryMove, keys, []string{names[i], strconv.Itoa(to.part)}})
	}
	for i, r := range q.runAll(ctx, calls) {
		n, err := r.AsInt64()
		if err != nil {
			return failure(ctx, "move retry item "+names[i], err)
		}
		if n == 1 {
			q.moved(ctx, src, names[i], calls[i].script.sha == q.scripts.retryMove.sha)
		}
	}
	return nil
}

func (q *MQ) moved(ctx context.Context, src source, name string, whole bool) {
	if whole {
		q.observe(Event{Kind: EventMoved, Topic: src.topic, Partition: -1, Count: 1})
		return
	}
	q.observe(Event{Kind: EventQuarantined, Topic: src.topic, Partition: -1, Count: 1})
	q.cfg.Log.ErrorContext(ctx, "streammq: retry item is malformed and was put aside", slog.String("topic", src.topic),
		slog.String("item", name), slog.String("key", src.item(name)), slog.String("list", src.quarantine()))
}

// target is the partition that a retry item goes back to; false when the item cannot be read.
func (s source) target(fields map[string]string) (source, bool) {
	flat := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		flat = append(flat, name, value)
	}
	e, err := decodeEntry(flat)
	if err != nil || fields[fieldPartition] != strconv.Itoa(e.partition) || e.partition >= MaxPartitions {
		return s, false
	}
	if s.apart() {
		return s, e.partition == s.part // another partition's stream is in another slot
	}
	s.part = e.partition
	return s, true
}
