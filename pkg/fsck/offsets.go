package fsck

import (
	"context"
	"strconv"

	"github.com/millweir/millweir/pkg/ingestq"
)

// judgeOffsets is I21 and L5 where a group commits offsets. Any state of a row may stand below a committed offset (design D4:
// also NOT_DUE, BUSY, SOLO and SKIPPED let it move on), so rows say nothing of it; I15 finds what was finished too early.
func (c *checker) judgeOffsets(ctx context.Context) error {
	for _, id := range []string{"I19", "I20", "L4"} {
		c.tally.NotJudged(id, "Kafka keeps no list of pending deliveries, and its retention asks no group")
	}
	again, err := c.e.Queue.Look(ctx)
	if err != nil {
		return err
	}
	now := map[int32]ingestq.Part{}
	for _, p := range again.Parts {
		now[p.Number] = p
	}
	for _, p := range c.queue.Parts {
		if q, ok := now[p.Number]; ok {
			c.judgePart(p, q)
		}
	}
	switch {
	case !c.o.Rest:
		c.tally.NotJudged("L5", "needs a world at rest")
	case again.NoWatermark:
		c.tally.NotJudged("L5", "the log has no horizon")
	default:
		c.verdict(again.Watermark.IsZero(), "L5", "queue", "the group has not finished a record of %s", stamp(again.Watermark))
	}
	return nil
}

// judgePart compares two looks at a partition. An owner sets an offset beyond the log's end back to that end, one before its
// start to the start; a group that has been away for long has none any more.
func (c *checker) judgePart(was, is ingestq.Part) {
	about := "partition " + strconv.Itoa(int(was.Number))
	beyond := was.Committed > was.Newest
	c.verdict(!beyond || is.Committed <= is.Newest, "I21", about, "offset %d is committed, the log ends at %d: it was lost", is.Committed, is.Newest)
	fell := is.Committed >= 0 && is.Committed < was.Committed && was.Committed <= is.Newest
	c.verdict(beyond || !fell, "I21", about, "the committed offset fell from %d to %d", was.Committed, is.Committed)
}
