package redisq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const maxPendingPage = 1000 // entries of one page; each is read with its fields

// Pending implements ingestq.Consumer. A page has at most 1,000 deliveries.
func (q *Queue) Pending(ctx context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	start := "-"
	if id, ok := stream.ParseID(after); ok {
		if start = id.Next().String(); start == after {
			return nil, nil
		}
	}
	return ask(ctx, q, "list pending deliveries of "+q.cfg.StreamKey, func(ctx context.Context) ([]ingestq.Pending, error) {
		rows, err := stream.PendingEntries(ctx, q.client, q.cfg.StreamKey, q.cfg.Group, minIdle, start, min(n, maxPendingPage))
		if err != nil {
			return nil, err
		}
		page := make([]ingestq.Pending, len(rows))
		for i, p := range rows {
			page[i] = ingestq.Pending{Delivery: ingestq.Delivery{ID: p.ID}, Consumer: p.Consumer, Idle: p.Idle, Deliveries: p.Deliveries}
		}
		return page, q.join(ctx, page)
	})
}

// join fills in the fields of the entries and whether their consumers live, in one pipeline.
func (q *Queue) join(ctx context.Context, page []ingestq.Pending) error {
	commands := make(rueidis.Commands, 0, 2*len(page))
	for _, p := range page {
		commands = append(commands, q.client.B().Xrange().Key(q.cfg.StreamKey).Start(p.ID).End(p.ID).Build())
	}
	place := map[string]int{} // of a consumer's answer
	for _, p := range page {
		if _, ok := place[p.Consumer]; !ok {
			place[p.Consumer] = len(commands)
			key := q.aliveKey(p.Consumer)
			commands = append(commands, q.client.B().Exists().Key(key).Build())
		}
	}
	results := q.client.DoMulti(ctx, commands...)
	for i := range page {
		entries, err := results[i].AsXRange()
		if err != nil {
			return err
		}
		alive, err := results[place[page[i].Consumer]].AsInt64()
		if err != nil {
			return err
		}
		page[i].Alive = alive == 1
		if page[i].Gone = len(entries) == 0; !page[i].Gone {
			page[i].Delivery = decode(q.codec, entries[0].ID, entries[0].FieldValues)
		}
	}
	return nil
}

// Unpin implements ingestq.Consumer.
func (q *Queue) Unpin(ctx context.Context, idle time.Duration, ids ...string) error {
	var calls []stream.Call
	for _, id := range ids {
		if _, ok := stream.ParseID(id); ok {
			args := []string{q.cfg.Group, stream.Millis(max(0, idle)), id}
			calls = append(calls, stream.Call{Script: stream.Loaded().Unpin, Keys: []string{q.cfg.StreamKey}, Args: args})
		}
	}
	err := q.healing(ctx, func() error { return stream.FirstError(q.runAll(ctx, calls)) })
	return failure(ctx, fmt.Sprintf("let %d deliveries go", len(ids)), err)
}

// runAll runs calls in pipelines of a bounded length and size.
func (q *Queue) runAll(ctx context.Context, calls []stream.Call) []rueidis.RedisResult {
	results := make([]rueidis.RedisResult, 0, len(calls))
	size := func(i int) int { return calls[i].Size() }
	for from, to := range ingestq.Portions(len(calls), pipelineLength, pipelineBytes, size) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		results = append(results, q.scripts.RunAll(call, calls[from:to])...)
		cancel()
	}
	return results
}

// Watermark implements ingestq.Consumer.
func (q *Queue) Watermark(ctx context.Context) (ingestq.Watermark, error) {
	return ask(ctx, q, "horizon of "+q.cfg.StreamKey, q.readWatermark)
}

func (q *Queue) readWatermark(ctx context.Context) (h ingestq.Watermark, err error) {
	answer, err := q.scripts.Run(ctx, stream.Loaded().Read, []string{q.cfg.StreamKey}, q.cfg.Group).ToArray()
	if err != nil {
		return h, err
	}
	if len(answer) != 4 {
		return h, fmt.Errorf("%w: %d parts", stream.ErrAnswer, len(answer))
	}
	seconds, err1 := strconv.ParseInt(stream.Text(answer[0]), 10, 64)
	micros, err2 := strconv.ParseInt(stream.Text(answer[1]), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return h, fmt.Errorf("%w: %w", stream.ErrAnswer, err)
	}
	h.Now = time.Unix(seconds, micros*int64(time.Microsecond)).UTC()
	if first := stream.Text(answer[2]); first != "" {
		id, ok := stream.ParseID(first)
		if !ok {
			return h, fmt.Errorf("%w: entry id %q", stream.ErrAnswer, first)
		}
		h.At = id.Time()
	}
	if stream.Number(answer[3], 0) == 1 {
		q.log.WarnContext(ctx, "redisq: the group stood beyond its stream's end and was moved back",
			slog.String("stream", q.cfg.StreamKey), slog.String("group", q.cfg.Group))
	}
	return h, nil
}

// Trim implements ingestq.Consumer.
func (q *Queue) Trim(ctx context.Context) (int64, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	removed, _, err := q.scripts.Trim(call, stream.Loaded().Trim, q.cfg.StreamKey, stream.Keep{Finished: true}, false)
	if err != nil {
		return 0, failure(ctx, "trim "+q.cfg.StreamKey, err)
	}
	q.metrics.trimmed.WithLabelValues(q.cfg.StreamKey).Add(float64(removed))
	return int64(removed), nil
}
