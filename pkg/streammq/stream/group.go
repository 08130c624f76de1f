package stream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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

// ForgetLetter is how long it is known that a letter in a slot of its own was written: no entry is pending for that long.
const ForgetLetter = 7 * 24 * time.Hour

// Removal is what RemoveConsumer does.
type Removal struct {
	Key, Group, Name string
	Heartbeat        string        // key of a heartbeat: while it is there the name stays; "": the caller knows that it is not alive
	Heir             string        // consumer that gets the pending entries
	MinIdle          time.Duration // below which the name stays
	MaxPending       int           // entries above which it stays
	Leaves           bool          // the consumer leaves by itself: its heartbeat ends in any case
}

// RemoveConsumer checks and removes the name of a consumer in one step; it also tells how many entries are the heir's now.
func (r Runner) RemoveConsumer(ctx context.Context, script Script, c Removal) (removed bool, moved int, err error) {
	keys := []string{c.Key}
	if c.Heartbeat != "" {
		keys = append(keys, c.Heartbeat)
	}
	answer, err := r.Run(ctx, script, keys, c.Group, c.Name, c.Heir, Millis(c.MinIdle), strconv.Itoa(c.MaxPending), Flag(c.Leaves)).AsIntSlice()
	if err == nil && len(answer) != 2 {
		err = fmt.Errorf("%w: %d parts", ErrAnswer, len(answer))
	}
	if err != nil {
		return false, 0, err
	}
	return answer[0] == 1, int(answer[1]), nil
}

// AddLetter adds a dead letter to a stream in a slot of its own, once for each entry however often it is called; written is a
// ZSET in that slot. It reports whether this call added it. Who calls acknowledges the entry after it: a crash between the two
// loses nothing and doubles nothing.
func (r Runner) AddLetter(ctx context.Context, script Script, letters, written, entry string, fields []string) (added bool, err error) {
	return r.Run(ctx, script, []string{letters, written}, append([]string{entry, Millis(ForgetLetter)}, fields...)...).AsBool()
}

// EntryName names an entry of a group among all streams.
func EntryName(key, group, id string) string { return key + ":" + group + ":" + id }
