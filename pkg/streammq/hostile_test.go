package streammq

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// told hears the errors of replies.
type told struct {
	mu   sync.Mutex
	errs []error
}

func (h *told) Observe(e Event) {
	if e.Kind != EventReplied || e.Err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errs = append(h.errs, e.Err)
}

func (h *told) has(kind error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Is(errors.Join(h.errs...), kind)
}

// The binary envelope has two bytes for the length of a header: one that is longer would be read as a shorter one and others.
// The JSON envelope carries it.
func TestReplyHeadersThatTheEnvelopeCannotCarry(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	heard, long := &told{}, strings.Repeat("x", 70_000)
	q := r.mq(func(c *Config) { c.Observer = heard })
	r.single(q, "c", RoleBoth, func(_ context.Context, d *Delivery) Result {
		result := Replied(d.Payload)
		result.ReplyHeaders = map[string]string{"long": long}
		if string(d.Payload) == "name" {
			result.ReplyHeaders = map[string]string{"no text \xff": "x"}
		}
		return result
	}, nil)
	asJSON := r.requester(q, func(c *RequesterConfig) { c.Format = FormatFastStreamJSON })
	binary := r.requester(q, func(c *RequesterConfig) { c.Format = FormatFastStream })
	reply, err := asJSON.Request(t.Context(), r.topic+"-tasks", Message{Payload: []byte("text")})
	require.NoError(t, err)
	require.Equal(t, long, reply.Headers["long"])
	for payload, kind := range map[string]error{"text": ErrTooLarge, "name": ErrHeader} {
		require.False(t, heard.has(kind))
		ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
		defer cancel()
		answered := make(chan error, 1)
		go func() {
			_, err := binary.Request(ctx, r.topic+"-tasks", Message{Payload: []byte(payload)})
			answered <- err
		}()
		eventually(t, func() bool { return heard.has(kind) || len(answered) == 1 }, "an observer is told why, or there is a reply")
		cancel()
		require.ErrorIs(t, <-answered, ErrNoReply, payload)
		require.True(t, heard.has(kind))
	}
}

// An id is "ms-seq" or "ms"; the server refuses all else, and a member that begins there would never begin.
func TestEntryIDs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"0", "5", "5-0", "0-1", "1700000000000-18446744073709551615", "18446744073709551615"} {
		_, err := PositionAfter(good)
		require.NoError(t, err, good)
		cfg := NewDefaultStreamConfig("s", "g", "c", (&log{}).handler(succeed))
		cfg.Start = good
		require.NoError(t, cfg.Validate(), good)
	}
	for _, bad := range []string{"", "-", "5-", "-5", "5-5-5", "+5", "5-+5", " 5", "5-5 ", "five", "18446744073709551616", "0-18446744073709551616"} {
		_, err := PositionAfter(bad)
		require.ErrorIs(t, err, ErrEntryID, bad)
		cfg := NewDefaultStreamConfig("s", "g", "c", (&log{}).handler(succeed))
		cfg.Start = bad
		require.ErrorIs(t, cfg.Validate(), ErrConfig, bad)
	}
}

// What a producer was given stays its caller's, and an entry says how often its message may be run, also by default.
func TestPublishingLeavesTheMessageAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q := r.mq(nil)
	r.topicOf(q, 1)
	given := Message{Payload: []byte("x"), Headers: map[string]string{"a": "b"}}
	named := Message{Payload: []byte("y"), Headers: map[string]string{HeaderUUID: "mine"}, MaxAttempts: 3}
	receipts, err := q.NewProducer(nil).PublishBatch(t.Context(), r.topic, []Message{given, named, {}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "b"}, given.Headers, "the message's id is in the entry, not in the caller's headers")
	require.Equal(t, "mine", receipts[1].UUID)
	entries := r.entries(StreamKey(r.topic, 0))
	require.Len(t, entries, 3)
	for i, retries := range []string{"4", "2", "4"} { // one less than the attempts
		require.Equal(t, retries, entries[i].FieldValues["maxRetries"], i)
		m, err := DecodeEntry(entries[i].FieldValues)
		require.NoError(t, err)
		require.Equal(t, receipts[i].UUID, m.Headers[HeaderUUID])
		again, err := DecodeEntry(wire.Mapped(EncodeEntry(r.topic, 0, m, time.Now())))
		require.NoError(t, err)
		require.Equal(t, m, again)
	}
	_ = EncodeEntry(r.topic, 0, given, time.Now())
	require.Len(t, given.Headers, 1)
}
