package streammq

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
)

// busy is a partition with more than enough to do, and a handler that calls at when it comes to message n the first time,
// once the batch after its own has been read ahead.
func busy(r *rig, q *MQ, seen *log, n int, at func()) Handler {
	r.topicOf(q, 1)
	var pairs []string
	for i := range 60 {
		pairs = append(pairs, "k", strconv.Itoa(i))
	}
	r.publish(q, pairs...)
	return seen.handler(func(d *Delivery) Result {
		if string(d.Payload) == strconv.Itoa(n) && d.Deliveries == 1 {
			eventually(r.t, func() bool { return r.given(0, "g") >= n+2*busyBatch }, "read ahead")
			at()
		}
		return Success()
	})
}

const busyBatch = 3

// instant has a clock that stands still: each batch is a quick one, after which is read ahead, however busy the machine is.
func instant(c *Config) {
	now := time.Now()
	c.Now = func() time.Time { return now }
}

// given is how many entries of a partition a group was given.
func (r *rig) given(partition int, group string) int {
	r.t.Helper()
	m := r.do("XINFO", "GROUPS", r.source(partition).Stream())
	groups, err := m.ToArray()
	require.NoError(r.t, err)
	for i := range groups {
		info, err := groups[i].AsMap()
		require.NoError(r.t, err)
		name := info["name"]
		read := info["entries-read"]
		if text, err := name.ToString(); err == nil && text == group {
			n, err := read.AsInt64()
			require.NoError(r.t, err)
			return int(n)
		}
	}
	return 0
}

// What was read ahead under a lease that is lost is run again, in its order, by who has the next one.
func TestReadAheadIsTakenOverInOrder(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(instant), &log{}
		handler := busy(r, q, seen, 30, func() { r.do("SET", r.source(0).Epoch("g"), "1") })
		r.subscribe(q, handler, func(c *SubscriberConfig) { c.Batch = busyBatch })
		eventually(r.t, func() bool { return distinct(seen.all()) == 60 && r.pending(0, "g") == 0 }, "all")
		checkOrder(r.t, seen.all())
		var last int64
		for _, d := range seen.all() {
			if string(d.Payload) == "34" {
				last = d.Deliveries
			}
		}
		require.EqualValues(r.t, 2, last, "read ahead, and not settled under the old lease")
	})
}

// A stop does not run what was read ahead.
func TestStopLeavesWhatWasReadAhead(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(instant), &log{}
		stop := make(chan context.CancelFunc, 1)
		var first *running
		handler := busy(r, q, seen, 30, func() {
			(<-stop)()
			eventually(r.t, func() bool { return consume.Owned(first.Subscriber)[0].Stopped() }, "it knows")
		})
		first = r.subscribe(q, handler, func(c *SubscriberConfig) { c.Batch = busyBatch })
		stop <- first.cancel
		eventually(r.t, func() bool { return len(seen.all()) == 31 && consume.Owned(first.Subscriber)[0] == nil }, "stopped")
		first.end()
		require.Len(r.t, seen.all(), 31)
		require.Zero(r.t, r.number("EXISTS", r.source(0).Lease("g")), "no lease to wait for")
		r.subscribe(q, seen.handler(succeed), nil)
		eventually(r.t, func() bool { return len(seen.all()) == 60 && r.pending(0, "g") == 0 }, "the rest")
		checkOrder(r.t, seen.all())
	})
}

// A full batch costs a transaction and a script, each of a handful of commands.
func TestCommandsOfABatch(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q := r.mq(nil)
	r.topicOf(q, 1)
	const batch, total = 256, 40 * 256
	var handled atomic.Int64
	messages := make([]Message, batch)
	for range total / batch {
		_, err := q.NewProducer(nil).PublishBatch(t.Context(), r.topic, messages)
		require.NoError(t, err)
	}
	before := r.calls()
	cfg := NewDefaultSubscriberConfig(r.topic, "g", func(context.Context, *Delivery) Result {
		handled.Add(1)
		return Success()
	})
	cfg.Batch = batch
	r.run(q, cfg)
	eventually(t, func() bool { return handled.Load() == total && r.pending(0, "g") == 0 }, "all")
	after := r.calls()
	sent := 0
	for _, name := range []string{"evalsha", "eval", "xread", "watch", "multi", "exec"} {
		sent += after[name] - before[name]
	}
	require.LessOrEqual(t, float64(sent)/total, 0.05, "scripts, transactions and waits for a message")
	require.LessOrEqual(t, float64(after["xreadgroup"])/total, 0.01, "reads for a message")
}

// calls is how often the server ran each command, those of scripts counted.
func (r *rig) calls() map[string]int {
	r.t.Helper()
	calls := map[string]int{}
	for line := range strings.Lines(r.text("INFO", "commandstats")) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":calls=")
		number, _, _ := strings.Cut(rest, ",")
		if n, err := strconv.Atoi(number); err == nil {
			calls[name] = n
		}
	}
	return calls
}
