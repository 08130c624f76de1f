package work

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	sseWatchers = 1000
	// A watcher leaves and comes back after a time between these.
	sseStayLeast, sseStayMost = 500 * time.Millisecond, 6 * time.Second
	ssePause                  = 200 * time.Millisecond // before it comes back
	sseRestart                = 12 * time.Second       // between two ends of the gateway
	sseEnd                    = 60 * time.Second       // for the last watched tasks
	sseRecent                 = 60                     // tasks to choose from
	// sseSlack is what goroutines and descriptors may differ by for the load's own requests.
	sseSlack = 12
)

// viewing is all that one watcher was shown of one task, over all its comings and goings.
type viewing struct {
	Task    string
	events  []apiclient.Event
	resumed int
	err     error
}

// audience is the watchers and what they saw.
type audience struct {
	c    *stage.Cluster
	stop context.Context // no new task is watched after its end

	mu     sync.Mutex
	recent []string
	seen   []viewing
}

// SSE lets 1,000 clients follow tasks, leave and resume while the gateway is stopped, killed and started again.
func SSE(ctx context.Context, s *stage.Stage) (string, error) {
	a := &audience{}
	var restarts int
	return stage.Storm{
		Opts: world.Options{Env: []string{
			"INGEST_REDIS_MAX_ATTEMPTS=50", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=300", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=600",
		}},
		Embedder: []embedtest.Fault{{Kind: embedtest.Refuse, Match: everyOther()}, {Kind: embedtest.Delay, For: stage.EmbedTime}},
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			a.c = c
			base, err := held(ctx, c)
			if err != nil {
				return err
			}
			stop, cancel := context.WithTimeout(ctx, s.Load)
			defer cancel()
			a.stop = stop
			var wg sync.WaitGroup
			wg.Go(a.choose)
			for range sseWatchers {
				random := rand.New(rand.NewPCG(s.Random.Uint64(), s.Random.Uint64())) //nolint:gosec // moments of a drill, no secret
				wg.Go(func() { a.watchAll(ctx, random) })
			}
			for await.Pause(stop, sseRestart) {
				if err = restartGateway(ctx, c, restarts%2 == 0); err != nil {
					break
				}
				restarts++
			}
			wg.Wait()
			return errors.Join(err, released(ctx, c, base))
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			return a.Judge(ctx, c, restarts)
		},
	}.Run(ctx, s)
}

// everyOther hits every second request of tasks; searches are left alone.
func everyOther() func(embedtest.Effect) bool {
	var mu sync.Mutex
	n := 0
	return func(e embedtest.Effect) bool {
		mu.Lock()
		defer mu.Unlock()
		n++
		return e.Task != "" && n%2 == 0
	}
}

// restartGateway ends the gateway, in order or not, and starts another one on its address.
func restartGateway(ctx context.Context, c *stage.Cluster, order bool) error {
	old := c.Of("ingest-api")[0]
	c.Drop(old)
	if order {
		if err := errors.Join(old.Signal(syscall.SIGTERM), ended(ctx, old, stage.StopLimit)); err != nil {
			return err
		}
	} else {
		old.Kill()
	}
	_, err := c.Add("ingest-api")
	return err
}

// choose keeps the youngest tasks under way at hand.
func (a *audience) choose() {
	for await.Pause(a.stop, ssePause) {
		rows, err := a.c.Client.List(a.stop, fmt.Sprintf("/api/knowledge/tasks?status=QUEUED,RUNNING,RETRYING&sort=-createdAt&limit=%d", sseRecent))
		var ids []string
		for _, row := range rows {
			var t apiclient.Task
			if json.Unmarshal(row, &t) == nil {
				ids = append(ids, t.TaskID)
			}
		}
		if err != nil || len(ids) == 0 {
			continue // the gateway is away, or nothing was uploaded yet
		}
		a.mu.Lock()
		a.recent = ids
		a.mu.Unlock()
	}
}

// watchAll follows one task after the other to its end.
func (a *audience) watchAll(ctx context.Context, random *rand.Rand) {
	for await.Pause(a.stop, time.Duration(random.Int64N(int64(ssePause)))) {
		a.mu.Lock()
		task := ""
		if len(a.recent) > 0 {
			task = a.recent[random.IntN(len(a.recent))]
		}
		a.mu.Unlock()
		if task == "" {
			continue
		}
		v := a.watch(ctx, task, random)
		a.mu.Lock()
		a.seen = append(a.seen, v)
		a.mu.Unlock()
	}
}

// stays is for a request whose client leaves so long after the stream has begun: a client that left a busy gateway before that, again and again,
// would never see anything.
func stays(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, leave := context.WithCancel(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { time.AfterFunc(d, leave) }}), leave
}

// watch follows a task to its end, leaving and coming back.
func (a *audience) watch(ctx context.Context, task string, random *rand.Rand) viewing {
	v := viewing{Task: task}
	ctx, cancel := context.WithTimeoutCause(ctx, sseEnd, fmt.Errorf("%w: task %s did not end for a watcher", await.ErrTimeout, task))
	defer cancel()
	for ; ; v.resumed++ {
		var last apiclient.Event
		if len(v.events) > 0 {
			last = v.events[len(v.events)-1]
		}
		stay, leave := stays(ctx, sseStayLeast+time.Duration(random.Int64N(int64(sseStayMost-sseStayLeast))))
		over, _ := a.c.Client.Watch(stay, task, last.ID, func(e apiclient.Event) bool { // a broken stream is resumed
			v.events = append(v.events, e)
			return true
		})
		leave()
		if over || len(v.events) > 0 && v.events[len(v.events)-1].Status.Terminal() {
			return v
		}
		if !await.Pause(ctx, time.Duration(random.Int64N(int64(ssePause)))) {
			v.err = context.Cause(ctx)
			return v
		}
	}
}

// Judge compares what each watcher saw with the log (I35).
func (a *audience) Judge(ctx context.Context, c *stage.Cluster, restarts int) (string, error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return "", err
	}
	events, resumed := 0, 0
	for _, v := range a.seen {
		if err := v.Judge(logs[v.Task]); err != nil {
			return "", err
		}
		events += len(v.events)
		resumed += v.resumed
	}
	if len(a.seen) < sseWatchers || events-len(a.seen) < sseWatchers || resumed < sseWatchers || restarts == 0 { // a change and a resumption for each
		return "", fmt.Errorf("%d tasks were watched to their end with %d events, %d resumptions and %d restarts of the gateway: that proves little",
			len(a.seen), events, resumed, restarts)
	}
	return fmt.Sprintf("%d clients saw %d tasks to their end: %d events, %d resumptions, %d restarts of the gateway, nothing missed or changed",
		sseWatchers, len(a.seen), events, resumed, restarts), nil
}

// Judge: from its first event on a watcher sees every transition in order, what comes twice says the same, and the last is the end.
func (v viewing) Judge(log []taskstate.Transition) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("I35: a watcher of task %s "+format+"\n  it saw %s\n  log:\n%s", append(append([]any{v.Task}, args...), v.words(), history.Words(log))...)
	}
	if v.err != nil {
		return fail("did not see its end: %w", v.err)
	}
	at := -1
	for i, e := range v.events {
		if i > 0 && e.ID == v.events[i-1].ID {
			if !e.SameAs(v.events[i-1]) {
				return fail("saw event %d twice with different content", e.ID)
			}
			continue
		}
		if at++; i == 0 {
			for at = 0; at < len(log) && log[at].ID != e.ID; {
				at++
			}
		}
		if at >= len(log) || log[at].ID != e.ID {
			return fail("saw event %d, which does not come next in the log", e.ID)
		}
		if tr := log[at]; tr.To != e.Status || tr.AttemptCount != e.AttemptCount || tr.CrashCount != e.CrashCount {
			return fail("saw event %d as %s attempt %d crashes %d", e.ID, e.Status, e.AttemptCount, e.CrashCount)
		}
	}
	if len(v.events) == 0 || !v.events[len(v.events)-1].Status.Terminal() {
		return fail("did not see its end")
	}
	return nil
}

// words are the events in short.
func (v viewing) words() string {
	var words []string
	for _, e := range v.events {
		words = append(words, fmt.Sprintf("%d %s/%d", e.ID, e.Status, e.AttemptCount))
	}
	return strings.Join(words, ", ")
}

// burden is what the gateway holds.
type burden struct{ goroutines, descriptors int }

// held reads it from the gateway's metrics.
func held(ctx context.Context, c *stage.Cluster) (b burden, err error) {
	p := c.Of("ingest-api")[0]
	_, body, err := apiclient.NewClient(p.Operator).Get(ctx, "/metrics")
	if err != nil {
		return b, err
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		number, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_goroutines":
			b.goroutines = int(number)
		case "process_open_fds":
			b.descriptors = int(number)
		}
	}
	if b.goroutines == 0 || b.descriptors == 0 {
		return b, fmt.Errorf("%s tells neither goroutines nor descriptors", p.Name)
	}
	return b, nil
}

// released: with the watchers gone the gateway holds what it held before they came.
func released(ctx context.Context, c *stage.Cluster, base burden) error {
	return await.Until(ctx, stage.LiveLimit, ssePause, func(ctx context.Context) error {
		now, err := held(ctx, c)
		if err == nil && (now.goroutines > base.goroutines+sseSlack || now.descriptors > base.descriptors+sseSlack) {
			err = fmt.Errorf("the gateway held %+v before the watchers and holds %+v after them", base, now)
		}
		return err
	})
}
