package kafkaq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/outbox"
)

// Inspector implements ingestq.Inspector: it asks for borders, committed offsets and records. It is no member of the group,
// commits nothing and makes no topic (but a broker that never had a group makes its own topic of offsets when it is asked).
type Inspector struct{ client *Client }

var _ ingestq.Inspector = (*Inspector)(nil)

// NewInspector makes one on a client that the caller closes.
func NewInspector(client *Client) *Inspector { return &Inspector{client} }

// Look implements ingestq.Inspector. Committed offsets are read before the logs' ends, so that a group that goes on meanwhile
// never looks as if it were beyond them.
func (i *Inspector) Look(ctx context.Context) (ingestq.State, error) {
	s := ingestq.State{Commits: true}
	var err error
	if s.DeadLettersFrom, err = i.deadLettersFrom(ctx); err != nil {
		return s, err
	}
	borders, err := i.client.lags(ctx)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		s.NoWatermark = true
		return s, nil
	}
	if err != nil {
		return s, failure(ctx, "look at topic "+i.client.cfg.Topic, err)
	}
	for _, b := range borders {
		s.Length += b.Newest - b.Oldest
		s.Parts = append(s.Parts, ingestq.Part{Number: b.Partition, Oldest: b.Oldest, Newest: b.Newest, Committed: b.Committed})
	}
	s.Watermark, err = i.client.watermarkOf(ctx, borders)
	if s.NoWatermark = errors.Is(err, ingestq.ErrNoWatermark); s.NoWatermark {
		err = nil
	}
	return s, err
}

// never is after every death: all dead letters of a partition were removed.
var never = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// deadLettersFrom is the latest time, over the partitions of which something was removed, of the first dead letter that is kept.
func (i *Inspector) deadLettersFrom(ctx context.Context) (time.Time, error) {
	topic, from := i.client.cfg.DLQTopic(), time.Time{}
	partitions, err := i.client.Partitions(ctx, topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return from, nil
	}
	for _, p := range partitions {
		var oldest, newest int64
		if oldest, newest, err = i.client.ends(ctx, topic, p); err != nil {
			break
		}
		if oldest == 0 {
			continue
		}
		at := never
		if oldest < newest {
			if at, err = i.client.recordTime(ctx, topic, p, oldest); errors.Is(err, errNothingThere) || err == nil && at.IsZero() {
				at, err = never, nil
			}
		}
		if err != nil {
			break
		}
		if at.After(from) {
			from = at
		}
	}
	return from, failure(ctx, "look at topic "+topic, err)
}

// DeadLetters implements ingestq.Inspector. Records that no event carries are raw bytes that could not be read.
func (i *Inspector) DeadLetters(ctx context.Context, f func(ingestq.WrittenDeadLetter) error) error {
	topic := i.client.cfg.DLQTopic()
	if _, err := i.client.Partitions(ctx, topic); errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return nil
	}
	return i.client.Records(ctx, topic, func(r Record) error {
		if r.drops() != "" {
			return nil
		}
		var l outbox.DeadLetter
		if r.Event == "" || json.Unmarshal(r.Value, &l) != nil {
			l.TaskID = ""
		}
		return f(ingestq.WrittenDeadLetter{ID: place{r.Partition, r.Offset}.id(), TaskID: l.TaskID, Fence: l.Fence})
	})
}

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
