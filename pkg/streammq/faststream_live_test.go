package streammq

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/redistest"
)

// peers are the applications of FastStream's that the tests share a stream with, and the format in which they are written to.
var peers = []struct {
	name, version, writes string
	format                Format
}{
	{"JSON of 0.6", "0.6.7", "json", FormatFastStreamJSON},
	{"binary of 0.7", "0.7.8", "binary", FormatFastStream},
	{"JSON for 0.7", "0.7.8", "binary", FormatFastStreamJSON},
}

// peer is a process of testdata/faststream/peer.py.
type peer struct {
	t  *testing.T
	in io.Writer

	mu      sync.Mutex
	lines   []map[string]any // what it said, in order
	changed chan struct{}    // closed, and replaced, when there are more
}

// withPeers runs a test with each of the applications. group "": it subscribes to nothing.
func withPeers(t *testing.T, group string, test func(r *rig, p *peer, format Format)) {
	t.Parallel()
	for _, kind := range peers {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, LayoutSingle)
			args := []string{"-W", "ignore", filepath.Join("testdata", "faststream", "peer.py"),
				fmt.Sprintf("redis://%s/%d", r.home.addrs[0], r.home.db), kind.writes}
			if group != "" {
				args = append(args, r.topic+"-tasks", group, "python")
			}
			test(r, startPeer(t, kind.version, args), kind.format)
		})
	}
}

func startPeer(t *testing.T, version string, args []string) *peer {
	t.Helper()
	cmd := exec.Command(redistest.FastStream(t, version), args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &peer{t: t, in: in, changed: make(chan struct{})}
	var reading sync.WaitGroup
	reading.Go(func() {
		for scan := bufio.NewScanner(out); scan.Scan(); {
			p.hear(scan.Text())
		}
	})
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		reading.Wait()
		require.NoError(t, cmd.Wait())
	})
	p.wait("ready", 1)
	return p
}

func (p *peer) hear(text string) {
	line := map[string]any{}
	if err := json.Unmarshal([]byte(text), &line); err != nil {
		line["failed"] = text
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	close(p.changed)
	p.changed = make(chan struct{})
}

// wait returns the lines that have a name, as soon as there are n of them.
func (p *peer) wait(name string, n int) []map[string]any {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for {
		p.mu.Lock()
		var found []map[string]any
		for _, line := range p.lines {
			require.NotContains(p.t, line, "failed")
			if _, ok := line[name]; ok {
				found = append(found, line)
			}
		}
		changed := p.changed
		p.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-changed:
		case <-ctx.Done():
			require.FailNow(p.t, "FastStream is silent", "%d of %d %q", len(found), n, name)
		}
	}
}

func (p *peer) count(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, line := range p.lines {
		if _, ok := line[name]; ok {
			n++
		}
	}
	return n
}

// do gives a command and waits for the line that answers it.
func (p *peer) do(answer string, command map[string]any) map[string]any {
	p.t.Helper()
	n := p.count(answer) + 1
	text, err := json.Marshal(command)
	require.NoError(p.t, err)
	_, err = fmt.Fprintf(p.in, "%s\n", text)
	require.NoError(p.t, err)
	return p.wait(answer, n)[n-1]
}

// FastStream's handler gets what we publish, of the kind that we say.
func TestRealFastStreamSubscribes(t *testing.T) {
	withPeers(t, "python", func(r *rig, p *peer, format Format) {
		q, ctx := r.mq(nil), r.t.Context()
		value, err := Encode(JSON{}, map[string]any{"file": "a.wav", "name": "жüñ 🎉\n\"\\\x7f"}, Message{Headers: map[string]string{"name": "ü值", "a": "b"}})
		require.NoError(r.t, err)
		messages := []Message{
			value,
			{Payload: []byte("grüße"), Headers: map[string]string{HeaderContentType: "text/plain", FastStreamCorrelationID: "c-1", HeaderUUID: "u-1"}},
			{Payload: []byte("42")},
			{Payload: []byte("no JSON")},
		}
		if format == FormatFastStream {
			messages = append(messages, Message{Payload: []byte{0xff, 0, 0xfe}})
		}
		receipts, err := r.faststream(q, format).Publish(ctx, messages...)
		require.NoError(r.t, err)
		got := p.wait("got", len(messages))
		require.Equal(r.t, map[string]any{"file": "a.wav", "name": "жüñ 🎉\n\"\\\x7f"}, got[0]["got"])
		headers := got[0]["headers"].(map[string]any)
		require.Equal(r.t, map[string]any{
			"a": "b", "name": "ü值", HeaderUUID: receipts[0].UUID, FastStreamCorrelationID: receipts[0].UUID, HeaderContentType: "application/json",
		}, headers)
		require.Equal(r.t, []any{"grüße", "str", "c-1"}, []any{got[1]["got"], got[1]["kind"], got[1]["correlation_id"]})
		require.Equal(r.t, []any{42.0, "int"}, []any{got[2]["got"], got[2]["kind"]})
		require.Equal(r.t, []any{hex.EncodeToString([]byte("no JSON")), "bytes"}, []any{got[3]["got"], got[3]["kind"]})
		if format == FormatFastStream {
			require.Equal(r.t, "ff00fe", got[4]["got"])
		}
		eventually(r.t, func() bool { return r.pendingOf(r.topic+"-tasks", "python") == 0 }, "all acknowledged")
		eventually(r.t, func() bool {
			all, err := q.Statuses(ctx, "u-1")
			require.NoError(r.t, err)
			return all["u-1"].State == StateCompleted && string(all["u-1"].Result) == `{"ok": "gr\u00fc\u00dfe"}`
		}, "the status that FastStream's handler writes")
	})
}

// A subscriber of ours gets what FastStream publishes, its group beside FastStream's own.
func TestRealFastStreamPublishes(t *testing.T) {
	withPeers(t, "python", func(r *rig, p *peer, _ Format) {
		q, seen, stream := r.mq(nil), &log{}, r.topic+"-tasks"
		publish := func(command map[string]any) {
			command["do"], command["stream"] = "publish", stream
			p.do("published", command)
		}
		publish(map[string]any{"value": map[string]any{"n": 1, "s": "жüñ 🎉"}, "correlation_id": "c-1", "headers": map[string]any{HeaderUUID: "u-1", "a": "b"}})
		publish(map[string]any{"value": "text", "correlation_id": "c-2", "headers": map[string]any{"name": "ü值", "after": "it"}})
		publish(map[string]any{"value": nil, "correlation_id": "c-3"})
		p.do("done", map[string]any{"do": "pending", "uuid": "u-9"})
		r.single(q, "c", RoleBoth, seen.handler(succeed), func(c *SubscriberConfig) { c.Status = true })
		eventually(r.t, func() bool { return len(seen.all()) == 3 && r.pendingOf(stream, "workers") == 0 }, "all run")
		all := seen.all()
		require.JSONEq(r.t, `{"n":1,"s":"жüñ 🎉"}`, string(all[0].Payload))
		require.Equal(r.t, []string{"u-1", "b", "c-1", "application/json"},
			[]string{all[0].UUID, all[0].Headers["a"], all[0].Headers[FastStreamCorrelationID], all[0].Headers[HeaderContentType]})
		require.Equal(r.t, []string{"text", "c-2", "ü值", "it", "text/plain"}, []string{
			string(all[1].Payload), all[1].Headers[FastStreamCorrelationID], all[1].Headers["name"], all[1].Headers["after"],
			all[1].Headers[HeaderContentType],
		})
		require.Empty(r.t, all[2].Payload)
		require.Len(r.t, p.wait("got", 3), 3, "FastStream's group has them too")
		states, err := q.Statuses(r.t.Context(), "u-1", "u-9")
		require.NoError(r.t, err)
		require.Equal(r.t, []State{StateCompleted, StatePending}, []State{states["u-1"].State, states["u-9"].State})
	})
}

// FastStream reads a status that we wrote.
func TestRealFastStreamReadsOurStatus(t *testing.T) {
	withPeers(t, "", func(r *rig, p *peer, format Format) {
		q, seen := r.mq(nil), &log{}
		receipts, err := r.faststream(q, format).Publish(r.t.Context(), Message{Payload: []byte("x")})
		require.NoError(r.t, err)
		require.Equal(r.t, "pending", p.do("status", map[string]any{"do": "status", "uuid": receipts[0].UUID})["status"])
		r.single(q, "c", RoleBoth, seen.handler(succeed), func(c *SubscriberConfig) { c.Status = true })
		eventually(r.t, func() bool { return len(seen.all()) == 1 && r.pendingOf(r.topic+"-tasks", "workers") == 0 }, "done")
		require.Equal(r.t, "completed", p.do("status", map[string]any{"do": "status", "uuid": receipts[0].UUID})["status"])
	})
}

func TestRealFastStreamAsksAndAnswers(t *testing.T) {
	withPeers(t, "python", func(r *rig, p *peer, format Format) {
		q, stream := r.mq(nil), r.topic+"-tasks"
		// It asks: a stream of its own, where only we answer.
		questions := stream + "-ours"
		r.single(q, "c", RoleBoth, Respond(JSON{}, func(_ context.Context, n int, d *Delivery) (map[string]int, error) {
			return map[string]int{"twice": 2 * n}, nil
		}), func(c *SubscriberConfig) { c.StreamKey, c.Format = questions, format })
		answer := p.do("response", map[string]any{"do": "request", "stream": questions, "value": 21, "timeout": waitLimit.Seconds(), "correlation_id": "q-1"})
		require.Equal(r.t, map[string]any{"twice": 42.0}, answer["response"])
		require.Equal(r.t, map[string]any{FastStreamCorrelationID: "q-1", HeaderContentType: "application/json"}, answer["headers"])
		// We ask.
		client := r.requester(q, func(c *RequesterConfig) { c.Format = format })
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		var asking sync.WaitGroup
		for i := range 20 {
			asking.Go(func() {
				got, err := RequestAs[string, map[string]string](ctx, client, JSON{}, stream, strconv.Itoa(i), Message{})
				if err != nil || got["ok"] != strconv.Itoa(i) {
					r.t.Errorf("request %d: %v, %v", i, got, err)
				}
			})
		}
		asking.Wait()
	})
}

// One group with members of both: each message is run by one of them, and what FastStream's handler failed is taken over.
func TestRealFastStreamSharesAGroup(t *testing.T) {
	withPeers(t, "workers", func(r *rig, p *peer, format Format) {
		q, seen, stream := r.mq(nil), &log{}, r.topic+"-tasks"
		p.do("done", map[string]any{"do": "fail", "value": 3})
		_, err := r.faststream(q, format).Publish(r.t.Context(), Message{Payload: []byte("f0")}, Message{Payload: []byte("f1")}, Message{Payload: []byte("f2")})
		require.NoError(r.t, err)
		p.wait("got", 3)
		require.Equal(r.t, 3, r.pendingOf(stream, "workers"), "FastStream leaves what failed pending")
		r.single(q, "c", RoleBoth, seen.handler(succeed), func(c *SubscriberConfig) { c.Status = true })
		eventually(r.t, func() bool { return r.pendingOf(stream, "workers") == 0 }, "it was claimed")
		require.ElementsMatch(r.t, []string{"f0", "f1", "f2"}, seen.payloads())
		for _, d := range seen.all() {
			states, err := q.Statuses(r.t.Context(), d.UUID)
			require.NoError(r.t, err)
			require.Equal(r.t, StateCompleted, states[d.UUID].State, "failed there, completed here")
		}
		var messages []Message
		for i := range 200 {
			messages = append(messages, Message{Payload: []byte("m" + strconv.Itoa(i)), Headers: map[string]string{HeaderContentType: "text/plain"}})
		}
		_, err = r.faststream(q, format).Publish(r.t.Context(), messages...)
		require.NoError(r.t, err)
		eventually(r.t, func() bool {
			ran := map[string]bool{}
			for _, d := range seen.all() {
				ran[string(d.Payload)] = true
			}
			for _, line := range p.wait("got", 1) {
				if s, _ := line["got"].(string); strings.HasPrefix(s, "m") {
					ran[s] = true
				}
			}
			return len(ran) == 203 && r.pendingOf(stream, "workers") == 0
		}, "each has run")
	})
}
