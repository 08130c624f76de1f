package streammq

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// quickly is a hand-driven member of partition 0 with so many messages that has read the first two without a script.
func quickly(r *rig, q *MQ, messages int) (*reader, *quick) {
	m, fast := r.member(q, "a"), &quick{}
	for range messages {
		r.publish(q, "k", "0")
	}
	got, err := fast.fetch(context.Background(), m, 2)
	require.NoError(r.t, err)
	require.Len(r.t, got.entries, 2)
	require.True(r.t, fast.armed)
	r.t.Cleanup(func() { fast.end(context.Background()) })
	return m, fast
}

// What is read without a script is what the script reads.
func TestQuickReadsAreThoseOfTheScript(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		m, fast := quickly(r, q, 7)
		again := &reader{mq: q.core, src: m.src, group: "other", consumer: "x", epoch: ""}
		r.do("XGROUP", "CREATE", m.src.stream(), "other", "0")
		all, err := again.fetch(context.Background(), 10)
		require.NoError(r.t, err)
		quick, err := fast.fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Equal(r.t, all.entries[2:4], quick.entries)
		slow, err := m.fetch(context.Background(), 2)
		require.NoError(r.t, err)
		require.Equal(r.t, all.entries[4:6], slow.entries)
		rest, err := fast.fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Equal(r.t, all.entries[6:], rest.entries)
		none, err := fast.fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Empty(r.t, none.entries)
		require.Equal(r.t, all.entries[6].id, none.last, "the script tells where to wait")
		n, err := m.ack(context.Background(), []held{of(quick.entries[0]), of(rest.entries[0])})
		require.NoError(r.t, err)
		require.Equal(r.t, 2, n)
	})
}

// An owner whose lease went to another between its look and its read takes nothing from the new one.
func TestQuickReadOfAnOldOwnerReadsNothing(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		for name, takeAway := range map[string]func(q *MQ){
			"taken":   func(q *MQ) { r.steal(q, "b") },
			"flushed": func(*MQ) { r.do("DEL", r.source(0).epoch("g"), r.source(0).lease("g")) },
		} {
			own := r.another()
			r.topic = own.topic
			q := own.mq(nil)
			own.topicOf(q, 1)
			m, fast := quickly(own, q, 4)
			takeAway(q)
			_, err := fast.fetch(context.Background(), m, 2)
			require.ErrorIs(r.t, err, errLost, name)
			require.Equal(r.t, 2, own.pending(0, "g"), name)
			_, err = fast.fetch(context.Background(), m, 2)
			require.ErrorIs(r.t, err, errLost, "%s, looked at again", name)
			require.Equal(r.t, 2, own.pending(0, "g"), name)
		}
	})
}

// The test above fails without its rule: a connection that no longer watches reads for the old owner.
func TestQuickReadIsFencedByWhatItWatches(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		m, fast := quickly(r, q, 4)
		require.NoError(r.t, fast.wire.Do(context.Background(), fast.wire.B().Unwatch().Build()).Error())
		r.steal(q, "b")
		_, err := fast.fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Equal(r.t, 4, r.pending(0, "g"))
	})
}

// A retry in place that comes due goes first, as with the script.
func TestQuickReadLeavesRetriesInPlaceToTheScript(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		m, fast := r.member(q, "a"), &quick{}
		defer fast.end(context.Background())
		for range 6 {
			r.publish(q, "k", "0")
		}
		first, err := fast.fetch(context.Background(), m, 1)
		require.NoError(r.t, err)
		done, err := m.retryInPlace(context.Background(), of(first.entries[0]), 1, 0)
		require.NoError(r.t, err)
		require.True(r.t, done)
		var got fetched
		eventually(r.t, func() bool {
			got, err = fast.fetch(context.Background(), m, 1)
			return err == nil && len(got.entries) == 1 && got.entries[0].id == first.entries[0].id
		}, "due by the server's clock")
		require.EqualValues(r.t, 2, got.entries[0].deliveries)
		require.Equal(r.t, 1, got.entries[0].attempts)
	})
}

// A lost group and a broken connection are told; the next read has a connection of its own.
func TestQuickReadTellsWhatFailed(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q := r.mq(nil)
	r.topicOf(q, 1)
	m, fast := quickly(r, q, 6)
	id, err := fast.wire.Do(t.Context(), fast.wire.B().ClientId().Build()).AsInt64()
	require.NoError(t, err)
	r.do("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
	_, err = fast.fetch(context.Background(), m, 2)
	require.Error(t, err)
	require.Nil(t, fast.wire)
	got, err := fast.fetch(context.Background(), m, 2)
	require.NoError(t, err)
	require.Len(t, got.entries, 2)
	r.do("XGROUP", "DESTROY", m.src.stream(), "g")
	_, err = fast.fetch(context.Background(), m, 2)
	require.True(t, stream.IsMissing(err), "%v", err)
}
