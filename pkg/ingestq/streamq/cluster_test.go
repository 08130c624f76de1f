package streamq

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq"
	pb "github.com/millweir/millweir/proto"
)

// many are versions of documents that go to all partitions.
func many(docs int) []*pb.TaskEnvelope {
	var all []*pb.TaskEnvelope
	for d := range docs {
		all = append(all, envelope(fmt.Sprintf("doc-%02d", d), 0))
	}
	return all
}

// Partitions on several nodes, whose keys lie beside their streams: members are seen alive on each, and one that stops or
// dies leaves each.
func TestPartitionsOfAClusterHaveTheirHeartbeats(t *testing.T) {
	t.Parallel()
	const partitions = 6
	r := newClusterRig(t, newClusters(t).take(t), partitions)
	q, next := r.member(nil), r.member(func(c *Config) { c.ZombieMinIdle, c.ZombieMaxPending = 0, 100 })
	_, err := q.Publish(t.Context(), many(60))
	require.NoError(t, err)
	got := read(t, q, 60)
	used := map[int]bool{}
	for _, d := range got {
		number, _, _ := splitID(d.ID)
		used[number] = true
	}
	require.Len(t, used, partitions)
	beat := func(number int) string {
		return "{" + streammq.StreamKey(Topic, number) + "}:alive:" + r.cfg.Group + ":" + q.Name()
	}
	for i := range partitions {
		m := r.do("EXISTS", beat(i))
		n, err := m.AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, beat(i))
	}
	page, err := next.Pending(t.Context(), 0, "", 100)
	require.NoError(t, err)
	require.Len(t, page, 60)
	for _, p := range page {
		require.True(t, p.Alive)
	}
	h, err := next.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, h.At.IsZero())
	require.NoError(t, next.Ping(t.Context()))
	require.NoError(t, next.Publisher.Ping(t.Context()))

	for i := range partitions { // its process dies
		r.do("DEL", beat(i))
	}
	require.NoError(t, next.removeZombies(t.Context()))
	page, err = next.Pending(t.Context(), 0, "", 100)
	require.NoError(t, err)
	require.Len(t, page, 60)
	for _, p := range page {
		require.Equal(t, next.Name(), p.Consumer, "what the dead one held was moved on each node")
	}
	require.NoError(t, next.Ack(t.Context(), ids(got)...))
	removed, err := next.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 60, removed)
	state, err := NewInspector(r.raw, r.cfg).Look(t.Context())
	require.NoError(t, err)
	require.Len(t, state.Groups, partitions)
	require.Empty(t, state.Pending)
}

// One stream of dead letters for all partitions, whichever nodes they lie on.
func TestQuarantineOfAllPartitionsOfACluster(t *testing.T) {
	t.Parallel()
	r := newClusterRig(t, newClusters(t).take(t), 4)
	q := r.member(nil)
	require.NoError(t, q.Check(t.Context()))
	for i := range 4 {
		r.do("XADD", streammq.StreamKey(Topic, i), "*", "no", "envelope")
	}
	for _, d := range read(t, q, 4) {
		require.ErrorIs(t, d.Err, pb.ErrMalformed)
		for range 2 {
			require.NoError(t, q.Quarantine(t.Context(), d))
		}
	}
	from := map[string]bool{}
	for _, l := range r.deadLetters() {
		from[l["sourceStream"]] = true
	}
	require.Len(t, from, 4)
	require.Len(t, r.deadLetters(), 4)
}

// A master dies and its replica takes its place: nothing that was replicated is lost, and all partitions go on.
func TestPartitionsSurviveAFailover(t *testing.T) {
	t.Parallel()
	c := labserver.PrivateCluster(t)
	r := newClusterRig(t, c, 6)
	q := r.member(nil)
	_, err := q.Publish(t.Context(), many(30))
	require.NoError(t, err)
	require.NoError(t, c.Synced(t.Context()))
	require.NoError(t, c.Masters[0].Kill(t.Context()))
	require.NoError(t, c.Promote(t.Context()))
	seen := map[string]bool{}
	take := func(want int) {
		require.Eventually(t, func() bool {
			some, err := q.Read(t.Context(), 100, time.Second)
			for _, d := range some {
				seen[d.Envelope().GetTaskId()] = true
			}
			return err == nil && len(seen) >= want
		}, waitLimit, time.Millisecond)
	}
	take(30)
	for i := range 30 {
		e := envelope("late-"+strconv.Itoa(i), 0)
		require.Eventually(t, func() bool {
			_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{e})
			return err == nil
		}, waitLimit, time.Millisecond)
	}
	take(60)
	for name, call := range map[string]func() error{
		"horizon": func() error { _, err := q.Watermark(t.Context()); return err },
		"trim":    func() error { _, err := q.Trim(t.Context()); return err },
		"stats":   func() error { _, err := q.Stats(t.Context()); return err },
		"pending": func() error { _, err := q.Pending(t.Context(), 0, "", 100); return err },
		"ping":    func() error { return q.Ping(t.Context()) },
	} {
		require.Eventually(t, func() bool { return call() == nil }, waitLimit, time.Millisecond, name)
	}
}

func TestTheWatermarkOfAClusterComparesNoClocks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ahead := now.Add(time.Minute)
	watermarks := []ingestq.Watermark{
		{Now: now, At: now.Add(-time.Second)}, {Now: ahead, At: ahead.Add(-10 * time.Second)}, {Now: now.Add(time.Second)},
	}
	require.Equal(t, ingestq.Watermark{Now: now, At: now.Add(-10 * time.Second)}, ingestq.Smallest(watermarks, true))
	require.Equal(t, ingestq.Watermark{Now: now, At: now.Add(-time.Second)}, ingestq.Smallest(watermarks, false))
	require.Equal(t, ingestq.Watermark{Now: now}, ingestq.Smallest([]ingestq.Watermark{{Now: now}, {Now: ahead}}, true), "nothing waits")
}
