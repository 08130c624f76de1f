package admin

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const (
	pendingPage = 1000
	maxPending  = 100_000 // entries that Pending looks at, of one partition
)

// PendingEntry is an entry that was given to a member and is not finished.
type PendingEntry struct {
	Partition  int
	ID         string
	Consumer   string
	Idle       time.Duration
	Deliveries int64
}

// PendingOrder is how Pending sorts.
type PendingOrder string

// The orders, the largest first; ties by partition and id.
const (
	PendingByIdle       PendingOrder = "idle"
	PendingByDeliveries PendingOrder = "deliveries"
)

// PendingQuery chooses pending entries.
type PendingQuery struct {
	Order  PendingOrder  // "": by idle time
	Idle   time.Duration // only those idle for at least that long
	Offset int
	Limit  int // 0: 100
}

// Pending lists a group's pending entries of all partitions in one order. It looks at up to 100,000 of each partition.
// Errors: ErrConfig when the order is unknown, ErrUnknownTopic, ErrNotFound when there is no such group, ErrUnavailable.
func (a *Admin) Pending(ctx context.Context, group string, query PendingQuery) ([]PendingEntry, error) {
	var p model.Problems
	p.Refuse(query.Order != "" && query.Order != PendingByIdle && query.Order != PendingByDeliveries,
		"Order %q: must be %s or %s", query.Order, PendingByIdle, PendingByDeliveries)
	if err := p.Err(); err != nil {
		return nil, err
	}
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	var all []PendingEntry
	for _, s := range sources {
		if all, err = pendingOf(a.mq, ctx, s, group, query.Idle, all); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		if query.Order == PendingByDeliveries {
			return all[i].Deliveries > all[j].Deliveries
		}
		return all[i].Idle > all[j].Idle
	})
	limit := query.Limit
	if limit <= 0 {
		limit = model.PageSize
	}
	from := min(max(0, query.Offset), len(all))
	return all[from:min(from+limit, len(all))], nil
}

func pendingOf(q *core.Core, ctx context.Context, s core.Source, group string, idle time.Duration, list []PendingEntry) ([]PendingEntry, error) {
	from := "-"
	for seen := 0; seen < maxPending; {
		rows, err := stream.PendingEntries(ctx, q.Client, s.Stream(), group, idle, from, pendingPage)
		if stream.IsMissing(err) {
			return list, fmt.Errorf("group %s on %s: %w", group, s.Stream(), model.ErrNotFound)
		}
		if err != nil {
			return list, model.Failure(ctx, "list pending entries of "+s.Stream(), err)
		}
		for _, p := range rows {
			list = append(list, PendingEntry{s.Part, p.ID, p.Consumer, p.Idle, p.Deliveries})
			from = stream.Following(p.ID)
		}
		if seen += len(rows); len(rows) < pendingPage {
			break
		}
	}
	return list, nil
}
