package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// ErrAnswer is wrapped when the server returns what it never should.
var ErrAnswer = errors.New("unexpected answer")

// Group is a group as its server tells of it.
type Group struct {
	Name               string
	Consumers, Pending int64
	LastDelivered      string
	Lag                int64 // entries that it was not given; -1: the server cannot tell
	Counted            bool  // it tells how many were read; without that the emulator gives the stream's length as lag
}

// Groups lists the groups of a stream. Error: the server's own, see IsMissing.
func Groups(ctx context.Context, client rueidis.Client, key string) ([]Group, error) {
	return ReadGroups(client.Do(ctx, client.B().XinfoGroups().Key(key).Build()))
}

// ReadGroups reads what XINFO GROUPS returns.
func ReadGroups(r rueidis.RedisResult) ([]Group, error) {
	rows, err := r.ToArray()
	groups := make([]Group, len(rows))
	for i := range rows {
		info, err := rows[i].AsMap()
		if err != nil {
			return nil, err
		}
		read := info["entries-read"]
		groups[i] = Group{
			Name: Text(info["name"]), Consumers: Number(info["consumers"], 0), Pending: Number(info["pending"], 0),
			LastDelivered: Text(info["last-delivered-id"]), Lag: Number(info["lag"], -1), Counted: !read.IsNil(),
		}
	}
	return groups, err
}

// Consumer is a consumer of a group as its server tells of it.
type Consumer struct {
	Name    string
	Pending int64
	Idle    time.Duration // since it last asked for, or was given, an entry
}

// Consumers lists the consumers of a group. Error: the server's own, see IsMissing.
func Consumers(ctx context.Context, client rueidis.Client, key, group string) ([]Consumer, error) {
	rows, err := client.Do(ctx, client.B().XinfoConsumers().Key(key).Group(group).Build()).ToArray()
	list := make([]Consumer, len(rows))
	for i := range rows {
		info, err := rows[i].AsMap()
		if err != nil {
			return nil, err
		}
		list[i] = Consumer{Text(info["name"]), Number(info["pending"], 0), time.Duration(Number(info["idle"], 0)) * time.Millisecond}
	}
	return list, err
}

// Pending is an entry that was given to a consumer and is not acknowledged.
type Pending struct {
	ID, Consumer string
	Idle         time.Duration
	Deliveries   int64
}

// PendingEntries lists at most n pending entries from an id on that are idle for at least that long. The server judges that while
// it walks: a filter on our side would see only the young ones in front. Error: the server's own, see IsMissing.
func PendingEntries(ctx context.Context, client rueidis.Client, key, group string, idle time.Duration, from string, n int) ([]Pending, error) {
	rows, err := client.Do(ctx, client.B().Xpending().Key(key).Group(group).Idle(max(0, idle.Milliseconds())).
		Start(from).End("+").Count(int64(n)).Build()).ToArray()
	list := make([]Pending, len(rows))
	for i := range rows {
		row, err := rows[i].ToArray()
		if err != nil || len(row) != 4 {
			return nil, fmt.Errorf("%w to XPENDING: %d parts of an entry", ErrAnswer, len(row))
		}
		list[i] = Pending{Text(row[0]), Text(row[1]), time.Duration(max(0, Number(row[2], 0))) * time.Millisecond, Number(row[3], 0)}
	}
	return list, err
}
