package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// stallLimit is how long a broker may give nothing while records are known to be there.
const stallLimit = 30 * time.Second

// errStalled is what a reader says then.
var errStalled = errors.New("no record came in time")

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
	partitions, err := c.partitionsOf(ctx, topic)
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
	oldest, newest, err := c.ends(ctx, topic, partition)
	if err != nil || oldest >= newest {
		return failure(ctx, what, err)
	}
	part, err := reader.ConsumePartition(topic, partition, oldest)
	if err != nil {
		return failure(ctx, what, err)
	}
	defer part.AsyncClose()
	stalled := time.NewTimer(stallLimit)
	defer stalled.Stop()
	for {
		stalled.Reset(stallLimit)
		select {
		case <-ctx.Done():
			return failure(ctx, what, ctx.Err())
		case <-stalled.C:
			return failure(ctx, what, errStalled)
		case m, ok := <-part.Messages():
			if !ok { // removed before it was read
				return failure(ctx, what, sarama.ErrOffsetOutOfRange)
			}
			if err := f(Record{Partition: m.Partition, Offset: m.Offset, Event: eventOf(m.Headers), Key: m.Key, Value: m.Value}); err != nil {
				return err
			}
			if m.Offset >= newest-1 {
				return nil
			}
		}
	}
}

// ends are the first offset that a partition keeps and the one after its last.
func (c *Client) ends(ctx context.Context, topic string, partition int32) (oldest, newest int64, err error) {
	both, err := ask(ctx, c, func(lib sarama.Client) (both [2]int64, err error) {
		if both[0], err = lib.GetOffset(topic, partition, sarama.OffsetOldest); err == nil {
			both[1], err = lib.GetOffset(topic, partition, sarama.OffsetNewest)
		}
		return both, err
	})
	return both[0], both[1], err
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
