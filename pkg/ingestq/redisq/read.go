package redisq

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	// readSlice is the longest BLOCK of one XREADGROUP. A read under way is never abandoned, for the server may just be
	// giving it entries; so this is how long a cancelled Read may still take. An idle member costs 4 commands a second.
	readSlice = 250 * time.Millisecond
	// readGrace is how much longer than its BLOCK an XREADGROUP may take.
	readGrace = 2 * time.Second
)

// Read implements ingestq.Consumer.
// After ctx ended it may take 250 ms more, and returns what it was given meanwhile without an error.
func (q *Queue) Read(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	for left := block; ; {
		if ctx.Err() != nil {
			return nil, failure(ctx, "read "+q.cfg.StreamKey, ctx.Err())
		}
		slice := min(left, readSlice)
		var deliveries []ingestq.Delivery
		err := q.healing(ctx, func() (err error) {
			deliveries, err = q.readOnce(ctx, n, slice)
			return err
		})
		if err != nil {
			q.metrics.failures.WithLabelValues(q.cfg.StreamKey).Inc()
			q.pauses.Failed(ctx, left)
			return nil, failure(ctx, "read "+q.cfg.StreamKey, err)
		}
		q.pauses.Done()
		if left -= slice; len(deliveries) > 0 || left < time.Millisecond {
			return deliveries, nil
		}
	}
}

// readOnce is one XREADGROUP, after another one if a read has gone unanswered. Only its own time limit ends it early.
func (q *Queue) readOnce(ctx context.Context, n int, block time.Duration) ([]ingestq.Delivery, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), block+readGrace)
	defer cancel()
	if err := q.KeepAlive(ctx); err != nil {
		return nil, err
	}
	if missing, err := q.readMissed(ctx, n); err != nil || len(missing) > 0 {
		return missing, err
	}
	entries, err := q.xread(ctx, n, block, ">")
	if err != nil && !stream.IsMissing(err) { // what it was given, perhaps later than now, is pending and known to nobody here
		q.readMu.Lock()
		defer q.readMu.Unlock()
		q.missed = q.now()
	}
	return q.decodeAll(entries), err
}

// readMissed returns what reads were given that have failed: the member's pending entries behind the last one returned. It may
// return an adopted one too. It looks until nothing was there readGrace after the failure, when a slow server is done with it.
func (q *Queue) readMissed(ctx context.Context, n int) ([]ingestq.Delivery, error) {
	for {
		q.readMu.Lock()
		missed, last := q.missed, cmp.Or(q.last, "0")
		q.readMu.Unlock()
		if missed.IsZero() {
			return nil, nil
		}
		late := q.now().Sub(missed) >= readGrace
		entries, err := q.xread(ctx, n, 0, last)
		if err != nil {
			// A server that answers a heartbeat and not this has too much to say: it is left to who settles pending entries.
			if q.beat(context.WithoutCancel(ctx)) == nil {
				q.nothingMissed(missed)
			}
			return nil, err
		}
		if deliveries := q.decodeAll(entries); len(deliveries) > 0 {
			return deliveries, nil
		}
		if len(entries) == 0 {
			if late {
				q.nothingMissed(missed)
			}
			return nil, nil
		}
	}
}

// nothingMissed ends the looks, unless another read has failed since.
func (q *Queue) nothingMissed(since time.Time) {
	q.readMu.Lock()
	defer q.readMu.Unlock()
	if q.missed.Equal(since) {
		q.missed = time.Time{}
	}
}

// xread runs one XREADGROUP.
func (q *Queue) xread(ctx context.Context, n int, block time.Duration, after string) ([]stream.Entry, error) {
	count := q.client.B().Xreadgroup().Group(q.cfg.Group, q.name).Count(int64(max(1, n)))
	// The typed builder marks it as blocking, so that it gets a connection of its own (libraries: rueidis).
	var command rueidis.Completed
	if ms := block.Milliseconds(); ms > 0 { // BLOCK 0 is for ever
		command = count.Block(ms).Streams().Key(q.cfg.StreamKey).Id(after).Build()
	} else {
		command = count.Streams().Key(q.cfg.StreamKey).Id(after).Build()
	}
	entries, err := stream.ReadEntries(q.client.Do(ctx, command), q.cfg.StreamKey)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		q.readMu.Lock()
		defer q.readMu.Unlock()
		q.last = entries[len(entries)-1].ID
	}
	return entries, nil
}

// decodeAll leaves an entry whose data is gone to who settles pending entries.
func (q *Queue) decodeAll(entries []stream.Entry) []ingestq.Delivery {
	deliveries := make([]ingestq.Delivery, 0, len(entries))
	bodies := make([]unread, len(entries))
	for i, e := range entries {
		if e.Fields == nil {
			continue
		}
		if task, ok := q.codec.Glance(e.Fields); ok {
			bodies[i] = unread{q.codec, e.Fields}
			deliveries = append(deliveries, ingestq.Delivery{ID: e.ID, TaskID: task, Body: &bodies[i]})
			continue
		}
		deliveries = append(deliveries, decode(q.codec, e.ID, e.Fields.Map()))
	}
	return deliveries
}

// Ack implements ingestq.Consumer.
func (q *Queue) Ack(ctx context.Context, ids ...string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var commands rueidis.Commands
	for _, batch := range idBatches(ids) {
		command := q.client.B().Xack().Key(q.cfg.StreamKey).Group(q.cfg.Group).Id(batch...).Build()
		commands = append(commands, command.ToRetryable())
	}
	return failure(ctx, fmt.Sprintf("acknowledge %d deliveries", len(ids)), stream.FirstError(q.client.DoMulti(call, commands...)))
}

// Adopt implements ingestq.Consumer; it counts ingest_stream_reclaim_total.
func (q *Queue) Adopt(ctx context.Context, ids ...string) (map[string]bool, error) {
	found := make(map[string]bool, len(ids))
	for _, id := range ids {
		found[id] = false
	}
	err := q.healing(ctx, func() error { return q.claim(ctx, ids, found) })
	if err != nil {
		q.metrics.reclaim.WithLabelValues("error").Add(float64(len(found)))
		return nil, failure(ctx, fmt.Sprintf("adopt %d deliveries", len(ids)), err)
	}
	for _, ok := range found {
		result := "gone"
		if ok {
			result = "claimed"
		}
		q.metrics.reclaim.WithLabelValues(result).Inc()
	}
	return found, nil
}

// claim marks what XCLAIM found. Redis 7 leaves out entries whose data is gone, and forgets them.
func (q *Queue) claim(ctx context.Context, ids []string, found map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := q.KeepAlive(ctx); err != nil {
		return err
	}
	var commands rueidis.Commands
	for _, batch := range idBatches(ids) {
		command := q.client.B().Xclaim().Key(q.cfg.StreamKey).Group(q.cfg.Group).Consumer(q.name).MinIdleTime("0").
			Id(batch...).Justid().Build()
		commands = append(commands, command.ToRetryable())
	}
	for _, result := range q.client.DoMulti(ctx, commands...) {
		claimed, err := result.AsStrSlice()
		if err != nil {
			return err
		}
		for _, id := range claimed {
			found[id] = true
		}
	}
	return nil
}
