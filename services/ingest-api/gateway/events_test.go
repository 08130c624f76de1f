package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/tasks"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// sse is one event or comment of a stream.
type sse struct {
	id, event, comment string
	task               wire.Task
}

// readEvent reads up to the next empty line; io.EOF at the end of the stream.
func readEvent(t *testing.T, r *bufio.Reader) (e sse, err error) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return e, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
			return e, nil
		case name == "":
			e.comment = value
		case name == "id":
			e.id = value
		case name == "event":
			e.event = value
		case name == "data":
			require.NoError(t, json.Unmarshal([]byte(value), &e.task))
		}
	}
}

// serve runs the gateway on a real connection.
func (b *bench) serve() *httptest.Server {
	b.t.Helper()
	s := httptest.NewServer(b.g)
	b.t.Cleanup(s.Close)
	return s
}

// follow opens a stream.
func (b *bench) follow(s *httptest.Server, id string, headers ...string) (*http.Response, *bufio.Reader) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, s.URL+"/api/knowledge/tasks/"+id+"/events", nil)
	require.NoError(b.t, err)
	r.Header.Set("Authorization", "Bearer "+ada)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(r)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = res.Body.Close() })
	return res, bufio.NewReader(res.Body)
}

func TestEventsFollowATask(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.serve()
	id := b.accept(ada, "a.txt", "x").TaskID
	res, stream := b.follow(s, id)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Equal(t, "no", res.Header.Get("X-Accel-Buffering"))
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	e, err := readEvent(t, stream)
	require.NoError(t, err)
	require.Equal(t, "status", e.event)
	require.Equal(t, "1", e.id)
	require.Equal(t, taskstate.StatusQueued, e.task.Status)
	var got []string
	b.move(id, taskstate.StatusRunning)
	e, err = readEvent(t, stream)
	require.NoError(t, err)
	got = append(got, e.id+" "+string(e.task.Status))
	b.beat(id, taskstate.Progress{Stage: "embed", Percent: 40, Processed: 4, Total: 10})
	e, err = readEvent(t, stream)
	require.NoError(t, err)
	require.Equal(t, 40, e.task.Progress)
	require.EqualValues(t, "embed", e.task.Stage)
	got = append(got, e.id+" "+string(e.task.Status))
	b.move(id, taskstate.StatusSucceeded)
	for {
		e, err := readEvent(t, stream)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got = append(got, e.id+" "+string(e.task.Status))
	}
	require.Equal(t, []string{"2 RUNNING", "2 RUNNING", "3 SUCCEEDED"}, got)
	// The end was seen: stay away. It was not seen: get it.
	res, _ = b.follow(s, id, "Last-Event-ID", "3")
	require.Equal(t, http.StatusNoContent, res.StatusCode)
	res, stream = b.follow(s, id, "Last-Event-ID", "2")
	require.Equal(t, http.StatusOK, res.StatusCode)
	e, err = readEvent(t, stream)
	require.NoError(t, err)
	require.Equal(t, "3", e.id)
	// Without an id, and with one that is not ours or that a killed database has lost, the present state comes.
	for _, header := range []string{"", "x", "-1", "1e3", "99999999999999999999", "4", "1000000"} {
		res, stream = b.follow(s, id, "Last-Event-ID", header)
		require.Equal(t, http.StatusOK, res.StatusCode, header)
		e, err = readEvent(t, stream)
		require.NoError(t, err)
		require.Equal(t, "3", e.id)
	}
	require.Eventually(t, func() bool { return b.streams() == 0 }, time.Minute, time.Millisecond)
}

func TestEventsResumeWithEveryChange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.serve()
	id := b.accept(ada, "a.txt", "x").TaskID
	for _, to := range []taskstate.Status{taskstate.StatusRunning, taskstate.StatusRetrying, taskstate.StatusRunning, taskstate.StatusDead} {
		b.move(id, to)
	}
	_, stream := b.follow(s, id, "Last-Event-ID", "1")
	var got []taskstate.Status
	for {
		e, err := readEvent(t, stream)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		got = append(got, e.task.Status)
	}
	require.Equal(t, []taskstate.Status{"RUNNING", "RETRYING", "RUNNING", "DEAD"}, got)
}

func TestEventsRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config, _ *Deps) { c.EventsMaxClients = 1 })
	s := b.serve()
	id := b.accept(ada, "a.txt", "x").TaskID
	b.refused(b.get(bob, "/api/knowledge/tasks/"+id+"/events"), http.StatusNotFound, web.CodeTaskNotFound)
	b.refused(b.get(ada, "/api/knowledge/tasks/nonsense/events"), http.StatusNotFound, web.CodeTaskNotFound)
	_, stream := b.follow(s, id)
	_, err := readEvent(t, stream)
	require.NoError(t, err)
	b.refused(b.get(ada, "/api/knowledge/tasks/"+id+"/events"), http.StatusServiceUnavailable, web.CodeTooManyStreams)
	b.g.Drain()
	_, err = readEvent(t, stream)
	require.ErrorIs(t, err, io.EOF, "a stop must end the stream")
	require.Eventually(t, func() bool { return b.streams() == 0 }, time.Minute, time.Millisecond)
	b.refused(b.get(ada, "/api/knowledge/tasks/"+id+"/events"), http.StatusServiceUnavailable, web.CodeStopping)
}

// silentWatch is a service whose watch says what the test says.
type silentWatch struct {
	ingest.Service
	events chan ingest.TaskEvent
}

func (s silentWatch) Watch(context.Context, ingest.Caller, string, int64) (<-chan ingest.TaskEvent, error) {
	return s.events, nil
}

// flushes is a recorder that can be read while the handler runs, or that never takes anything.
type flushes struct {
	mu     sync.Mutex
	header http.Header
	text   strings.Builder
	broken bool
}

func (f *flushes) Header() http.Header { return f.header }
func (f *flushes) WriteHeader(int)     {}
func (f *flushes) Flush()              {}
func (f *flushes) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return 0, io.ErrClosedPipe
	}
	return f.text.Write(p)
}

func (f *flushes) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

func TestHeartbeatComesAfterFifteenIdleSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := silentWatch{events: make(chan ingest.TaskEvent)}
		b := newBench(t, func(_ *Config, d *Deps) { d.Service = w })
		out := &flushes{header: http.Header{}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := b.request(ada, http.MethodGet, "/api/knowledge/tasks/0190a6e0-0000-7000-8000-000000000001/events", nil).WithContext(ctx)
			b.g.ServeHTTP(out, r)
		}()
		synctest.Wait()
		require.Empty(t, out.String())
		pass(tasks.Heartbeat - time.Millisecond)
		synctest.Wait()
		require.Empty(t, out.String())
		pass(time.Millisecond)
		synctest.Wait()
		require.Equal(t, ": heartbeat\n\n", out.String())
		// An event counts as a sign of life.
		pass(10 * time.Second)
		w.events <- ingest.TaskEvent{Task: taskstate.Task{Status: taskstate.StatusRunning}, TransitionID: 7}
		synctest.Wait()
		require.Contains(t, out.String(), "id: 7\nevent: status\ndata: {")
		pass(14 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, strings.Count(out.String(), "heartbeat"))
		pass(time.Second)
		synctest.Wait()
		require.Equal(t, 2, strings.Count(out.String(), "heartbeat"))
		cancel()
		<-done
	})
}

func TestBrokenClientEndsItsStream(t *testing.T) {
	t.Parallel()
	w := silentWatch{events: make(chan ingest.TaskEvent, 1)}
	b := newBench(t, func(_ *Config, d *Deps) { d.Service = w })
	w.events <- ingest.TaskEvent{Task: taskstate.Task{Status: taskstate.StatusRunning}}
	out := &flushes{header: http.Header{}, broken: true}
	b.g.ServeHTTP(out, b.request(ada, http.MethodGet, "/api/knowledge/tasks/0190a6e0-0000-7000-8000-000000000001/events", nil))
	require.Zero(t, b.streams())
}

// pass lets time go by inside a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
