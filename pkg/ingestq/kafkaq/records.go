package kafkaq

import (
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

// Record is one record of a topic, as it stands there.
type Record struct {
	Partition  int32
	Offset     int64
	Event      string // the header event-id; empty: somebody else's record
	Key, Value []byte
}

// Records gives every record that a topic holds now to f, partition by partition, oldest first, and stops at f's first error.
// It is no member of a group and commits nothing: for checks from outside.
func (c *Client) Records(ctx context.Context, topic string, f func(Record) error) error {
	partitions, err := ask(ctx, c, func(lib sarama.Client) ([]int32, error) {
		if err := lib.RefreshMetadata(topic); err != nil {
			return nil, err
		}
		return lib.Partitions(topic)
	})
	if err != nil {
		return failure(ctx, "look for topic "+topic, err)
	}
	reader, err := sarama.NewConsumerFromClient(c.lib)
	if err != nil {
		return failure(ctx, "read topic "+topic, err)
	}
	defer reader.Close() //nolint:errcheck // only read
	for _, p := range partitions {
		if err := c.recordsOf(ctx, reader, topic, p, f); err != nil {
			return err
		}
	}
	return nil
}

// recordsOf reads one partition up to the end that it has now.
func (c *Client) recordsOf(ctx context.Context, reader sarama.Consumer, topic string, partition int32, f func(Record) error) error {
	what := fmt.Sprintf("read partition %d of topic %s", partition, topic)
	ends, err := ask(ctx, c, func(lib sarama.Client) (ends [2]int64, err error) {
		if ends[0], err = lib.GetOffset(topic, partition, sarama.OffsetOldest); err == nil {
			ends[1], err = lib.GetOffset(topic, partition, sarama.OffsetNewest)
		}
		return ends, err
	})
	if err != nil || ends[0] >= ends[1] {
		return failure(ctx, what, err)
	}
	part, err := reader.ConsumePartition(topic, partition, ends[0])
	if err != nil {
		return failure(ctx, what, err)
	}
	defer part.AsyncClose()
	for {
		select {
		case <-ctx.Done():
			return failure(ctx, what, ctx.Err())
		case m := <-part.Messages():
			if err := f(Record{Partition: m.Partition, Offset: m.Offset, Event: eventOf(m.Headers), Key: m.Key, Value: m.Value}); err != nil {
				return err
			}
			if m.Offset >= ends[1]-1 {
				return nil
			}
		}
	}
}

// eventOf is the id of the outbox event that a record carries.
func eventOf(headers []*sarama.RecordHeader) string {
	for _, h := range headers {
		if string(h.Key) == headerEvent {
			return string(h.Value)
		}
	}
	return ""
}
