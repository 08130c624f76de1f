package redisq

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// entryID is the id of a stream entry: milliseconds and a sequence number within them.
type entryID struct{ ms, seq uint64 }

// parseID reads "ms-seq" as Redis writes it; anything else (a row may hold another transport's id) is no id of ours.
func parseID(s string) (entryID, bool) {
	left, right, ok := strings.Cut(s, "-")
	ms, err1 := strconv.ParseUint(left, 10, 64)
	seq, err2 := strconv.ParseUint(right, 10, 64)
	id := entryID{ms, seq}
	return id, ok && err1 == nil && err2 == nil && id.String() == s
}

// String is the form that Redis uses.
func (id entryID) String() string { return fmt.Sprintf("%d-%d", id.ms, id.seq) }

// next is the id that follows; the last one follows itself.
func (id entryID) next() entryID {
	switch {
	case id.seq < math.MaxUint64:
		return entryID{id.ms, id.seq + 1}
	case id.ms < math.MaxUint64:
		return entryID{id.ms + 1, 0}
	default:
		return id
	}
}

// time is when the entry was added, by the server's clock.
func (id entryID) time() time.Time { return time.UnixMilli(int64(min(id.ms, math.MaxInt64))).UTC() }

// idBatches cuts ids into commands and leaves out what is no id, which would fail the whole command.
func idBatches(ids []string) [][]string {
	var batches [][]string
	var batch []string
	for _, id := range ids {
		if _, ok := parseID(id); !ok {
			continue
		}
		if batch = append(batch, id); len(batch) == idBatch {
			batches, batch = append(batches, batch), nil
		}
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches
}
