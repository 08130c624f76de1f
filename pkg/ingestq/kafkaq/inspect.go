package kafkaq

import (
	"context"
	"encoding/json"
	"errors"
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

// deadLettersFrom is the latest time, over the partitions of which something was removed, of the first letter that is kept.
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
