package stream

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

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
