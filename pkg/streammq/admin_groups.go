package streammq

import (
	"context"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const lagCounted = 10_000 // entries counted where the server cannot tell the lag

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

// GroupStats tells how a group stands on each partition of a topic; see Admin.GroupStats.
func (q *MQ) GroupStats(ctx context.Context, topic, group string) ([]PartitionStats, error) {
	return q.Admin(topic).GroupStats(ctx, group)
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
		if stats[i], err = a.mq.partitionStats(ctx, s, group); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

func (q *MQ) partitionStats(ctx context.Context, s source, group string) (PartitionStats, error) {
	p := PartitionStats{Partition: s.part}
	doing := "look at " + s.stream()
	results := q.client.DoMulti(ctx,
		q.client.B().Get().Key(s.lease(group)).Build(), q.client.B().Get().Key(s.epoch(group)).Build(),
		q.client.B().Xlen().Key(s.stream()).Build(), q.client.B().Zcard().Key(s.due(group)).Build(),
		q.client.B().XinfoGroups().Key(s.stream()).Build())
	if err := firstError(results); err != nil && !isMissing(err) {
		return p, failure(ctx, doing, err)
	}
	p.Owner, _ = results[0].ToString() // nil: nobody
	p.Epoch, _ = results[1].ToString()
	p.Length, _ = results[2].AsInt64()
	p.Due, _ = results[3].AsInt64()
	groups, _ := results[4].ToArray() // an error was judged above
	for i := range groups {
		info, err := groups[i].AsMap()
		if err != nil {
			return p, failure(ctx, doing, err)
		}
		name := info["name"]
		if text, err := name.ToString(); err == nil && text == group {
			return p, q.groupStats(ctx, s, info, &p)
		}
	}
	return p, fmt.Errorf("group %s on %s: %w", group, s.stream(), ErrNotFound)
}

func (q *MQ) groupStats(ctx context.Context, s source, info map[string]rueidis.RedisMessage, p *PartitionStats) error {
	pending, consumers, last := info["pending"], info["consumers"], info["last-delivered-id"]
	p.Pending, _ = pending.AsInt64() // the server answers numbers
	p.Consumers, _ = consumers.AsInt64()
	p.LastDelivered, _ = last.ToString()
	most := lagCounted
	lag, read := info["lag"], info["entries-read"]
	if n, err := lag.AsInt64(); err == nil && !read.IsNil() { // without entries-read the emulator gives the stream's length
		p.Lag, p.LagExact, most = n, true, 0
	}
	name := info["name"]
	group, _ := name.ToString()
	answer, err := q.run(ctx, q.scripts.groupLag, []string{s.stream()}, group, p.LastDelivered, strconv.Itoa(most)).ToArray()
	if err != nil {
		return failure(ctx, "count the lag of "+s.stream(), err)
	}
	if most > 0 {
		p.Lag, _ = answer[0].AsInt64() // the script returns numbers and ids
		exact, _ := answer[1].AsInt64()
		p.LagExact = exact == 1
	}
	next, _ := answer[2].ToString()
	first, _ := answer[3].ToString()
	now, _ := answer[4].AsInt64()
	p.Frontier, p.FrontierAge = frontier(next, first, now)
	return nil
}

// frontier is the older of two entries, either may be "", and its age at a server's time in ms.
func frontier(a, b string, now int64) (id string, age time.Duration) {
	if id = a; id == "" || b != "" && compareIDs(b, a) < 0 {
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
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

func (a *Admin) addGroups(ctx context.Context, s source, found map[string]*GroupInfo) error {
	groups, err := a.mq.groupsOf(ctx, s)
	if err != nil {
		return err
	}
	for name, info := range groups {
		g := found[name]
		if g == nil {
			g = &GroupInfo{Name: name, LagExact: true}
			found[name] = g
		}
		var p PartitionStats
		if err := a.mq.groupStats(ctx, s, info, &p); err != nil {
			return err
		}
		g.Partitions++
		g.Lag, g.LagExact, g.Pending = g.Lag+p.Lag, g.LagExact && p.LagExact, g.Pending+p.Pending
	}
	return nil
}

// groupsOf are the groups of one stream by name, as XINFO tells them; a missing stream has none.
func (q *MQ) groupsOf(ctx context.Context, s source) (map[string]map[string]rueidis.RedisMessage, error) {
	groups, err := q.client.Do(ctx, q.client.B().XinfoGroups().Key(s.stream()).Build()).ToArray()
	if err != nil && !isMissing(err) {
		return nil, failure(ctx, "list groups of "+s.stream(), err)
	}
	list := make(map[string]map[string]rueidis.RedisMessage, len(groups))
	for i := range groups {
		info, err := groups[i].AsMap()
		if err != nil {
			return nil, failure(ctx, "list groups of "+s.stream(), err)
		}
		m := info["name"]
		name, err := m.ToString()
		if err != nil {
			return nil, err
		}
		list[name] = info
	}
	return list, nil
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
	if err := checkName(group, ErrGroupName); err != nil {
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
		live[m.Name], live[m.Name+claimSuffix] = m.Live, m.Live && a.single
	}
	var list []ConsumerInfo
	for _, s := range sources {
		consumers, err := a.mq.client.Do(ctx, a.mq.client.B().XinfoConsumers().Key(s.stream()).Group(group).Build()).ToArray()
		if err != nil && !isMissing(err) {
			return nil, failure(ctx, "list consumers of "+s.stream(), err)
		}
		first := len(list)
		for i := range consumers {
			info, err := consumers[i].AsMap()
			if err != nil {
				return nil, err
			}
			name, pending, idle := info["name"], info["pending"], info["idle"]
			c := ConsumerInfo{Partition: s.part}
			if c.Consumer, err = name.ToString(); err != nil {
				return nil, err
			}
			c.Pending, _ = pending.AsInt64() // the server answers numbers
			ms, _ := idle.AsInt64()
			c.Idle, c.Live = time.Duration(ms)*time.Millisecond, live[c.Consumer]
			list = append(list, c)
		}
		sort.Slice(list[first:], func(i, j int) bool { return list[first+i].Consumer < list[first+j].Consumer })
	}
	return list, nil
}
