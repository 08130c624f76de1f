package kafkaq

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/millweir/millweir/pkg/ingestq"
)

// headerDrops marks a record of the topic of dead letters that takes back another one: its value is that one's id. Kafka removes
// no single record, so the topic remembers what an operator dropped as long as it keeps the dropped record itself.
const headerDrops = "drops-record"

// drops is the id of the record that this one takes back; empty: it is none of those.
func (r Record) drops() string { return r.header(headerDrops) }

// DeadLetters implements ingestq.DeadLetterReader on the records of the topic of dead letters that could not be read as deliveries.
// The other records there are copies of rows with status DEAD, which are the truth. It is safe for concurrent use.
//
// It remembers where such records are, by partition, and reads only what came since; what they hold is read when it is asked
// for. The first question reads the whole topic. One that ends too early has got on, and the next goes on from there.
type DeadLetters struct {
	client   *Client
	producer *Producer

	mu      sync.Mutex
	parts   map[int32]*deadLetterPart
	dropped map[place]bool // records that others take back; those may lie in any partition
}

// deadLetterPart is what is known of one partition: offsets below next were looked at.
type deadLetterPart struct {
	next int64
	raw  map[int64]time.Time // by offset
}

var _ ingestq.DeadLetterReader = (*DeadLetters)(nil)

// NewDeadLetters makes one on a client and a producer that the caller closes.
func NewDeadLetters(client *Client, producer *Producer) *DeadLetters {
	return &DeadLetters{client: client, producer: producer, parts: map[int32]*deadLetterPart{}, dropped: map[place]bool{}}
}

// ref is a record that lies there.
type ref struct {
	place
	at time.Time
}

// List implements ingestq.DeadLetterReader: by time, then by id.
func (l *DeadLetters) List(ctx context.Context, after ingestq.DeadLetterPlace, n int) ([]ingestq.StoredDeadLetter, error) {
	all, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	if after.ID != "" {
		all = slices.DeleteFunc(all, func(r ref) bool { return !ingestq.After(after, ingestq.DeadLetterPlace{ID: r.id(), At: r.at}) })
	}
	var out []ingestq.StoredDeadLetter
	for _, r := range all {
		if len(out) == n {
			break
		}
		deadLetter, found, err := l.read(ctx, r.place)
		if err != nil {
			return nil, err
		}
		if found { // else retention took it meanwhile
			out = append(out, deadLetter)
		}
	}
	return out, nil
}

// DeadLetter implements ingestq.DeadLetterReader.
func (l *DeadLetters) DeadLetter(ctx context.Context, id string) (deadLetter ingestq.StoredDeadLetter, found bool, err error) {
	at, ok := parseID(id)
	if !ok {
		return deadLetter, false, nil
	}
	all, err := l.look(ctx)
	if err != nil || !slices.ContainsFunc(all, func(r ref) bool { return r.place == at }) {
		return deadLetter, false, err
	}
	return l.read(ctx, at)
}

// Length implements ingestq.DeadLetterReader.
func (l *DeadLetters) Length(ctx context.Context) (int64, error) {
	all, err := l.look(ctx)
	return int64(len(all)), err
}

// Drop implements ingestq.DeadLetterReader: it adds a record for each that takes it back.
func (l *DeadLetters) Drop(ctx context.Context, ids ...string) (int64, error) {
	all, err := l.look(ctx)
	if err != nil {
		return 0, err
	}
	var marks []*sarama.ProducerMessage
	for _, r := range all {
		if slices.Contains(ids, r.id()) {
			marks = append(marks, &sarama.ProducerMessage{
				Topic: l.client.cfg.DLQTopic(), Headers: []sarama.RecordHeader{{Key: []byte(headerDrops), Value: []byte(r.id())}},
			})
		}
	}
	var dropped int64
	for _, e := range l.producer.send(ctx, marks) {
		if e == nil {
			dropped++
		}
		err = cmp.Or(err, e)
	}
	return dropped, failure(ctx, "drop records of "+l.client.cfg.DLQTopic(), err)
}

// look brings what is known up to date and returns what lies there, the newest first.
func (l *DeadLetters) look(ctx context.Context) ([]ref, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	topic := l.client.cfg.DLQTopic()
	partitions, err := l.client.Partitions(ctx, topic)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		clear(l.parts) // made again it begins at offset 0
		clear(l.dropped)
		return nil, nil
	}
	for i := 0; err == nil && i < len(partitions); i++ {
		err = l.lookAt(ctx, topic, partitions[i])
	}
	if err != nil {
		return nil, failure(ctx, "look at topic "+topic, err)
	}
	var all []ref
	for p, part := range l.parts {
		for offset, at := range part.raw {
			if where := (place{p, offset}); !l.dropped[where] {
				all = append(all, ref{where, at})
			}
		}
	}
	slices.SortFunc(all, func(a, b ref) int { return cmp.Or(b.at.Compare(a.at), strings.Compare(b.id(), a.id())) })
	return all, nil
}

// lookAt reads what came to a partition since the last look and forgets what retention took. The caller holds the lock.
func (l *DeadLetters) lookAt(ctx context.Context, topic string, partition int32) error {
	oldest, newest, err := l.client.ends(ctx, topic, partition)
	if err != nil {
		return err
	}
	part := l.parts[partition]
	anew := part != nil && part.next > newest // the topic
	if part == nil || anew {
		part = &deadLetterPart{raw: map[int64]time.Time{}}
		l.parts[partition] = part
	}
	maps.DeleteFunc(part.raw, func(offset int64, _ time.Time) bool { return offset < oldest })
	maps.DeleteFunc(l.dropped, func(at place, _ bool) bool { return at.partition == partition && (anew || at.offset < oldest) })
	part.next, err = l.client.recordsBetween(ctx, topic, partition, max(part.next, oldest), newest, func(r Record) error {
		if at, ok := parseID(r.drops()); ok {
			l.dropped[at] = true
		} else if r.Event == "" {
			part.raw[r.Offset] = r.Time
		}
		return nil
	})
	return err
}

// read reads what a record holds.
func (l *DeadLetters) read(ctx context.Context, at place) (deadLetter ingestq.StoredDeadLetter, found bool, err error) {
	topic := l.client.cfg.DLQTopic()
	got, err := l.client.fetch(ctx, topic, at.partition, at.offset, 1)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return deadLetter, false, nil
	}
	if err != nil || len(got.records) == 0 || got.records[0].Offset != at.offset {
		return deadLetter, false, failure(ctx, "read record "+at.id()+" of "+topic, err)
	}
	return deadLetterOf(got.records[0]), true, nil
}

// deadLetterOf is a record as it was put away, or as somebody else put it there.
func deadLetterOf(r Record) ingestq.StoredDeadLetter {
	deadLetter := ingestq.StoredDeadLetter{ID: place{r.Partition, r.Offset}.id(), SourceStream: r.header(headerSource)}
	deadLetter.FailedAt, deadLetter.LastError = r.Time, r.header(rawError)
	if partition, offset := r.header(headerSourcePartition), r.header(headerSourceOffset); partition != "" && offset != "" {
		deadLetter.SourceRecordID = idPrefix + partition + ":" + offset
	}
	deadLetter.Raw = map[string]string{rawValue: string(r.Value)}
	if len(r.Key) > 0 {
		deadLetter.Raw[rawKey] = string(r.Key)
	}
	return deadLetter
}
