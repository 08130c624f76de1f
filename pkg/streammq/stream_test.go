package streammq

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
)

// single runs a hasty subscriber on the rig's single stream.
func (r *rig) single(q *MQ, consumer string, role Role, handler Handler, change func(*SubscriberConfig)) *running {
	r.t.Helper()
	cfg := NewDefaultStreamConfig(r.topic+"-tasks", "workers", consumer, handler)
	hasty(&cfg)
	cfg.Role, cfg.ClaimIdle = role, hastyIdle
	if change != nil {
		change(&cfg)
	}
	return r.run(q, cfg)
}

// touchedIdle is long enough that who is to reset the idle time within it does so, although it stood still for a while.
const touchedIdle = 6 * hastyIdle

func touched(c *SubscriberConfig) { c.ClaimIdle = touchedIdle }

func (r *rig) addSingle(payloads ...string) {
	r.t.Helper()
	for _, p := range payloads {
		r.do("XADD", r.topic+"-tasks", "*", "payload", p)
	}
}

func TestSingleStreamIsSharedByAllItsSubscribers(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		for i := range 100 {
			r.addSingle(strconv.Itoa(i))
		}
		for _, name := range []string{"a", "b", "c"} {
			r.single(q, name, RoleMain, seen.handler(succeed), nil)
		}
		eventually(r.t, func() bool { return len(seen.all()) == 100 && r.pendingOf(r.topic+"-tasks", "workers") == 0 }, "each once")
		require.Len(r.t, seen.all(), 100)
		require.Zero(r.t, r.number("EXISTS", core.MetaKey(r.topic+"-tasks")), "no registry")
		require.Empty(r.t, seen.all()[0].Epoch, "no lease")
	})
}

// A dead consumer's entries are taken when its heartbeat is over, long before the idle time.
func TestEntriesOfADeadConsumerAreClaimed(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.addSingle("0", "1")
		src := core.Source{Layout: r.layout, Topic: r.topic + "-tasks", Single: true}
		r.do("XGROUP", "CREATE", src.Stream(), "workers", "0")
		dead := &fence.Reader{Mq: q.core, Src: src, Group: "workers", Consumer: "dead"}
		r.next(dead)
		r.do("HSET", src.Members("workers"), "dead", strconv.FormatInt(time.Now().Add(300*time.Millisecond).UnixMilli(), 10)+"|0")
		r.single(q, "live", RoleClaim, seen.handler(succeed), func(c *SubscriberConfig) { c.ClaimIdle = time.Hour })
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.pendingOf(src.Stream(), "workers") == 0 }, "claimed")
		require.EqualValues(r.t, 2, seen.all()[0].Deliveries)
	})
}

// Somebody who is no member of ours has no heartbeat: only its idle time tells.
func TestEntriesOfASilentConsumerAreClaimed(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.addSingle("0")
	r.do("XGROUP", "CREATE", r.topic+"-tasks", "workers", "0")
	began := time.Now()
	r.do("XREADGROUP", "GROUP", "workers", "foreign", "STREAMS", r.topic+"-tasks", ">")
	r.single(q, "live", RoleBoth, seen.handler(succeed), nil)
	eventually(t, func() bool { return len(seen.all()) == 1 }, "claimed")
	require.GreaterOrEqual(t, time.Since(began), hastyIdle-50*time.Millisecond)
}

// A long handler, and what waits behind it in its batch, is not robbed.
func TestRunningEntriesAreNotClaimed(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		r.addSingle("0", "1")
		goOn := make(chan struct{})
		var once sync.Once
		r.single(q, "slow", RoleMain, func(_ context.Context, d *Delivery) Result {
			seen.add(d)
			once.Do(func() { <-goOn })
			return Success()
		}, touched)
		eventually(r.t, func() bool { return len(seen.all()) == 1 }, "it runs")
		r.single(q, "eager", RoleClaim, seen.handler(succeed), touched)
		require.Never(r.t, func() bool { return len(seen.all()) > 1 }, touchedIdle+time.Second, 20*time.Millisecond, "longer than the idle time")
		close(goOn)
		eventually(r.t, func() bool { return len(seen.all()) == 2 && r.pendingOf(r.topic+"-tasks", "workers") == 0 }, "both")
		require.Zero(r.t, r.seen.count(EventRefused))
	})
}

// A consumer that was restarted is given what it had once, also while its handler only promises to settle it.
func TestRestartedConsumerTakesUpItsOwnOnce(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		for _, consumer := range []string{"me", "me" + core.ClaimSuffix} {
			one := r.another()
			q := one.mq(nil)
			one.addSingle("0", "1", "2")
			one.do("XGROUP", "CREATE", one.topic+"-tasks", "workers", "0")
			one.do("XREADGROUP", "GROUP", "workers", consumer, "STREAMS", one.topic+"-tasks", ">")
			out := make(chan *Delivery, 10)
			one.single(q, "me", RoleBoth, promising(out), func(c *SubscriberConfig) { c.ClaimIdle, c.ClaimBatch = time.Hour, 2 })
			for _, payload := range []string{"0", "1", "2"} {
				d := <-out
				require.Equal(r.t, payload, string(d.Payload))
				require.EqualValues(r.t, 2, d.Deliveries)
				defer func() { require.NoError(r.t, d.Ack(context.Background())) }()
			}
			require.Never(r.t, func() bool { return len(out) > 0 }, 200*time.Millisecond, 20*time.Millisecond)
		}
	})
}

// Retries that are due come first; they do not hide what else a restarted consumer had.
func TestRestartedConsumerTakesUpItsOwnBehindDueRetries(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q, seen := r.mq(nil), &log{}
		foreign, _, theirs := r.others(q, "0", "1", "2", "3")
		for i := range 2 {
			done, err := foreign.RetryInPlace(r.t.Context(), of(theirs[i]), 1, 0)
			require.NoError(r.t, err)
			require.True(r.t, done)
		}
		r.single(q, foreign.Consumer, RoleMain, seen.handler(succeed), func(c *SubscriberConfig) { c.ClaimIdle, c.ClaimBatch = time.Hour, 2 })
		eventually(r.t, func() bool { return len(seen.all()) == 4 }, "all four")
	})
}

// A consumer that was restarted under its name begins with what it had.
func TestRestartedConsumerTakesUpItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, LayoutSingle)
	q, seen := r.mq(nil), &log{}
	r.addSingle("0", "1")
	r.do("XGROUP", "CREATE", r.topic+"-tasks", "workers", "0")
	r.do("XREADGROUP", "GROUP", "workers", "me", "COUNT", "1", "STREAMS", r.topic+"-tasks", ">")
	r.single(q, "me", RoleMain, seen.handler(succeed), func(c *SubscriberConfig) { c.ClaimIdle = time.Hour })
	eventually(t, func() bool { return len(seen.all()) == 2 }, "both")
	require.Equal(t, []string{"0", "1"}, seen.payloads())
}

// What is due, idle, and its consumer's own or a dead one's, is taken once all the same.
func TestAClaimTakesAnEntryOnce(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		foreign, claimer, theirs := r.others(r.mq(nil), "0", "1")
		done, err := foreign.RetryInPlace(r.t.Context(), of(theirs[0]), 1, 0)
		require.NoError(r.t, err)
		require.True(r.t, done)
		got, err := claimer.Claim(r.t.Context(), 10, 0, []string{claimer.Consumer, foreign.Consumer})
		require.NoError(r.t, err)
		require.Len(r.t, got.Entries, 2)
		for i, e := range got.Entries {
			require.Equal(r.t, theirs[i].Id, e.Id)
			require.EqualValues(r.t, 2, e.Deliveries)
		}
	})
}

func TestSingleStreamRetriesAndDeadLetters(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		for _, mode := range []RetryMode{RetryInPlace, RetryRepublish} {
			for _, role := range []Role{RoleMain, RoleClaim, RoleBoth} {
				one := r.another()
				q, seen := one.mq(nil), &log{}
				one.addSingle("p")
				one.do("XGROUP", "CREATE", one.topic+"-tasks", "workers", "0")
				if role == RoleClaim {
					one.do("XREADGROUP", "GROUP", "workers", "foreign", "STREAMS", one.topic+"-tasks", ">")
					id := one.entries(one.topic + "-tasks")[0].ID
					one.do("XCLAIM", one.topic+"-tasks", "workers", "foreign", "0", id, "IDLE", "7200000", "RETRYCOUNT", "1")
				}
				one.single(q, "live", role, seen.handler(func(*Delivery) Result { return Retry(errBoom) }), func(c *SubscriberConfig) {
					c.Retry.MaxAttempts, c.RetryMode = 3, mode
					// One that claims might rob its own reader; and an idle reset is a delivery to an emulator, which refuses what is being settled.
					c.ClaimIdle = time.Hour
				})
				letters := q.StreamLetters(one.topic + "-tasks")
				eventually(r.t, func() bool {
					list, err := letters.List(context.Background(), LetterQuery{Partition: -1})
					return err == nil && len(list) == 1 && list[0].Attempts == 3
				}, "a dead letter: %s %s", role, mode)
				require.Len(r.t, seen.all(), 3)
				require.Zero(r.t, one.pendingOf(one.topic+"-tasks", "workers"))
			}
		}
	})
}
