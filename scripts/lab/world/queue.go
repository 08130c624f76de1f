package world

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/jointq"
	"github.com/millweir/millweir/pkg/ingestq/kafkaq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/streammq/stream"
	pb "github.com/millweir/millweir/proto"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
)

// The keys of contract §5.
const (
	StreamKey = "ingest:tasks"
	Group     = "ingest-workers"
	DLQKey    = "ingest:tasks:dlq"

	TaskKey   = "queue:tasks" // of workflow tasks
	TaskGroup = "persist-workers"
)

// Stream looks at the queue's Redis directly.
type Stream struct {
	client     rueidis.Client
	partitions int // of the topic; 0: deliveries lie in one stream

	mu     sync.Mutex
	losses []time.Time
}

// OpenStream makes a client; close it. With partitions above 1 deliveries lie in those of a topic.
func OpenStream(url string, partitions int) (*Stream, error) {
	client, err := redisclient.New(url)
	if err != nil {
		return nil, err
	}
	return &Stream{client: client, partitions: partitions}, nil
}

// Keys are the streams of deliveries.
func (s *Stream) Keys() []string {
	if s.partitions <= 1 {
		return []string{StreamKey, TaskKey}
	}
	keys := make([]string, s.partitions)
	for i := range keys {
		keys[i] = streammq.StreamKey(streamq.Topic, i)
	}
	return append(keys, TaskKey)
}

// Close closes the client.
func (s *Stream) Close() { s.client.Close() }

// Lost notes that Redis has forgotten all it had.
func (s *Stream) Lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losses = append(s.losses, time.Now().UTC())
}

// Losses are the times of Lost.
func (s *Stream) Losses() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.losses)
}

// Inspector looks at the queue for the checker.
func (s *Stream) Inspector() ingestq.Inspector {
	c := redisq.NewDefaultConfig("")
	c.StreamKey, c.Group, c.DLQKey = StreamKey, Group, DLQKey
	var documents ingestq.Inspector = redisq.NewInspector(s.client, c)
	if s.partitions > 1 {
		documents = streamq.NewInspector(s.client, streamq.Config{Config: c, Partitions: s.partitions})
	}
	c.StreamKey, c.Group = TaskKey, TaskGroup
	return jointq.NewInspector(documents, redisq.NewInspector(s.client, c))
}

// Do sends any command, its words as they are. FLUSHALL is noted as a loss.
func (s *Stream) Do(ctx context.Context, words ...string) error {
	err := s.client.Do(ctx, s.client.B().Arbitrary(words...).Build()).Error()
	if words[0] == "FLUSHALL" {
		s.Lost()
	}
	return err
}

// Len is XLEN of a stream; 0 when there is none.
func (s *Stream) Len(ctx context.Context, key string) (int64, error) {
	return s.client.Do(ctx, s.client.B().Xlen().Key(key).Build()).AsInt64()
}

// Pending is the number of entries that were read and not acknowledged.
func (s *Stream) Pending(ctx context.Context) (int64, error) {
	total := int64(0)
	for _, key := range s.Keys() {
		n, err := s.PendingOf(ctx, key)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// groupOf is the group of a stream's workers.
func groupOf(key string) string {
	if key == TaskKey {
		return TaskGroup
	}
	return Group
}

// PendingOf is Pending for one stream. Where no process runs workflows their stream has no group.
func (s *Stream) PendingOf(ctx context.Context, key string) (int64, error) {
	group := groupOf(key)
	summary, err := s.client.Do(ctx, s.client.B().Xpending().Key(key).Group(group).Build()).ToArray()
	if key == TaskKey && stream.IsMissing(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("XPENDING %s %s: %w", key, group, err)
	}
	if len(summary) == 0 {
		return 0, fmt.Errorf("XPENDING %s %s: empty answer", key, group)
	}
	return summary[0].AsInt64()
}

// Entries counts the entries of the streams by task.
func (s *Stream) Entries(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, key := range s.Keys() {
		entries, err := s.client.Do(ctx, s.client.B().Xrange().Key(key).Start("-").End("+").Build()).AsXRange()
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			id := e.FieldValues["taskId"]
			if s.partitions > 1 && key != TaskKey {
				envelope, err := pb.Decode([]byte(e.FieldValues["payload"]))
				if err != nil {
					return nil, fmt.Errorf("entry %s of %s: %w", e.ID, key, err)
				}
				id = envelope.GetTaskId()
			}
			out[id]++
		}
	}
	return out, nil
}

// Delete deletes every stream of deliveries.
func (s *Stream) Delete(ctx context.Context) error {
	return s.each(func(key string) error { return s.Do(ctx, "DEL", key) })
}

// DestroyGroups deletes the group of every stream of deliveries.
func (s *Stream) DestroyGroups(ctx context.Context) error {
	return s.each(func(key string) error { return s.Do(ctx, "XGROUP", "DESTROY", key, groupOf(key)) })
}

func (s *Stream) each(do func(key string) error) error {
	for _, key := range s.Keys() {
		if err := do(key); err != nil {
			return fmt.Errorf("stream %s: %w", key, err)
		}
	}
	return nil
}

// topic is the topic of contract §5; that of dead letters has the suffix.
const (
	topic     = "ingest-tasks"
	dlqSuffix = "-dlq"
)

// kafkaInitLimit is for `millweir kafka init` on a loaded machine.
const kafkaInitLimit = 30 * time.Second

// hasRedis tells whether the world has the Redis transport.
func (w *World) hasRedis() bool { return !w.opts.Kafka || w.opts.BothTransports }

// Topic is the world's topic of deliveries.
func (w *World) Topic() string {
	if w.part == 0 {
		return topic
	}
	return topic + "-" + strconv.Itoa(w.part)
}

// InitKafka makes the topics as an operator does.
func (w *World) InitKafka(ctx context.Context) error {
	p, err := w.Command([]string{"kafka", "init"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, kafkaInitLimit, await.ErrTimeout)
	defer cancel()
	code, err := p.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d: %s", code, p.Tail(12))
	}
	if err != nil {
		return fmt.Errorf("millweir kafka init: %w", err)
	}
	return nil
}

// OutboxSent waits until no event is on its way any more.
func (w *World) OutboxSent(ctx context.Context, limit time.Duration) error {
	return await.Until(ctx, limit, 50*time.Millisecond, func(ctx context.Context) error {
		counts, err := tables.CountOutbox(ctx, w.DB.Reader())
		if err == nil && counts["NEW"]+counts["RETRYING"]+counts["DEAD"] > 0 {
			err = fmt.Errorf("events of the outbox are %v, all must be SENT", counts)
		}
		return err
	})
}

// OnKafka tells whether the checker looks at Kafka: deliveries of the world go by it alone, and consumers run until the end
// (in a world on another one's servers they come and go with each trial, and leave records).
func (w *World) OnKafka() bool { return w.Kafka != nil && !w.opts.BothTransports && w.part == 0 }

// openKafka makes a client that looks from outside. Close it.
func (w *World) openKafka() (*kafkaq.Client, error) {
	cfg := kafkaq.NewDefaultConfig(w.Kafka.Addr)
	cfg.Topic = w.Topic()
	return kafkaq.NewClient(cfg)
}

// Finished returns an error while the group has records to finish.
func (w *World) Finished(ctx context.Context) error {
	client, err := w.openKafka()
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // only read
	stats, err := client.Stats(ctx)
	if err == nil && stats.Lag > 0 {
		err = fmt.Errorf("the group has not finished %d records", stats.Lag)
	}
	return err
}

// Records counts the records of the world's topic of deliveries by the event that each carries; "" are those of nobody's.
func (w *World) Records(ctx context.Context) (map[string]int, error) {
	client, err := w.openKafka()
	if err != nil {
		return nil, err
	}
	defer client.Close() //nolint:errcheck // only read
	out := map[string]int{}
	err = client.Records(ctx, w.Topic(), func(r kafkaq.Record) error {
		out[r.Event]++
		return nil
	})
	return out, err
}
