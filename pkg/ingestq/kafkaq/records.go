package kafkaq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	// stallLimit is how long a broker may give nothing while offsets are known to be there.
	stallLimit = 30 * time.Second
	// readBytes is what one fetch of a whole log asks for; a broker gives at least one batch, however large it is (KIP-74).
	readBytes = 1 << 20
)

// errStalled is what a reader says then.
var errStalled = errors.New("no record came in time")

// Record is one record of a topic, as it stands there.
type Record struct {
	Partition  int32
	Offset     int64
	Time       time.Time // the broker's, or the producer's where the topic keeps that
	Event      string    // the header event-id; empty: somebody else's record
	Key, Value []byte
	Headers    []*sarama.RecordHeader
}

// header is the value of the first header of a name; empty: there is none.
func (r Record) header(name string) string {
	if i := slices.IndexFunc(r.Headers, func(h *sarama.RecordHeader) bool { return string(h.Key) == name }); i >= 0 {
		return string(r.Headers[i].Value)
	}
	return ""
}

// Records gives every record that a topic holds now to f, partition by partition, oldest first, and stops at f's first error.
// It is no member of a group and commits nothing: for checks from outside.
func (c *Client) Records(ctx context.Context, topic string, f func(Record) error) error {
	partitions, err := c.Partitions(ctx, topic)
	if err != nil {
		return failure(ctx, "look for topic "+topic, err)
	}
	for _, p := range partitions {
		oldest, newest, err := c.ends(ctx, topic, p)
		if err == nil {
			_, err = c.recordsBetween(ctx, topic, p, oldest, newest, f)
		}
		if err != nil {
			return failure(ctx, fmt.Sprintf("read partition %d of topic %s", p, topic), err)
		}
	}
	return nil
}

// recordsBetween gives the records of one partition from an offset up to, without, another to f, and returns the offset to go
// on from, also with an error. Offsets without a record (transaction markers, what compaction took) are passed over.
func (c *Client) recordsBetween(ctx context.Context, topic string, partition int32, from, to int64, f func(Record) error) (next int64, err error) {
	for last := time.Now(); from < to; {
		found, err := c.fetch(ctx, topic, partition, from, readBytes)
		if err != nil {
			return from, err
		}
		if found.next == from {
			if time.Since(last) > stallLimit {
				return from, errStalled
			}
			continue
		}
		last = time.Now()
		for _, r := range found.records {
			if r.Offset >= to {
				return to, nil
			}
			if err := f(r); err != nil {
				return r.Offset, err
			}
		}
		from = found.next
	}
	return from, nil
}

// fetched are the records of one fetch, and the offset to go on from; end: the log holds nothing from there on.
type fetched struct {
	records []Record
	next    int64
	end     bool
}

// fetch reads at most so many bytes of records at or after an offset, at least one batch.
func (c *Client) fetch(ctx context.Context, topic string, partition int32, from int64, bytes int32) (fetched, error) {
	return ask(ctx, c, func(lib sarama.Client) (fetched, error) {
		block, err := fetchBlock(lib, topic, partition, from, bytes)
		if err != nil {
			return fetched{}, err
		}
		found := fetched{next: from}
		for _, set := range block.RecordsSet {
			if set.RecordBatch == nil || set.RecordBatch.PartialTrailingRecord {
				continue
			}
			found.take(partition, set.RecordBatch, from)
		}
		found.end = found.next >= block.HighWaterMarkOffset
		return found, nil
	})
}

// take adds the records of a batch at or after an offset. A control batch has markers of transactions and no record.
func (f *fetched) take(partition int32, batch *sarama.RecordBatch, from int64) {
	f.next = max(f.next, batch.FirstOffset+int64(batch.LastOffsetDelta)+1)
	if batch.Control {
		return
	}
	for _, r := range batch.Records {
		offset := batch.FirstOffset + r.OffsetDelta
		if offset < from {
			continue
		}
		at := batch.FirstTimestamp.Add(r.TimestampDelta)
		if batch.LogAppendTime {
			at = batch.MaxTimestamp
		}
		record := Record{Partition: partition, Offset: offset, Time: at, Key: r.Key, Value: r.Value, Headers: r.Headers}
		record.Event = record.header(headerEvent)
		f.records = append(f.records, record)
	}
}

// fetchBlock asks the partition's leader.
func fetchBlock(lib sarama.Client, topic string, partition int32, from int64, bytes int32) (*sarama.FetchResponseBlock, error) {
	leader, epoch, err := lib.LeaderAndEpoch(topic, partition)
	if err != nil {
		return nil, err
	}
	if err := open(leader, lib.Config()); err != nil {
		return nil, err
	}
	request := &sarama.FetchRequest{Version: 11, MinBytes: 1, MaxBytes: bytes, MaxWaitTime: 500, SessionEpoch: -1}
	request.AddBlock(topic, partition, from, bytes, epoch)
	answer, err := leader.Fetch(request)
	if err != nil {
		_ = leader.Close() // the next question opens it anew
		return nil, err
	}
	block := answer.GetBlock(topic, partition)
	if block == nil {
		return nil, sarama.ErrIncompleteResponse
	}
	if block.Err != sarama.ErrNoError {
		return nil, errors.Join(block.Err, lib.RefreshMetadata(topic))
	}
	return block, nil
}

// idPrefix marks the ids of this transport.
const idPrefix = "k:"

// place is where a record is.
type place struct {
	partition int32
	offset    int64
}

// id is the delivery's id.
func (p place) id() string {
	return idPrefix + strconv.FormatInt(int64(p.partition), 10) + ":" + strconv.FormatInt(p.offset, 10)
}

// parseID reads an id; ids of another transport are unknown.
func parseID(id string) (place, bool) {
	rest, ok := strings.CutPrefix(id, idPrefix)
	partition, offset, two := strings.Cut(rest, ":")
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	at := place{int32(p), o}
	if !ok || !two || err != nil || err2 != nil || p < 0 || o < 0 || at.id() != id {
		return place{}, false
	}
	return at, true
}
