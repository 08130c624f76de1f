package streammq

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/retry"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Each trace is a counterexample that a model of this design found when one rule was taken away. It plays against the
// real scripts and must end well; then the rule is taken out of the scripts, and it must end badly: so no trace can
// pass without its rule.
type trace struct {
	rule   string
	mutant func(name, text string) string
	play   func(r *rig, q *MQ) string // what went wrong; "" nothing
}

// without takes a piece of text out of a script.
func without(t *testing.T, script, old, replacement string) func(name, text string) string {
	return func(name, text string) string {
		if name != script {
			return text
		}
		require.Contains(t, text, old, "the rule has moved")
		return strings.ReplaceAll(text, old, replacement)
	}
}

const (
	ownsRule  = "epoch == '' or redis.call('GET', epoch_key) == epoch"
	holdsRule = "p and p[2] == consumer and p[4] == tonumber(count)"
)

func TestEachRuleOfTheModelIsNeeded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]trace{
		"unfenced read": {
			"reads check the epoch", without(t, "entries_fetch", "if not owns(epoch_key, epoch) then return {0} end", ""), unfencedRead,
		},
		"unfenced recovery": {
			"recovery checks the epoch", without(t, "entries_recover", "if not owns(epoch_key, epoch) then return {0} end", ""), unfencedRecovery,
		},
		"live old owner": {
			"a new owner takes all pendings, whoever has them",
			without(t, "entries_recover", "local taken = take(stream, due, attempts, group, consumer, last, p[4])",
				"local taken = p[2] == consumer and take(stream, due, attempts, group, consumer, last, p[4])"), liveOldOwner,
		},
		"late acknowledgement": {"writes check the epoch", without(t, "fence", ownsRule, "true"), lateAck},
		"late retry":           {"writes check the epoch", without(t, "fence", ownsRule, "true"), lateRetry},
		"late dead letter":     {"writes check the epoch", without(t, "fence", ownsRule, "true"), lateDeadLetter},
		"own later delivery":   {"writes check the delivery count", without(t, "fence", holdsRule, "p"), ownLaterDelivery},
		"claimer":              {"writes check the consumer and count", without(t, "fence", holdsRule, "p"), claimedOnStream},
		"acknowledged twice":   {"a write acts only on what is pending", without(t, "fence", holdsRule, "true"), retriedTwice},
		"flushed epoch": {
			"epochs are max(stored + 1, clock)",
			without(t, "lease_take", "math.max(stored + 1, clock)", "stored + 1"), flushedEpoch,
		},
		"clock behind": {
			"epochs are max(stored + 1, clock)",
			without(t, "lease_take", "math.max(stored + 1, clock)", "clock"), clockBehind,
		},
		"missing epoch": {
			"a missing epoch is a mismatch",
			without(t, "fence", ownsRule, "redis.call('EXISTS', epoch_key) == 0 or redis.call('GET', epoch_key) == epoch"), missingEpoch,
		},
		"renewed by an old owner": {
			"renewal compares the epoch",
			without(t, "lease_renew", " or redis.call('GET', epoch_key) ~= epoch", ""), renewedByOldLife,
		},
		"released by an old owner": {
			"release compares the epoch",
			without(t, "lease_release", " or redis.call('GET', epoch_key) ~= epoch", ""), releasedByOldLife,
		},
		"replayed twice": {
			"a replay marks its dead letter in the same step",
			without(t, "letter_replay", "redis.call('HSET', replayed, id, entry)", ""), replayedTwice,
		},
		"moved twice": {
			"a mover removes what it adds in the same step",
			without(t, "retry_move", "redis.call('ZREM', retry, name)\nredis.call('DEL', item)", ""), movedTwice,
		},
		"retry acknowledges": {
			"storing a retry and acknowledging are one step",
			without(t, "entry_retry_later", "redis.call('XACK', stream, group, id)", ""), storedAndPending,
		},
		"letter acknowledges": {
			"writing a dead letter and acknowledging are one step",
			without(t, "entry_move", "redis.call('XACK', stream, group, id)", ""), letterAndPending,
		},
		"due time kept": {
			"a takeover keeps the due time of retries in place",
			without(t, "entries_recover", "if at and tonumber(at) > time then", "if false then"), dueTimeKept,
		},
		"late status":    {"a status carries its delivery", without(t, "status_write", "if earlier(had) then return 0 end", ""), lateStatus},
		"completed back": {"completed is final", without(t, "status_write", "if had.status == 'completed' then return 2 end", ""), completedStays},
		"robbing by an idle reset": {
			"an idle reset checks who holds the entry",
			without(t, "fence", holdsRule, "p"), idleResetRobs,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, layout := range []Layout{LayoutSingle, LayoutCluster} {
				r := newRig(t, layout)
				q := r.mq(nil)
				r.topicOf(q, 1)
				require.Empty(t, tc.play(r, q), "with the rule: %s", tc.rule)

				broken := newRig(t, layout)
				q = broken.mq(nil)
				q.core.Scripts = stream.Load(func(name string) string { return tc.mutant(name, stream.ReadLua(name)) })
				broken.topicOf(q, 1)
				require.NotEmpty(t, tc.play(broken, q), "without the rule %q the trace must fail", tc.rule)
			}
		})
	}
}

// A is paused after its lease expired, wakes and reads: it takes m1 while B runs m0.
func unfencedRead(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	r.expire()
	r.member(q, "b")
	if got, err := a.Fetch(context.Background(), 10); err == nil && len(got.Entries) > 0 {
		return "the old owner reads new entries"
	}
	return ""
}

func unfencedRecovery(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	r.expire()
	r.next(r.member(q, "b"))
	if got, err := a.Recover(context.Background(), 10, ""); err == nil && len(got.Entries) > 0 {
		return "the old owner takes entries from the new one"
	}
	return ""
}

// A read m0 and lives, but its lease is gone. B must run m0 before m1.
func liveOldOwner(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	r.next(a)
	r.expire()
	b := r.member(q, "b")
	r.publish(q, "k", "1")
	got, err := b.Recover(context.Background(), 10, "")
	require.NoError(r.t, err)
	if len(got.Entries) != 1 || got.Entries[0].Deliveries != 2 {
		return "what the old owner has read is left behind"
	}
	return ""
}

func lateAck(r *rig, q *MQ) string {
	a, e := handedOver(r, q)
	n, err := a.Ack(context.Background(), []fence.Held{of(e)})
	require.NoError(r.t, err)
	if n > 0 || r.pending(0, "g") != 1 {
		return "the old owner acknowledges"
	}
	return ""
}

func lateRetry(r *rig, q *MQ) string {
	a, e := handedOver(r, q)
	first, err := a.RetryLater(context.Background(), of(e), wire.Entry{}, 1, time.Hour)
	require.NoError(r.t, err)
	second, err := a.RetryInPlace(context.Background(), of(e), 1, time.Hour)
	require.NoError(r.t, err)
	if first || second || r.number("EXISTS", a.Src.Retry()) != 0 || r.number("EXISTS", a.Src.Due("g")) != 0 {
		return "the old owner puts off"
	}
	return ""
}

func lateDeadLetter(r *rig, q *MQ) string {
	a, e := handedOver(r, q)
	done, err := a.DeadLetter(context.Background(), &fence.Parcel{Raw: e}, 1, nil)
	require.NoError(r.t, err)
	if done || r.number("EXISTS", a.Src.Dlq()) != 0 {
		return "the old owner gives up"
	}
	return ""
}

// The same member under the same epoch was delivered the entry a second time: its first handler must not settle it.
func ownLaterDelivery(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	e := r.next(a).Entries[0]
	_, err := a.Recover(context.Background(), 10, "")
	require.NoError(r.t, err)
	n, err := a.Ack(context.Background(), []fence.Held{of(e)})
	require.NoError(r.t, err)
	if n > 0 {
		return "an old handler settles the newer delivery"
	}
	return ""
}

func claimedOnStream(r *rig, q *MQ) string {
	first, _, e := onStream(r, q)
	n, err := first.Ack(context.Background(), []fence.Held{of(e)})
	require.NoError(r.t, err)
	if n > 0 {
		return "a robbed consumer acknowledges"
	}
	return ""
}

func idleResetRobs(r *rig, q *MQ) string {
	first, second, e := onStream(r, q)
	require.NoError(r.t, first.Touch(context.Background(), []fence.Held{of(e)}))
	list, err := r.client.Do(context.Background(), r.client.B().Xpending().Key(first.Src.Stream()).Group("g").Start("-").End("+").Count(1).Build()).ToArray()
	require.NoError(r.t, err)
	row, err := list[0].ToArray()
	require.NoError(r.t, err)
	if owner, err := row[1].ToString(); err != nil || owner != second.Consumer {
		return "an idle reset steals the entry back"
	}
	return ""
}

// A retry whose answer was lost is sent again.
func retriedTwice(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	e := r.next(a).Entries[0]
	for range 2 {
		_, err := a.RetryLater(context.Background(), of(e), wire.Entry{Topic: r.topic}, 1, 0)
		require.NoError(r.t, err)
		_, _, err = retry.MoveDue(q.core, context.Background(), a.Src, 10)
		require.NoError(r.t, err)
	}
	if r.number("XLEN", a.Src.Stream()) != 2 {
		return "two copies"
	}
	return ""
}

// A's epoch was flushed away; B's must not be the same number.
func flushedEpoch(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.do("DEL", a.Src.Lease("g"), a.Src.Epoch("g"))
	r.do("DEL", a.Src.Stream())
	if b := r.member(q, "b"); a.Epoch == b.Epoch {
		return "an epoch is repeated after a flush"
	}
	return ""
}

// The server's clock is set back, or a failover went to one that is behind.
func clockBehind(r *rig, q *MQ) string {
	a := r.member(q, "a")
	ahead := "9000000000000001"
	r.do("SET", a.Src.Epoch("g"), ahead)
	r.expire()
	if b := r.member(q, "b"); b.Epoch <= ahead {
		return "an epoch went back"
	}
	return ""
}

func missingEpoch(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	r.do("DEL", a.Src.Epoch("g"))
	if got, err := a.Fetch(context.Background(), 10); err == nil && len(got.Entries) > 0 {
		return "reads without an epoch"
	}
	return ""
}

// twoLives is a member that lost its lease and took it again; the old epoch is that of its first life.
func twoLives(r *rig, q *MQ) (src core.Source, old string) {
	a := r.member(q, "a")
	r.expire()
	r.take(q, "a")
	return a.Src, a.Epoch
}

func renewedByOldLife(r *rig, q *MQ) string {
	src, old := twoLives(r, q)
	n, err := q.core.Run(context.Background(), q.core.Scripts.LeaseRenew, []string{src.Lease("g"), src.Epoch("g")}, "a", old, "1000").AsInt64()
	require.NoError(r.t, err)
	if n != 0 {
		return "an old life renews"
	}
	return ""
}

func releasedByOldLife(r *rig, q *MQ) string {
	src, old := twoLives(r, q)
	n, err := q.core.Run(context.Background(), q.core.Scripts.LeaseRelease, []string{src.Lease("g"), src.Epoch("g")}, "a", old).AsInt64()
	require.NoError(r.t, err)
	if n != 0 || r.number("EXISTS", src.Lease("g")) == 0 {
		return "an old life releases the new one's lease"
	}
	return ""
}

func replayedTwice(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	e := r.next(a).Entries[0]
	_, err := a.DeadLetter(context.Background(), &fence.Parcel{Raw: e}, 1, nil)
	require.NoError(r.t, err)
	letters, err := q.Letters(r.topic).List(context.Background(), LetterQuery{Partition: -1})
	require.NoError(r.t, err)
	require.Len(r.t, letters, 1)
	for range 2 {
		_, err = q.Letters(r.topic).Replay(context.Background(), letters[0])
	}
	if err == nil || r.number("XLEN", a.Src.Stream()) != 2 {
		return "replayed twice"
	}
	return ""
}

func movedTwice(r *rig, q *MQ) string {
	a := later(r, q)
	for range 2 {
		if err := retry.Move(q.core, context.Background(), a.Src, []string{a.Src.ItemName("g", r.entries(a.Src.Stream())[0].ID)}); err != nil {
			return err.Error()
		}
	}
	if r.number("XLEN", a.Src.Stream()) != 2 || r.number("EXISTS", a.Src.Retry()) != 0 {
		return "an item is moved again"
	}
	return ""
}

func storedAndPending(r *rig, q *MQ) string {
	later(r, q)
	if r.pending(0, "g") != 0 {
		return "the message waits twice"
	}
	return ""
}

func letterAndPending(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	_, err := a.DeadLetter(context.Background(), &fence.Parcel{Raw: r.next(a).Entries[0]}, 1, nil)
	require.NoError(r.t, err)
	if r.pending(0, "g") != 0 {
		return "the message is dead and pending"
	}
	return ""
}

func dueTimeKept(r *rig, q *MQ) string {
	a := r.member(q, "a")
	r.publish(q, "k", "0")
	e := r.next(a).Entries[0]
	done, err := a.RetryInPlace(context.Background(), of(e), 1, time.Hour)
	require.NoError(r.t, err)
	require.True(r.t, done)
	r.expire()
	b := r.member(q, "b")
	got, err := b.Recover(context.Background(), 10, "")
	require.NoError(r.t, err)
	if len(got.Entries) != 0 {
		return "a retry runs before its time"
	}
	if fetched := r.next(b); fetched.Wait <= 0 || fetched.Wait > time.Hour {
		return "the due time is lost"
	}
	return ""
}
