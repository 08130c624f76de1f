package streammq

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// quickly is a hand-driven member of partition 0 with so many messages that has read the first two without a script.
func quickly(r *rig, q *MQ, messages int) (*fence.Reader, *fence.Quick) {
	m, fast := r.member(q, "a"), &fence.Quick{}
	for range messages {
		r.publish(q, "k", "0")
	}
	got, err := fast.Fetch(context.Background(), m, 2)
	require.NoError(r.t, err)
	require.Len(r.t, got.Entries, 2)
	require.True(r.t, fast.Armed)
	r.t.Cleanup(func() { fast.End(context.Background()) })
	return m, fast
}

// What is read without a script is what the script reads.
func TestQuickReadsAreThoseOfTheScript(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		m, fast := quickly(r, q, 7)
		again := &fence.Reader{Mq: q.core, Src: m.Src, Group: "other", Consumer: "x", Epoch: ""}
		r.do("XGROUP", "CREATE", m.Src.Stream(), "other", "0")
		all, err := again.Fetch(context.Background(), 10)
		require.NoError(r.t, err)
		quick, err := fast.Fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Equal(r.t, all.Entries[2:4], quick.Entries)
		slow, err := m.Fetch(context.Background(), 2)
		require.NoError(r.t, err)
		require.Equal(r.t, all.Entries[4:6], slow.Entries)
		rest, err := fast.Fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Equal(r.t, all.Entries[6:], rest.Entries)
		none, err := fast.Fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Empty(r.t, none.Entries)
		require.Equal(r.t, all.Entries[6].Id, none.Last, "the script tells where to wait")
		n, err := m.Ack(context.Background(), []fence.Held{of(quick.Entries[0]), of(rest.Entries[0])})
		require.NoError(r.t, err)
		require.Equal(r.t, 2, n)
	})
}

// An owner whose lease went to another between its look and its read takes nothing from the new one.
func TestQuickReadOfAnOldOwnerReadsNothing(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		for name, takeAway := range map[string]func(q *MQ){
			"taken":   func(q *MQ) { r.steal(q, "b") },
			"flushed": func(*MQ) { r.do("DEL", r.source(0).Epoch("g"), r.source(0).Lease("g")) },
		} {
			own := r.another()
			r.topic = own.topic
			q := own.mq(nil)
			own.topicOf(q, 1)
			m, fast := quickly(own, q, 4)
			takeAway(q)
			_, err := fast.Fetch(context.Background(), m, 2)
			require.ErrorIs(r.t, err, fence.ErrLost, name)
			require.Equal(r.t, 2, own.pending(0, "g"), name)
			_, err = fast.Fetch(context.Background(), m, 2)
			require.ErrorIs(r.t, err, fence.ErrLost, "%s, looked at again", name)
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
		require.NoError(r.t, fast.Wire.Do(context.Background(), fast.Wire.B().Unwatch().Build()).Error())
		r.steal(q, "b")
		_, err := fast.Fetch(context.Background(), m, 2)
		require.NoError(r.t, err)
		require.Equal(r.t, 4, r.pending(0, "g"))
	})
}

// A retry in place that comes due goes first, as with the script.
func TestQuickReadLeavesRetriesInPlaceToTheScript(t *testing.T) {
	onBothLayouts(t, func(r *rig) {
		q := r.mq(nil)
		r.topicOf(q, 1)
		m, fast := r.member(q, "a"), &fence.Quick{}
		defer fast.End(context.Background())
		for range 6 {
			r.publish(q, "k", "0")
		}
		first, err := fast.Fetch(context.Background(), m, 1)
		require.NoError(r.t, err)
		done, err := m.RetryInPlace(context.Background(), of(first.Entries[0]), 1, 0)
		require.NoError(r.t, err)
		require.True(r.t, done)
		var got fence.Fetched
		eventually(r.t, func() bool {
			got, err = fast.Fetch(context.Background(), m, 1)
			return err == nil && len(got.Entries) == 1 && got.Entries[0].Id == first.Entries[0].Id
		}, "due by the server's clock")
		require.EqualValues(r.t, 2, got.Entries[0].Deliveries)
		require.Equal(r.t, 1, got.Entries[0].Attempts)
	})
}

// A lost group and a broken connection are told; the next read has a connection of its own.
func TestQuickReadTellsWhatFailed(t *testing.T) {
	t.Parallel()
	r, _ := newPrivateRig(t)
	q := r.mq(nil)
	r.topicOf(q, 1)
	m, fast := quickly(r, q, 6)
	id, err := fast.Wire.Do(t.Context(), fast.Wire.B().ClientId().Build()).AsInt64()
	require.NoError(t, err)
	r.do("CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
	_, err = fast.Fetch(context.Background(), m, 2)
	require.Error(t, err)
	require.Nil(t, fast.Wire)
	got, err := fast.Fetch(context.Background(), m, 2)
	require.NoError(t, err)
	require.Len(t, got.Entries, 2)
	r.do("XGROUP", "DESTROY", m.Src.Stream(), "g")
	_, err = fast.Fetch(context.Background(), m, 2)
	require.True(t, stream.IsMissing(err), "%v", err)
}
