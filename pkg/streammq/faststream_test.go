package streammq

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// faststream makes a producer for the rig's single stream.
func (r *rig) faststream(q *MQ, format Format) *StreamProducer {
	r.t.Helper()
	p, err := q.NewFastStreamProducer(r.topic+"-tasks", format, true)
	require.NoError(r.t, err)
	return p
}

func TestFastStreamFormatsAreReadByEverySubscriber(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		large := strings.Repeat("x", DefaultInlineMax+1)
		m, err := Encode(JSON{}, map[string]int{"n": 1}, Message{Key: "k", MaxAttempts: 7, Headers: map[string]string{"name": "ü值"}})
		require.NoError(r.t, err)
		for _, format := range []Format{FormatFastStream, FormatFastStreamJSON} {
			_, err = r.faststream(q, format).Publish(ctx, m, Message{Payload: []byte(large)})
			require.NoError(r.t, err)
		}
		r.addSingle("own")
		stored := r.entries(r.topic + "-tasks")
		require.Equal(r.t, []string{wire.EnvelopeSign, `{"data": "{\"n\":1}"`},
			[]string{stored[0].FieldValues[wire.FieldEnvelope][:8], stored[2].FieldValues[wire.FieldEnvelope][:20]})
		require.Equal(r.t, 1, len(stored[1].FieldValues), "a large payload lies in its entry")
		r.single(q, "c", RoleBoth, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 5 }, "all run")
		all := seen.all()
		require.Equal(r.t, []string{`{"n":1}`, large, `{"n":1}`, large, "own"}, seen.payloads())
		for _, d := range []Delivery{all[0], all[2]} {
			require.Equal(r.t, []any{"k", 7, "ü值", "application/json"}, []any{d.Key, d.MaxAttempts, d.Headers["name"], d.Headers[HeaderContentType]})
			require.NotEmpty(r.t, d.UUID)
			require.Equal(r.t, d.UUID, d.Headers[FastStreamCorrelationID])
			require.WithinDuration(r.t, time.Now(), d.Published, time.Minute)
		}
	})
}

// A retry stays in place whatever is set; a replayed letter is an entry of FastStream's again.
func TestFastStreamMessagesAreRetriedBuriedAndReplayed(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		stream := r.topic + "-tasks"
		_, err := r.faststream(q, FormatFastStreamJSON).Publish(ctx, Message{Payload: []byte("7"), Headers: map[string]string{"a": "b"}})
		require.NoError(r.t, err)
		replay := make(chan Result, 1)
		r.single(q, "c", RoleBoth, seen.handler(func(d *Delivery) Result {
			if d.OriginalID != d.ID {
				return <-replay
			}
			if d.Attempt == 1 {
				return RetryAfter(0, errBoom)
			}
			return Fail(errBoom)
		}), func(c *SubscriberConfig) { c.RetryMode = RetryRepublish })
		eventually(r.t, func() bool { return r.seen.count(EventDead) == 1 }, "given up")
		require.Len(r.t, r.entries(stream), 1, "nothing was added again")
		letters, err := q.StreamLetters(stream).List(ctx, LetterQuery{Partition: -1})
		require.NoError(r.t, err)
		require.Len(r.t, letters, 1)
		require.Equal(r.t, "7", string(letters[0].Payload))
		_, err = q.StreamLetters(stream).Replay(ctx, letters[0])
		require.NoError(r.t, err)
		again := r.entries(stream)[1]
		format, headers, body, err := wire.DecodeEnvelope([]byte(again.FieldValues[wire.FieldEnvelope]))
		require.NoError(r.t, err)
		require.Equal(r.t, FormatFastStreamJSON, format)
		require.Equal(r.t, []string{"7", "b"}, []string{string(body), headers["a"]})
		replay <- Success()
		eventually(r.t, func() bool { return r.pendingOf(stream, "workers") == 0 && len(seen.all()) == 3 }, "it ran again")
		require.Equal(r.t, letters[0].OriginalID, seen.all()[2].OriginalID)
	})
}

func TestFastStreamStatus(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen, ctx := r.mq(nil), &log{}, r.t.Context()
		p := r.faststream(q, FormatFastStream)
		receipts, err := p.Publish(ctx, Message{Payload: []byte("done")}, Message{Payload: []byte("theirs")}, Message{Payload: []byte("back")})
		require.NoError(r.t, err)
		written := func(i int) map[string]any {
			var s map[string]any
			require.NoError(r.t, json.Unmarshal([]byte(r.text("GET", core.StatusKey(receipts[i].UUID))), &s))
			return s
		}
		require.Equal(r.t, written(0)["updatedAt"], written(0)["updated_at"])
		// Another group of FastStream's has completed the second; the third fails there first.
		completed := `{"status": "completed", "updated_at": "2026-11-23T06:01:19.972528", "result": {"ok": 1}}`
		r.do("SET", core.StatusKey(receipts[1].UUID), completed)
		r.do("SET", core.StatusKey(receipts[2].UUID), `{"status": "failed", "updated_at": "2026-11-23T06:01:19.988878", "error": {"type": "ValueError", "message": "no", "traceback": "T"}}`)
		all, err := q.Statuses(ctx, receipts[1].UUID, receipts[2].UUID)
		require.NoError(r.t, err)
		at := time.Date(2026, 11, 23, 6, 1, 19, 988878000, time.Local)
		require.Equal(r.t, &StatusError{Type: "ValueError", Message: "no", Traceback: "T"}, all[receipts[2].UUID].Error)
		require.True(r.t, at.Equal(all[receipts[2].UUID].UpdatedAt), "a time without a zone is of this one")
		require.JSONEq(r.t, `{"ok": 1}`, string(all[receipts[1].UUID].Result))

		r.single(q, "c", RoleBoth, seen.handler(succeed), func(c *SubscriberConfig) { c.Status = true })
		eventually(r.t, func() bool { return r.pendingOf(r.topic+"-tasks", "workers") == 0 && len(seen.all()) == 3 }, "each runs in this group")
		require.Equal(r.t, "completed", written(0)["status"])
		require.Equal(r.t, written(0)["updatedAt"], written(0)["updated_at"])
		require.JSONEq(r.t, completed, r.text("GET", core.StatusKey(receipts[1].UUID)), "completed is final")
		require.Equal(r.t, "completed", written(2)["status"])
	})
}

// Statuses as the best-practice project has written them.
func TestCapturedStatuses(t *testing.T) {
	t.Parallel()
	type line struct {
		Key, Value string
	}
	var states []State
	for _, l := range captures[line](t, "faststream-status.jsonl") {
		if !strings.HasPrefix(l.Key, "task:status:") {
			continue
		}
		var s Status
		require.NoError(t, json.Unmarshal([]byte(l.Value), &s), l.Value)
		require.Equal(t, "2026-11-23 06:01:19", s.UpdatedAt.Format(time.DateTime), l.Value)
		require.Equal(t, time.Local, s.UpdatedAt.Location())
		if s.State == StateFailed {
			require.Equal(t, []string{"ValueError", "no"}, []string{s.Error.Type, s.Error.Message})
		}
		states = append(states, s.State)
	}
	require.Equal(t, []State{StatePending, StateFailed, StateCompleted}, states)
	var s Status
	require.Error(t, json.Unmarshal([]byte(`{"status":"failed","updated_at":"yesterday"}`), &s))
	require.NoError(t, json.Unmarshal([]byte(`{"status":"failed"}`), &s))
	require.True(t, s.UpdatedAt.IsZero())
	text, err := json.Marshal(Status{State: StateFailed, UpdatedAt: time.Unix(0, 0).UTC()})
	require.NoError(t, err)
	require.JSONEq(t, `{"status":"failed","updatedAt":"1970-01-01T00:00:00Z"}`, string(text))
}

// Requests in FastStream's way, where both ends are ours.
func TestRequestsOverAChannel(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.single(q, "c", RoleBoth, seen.handler(func(d *Delivery) Result {
			switch string(d.Payload) {
			case "fails":
				return Fail(errBoom)
			case "large":
				return Replied(make([]byte, DefaultMaxPayload+1))
			case "bytes":
				return Replied([]byte{0xff})
			case "silent":
				return Success()
			}
			return echo(d)
		}), nil)
		for _, format := range []Format{FormatFastStream, FormatFastStreamJSON} {
			client := r.requester(q, func(c *RequesterConfig) { c.Format = format })
			ask := func(payload string, d time.Duration) (Reply, error) {
				ctx, cancel := context.WithTimeout(context.Background(), d)
				defer cancel()
				return client.Request(ctx, r.topic+"-tasks", Message{Payload: []byte(payload)})
			}
			reply, err := ask("hello", waitLimit)
			require.NoError(r.t, err)
			require.Equal(r.t, "re: hello", string(reply.Payload))
			got := seen.all()[len(seen.all())-1]
			require.Equal(r.t, got.Headers[FastStreamCorrelationID], reply.Headers[FastStreamCorrelationID])
			for _, payload := range []string{"fails", "large", "silent"} {
				_, err = ask(payload, 300*time.Millisecond)
				require.ErrorIs(r.t, err, ErrNoReply, payload)
			}
			if format == FormatFastStreamJSON {
				_, err = ask("bytes", 300*time.Millisecond)
				require.ErrorIs(r.t, err, ErrNoReply)
			} else {
				reply, err = ask("bytes", waitLimit)
				require.NoError(r.t, err)
				require.Equal(r.t, []byte{0xff}, reply.Payload)
			}
			// A reply that nobody waits for.
			late := r.seen.count(EventLateReply)
			message := wire.EncodeEnvelope(format, map[string]string{FastStreamCorrelationID: "unknown"}, nil)
			r.do("PUBLISH", nameOf(client), string(message))
			eventually(r.t, func() bool { return r.seen.count(EventLateReply) == late+1 }, "late")
		}
	})
}

// A connection that breaks is made again, and replies come over the new one.
func TestRepliesComeAfterTheConnectionBroke(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q, seen := r.mq(nil), &log{}
	r.single(q, "c", RoleBoth, seen.handler(echo), nil)
	client := r.requester(q, func(c *RequesterConfig) { c.Format = FormatFastStream })
	<-readyOf(client)
	r.do("CLIENT", "KILL", "TYPE", "pubsub")
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		reply, err := client.Request(ctx, r.topic+"-tasks", Message{Payload: []byte("x")})
		return err == nil && string(reply.Payload) == "re: x"
	}, "a reply")
}

func TestFastStreamOptionsAreChecked(t *testing.T) {
	t.Parallel()
	q := New0(t)
	_, err := q.NewFastStreamProducer("s", FormatOwn, false)
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, string(FormatFastStreamJSON))
	_, err = q.NewFastStreamProducer("a b", FormatFastStream, false)
	require.ErrorIs(t, err, ErrStreamKey)
	p, err := q.NewFastStreamProducer("s", FormatFastStreamJSON, false)
	require.NoError(t, err)
	_, err = p.Publish(t.Context(), Message{Payload: []byte{0xff}})
	require.ErrorIs(t, err, ErrMalformed)
	require.ErrorContains(t, err, "faststream any bytes")
	h := (&log{}).handler(succeed)
	require.ErrorContains(t, with(NewDefaultSubscriberConfig("t", "g", h), func(c *SubscriberConfig) { c.Format = FormatFastStream }).Validate(), "single stream only")
	require.ErrorContains(t, with(NewDefaultStreamConfig("s", "g", "c", h), func(c *SubscriberConfig) { c.Format = "xml" }).Validate(), `"xml"`)
	require.NoError(t, with(NewDefaultStreamConfig("s", "g", "c", h), func(c *SubscriberConfig) { c.Format = FormatFastStream }).Validate())
	cfg := NewDefaultRequesterConfig("c")
	cfg.Format = "xml"
	_, err = q.NewRequester(cfg, nil)
	require.ErrorContains(t, err, `"xml"`)
	cfg.Format = FormatFastStream
	client, err := q.NewRequester(cfg, nil)
	require.NoError(t, err)
	close(readyOf(client))
	_, err = client.Request(t.Context(), "a b", Message{})
	require.ErrorIs(t, err, ErrStreamKey)
}
