package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
)

// aheadFor is how long an observation of the broker's clock counts.
const aheadFor = 10 * time.Minute

// errNothingThere is why there is no judgement: a record that must be there was not given.
var errNothingThere = errors.New("no record at the group's offset")

// Watermark implements ingestq.Consumer (design D5): the smallest, over the partitions, of the broker's time of the first record
// at or after the group's committed offset. Without a committed offset that is the log's start. At the log's end a partition
// has none. Where anything is not known, or an offset lies beyond the log, there is no judgement: ErrNoWatermark.
func (m *Member) Watermark(ctx context.Context) (ingestq.Watermark, error) {
	borders, err := m.lags(ctx)
	if err != nil {
		return ingestq.Watermark{}, failure(ctx, "read the borders of "+m.cfg.Topic, err)
	}
	out := ingestq.Watermark{}
	if out.At, err = m.watermarkOf(ctx, borders); err != nil {
		return ingestq.Watermark{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	if !out.At.IsZero() {
		m.clock.see(out.At, now)
	}
	out.Now = now.Add(m.clock.by(now))
	return out, nil
}

// watermarkOf is the smallest time of a first record that is not finished; zero: all are.
func (c *Client) watermarkOf(ctx context.Context, borders []border) (time.Time, error) {
	var out time.Time
	for _, b := range borders {
		if b.Committed > b.Newest {
			return time.Time{}, fmt.Errorf("partition %d: committed offset %d is beyond the log's end %d: %w",
				b.Partition, b.Committed, b.Newest, ingestq.ErrNoWatermark)
		}
		from := max(b.Committed, b.Oldest)
		if from >= b.Newest {
			continue
		}
		at, err := c.recordTime(ctx, c.cfg.Topic, b.Partition, from)
		if errors.Is(err, errNothingThere) {
			return time.Time{}, fmt.Errorf("partition %d: %w: %w", b.Partition, err, ingestq.ErrNoWatermark)
		}
		if err != nil {
			return time.Time{}, failure(ctx, fmt.Sprintf("read record %d of partition %d", from, b.Partition), err)
		}
		if !at.IsZero() && (out.IsZero() || at.Before(out)) {
			out = at
		}
	}
	return out, nil
}

// recordTime is the broker's time of the first record at or after an offset; zero: the log goes on with nothing but markers of
// transactions, which no member of a group ever sees.
func (c *Client) recordTime(ctx context.Context, topic string, partition int32, from int64) (time.Time, error) {
	for {
		found, err := c.fetch(ctx, topic, partition, from, 1)
		switch {
		case err != nil:
			return time.Time{}, err
		case len(found.records) > 0:
			return found.records[0].Time, nil
		case found.next == from:
			return time.Time{}, errNothingThere
		case found.end:
			return time.Time{}, nil
		}
		from = found.next
	}
}

// ahead is how far the broker's clock is known to be before ours. Kafka has no question for its clock; but a record cannot
// come before it was appended, so a time in our future says how much at least. A broker's clock that is behind only makes
// lost deliveries be found later.
type ahead struct {
	most time.Duration
	at   time.Time
}

// see takes a record's time.
func (a *ahead) see(appended, now time.Time) {
	if by := appended.Sub(now); by > a.by(now) {
		a.most, a.at = by, now
	}
}

// by is the largest difference seen lately.
func (a *ahead) by(now time.Time) time.Duration {
	if now.Sub(a.at) > aheadFor {
		return 0
	}
	return a.most
}
