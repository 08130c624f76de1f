package rival

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/outbox"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 7, 12345} {
		p := Payload(n)
		require.Len(t, p, payloadBytes)
		require.True(t, json.Valid(p))
		got, err := numberOf(p)
		require.NoError(t, err)
		require.Equal(t, n, got)
	}
}

func TestConfigGoesThroughTheEnvironment(t *testing.T) {
	want := Config{Tasks: 1, Workers: 2, Rate: 3, Seconds: 4, Redis: "h:1", MySQL: "dsn", Postgres: "url", Profile: "p"}
	for _, v := range want.Environ() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	got, err := ConfigFromEnv()
	require.NoError(t, err)
	require.Equal(t, want, got)
	t.Setenv("PEERS_RATE", "x")
	_, err = ConfigFromEnv()
	require.ErrorContains(t, err, "PEERS_RATE")
}

// fake is a System in memory; a part of its tasks may be lost.
type fake struct {
	mu    sync.Mutex
	queue [][]byte
	more  chan struct{}
	done  atomic.Int64
	lose  int // every so manyth task; 0: none
}

func (f *fake) Prepare(context.Context) error {
	f.queue, f.more = nil, make(chan struct{}, 1)
	f.done.Store(0)
	return nil
}

func (f *fake) Submit(ctx context.Context, n int) error {
	return each(ctx, n, 4, func(ctx context.Context, i int) error { return f.Send(ctx, Payload(0), func() {}) })
}

func (f *fake) Send(_ context.Context, payload []byte, committed func()) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, payload)
	committed()
	select {
	case f.more <- struct{}{}:
	default:
	}
	return nil
}

func (f *fake) Work(ctx context.Context, handle func([]byte)) (func() error, error) {
	return beside(ctx, func(ctx context.Context) error {
		for {
			f.mu.Lock()
			batch := f.queue
			f.queue = nil
			f.mu.Unlock()
			for _, p := range batch {
				if n := f.done.Add(1); f.lose == 0 || n%int64(f.lose) != 0 {
					handle(p)
				}
			}
			select {
			case <-ctx.Done():
				return nil
			case <-f.more:
			}
		}
	}), nil
}

func (f *fake) Drained(_ context.Context, n int) (bool, error) { return f.done.Load() >= int64(n), nil }

func (f *fake) Close() {}

func TestPhases(t *testing.T) {
	t.Parallel()
	s, cfg := &fake{}, Config{Tasks: 1000, Workers: 4, Rate: 200, Seconds: 1}
	for _, p := range []Phase{PhasePrepare, PhaseSubmit, PhaseDrain} {
		r, err := run(t.Context(), s, cfg, p)
		require.NoError(t, err, p)
		if p != PhasePrepare {
			require.Equal(t, 1000, r.Tasks)
			require.Positive(t, r.Seconds)
		}
	}
	require.Equal(t, int64(1000), s.done.Load())
	_, err := run(t.Context(), s, cfg, PhaseCycle)
	require.Error(t, err)
}

func TestLatencyCountsFromTheMomentATaskWasDue(t *testing.T) {
	t.Parallel()
	p := newProbe(4)
	for i := range 4 {
		p.due[i] = int64(time.Duration(i) * time.Millisecond)
		p.committed[i].Store(p.due[i] + int64(2*time.Millisecond))
		p.started[i].Store(p.due[i] + int64((3+time.Duration(i))*time.Millisecond))
	}
	p.left.Store(0)
	r := p.reply(1)
	require.Equal(t, Reply{Tasks: 4, SentP50: 5, SentP99: 6, SentMax: 6, CommitP50: 3, CommitP99: 4}, r, "the first one is warm-up")
	p.started[3].Store(p.committed[3].Load() - int64(time.Millisecond))
	require.InDelta(t, 0, percentile([]time.Duration{0}, 50), 0)
	require.InDelta(t, 2, p.reply(3).CommitP50+2, 1e-9, "a handler may be ahead of its sender")
}

func TestLatencyOfASystem(t *testing.T) {
	t.Parallel()
	s := &fake{}
	require.NoError(t, s.Prepare(t.Context()))
	r, err := latency(t.Context(), s, Config{Rate: 200, Seconds: 1})
	require.NoError(t, err)
	require.Equal(t, 400, r.Tasks)
	require.Positive(t, r.SentP50)
	require.LessOrEqual(t, r.SentP50, r.SentP99)
	require.Empty(t, r.Note)
}

// A system that loses tasks is not drained, and says how far it came.
func TestLostTasksFailTheDrain(t *testing.T) {
	t.Parallel()
	s := &fake{lose: 100}
	require.NoError(t, s.Prepare(t.Context()))
	require.NoError(t, s.Submit(t.Context(), 1000))
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
	defer cancel()
	_, err := drain(ctx, s, 1000)
	require.ErrorContains(t, err, "990 of 1000 tasks were handled: too long")
}

// The stand-in broker is the same for both relays: one answer for each call, after its time, and none after the end.
func TestStandInBrokerTakesItsTime(t *testing.T) {
	t.Parallel()
	var got []string
	b := answering{func(p []byte) { got = append(got, string(p)) }}
	began := time.Now()
	require.Equal(t, []outbox.Result{{Seq: 1}, {Seq: 2}}, b.Send(t.Context(), []outbox.Event{{Seq: 1, Payload: []byte("a")}, {Seq: 2, Payload: []byte("b")}}))
	require.NoError(t, destination{b}.Publish("t", message.NewMessage("1", []byte("c")), message.NewMessage("2", []byte("d"))))
	require.GreaterOrEqual(t, time.Since(began), 3*brokerAnswer, "a call each, but one after the other where a call has one message")
	require.Equal(t, []string{"a", "b", "c", "d"}, got)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Send(ended, []outbox.Event{{Seq: 3}})[0].Err, context.Canceled)
	require.Len(t, got, 4)
}

func TestServeAnswersEveryLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.Error(t, Serve(t.Context(), "nobody", Config{}, strings.NewReader(""), &out))
	require.NoError(t, Serve(t.Context(), "raw-cycle", Config{MySQL: "no dsn"}, strings.NewReader("prepare\nlatency\n"), &out))
	replies := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, replies, 2)
	require.Contains(t, replies[0], "invalid DSN")
	require.Contains(t, replies[1], "no phase")
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var values []time.Duration
	for i := 100; i > 0; i-- {
		values = append(values, time.Duration(i)*time.Millisecond)
	}
	require.InDelta(t, 50, percentile(values, 50), 0)
	require.InDelta(t, 99, percentile(values, 99), 0)
	require.InDelta(t, 100, percentile(values, 100), 0)
	require.Zero(t, percentile(nil, 50))
}

func TestEveryChunkIsDoneOnce(t *testing.T) {
	t.Parallel()
	var sum atomic.Int64
	require.NoError(t, inChunks(t.Context(), 1203, 500, 3, func(_ context.Context, size int) error { sum.Add(int64(size)); return nil }))
	require.Equal(t, int64(1203), sum.Load())
	bad := errors.New("bad")
	require.ErrorIs(t, each(t.Context(), 10, 2, func(context.Context, int) error { return bad }), bad)
}
