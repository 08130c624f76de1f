package lab

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/ingestq/redisq"
)

// The keys of contract §5.
const (
	StreamKey = "ingest:tasks"
	Group     = "ingest-workers"
	DLQKey    = "ingest:tasks:dlq"
)

// Stream looks at the queue's Redis directly.
type Stream struct {
	client rueidis.Client

	mu     sync.Mutex
	losses []time.Time
}

// OpenStream makes a client; close it.
func OpenStream(url string) (*Stream, error) {
	client, err := redisq.NewClient(url)
	if err != nil {
		return nil, err
	}
	return &Stream{client: client}, nil
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
func (s *Stream) Inspector() *redisq.Inspector {
	c := redisq.NewDefaultConfig("")
	c.StreamKey, c.Group, c.DLQKey = StreamKey, Group, DLQKey
	return redisq.NewInspector(s.client, c)
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
	summary, err := s.client.Do(ctx, s.client.B().Xpending().Key(StreamKey).Group(Group).Build()).ToArray()
	if err != nil {
		return 0, err
	}
	if len(summary) == 0 {
		return 0, fmt.Errorf("XPENDING %s %s: empty answer", StreamKey, Group)
	}
	return summary[0].AsInt64()
}

// Entries counts the entries of the stream by task.
func (s *Stream) Entries(ctx context.Context) (map[string]int, error) {
	entries, err := s.client.Do(ctx, s.client.B().Xrange().Key(StreamKey).Start("-").End("+").Build()).AsXRange()
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for _, e := range entries {
		out[e.FieldValues["taskId"]]++
	}
	return out, nil
}

// Death names one DLQ entry.
type Death struct {
	TaskID string
	Fence  int64
}

// Deaths are the entries of the dead letter stream with how often each is there; undecodable deliveries have no task and are left out.
func (s *Stream) Deaths(ctx context.Context) (map[Death]int, error) {
	entries, err := s.client.Do(ctx, s.client.B().Xrange().Key(DLQKey).Start("-").End("+").Build()).AsXRange()
	if err != nil {
		return nil, err
	}
	out := map[Death]int{}
	for _, e := range entries {
		if e.FieldValues["taskId"] == "" {
			continue
		}
		fence, err := strconv.ParseInt(e.FieldValues["fence"], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("DLQ entry %s: fence: %w", e.ID, err)
		}
		out[Death{e.FieldValues["taskId"], fence}]++
	}
	return out, nil
}
