package streammq

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/redis/rueidis"
)

// TopicInfo is what the registry knows of a topic.
type TopicInfo struct {
	Name       string
	Partitions int
	Layout     Layout
	Status     bool      // its messages have one, see MQ.Statuses
	Created    time.Time // zero: another system made it
	// Deleting tells that a deletion was begun and not ended; Admin.Delete goes on with it.
	Deleting bool
}

// Topics lists all topics by name, those of the other layout too. A topic whose meta cannot be read has no Partitions.
// Error: ErrUnavailable.
func (q *MQ) Topics(ctx context.Context) ([]TopicInfo, error) {
	names, err := q.client.Do(ctx, q.client.B().Smembers().Key(registryKey).Build()).AsStrSlice()
	if err != nil {
		return nil, failure(ctx, "list topics", err)
	}
	sort.Strings(names)
	list := make([]TopicInfo, 0, len(names))
	commands := make(rueidis.Commands, len(names))
	for i, name := range names {
		commands[i] = q.readMeta(name)
	}
	if len(names) == 0 {
		return list, nil
	}
	for i, r := range q.client.DoMulti(ctx, commands...) {
		m, err := decodeTopic(ctx, names[i], r)
		if err != nil && !errors.Is(err, ErrUnknownTopic) && !errors.Is(err, ErrMalformed) {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// Topic is what the registry knows of one topic. Errors: ErrUnknownTopic, ErrMalformed, ErrUnavailable.
func (q *MQ) Topic(ctx context.Context, topic string) (TopicInfo, error) {
	if err := checkName(topic, ErrTopicName); err != nil {
		return TopicInfo{}, err
	}
	return decodeTopic(ctx, topic, q.client.Do(ctx, q.readMeta(topic)))
}

func (q *MQ) readMeta(topic string) rueidis.Completed {
	return q.client.B().Hmget().Key(metaKey(topic)).Field("partitionCount", "layout", "status", "createdAt", metaDeleting).Build()
}

// metaDeleting is a field of the meta: the groups that the topic had when its deletion was begun, with spaces between.
const metaDeleting = "deleting"

func decodeTopic(ctx context.Context, topic string, r rueidis.RedisResult) (TopicInfo, error) {
	info := TopicInfo{Name: topic}
	fields, err := r.ToArray()
	if err != nil {
		return info, failure(ctx, "read topic "+topic, err)
	}
	if fields[0].IsNil() {
		return info, fmt.Errorf("topic %s: %w", topic, ErrUnknownTopic)
	}
	if info.Partitions, info.Layout, err = decodeMeta(fields[0], fields[1]); err != nil {
		return info, fmt.Errorf("topic %s: %w", topic, err)
	}
	info.Status, info.Deleting = isOn(fields[2]), !fields[4].IsNil()
	if text, err := fields[3].ToString(); err == nil {
		info.Created, _ = decodeTime(text)
	}
	return info, nil
}

// Stats counts what a topic or a single stream holds.
type Stats struct {
	Partitions int
	Entries    int64 // in the streams, finished ones too
	Retries    int64 // republished messages that wait for their time
	Malformed  int64 // retry items that were put aside
	Letters    int64 // dead letters, replayed ones too
	Beside     int64 // payloads beside the streams
	Each       []PartitionCount
}

// PartitionCount is what one partition holds.
type PartitionCount struct {
	Partition int
	Entries   int64
	Beside    int64
	FirstID   string // of the oldest entry; "": there is none
	LastID    string // of the newest
}

// Stats counts. Errors: ErrUnknownTopic, ErrUnavailable.
func (a *Admin) Stats(ctx context.Context) (Stats, error) {
	sources, err := a.sources(ctx)
	if err != nil {
		return Stats{}, err
	}
	total := Stats{Partitions: len(sources)}
	const each = 8
	commands := make(rueidis.Commands, 0, each*len(sources))
	b := a.mq.client.B
	for _, s := range sources {
		commands = append(commands, b().Xlen().Key(s.stream()).Build(), b().Zcard().Key(s.bodies()).Build(),
			b().Xrevrange().Key(s.stream()).End("+").Start("-").Count(1).Build(),
			b().Zcard().Key(s.retry()).Build(), b().Zcard().Key(s.quarantine()).Build(), b().Xlen().Key(s.dlq()).Build(),
			b().Xrange().Key(s.stream()).Start("-").End("+").Count(1).Build())
		letters := s.letterKeys()
		commands = append(commands, b().Xlen().Key(letters[len(letters)-1][0]).Build())
	}
	results := a.mq.client.DoMulti(ctx, commands...)
	if err := firstError(results); err != nil {
		return total, failure(ctx, "count what "+a.name+" holds", err)
	}
	number := func(i int) int64 {
		n, _ := results[i].AsInt64() // an error was judged above
		return n
	}
	for i, s := range sources {
		at := each * i
		p := PartitionCount{Partition: s.part, Entries: number(at), Beside: number(at + 1)}
		p.LastID, p.FirstID = oneID(results[at+2]), oneID(results[at+6])
		total.Entries, total.Beside = total.Entries+p.Entries, total.Beside+p.Beside
		total.Each = append(total.Each, p)
		if i == 0 || s.apart() { // otherwise it is the same key again
			total.Retries, total.Malformed, total.Letters = total.Retries+number(at+3), total.Malformed+number(at+4), total.Letters+number(at+5)
			if !s.apart() {
				total.Letters += number(at + 7)
			}
		}
	}
	return total, nil
}

// oneID is the id of the first entry that was read; "": there is none.
func oneID(r rueidis.RedisResult) string {
	entries, err := r.AsXRange()
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].ID
}
