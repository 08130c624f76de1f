package streammq

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

const (
	trimPortion  = 500 // entries looked at by one script: their payloads pass through it
	trimPortions = 200 // of one partition in one round
	bodyPortion  = 100
)

// Retention is what is kept of entries that every group has finished. What a group has not finished always stays.
type Retention struct {
	// MaxLen is the number of entries that a partition keeps; 0: any number.
	MaxLen int
	// MaxAge is how long entries are kept; 0: any time.
	MaxAge time.Duration
	// Finished keeps nothing that every group has finished; without any group it does nothing.
	Finished bool
}

func (r Retention) validate() error {
	var p problems
	p.refuse(r.MaxLen < 0 || r.MaxAge < 0, "Retention %+v: must not be negative", r)
	return p.err()
}

// DeletePolicy says whether entries are deleted as soon as they are finished, instead of by Retention. In either case an entry
// that another group has not finished stays. A payload beside the stream goes with the next trim.
type DeletePolicy string

// The policies. A stream from which entries were deleted has a lag that the server cannot tell; it is counted then.
const (
	DeleteNever         DeletePolicy = ""
	DeleteImmediately   DeletePolicy = "immediate"  // while the stream has one group, with its acknowledgement; with more of them never
	DeleteWhenAllFinish DeletePolicy = "all-groups" // with the acknowledgement of the last group
)

// Trim removes what the retention does not keep, payloads beside the stream with it, and returns the number of entries;
// see Admin.Trim.
func (q *MQ) Trim(ctx context.Context, topic string, r Retention) (int, error) {
	return sum(q.Admin(topic).Trim(ctx, r, false))
}

func sum(parts []PartitionTrim, err error) (int, error) {
	total := 0
	for _, p := range parts {
		total += p.Entries
	}
	return total, err
}

// PartitionTrim is what a trim removes from one partition.
type PartitionTrim struct {
	Partition int
	Entries   int
	// Frontier is the oldest entry that some group still needs: the smallest, over the groups, of the first pending one and
	// the one after the last delivered. Nothing from it on is ever removed. "": there is no group.
	Frontier string
}

// Trim removes what the retention does not keep, payloads beside the stream with it; a dry run only counts.
// After an error it tells what was done before it. Errors: ErrConfig when the retention is negative, ErrUnknownTopic, ErrUnavailable.
func (a *Admin) Trim(ctx context.Context, r Retention, dryRun bool) ([]PartitionTrim, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([]PartitionTrim, 0, len(sources))
	for _, s := range sources {
		p := PartitionTrim{Partition: s.part}
		p.Entries, p.Frontier, err = a.mq.trimTo(ctx, s, r, dryRun)
		if parts = append(parts, p); err != nil {
			return parts, err
		}
	}
	return parts, nil
}

func (q *MQ) trim(ctx context.Context, s source, r Retention) (int, error) {
	n, _, err := q.trimTo(ctx, s, r, false)
	return n, err
}

func (q *MQ) trimTo(ctx context.Context, s source, r Retention, dryRun bool) (total int, border string, err error) {
	total, border, err = q.trimStream(ctx, s.stream(), r, dryRun)
	if err != nil || dryRun {
		return total, border, err
	}
	if total > 0 {
		q.observe(Event{Kind: EventTrimmed, Topic: s.topic, Partition: s.part, Count: total})
	}
	return total, border, q.removeBodies(ctx, s, border)
}

// trimStream is trimTo of a stream of any key, without what lies beside it.
func (q *MQ) trimStream(ctx context.Context, stream string, r Retention, dryRun bool) (total int, border string, err error) {
	args := []string{"", "", strconv.Itoa(trimPortion), flag(r.Finished), "", ""}
	if r.MaxLen > 0 {
		args[0] = strconv.Itoa(r.MaxLen)
	}
	if r.MaxAge > 0 {
		args[1] = strconv.FormatInt(r.MaxAge.Milliseconds(), 10)
	}
	if dryRun {
		args[4] = "-"
	}
	for range trimPortions {
		answer, err := q.run(ctx, q.scripts.streamTrim, []string{stream}, args...).ToArray()
		if err != nil {
			return total, border, failure(ctx, "trim "+stream, err)
		}
		n, _ := answer[0].AsInt64() // the script answers a number
		border, _ = answer[1].ToString()
		total += int(n)
		if n < trimPortion {
			break
		}
		if dryRun {
			args[4], _ = answer[2].ToString()
			args[5] = strconv.Itoa(total)
		}
	}
	return total, border, nil
}

// removeBodies removes payloads beside the stream whose entries all groups have finished: those of a millisecond before
// the border's. The payload goes before its note, so that a crash between leaves nothing behind.
// A retry or a dead letter needs none: it carries the payload itself.
func (q *MQ) removeBodies(ctx context.Context, s source, border string) error {
	if border == "" {
		return nil
	}
	below, _, _ := strings.Cut(border, "-")
	for {
		uuids, err := q.client.Do(ctx, q.client.B().Zrangebyscore().Key(s.bodies()).Min("-inf").Max("("+below).
			Limit(0, bodyPortion).Build()).AsStrSlice()
		if err != nil || len(uuids) == 0 {
			return failure(ctx, "list payloads beside "+s.stream(), err)
		}
		keys := make([]string, len(uuids))
		for i, uuid := range uuids {
			keys[i] = s.body(uuid)
		}
		results := q.client.DoMulti(ctx, rueidis.Commands{
			q.client.B().Unlink().Key(keys...).Build(),
			q.client.B().Zrem().Key(s.bodies()).Member(uuids...).Build(),
		}...)
		for _, r := range results { // in turn: no note goes before its payload
			if err := r.Error(); err != nil {
				return failure(ctx, "remove payloads beside "+s.stream(), err)
			}
		}
	}
}
