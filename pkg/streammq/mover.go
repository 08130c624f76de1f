package streammq

import (
	"context"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
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
	if err := s.mq.adopt(ctx, s.here()); err != nil && ctx.Err() == nil {
		s.warn(ctx, "streammq: renaming retries of an earlier version failed", err)
	}
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

// javaGrace is how long an item of another's is left to its own mover once it is due. After it there is no such mover any more.
const javaGrace = time.Minute

// adopt gives the items that an earlier version has put off the names that they have now.
func (q *MQ) adopt(ctx context.Context, src source) error {
	prefix := src.items()
	if prefix == "" {
		return nil
	}
	for cursor := uint64(0); ; {
		page, err := q.client.Do(ctx, q.client.B().Zscan().Key(src.retry()).Cursor(cursor).Count(dropPortion).Build()).AsScanEntry()
		if err != nil {
			return failure(ctx, "list retries", err)
		}
		args := []string{prefix}
		for i := 0; i < len(page.Elements); i += 2 { // each with its score
			if shortItem.MatchString(page.Elements[i]) {
				args = append(args, page.Elements[i])
			}
		}
		if len(args) > 1 {
			if err := q.run(ctx, q.scripts.retryAdopt, []string{src.retry()}, args...).Error(); err != nil {
				return failure(ctx, "rename retries", err)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return nil
		}
	}
}

// shortItem is the name of an item of ours without the key before it.
var shortItem = regexp.MustCompile(`^[^:]+:\d+:\d+-\d+$`)

// moveDue moves up to most items and returns how many were due, and the time until the next one is, or -1.
func (q *MQ) moveDue(ctx context.Context, src source, most int) (int, time.Duration, error) {
	answer, err := q.run(ctx, q.scripts.retryDue, []string{src.retry(), src.quarantine()}, strconv.Itoa(most), src.items(), millis(javaGrace)).ToArray()
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
		to, ok := q.target(src, names[i], fields)
		if !ok {
			args := []string{names[i], strings.TrimPrefix(names[i], src.items())}
			calls = append(calls, scriptCall{q.scripts.retryQuarantine, []string{src.retry(), src.quarantine()}, args})
			continue
		}
		keys := []string{src.retry(), src.item(names[i]), to.stream()}
		args := []string{names[i], fields[fieldPartition], strconv.Itoa(to.part), encodeTime(q.cfg.Now())}
		calls = append(calls, scriptCall{q.scripts.retryMove, keys, args})
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

// target is the partition that a retry item goes back to: the first one if it names none, as in the Java original. False when
// the item cannot be read, is of another topic, or names a partition that nobody reads.
func (q *MQ) target(s source, name string, fields map[string]string) (source, bool) {
	flat := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		flat = append(flat, name, value)
	}
	e, err := decodeEntry(flat)
	if err != nil || e.partition >= MaxPartitions {
		return s, false
	}
	if s.apart() {
		return s, fields[fieldPartition] == strconv.Itoa(s.part) // another partition's stream is in another slot
	}
	if !shortItem.MatchString(strings.TrimPrefix(name, s.items())) {
		known, ok := q.topics.get(s.topic)
		if e.topic != "" && e.topic != s.topic || ok && e.partition >= known.partitions {
			return s, false
		}
	}
	s.part = e.partition
	return s, true
}
