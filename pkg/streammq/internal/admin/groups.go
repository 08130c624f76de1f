package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const LagCounted = 10_000 // entries counted where the server cannot tell the lag

// PartitionStats is how one group stands on one partition.
type PartitionStats struct {
	Partition int
	Owner     string // member of this start; "": nobody
	Epoch     string
	Length    int64 // entries in the stream, finished ones too
	// Lag is the number of entries that the group was not given yet. Where the server cannot tell it (before 7.0, or
	// after entries were deleted) they are counted; LagExact is false when there are 10,000 or more of these.
	Lag      int64
	LagExact bool
	Pending  int64 // given and not finished
	Due      int64 // of these, put off in place
	// Consumers is the number of names in the group, dead ones too.
	Consumers     int64
	LastDelivered string
	// Frontier is the oldest entry that the group has not finished, pending or not given yet; "": it has finished all.
	// FrontierAge is how long ago it was added, by Redis' clock.
	Frontier    string
	FrontierAge time.Duration
}

// GroupStats tells how a group stands on each partition.
// Errors: ErrUnknownTopic, ErrNotFound when there is no such group, ErrUnavailable.
func (a *Admin) GroupStats(ctx context.Context, group string) ([]PartitionStats, error) {
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	stats := make([]PartitionStats, len(sources))
	for i, s := range sources {
		if stats[i], err = partitionStats(a.mq, ctx, s, group); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

func partitionStats(q *core.Core, ctx context.Context, s core.Source, group string) (PartitionStats, error) {
	p := PartitionStats{Partition: s.Part}
	doing := "look at " + s.Stream()
	results := q.Client.DoMulti(ctx,
		q.Client.B().Get().Key(s.Lease(group)).Build(), q.Client.B().Get().Key(s.Epoch(group)).Build(),
		q.Client.B().Xlen().Key(s.Stream()).Build(), q.Client.B().Zcard().Key(s.Due(group)).Build(),
		q.Client.B().XinfoGroups().Key(s.Stream()).Build())
	if err := stream.FirstError(results); err != nil && !stream.IsMissing(err) {
		return p, model.Failure(ctx, doing, err)
	}
	p.Owner, _ = results[0].ToString() // nil: nobody
	p.Epoch, _ = results[1].ToString()
	p.Length, _ = results[2].AsInt64()
	p.Due, _ = results[3].AsInt64()
	groups, _ := stream.ReadGroups(results[4]) // an error was judged above
	for _, g := range groups {
		if g.Name == group {
			return p, groupStats(q, ctx, s, g, &p)
		}
	}
	return p, fmt.Errorf("group %s on %s: %w", group, s.Stream(), model.ErrNotFound)
}

func groupStats(q *core.Core, ctx context.Context, s core.Source, g stream.Group, p *PartitionStats) error {
	p.Pending, p.Consumers, p.LastDelivered = g.Pending, g.Consumers, g.LastDelivered
	most := LagCounted
	if g.Lag >= 0 && g.Counted {
		p.Lag, p.LagExact, most = g.Lag, true, 0
	}
	answer, err := q.Run(ctx, q.Scripts.GroupLag, []string{s.Stream()}, g.Name, p.LastDelivered, strconv.Itoa(most)).ToArray()
	if err != nil {
		return model.Failure(ctx, "count the lag of "+s.Stream(), err)
	}
	if most > 0 {
		p.Lag, p.LagExact = stream.Number(answer[0], 0), stream.Number(answer[1], 0) == 1
	}
	p.Frontier, p.FrontierAge = frontier(stream.Text(answer[2]), stream.Text(answer[3]), stream.Number(answer[4], 0))
	return nil
}

// frontier is the older of two entries, either may be "", and its age at a server's time in ms.
func frontier(a, b string, now int64) (id string, age time.Duration) {
	if id = a; id == "" || b != "" && stream.CompareIDs(b, a) < 0 {
		id = b
	}
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return id, 0 // there is none, or the id was chosen and is no time
	}
	return id, time.Duration(max(0, now-ms)) * time.Millisecond
}

// GroupInfo is one group of a topic, over all its partitions.
type GroupInfo struct {
	Name       string
	Partitions int   // that have the group; fewer than the topic's right after it grew
	Members    int   // with a heartbeat
	Lag        int64 // entries that it was not given yet
	LagExact   bool  // false: on some partition there are at least 10,000 and the server cannot tell; see PartitionStats
	Pending    int64 // given and not finished
}

// Groups lists all groups, by name. Errors: ErrUnknownTopic, ErrUnavailable.
func (a *Admin) Groups(ctx context.Context) ([]GroupInfo, error) {
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]*GroupInfo{}
	for _, s := range sources {
		if err := a.addGroups(ctx, s, found); err != nil {
			return nil, err
		}
	}
	list := make([]GroupInfo, 0, len(found))
	for name, g := range found {
		members, err := a.members(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			if m.Live {
				g.Members++
			}
		}
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b GroupInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

func (a *Admin) addGroups(ctx context.Context, s core.Source, found map[string]*GroupInfo) error {
	groups, err := a.mq.GroupsOf(ctx, s)
	if err != nil {
		return err
	}
	for _, info := range groups {
		g := found[info.Name]
		if g == nil {
			g = &GroupInfo{Name: info.Name, LagExact: true}
			found[info.Name] = g
		}
		var p PartitionStats
		if err := groupStats(a.mq, ctx, s, info, &p); err != nil {
			return err
		}
		g.Partitions++
		g.Lag, g.LagExact, g.Pending = g.Lag+p.Lag, g.LagExact && p.LagExact, g.Pending+p.Pending
	}
	return nil
}

// ConsumerInfo is what one consumer has in hand on one partition.
type ConsumerInfo struct {
	Partition int
	Consumer  string
	Live      bool // it has a heartbeat
	Pending   int64
	Idle      time.Duration // since it last asked for, or was given, an entry
}

// InFlight lists the consumers of a group with what they were given and have not finished, by partition and name;
// names without anything in hand too. Errors: ErrUnknownTopic, ErrUnavailable.
func (a *Admin) InFlight(ctx context.Context, group string) ([]ConsumerInfo, error) {
	if err := model.CheckName(group, model.ErrGroupName); err != nil {
		return nil, err
	}
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	members, err := a.members(ctx, group)
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, m := range members {
		live[m.Name], live[m.Name+core.ClaimSuffix] = m.Live, m.Live && a.single
	}
	var list []ConsumerInfo
	for _, s := range sources {
		consumers, err := stream.Consumers(ctx, a.mq.Client, s.Stream(), group)
		if err != nil && !stream.IsMissing(err) {
			return nil, model.Failure(ctx, "list consumers of "+s.Stream(), err)
		}
		first := len(list)
		for _, c := range consumers {
			list = append(list, ConsumerInfo{s.Part, c.Name, live[c.Name], c.Pending, c.Idle})
		}
		slices.SortFunc(list[first:], func(a, b ConsumerInfo) int { return cmp.Compare(a.Consumer, b.Consumer) })
	}
	return list, nil
}

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
	if query.Order != "" && query.Order != PendingByIdle && query.Order != PendingByDeliveries {
		return nil, fmt.Errorf("%w: Order %q: must be %s or %s", model.ErrConfig, query.Order, PendingByIdle, PendingByDeliveries)
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
	slices.SortStableFunc(all, func(a, b PendingEntry) int {
		if query.Order == PendingByDeliveries {
			return cmp.Compare(b.Deliveries, a.Deliveries)
		}
		return cmp.Compare(b.Idle, a.Idle)
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
