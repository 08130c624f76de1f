package redisq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
)

const maxPendingPage = 1000 // entries of one page; each is read with its fields

// Pending implements ingestq.Consumer. A page has at most 1,000 deliveries.
func (q *Queue) Pending(ctx context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	var page []ingestq.Pending
	err := q.healing(ctx, func() (err error) {
		page, err = q.pendingOnce(ctx, minIdle, after, min(n, maxPendingPage))
		return err
	})
	return page, failure(ctx, "list pending deliveries of "+q.cfg.StreamKey, err)
}

func (q *Queue) pendingOnce(ctx context.Context, minIdle time.Duration, after string, n int) ([]ingestq.Pending, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	start := "-"
	if id, ok := parseID(after); ok {
		if start = id.next().String(); start == after {
			return nil, nil
		}
	}
	// IDLE is judged by the server while it walks: a filter on our side would see only the young ones in front.
	command := q.client.B().Xpending().Key(q.cfg.StreamKey).Group(q.cfg.Group).Idle(max(0, minIdle.Milliseconds())).
		Start(start).End("+").Count(int64(n)).Build()
	rows, err := q.client.Do(ctx, command).ToArray()
	if err != nil {
		return nil, err
	}
	page := make([]ingestq.Pending, 0, len(rows))
	for _, row := range rows {
		columns, err := row.ToArray()
		if err != nil || len(columns) != 4 {
			return nil, fmt.Errorf("%w to XPENDING: %d columns", errAnswer, len(columns))
		}
		p := ingestq.Pending{Consumer: text(columns[1]), Deliveries: number(columns[3], 0)}
		p.ID = text(columns[0])
		p.Idle = time.Duration(max(0, number(columns[2], 0))) * time.Millisecond
		page = append(page, p)
	}
	return page, q.join(ctx, page)
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
			page[i].Delivery = decode(q.codec, entries[0])
		}
	}
	return nil
}

// Unpin implements ingestq.Consumer.
func (q *Queue) Unpin(ctx context.Context, idle time.Duration, ids ...string) error {
	var calls []scriptCall
	for _, id := range ids {
		if _, ok := parseID(id); ok {
			ms := strconv.FormatInt(max(0, idle.Milliseconds()), 10)
			calls = append(calls, scriptCall{[]string{q.cfg.StreamKey}, []string{q.cfg.Group, ms, id}})
		}
	}
	err := q.healing(ctx, func() error { return firstError(q.runAll(ctx, unpinScript, calls)) })
	return failure(ctx, fmt.Sprintf("let %d deliveries go", len(ids)), err)
}

// runAll runs calls in pipelines of a bounded length and size.
func (q *Queue) runAll(ctx context.Context, s script, calls []scriptCall) []rueidis.RedisResult {
	results := make([]rueidis.RedisResult, 0, len(calls))
	for len(calls) > 0 {
		n, bytes := 0, 0
		for n < len(calls) && n < pipelineLength {
			if bytes += calls[n].bytes(); n > 0 && bytes > pipelineBytes {
				break
			}
			n++
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		results = append(results, s.runAll(call, q.client, calls[:n])...)
		cancel()
		calls = calls[n:]
	}
	return results
}
