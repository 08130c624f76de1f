package streammq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/consume"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/retry"
)

// A move is what one process does in several commands. It is killed at each of them, once before the command and once
// after it was executed; then another process goes on, and nothing may be lost, and nothing done more often than a crash
// excuses.
type move struct {
	// prepare runs before, undisturbed.
	prepare func(c *crash)
	// play is the move of the process that is killed. Its error counts only when it was not.
	play func(c *crash, q *MQ) error
	// check tells what is wrong after another process has finished; "" nothing.
	check func(c *crash) string
	// least is the number of commands that the move has at least: less would cut nothing.
	least int
}

// crash is one run of a move.
type crash struct {
	*rig
	direct *MQ // of the process that goes on
	uuids  []string
	runs   map[string]int // of handlers that returned, by uuid
	result func(d *Delivery) Result
	killed bool
}

const crashMessages = 3

func (c *crash) messages(size int) []Message {
	list := make([]Message, crashMessages)
	for i := range list {
		list[i] = Message{Key: "k", Payload: []byte(strings.Repeat("x", size)), Headers: map[string]string{HeaderUUID: c.uuids[i]}}
	}
	return list
}

func (c *crash) publish(q *MQ, size int) error {
	_, err := q.NewProducer(nil).PublishBatch(context.Background(), c.topic, c.messages(size))
	return err
}

// work is a member's life in short: it takes the partition, runs all that there is, and leaves.
func (c *crash) work(q *MQ, mode RetryMode) error {
	ctx := context.Background()
	cfg := NewDefaultSubscriberConfig(c.topic, "g", func(_ context.Context, d *Delivery) Result {
		result := c.result(d)
		c.runs[d.UUID]++
		return result
	})
	cfg.RetryMode = mode
	s, err := q.NewSubscriber(cfg)
	if err != nil {
		return err
	}
	if _, err := consume.GrowGroups(s, ctx); err != nil {
		return err
	}
	src := c.source(0)
	epoch, err := q.core.Run(ctx, q.core.Scripts.LeaseTake, []string{src.Lease("g"), src.Epoch("g")}, s.Name(), "60000").ToString()
	if err != nil {
		return err
	}
	w := consume.NewWorker(s, src, s.Name(), epoch)
	w.Ended = func(context.Context) {}
	if err := c.pass(w); err != nil {
		return err
	}
	consume.Release(s, ctx, w)
	return nil
}

// pass runs what is pending, then what is new and due, until nothing is left.
func (c *crash) pass(w *consume.Worker) error {
	ctx := context.Background()
	for after := ""; ; {
		got, err := w.Recover(ctx, 10, after)
		if err == nil {
			err = w.Handle(ctx, got, false)
		}
		if err != nil {
			return err
		}
		if after = got.Last; after == "" {
			break
		}
	}
	for idle := 0; idle < 2; {
		n, _, err := retry.MoveDue(w.Mq, ctx, w.Src, 10)
		if err != nil {
			return err
		}
		got, err := w.Fetch(ctx, 10)
		if err == nil {
			err = w.Handle(ctx, got, false)
		}
		if err != nil {
			return err
		}
		if n+len(got.Entries) == 0 {
			idle++
		} else {
			idle = 0
		}
	}
	return nil
}

// settled is what always holds at the end: nothing is pending, put off, or unread, and each message was handled.
func (c *crash) settled(most int) string {
	src := c.source(0)
	if n := c.pending(0, "g"); n != 0 {
		return fmt.Sprintf("%d entries are pending", n)
	}
	for _, key := range []string{src.Retry(), src.Due("g"), src.Attempts("g")} {
		if c.number("EXISTS", key) != 0 {
			return key + " is left"
		}
	}
	for _, uuid := range c.uuids {
		if n := c.runs[uuid]; n < 1 || n > most {
			return fmt.Sprintf("message %s ran %d times, at most %d", uuid, n, most)
		}
	}
	return ""
}

func (c *crash) states(want State) string {
	list, err := c.direct.Statuses(context.Background(), c.uuids...)
	require.NoError(c.t, err)
	for _, uuid := range c.uuids {
		if list[uuid].State != want {
			return fmt.Sprintf("message %s is %q, not %q", uuid, list[uuid].State, want)
		}
	}
	return ""
}

func (c *crash) letters() []Letter {
	list, err := c.direct.Letters(c.topic).List(context.Background(), LetterQuery{Partition: -1})
	require.NoError(c.t, err)
	return list
}

// bodies tells of payloads that are left beside the stream when all groups have gone on by at least a millisecond.
func (c *crash) bodies(uuids []string) string {
	for last := c.entries(c.source(0).Stream()); ; {
		receipt, err := c.direct.NewProducer(nil).Publish(context.Background(), c.topic, Message{})
		require.NoError(c.t, err)
		if strings.SplitN(receipt.ID, "-", 2)[0] > strings.SplitN(last[len(last)-1].ID, "-", 2)[0] {
			break
		}
	}
	require.NoError(c.t, c.work(c.direct, RetryRepublish))
	_, err := c.direct.Trim(context.Background(), c.topic, Retention{MaxLen: 1})
	require.NoError(c.t, err)
	for _, uuid := range uuids {
		if c.number("EXISTS", c.source(0).Body(uuid)) != 0 {
			return "a payload is left"
		}
	}
	return ""
}

// extra is how many more runs than one a crash excuses.
func (c *crash) extra() int {
	if c.killed {
		return 1
	}
	return 0
}

// repeated is a publish as callers do it: again with the same uuids when the answer is lost.
func repeated(size int) func(c *crash, q *MQ) error {
	return func(c *crash, q *MQ) error { return c.publish(q, size) }
}

func published(size int) func(c *crash) {
	return func(c *crash) { require.NoError(c.t, c.publish(c.direct, size)) }
}

func worked(mode RetryMode) func(c *crash, q *MQ) error {
	return func(c *crash, q *MQ) error { return c.work(q, mode) }
}

// failsOnce is a handler's result: the first attempt of each message fails and is due at once.
func failsOnce(d *Delivery) Result {
	if d.Attempt == 1 {
		return RetryAfter(0, errBoom)
	}
	return Success()
}

func moves() map[string]move {
	return map[string]move{
		"publish": {
			play: repeated(10), least: 2 * crashMessages,
			check: func(c *crash) string {
				if c.killed {
					require.NoError(c.t, c.publish(c.direct, 10))
				}
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				return firstWrong(c.settled(1), c.states(StateCompleted))
			},
		},
		"publish beside": {
			play: repeated(DefaultInlineMax + 1), least: 2 * crashMessages,
			check: func(c *crash) string {
				if c.killed {
					require.NoError(c.t, c.publish(c.direct, DefaultInlineMax+1))
				}
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				return firstWrong(c.settled(1), c.states(StateCompleted), c.bodies(c.uuids))
			},
		},
		"take, handle, acknowledge, release": {
			prepare: published(10), play: worked(RetryRepublish), least: 8,
			check: func(c *crash) string {
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				return firstWrong(c.settled(1+c.extra()), c.states(StateCompleted))
			},
		},
		"retry in place": {
			prepare: func(c *crash) { c.result = failsOnce; published(10)(c) }, play: worked(RetryInPlace), least: 10,
			check: func(c *crash) string {
				require.NoError(c.t, c.work(c.direct, RetryInPlace))
				return firstWrong(c.settled(2+c.extra()), c.states(StateCompleted))
			},
		},
		"republish and return": {
			prepare: func(c *crash) { c.result = failsOnce; published(10)(c) }, play: worked(RetryRepublish), least: 12,
			check: func(c *crash) string {
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				wrong := ""
				if n := c.number("XLEN", c.source(0).Stream()); n != 2*crashMessages {
					wrong = fmt.Sprintf("%d entries: each retry is added once", n)
				}
				return firstWrong(c.settled(2+c.extra()), c.states(StateCompleted), wrong)
			},
		},
		"dead letter": {
			prepare: func(c *crash) {
				c.result = func(*Delivery) Result { return Fail(errBoom) }
				published(10)(c)
			},
			play: worked(RetryRepublish), least: 8,
			check: func(c *crash) string {
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				wrong := ""
				if n := len(c.letters()); n != crashMessages {
					wrong = fmt.Sprintf("%d letters of %d messages", n, crashMessages)
				}
				return firstWrong(c.settled(1+c.extra()), c.states(StateFailed), wrong)
			},
		},
		"replay": {
			prepare: func(c *crash) {
				c.result = func(d *Delivery) Result {
					if c.runs[d.UUID] == 0 {
						return Fail(errBoom)
					}
					return Success()
				}
				published(10)(c)
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
			},
			play: func(c *crash, q *MQ) error {
				_, err := q.Letters(c.topic).ReplayAll(context.Background(), LetterQuery{Partition: -1}, 0, false)
				return err
			},
			least: 4,
			check: func(c *crash) string {
				_, err := c.direct.Letters(c.topic).ReplayAll(context.Background(), LetterQuery{Partition: -1}, 0, false)
				require.NoError(c.t, err)
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				wrong := ""
				if n := c.number("XLEN", c.source(0).Stream()); n != 2*crashMessages {
					wrong = fmt.Sprintf("%d entries: each letter is replayed once", n)
				}
				return firstWrong(c.settled(2), c.states(StateCompleted), wrong)
			},
		},
		"trim": {
			prepare: func(c *crash) {
				published(DefaultInlineMax + 1)(c)
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				c.uuids = append(c.uuids, model.NewUUID(time.Now())) // one that no group has finished
				_, err := c.direct.NewProducer(nil).Publish(context.Background(), c.topic, Message{
					Payload: make([]byte, DefaultInlineMax+1), Headers: map[string]string{HeaderUUID: c.uuids[crashMessages]},
				})
				require.NoError(c.t, err)
			},
			play: func(c *crash, q *MQ) error {
				_, err := q.Trim(context.Background(), c.topic, Retention{MaxLen: 1})
				return err
			},
			least: 4,
			check: func(c *crash) string {
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				if len(c.letters()) > 0 {
					return "a payload that was needed is gone"
				}
				return firstWrong(c.settled(1), c.bodies(c.uuids))
			},
		},
		"janitor": {
			prepare: func(c *crash) {
				published(10)(c)
				stream := c.source(0).Stream()
				c.do("XGROUP", "CREATE", stream, "g", "0")
				c.do("XREADGROUP", "GROUP", "g", "dead", "STREAMS", stream, ">")
			},
			play: func(c *crash, q *MQ) error {
				_, _, err := consume.RemoveConsumer(q.core, context.Background(), c.source(0), "g", "dead", "heir", JanitorConfig{MaxPending: 10})
				return err
			},
			least: 1,
			check: func(c *crash) string {
				require.NoError(c.t, c.work(c.direct, RetryRepublish))
				return firstWrong(c.settled(1), c.states(StateCompleted))
			},
		},
	}
}

func firstWrong(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

// at plays a move with a cut at the n-th command; it returns what is wrong, and whether the move got so far.
func (m move) at(t testing.TB, home home, n int, executed bool) (wrong string, reached bool, names []string) {
	t.Helper()
	r := newRigIn(t, home)
	c := &crash{rig: r, direct: r.mq(nil), runs: map[string]int{}, result: succeed}
	for range crashMessages {
		c.uuids = append(c.uuids, model.NewUUID(time.Now()))
	}
	_, err := c.direct.CreateTopic(t.Context(), Topic{Name: r.topic, Partitions: 1, Status: true})
	require.NoError(t, err)
	if m.prepare != nil {
		m.prepare(c)
	}
	cut := newCutter(t, r.home.addrs, n, executed)
	doomed, err := New(cut.client(t, r.home.db), c.direct.core.Cfg)
	require.NoError(t, err)
	_, err = doomed.Partitions(t.Context(), r.topic)
	if err == nil {
		err = m.play(c, doomed)
	}
	c.killed = cut.reached()
	if !c.killed {
		require.NoError(t, err)
	}
	c.do("DEL", c.source(0).Lease("g")) // as if it had expired
	return m.check(c), c.killed, cut.names()
}

// The process dies at each command of each move.
func TestCrashPoints(t *testing.T) {
	t.Parallel()
	for _, home := range homes {
		home.addrs, home.db = home.open(t) // topics of their own are enough
		for name, m := range moves() {
			t.Run(home.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				for _, executed := range []bool{false, true} {
					for n, reached := 0, true; reached; n++ {
						var wrong string
						var names []string
						wrong, reached, names = m.at(t, home, n, executed)
						require.Empty(t, wrong, "killed after %v, the last one executed: %t", names, executed)
						require.True(t, reached || n >= m.least, "the move has %d commands only: %v", n, names)
					}
				}
			})
		}
	}
}

// A status that is written after the script that settles would be lost with a process that dies between: the crash points
// must find that.
func TestCrashPointsFindAStatusAfterTheSettling(t *testing.T) {
	t.Parallel()
	m := moves()["take, handle, acknowledge, release"]
	m.play = func(c *crash, q *MQ) error { return c.settleFirst(q) }
	home := homes[0]
	home.addrs, home.db = home.open(t)
	var found []string
	for n, reached := 0, true; reached; n++ {
		var wrong string
		wrong, reached, _ = m.at(t, home, n, false)
		if wrong != "" {
			found = append(found, wrong)
		}
	}
	require.NotEmpty(t, found)
	require.Contains(t, found[0], string(StateProcessing))
}

// settleFirst is a worker that breaks the rule.
func (c *crash) settleFirst(q *MQ) error {
	ctx := context.Background()
	src := c.source(0)
	epoch, err := q.core.Run(ctx, q.core.Scripts.LeaseTake, []string{src.Lease("g"), src.Epoch("g")}, "a", "60000").ToString()
	if err != nil {
		return err
	}
	s, err := q.NewSubscriber(NewDefaultSubscriberConfig(c.topic, "g", (&log{}).handler(succeed)))
	if err == nil {
		_, err = consume.GrowGroups(s, ctx)
	}
	if err != nil {
		return err
	}
	a := &fence.Reader{Mq: q.core, Src: src, Group: "g", Consumer: "a", Epoch: epoch}
	got, err := a.Fetch(ctx, 10)
	if err != nil {
		return err
	}
	parcels, err := a.Unpack(ctx, got.Entries)
	if err != nil {
		return err
	}
	for i := range parcels {
		p := &parcels[i]
		_, processing := a.WriteStatus(ctx, p, StateProcessing, nil)
		c.runs[p.Entry.Headers[HeaderUUID]]++
		_, acked := a.Ack(ctx, []fence.Held{of(p.Raw)})
		_, completed := a.WriteStatus(ctx, p, StateCompleted, nil)
		if err := errors.Join(processing, acked, completed); err != nil {
			return err
		}
	}
	return nil
}
