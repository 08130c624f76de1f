package kafkaq

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

// A partition is paused, not read into memory without bound: at highWater records that nobody took yet, or with maxOpen
// records behind one that is not finished. One fetch under way still comes.
const (
	highWater = 2_000
	lowWater  = 500
	maxOpen   = 65_536
)

// Fields of Delivery.Raw.
const (
	rawKey   = "key"
	rawValue = "value"
	rawError = "error"
)

// Headers of a record of the topic of dead letters that could not be read; its error has the header rawError.
const (
	headerSource          = "source-topic"
	headerSourcePartition = "source-partition"
	headerSourceOffset    = "source-offset"
)

// part is a partition that this member has. The member's lock guards it.
type part struct {
	partition int32
	window    window
	waiting   []record
	paused    bool
	commit    func(offset int64) // the offset that may be committed
}

// record is one that waits to be taken.
type record struct {
	message   *sarama.ConsumerMessage
	notBefore time.Time // zero but for what could not be put away
}

// errEmpty is what is wrong with a record without a value.
var errEmpty = errors.New("no value")

// take gives at most n records.
func (p *part) take(n int, now time.Time) []ingestq.Delivery {
	var out []ingestq.Delivery
	kept := p.waiting[:0:0]
	for i, r := range p.waiting {
		if len(out) == n {
			kept = append(kept, p.waiting[i:]...)
			break
		}
		if r.notBefore.After(now) {
			kept = append(kept, r)
			continue
		}
		out = append(out, decode(r.message))
	}
	p.waiting = kept
	return out
}

// full tells whether no more should come; half of the bound must be free again before a paused partition goes on.
func (p *part) full() bool {
	if p.paused {
		return len(p.waiting) > lowWater || p.window.size() > maxOpen/2
	}
	return len(p.waiting) >= highWater || p.window.size() >= maxOpen
}

// decode keeps a record as it came when it is no envelope.
func decode(m *sarama.ConsumerMessage) ingestq.Delivery {
	id := place{m.Partition, m.Offset}.id()
	envelope, err := pb.Decode(m.Value)
	if err == nil && m.Value == nil {
		err = errEmpty
	}
	if err == nil {
		return ingestq.Decoded(id, envelope)
	}
	raw := map[string]string{rawValue: string(m.Value), rawKey: string(m.Key), rawError: err.Error()}
	return ingestq.Delivery{ID: id, Raw: raw, Err: fmt.Errorf("decode delivery %s: %w", id, err)}
}

// quarantined is the record of the topic of dead letters: the bytes as they came, and where they came from.
func quarantined(d ingestq.Delivery, topic, dlq string, at place) *sarama.ProducerMessage {
	headers := []sarama.RecordHeader{
		{Key: []byte(headerSource), Value: []byte(topic)},
		{Key: []byte(headerSourcePartition), Value: []byte(strconv.Itoa(int(at.partition)))},
		{Key: []byte(headerSourceOffset), Value: []byte(strconv.FormatInt(at.offset, 10))},
		{Key: []byte(rawError), Value: []byte(d.Raw[rawError])},
	}
	m := &sarama.ProducerMessage{Topic: dlq, Value: sarama.ByteEncoder(d.Raw[rawValue]), Headers: headers}
	if key := d.Raw[rawKey]; key != "" {
		m.Key = sarama.StringEncoder(key)
	}
	return m
}

// window knows which records of a partition were given out and which of them are finished. Records end in any order;
// the offset that may be committed is that of the first one that is not finished. Not safe for concurrent use.
type window struct {
	open []mark // in the order of offsets; the first one is never finished
	next int64  // the offset after the last one that was added
}

// mark is one record.
type mark struct {
	offset int64
	done   bool
}

// add takes a record that came. Offsets grow, but may leave gaps: transactions and compaction make some.
func (w *window) add(offset int64) {
	w.open = append(w.open, mark{offset: offset})
	w.next = offset + 1
}

// finish marks a record and returns the offset that may be committed now, if that moved.
func (w *window) finish(offset int64) (commit int64, moved bool) {
	i, ok := w.find(offset)
	if !ok {
		return 0, false
	}
	w.open[i].done = true
	n := slices.IndexFunc(w.open, func(m mark) bool { return !m.done })
	switch {
	case n == 0:
		return 0, false
	case n < 0:
		w.open = nil // let go of what was finished
		return w.next, true
	}
	w.open = w.open[n:]
	return w.open[0].offset, true
}

// find gives a record's place among those that were added.
func (w *window) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(w.open, offset, func(m mark, offset int64) int { return cmp.Compare(m.offset, offset) })
}

// holds tells whether a record was added and is not finished.
func (w *window) holds(offset int64) bool {
	i, ok := w.find(offset)
	return ok && !w.open[i].done
}

// size is how many records were added since the one that holds the commit back.
func (w *window) size() int { return len(w.open) }

// unfinished is how many of them are not finished.
func (w *window) unfinished() int {
	n := 0
	for _, m := range w.open {
		if !m.done {
			n++
		}
	}
	return n
}
