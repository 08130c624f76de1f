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

// Letters implements ingestq.DeadLetterReader on the records of the topic of dead letters that could not be read as deliveries.
// The other records there are copies of rows with status DEAD, which are the truth. It is safe for concurrent use.
//
// It remembers where such records are, by partition, and reads only what came since; what they hold is read when it is asked
// for. The first question reads the whole topic. One that ends too early has got on, and the next goes on from there.
type Letters struct {
	client   *Client
	producer *Producer

	mu      sync.Mutex
	parts   map[int32]*letterPart
	dropped map[place]bool // records that others take back; those may lie in any partition
}

// letterPart is what is known of one partition: offsets below next were looked at.
type letterPart struct {
	next int64
	raw  map[int64]time.Time // by offset
}

var _ ingestq.DeadLetterReader = (*Letters)(nil)

// NewLetters makes one on a client and a producer that the caller closes.
func NewLetters(client *Client, producer *Producer) *Letters {
	return &Letters{client: client, producer: producer, parts: map[int32]*letterPart{}, dropped: map[place]bool{}}
}

// ref is a record that lies there.
type ref struct {
	place
	at time.Time
}

// List implements ingestq.DeadLetterReader: by time, then by id.
func (l *Letters) List(ctx context.Context, after ingestq.LetterPlace, n int) ([]ingestq.StoredLetter, error) {
	all, err := l.look(ctx)
	if err != nil {
		return nil, err
	}
	if after.ID != "" {
		all = slices.DeleteFunc(all, func(r ref) bool { return !ingestq.After(after, ingestq.LetterPlace{ID: r.id(), At: r.at}) })
	}
	var out []ingestq.StoredLetter
	for _, r := range all {
		if len(out) == n {
			break
		}
		letter, found, err := l.read(ctx, r.place)
		if err != nil {
			return nil, err
		}
		if found { // else retention took it meanwhile
			out = append(out, letter)
		}
	}
	return out, nil
}

// Letter implements ingestq.DeadLetterReader.
func (l *Letters) Letter(ctx context.Context, id string) (letter ingestq.StoredLetter, found bool, err error) {
	at, ok := parseID(id)
	if !ok {
		return letter, false, nil
	}
	all, err := l.look(ctx)
	if err != nil || !slices.ContainsFunc(all, func(r ref) bool { return r.place == at }) {
		return letter, false, err
	}
	return l.read(ctx, at)
}

// Length implements ingestq.DeadLetterReader.
func (l *Letters) Length(ctx context.Context) (int64, error) {
	all, err := l.look(ctx)
	return int64(len(all)), err
}

// Drop implements ingestq.DeadLetterReader: it adds a record for each that takes it back.
func (l *Letters) Drop(ctx context.Context, ids ...string) (int64, error) {
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
func (l *Letters) look(ctx context.Context) ([]ref, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	topic := l.client.cfg.DLQTopic()
	partitions, err := l.client.partitionsOf(ctx, topic)
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
func (l *Letters) lookAt(ctx context.Context, topic string, partition int32) error {
	oldest, newest, err := l.client.ends(ctx, topic, partition)
	if err != nil {
		return err
	}
	part := l.parts[partition]
	anew := part != nil && part.next > newest // the topic
	if part == nil || anew {
		part = &letterPart{raw: map[int64]time.Time{}}
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
func (l *Letters) read(ctx context.Context, at place) (letter ingestq.StoredLetter, found bool, err error) {
	topic := l.client.cfg.DLQTopic()
	got, err := l.client.fetch(ctx, topic, at.partition, at.offset, 1)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) {
		return letter, false, nil
	}
	if err != nil || len(got.records) == 0 || got.records[0].Offset != at.offset {
		return letter, false, failure(ctx, "read record "+at.id()+" of "+topic, err)
	}
	return letterOf(got.records[0]), true, nil
}

// letterOf is a record as it was put away, or as somebody else put it there.
func letterOf(r Record) ingestq.StoredLetter {
	letter := ingestq.StoredLetter{ID: place{r.Partition, r.Offset}.id(), SourceStream: r.header(headerSource)}
	letter.FailedAt, letter.LastError = r.Time, r.header(rawError)
	if partition, offset := r.header(headerSourcePartition), r.header(headerSourceOffset); partition != "" && offset != "" {
		letter.SourceRecordID = idPrefix + partition + ":" + offset
	}
	letter.Raw = map[string]string{rawValue: string(r.Value)}
	if len(r.Key) > 0 {
		letter.Raw[rawKey] = string(r.Key)
	}
	return letter
}
