package streamq

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/ingestq/redisq"
	"github.com/millweir/millweir/pkg/streammq"
	pb "github.com/millweir/millweir/proto"
)

func TestVersionsOfADocumentComeInOrderFromOnePartition(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	q := r.member(nil)
	const docs, versions = 20, 6
	var all []*pb.TaskEnvelope
	for v := range versions {
		for d := range docs {
			all = append(all, envelope(fmt.Sprintf("doc-%02d", d), v))
		}
	}
	published, err := q.Publish(t.Context(), all)
	require.NoError(t, err)
	got := read(t, q, len(all))
	require.ElementsMatch(t, published, ids(got))
	last, home, used := map[string]string{}, map[string]int{}, map[int]bool{}
	for _, d := range got {
		require.Less(t, len(d.ID), 31, "it fits into the row")
		partition, _, ok := splitID(d.ID)
		require.True(t, ok)
		doc := d.Envelope().GetDocumentId()
		require.Less(t, last[doc], d.Envelope().GetTaskId(), "in the order of publishing")
		if before, seen := home[doc]; seen {
			require.Equal(t, before, partition)
		}
		last[doc], home[doc], used[partition] = d.Envelope().GetTaskId(), partition, true
	}
	require.Len(t, used, 4, "documents are spread")
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, ingestq.Stats{Length: docs * versions, Pending: docs * versions}, stats)
}

// TestATaskWithoutADocumentHasAPartitionToo: its own id is the key.
func TestATaskWithoutADocumentHasAPartitionToo(t *testing.T) {
	t.Parallel()
	m, err := message(&pb.TaskEnvelope{SchemaVersion: 1, TaskId: "t-1", Type: "workflow"})
	require.NoError(t, err)
	require.Equal(t, "t-1", m.Key)
}

// TestARunningTasksEntrySurvivesARebalance: the new owner is given it again, and the old one still ends it.
func TestARunningTasksEntrySurvivesARebalance(t *testing.T) {
	t.Parallel()
	r := newRig(t, 1)
	old, next := r.member(nil), r.member(nil)
	_, err := old.Publish(t.Context(), []*pb.TaskEnvelope{envelope("d", 0), envelope("d", 1), envelope("d", 2)})
	require.NoError(t, err)
	held := read(t, old, 2)
	old.Yield()
	again := read(t, next, 3)
	require.Equal(t, ids(held), ids(again)[:2], "pending ones first")
	require.NoError(t, old.Ack(t.Context(), held[0].ID))
	page, err := next.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 2)
	require.Equal(t, held[1].ID, page[0].ID)
	require.Equal(t, next.Name(), page[0].Consumer)
	require.True(t, page[0].Alive)
}

// TestAnyProcessReconcilesForARow: one that reads nothing and owns nothing.
func TestAnyProcessReconcilesForARow(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	owner, reclaimer := r.member(nil), r.member(nil)
	var all []*pb.TaskEnvelope
	for i := range 12 {
		all = append(all, envelope(fmt.Sprint("doc-", i), 0))
	}
	_, err := owner.Publish(t.Context(), all)
	require.NoError(t, err)
	got := read(t, owner, 12)
	found, err := reclaimer.Adopt(t.Context(), got[0].ID, got[11].ID, "0:1-1", "7:1-1", "1-1")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{got[0].ID: true, got[11].ID: true, "0:1-1": false, "7:1-1": false, "1-1": false}, found)
	n, err := reclaimer.Requeue(t.Context(), []ingestq.Copy{
		{ID: got[1].ID, Envelope: envelope(got[1].Envelope().GetDocumentId(), 1)}, {ID: got[2].ID, Envelope: envelope(got[2].Envelope().GetDocumentId(), 1)},
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	copies := read(t, owner, 2)
	for _, c := range copies {
		require.True(t, strings.HasSuffix(c.Envelope().GetTaskId(), "-v0001"))
		at := slices.IndexFunc(got, func(d ingestq.Delivery) bool {
			return d.Envelope().GetDocumentId() == c.Envelope().GetDocumentId()
		})
		was, _, _ := splitID(got[at].ID)
		is, _, _ := splitID(c.ID)
		require.Equal(t, was, is, "a copy stays in its partition")
	}
	var paged []string
	for after := ""; ; {
		page, err := reclaimer.Pending(t.Context(), 0, after, 5)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, p := range page {
			paged = append(paged, p.ID)
		}
		after = paged[len(paged)-1]
	}
	require.ElementsMatch(t, append(ids(got[3:]), got[0].ID, copies[0].ID, copies[1].ID), paged, "pages go over all partitions")
	require.NoError(t, reclaimer.Ack(t.Context(), paged...))
	removed, err := reclaimer.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 14, removed)
	require.Empty(t, reclaimer.consumer.Load().Partitions(), "who never reads owns nothing")
}

// TestTheWatermarkIsTheOldestOfAll: one partition that nobody reads holds it back.
func TestTheWatermarkIsTheOldestOfAll(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	q := r.member(nil)
	h, err := q.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, h.At.IsZero())
	first, err := q.Publish(t.Context(), []*pb.TaskEnvelope{envelope("a", 0)})
	require.NoError(t, err)
	h, err = q.Watermark(t.Context())
	require.NoError(t, err)
	oldest := h.At
	require.False(t, oldest.IsZero())
	home, entry, _ := splitID(first[0])
	require.Equal(t, strings.Split(entry, "-")[0], fmt.Sprint(oldest.UnixMilli()))
	for i := range 4 {
		if i != home {
			r.do("XADD", streammq.StreamKey(Topic, i), "*", "payload", "x")
		}
	}
	h, err = q.Watermark(t.Context())
	require.NoError(t, err)
	require.Equal(t, oldest, h.At)
	read(t, q, 4)
	h, err = q.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, h.At.IsZero(), "all were given")
}

// TestTheSingleStreamIsDrainedAfterASwitch: what INGEST_STREAM_PARTITIONS=1 left, read or not, is served and settled.
func TestTheSingleStreamIsDrainedAfterASwitch(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	before := r.single()
	old, err := before.Publish(t.Context(), []*pb.TaskEnvelope{envelope("a", 0), envelope("a", 1), envelope("b", 0)})
	require.NoError(t, err)
	read(t, before, 1)

	q := r.member(nil)
	fresh, err := q.Publish(t.Context(), []*pb.TaskEnvelope{envelope("c", 0)})
	require.NoError(t, err)
	h, err := q.Watermark(t.Context())
	require.NoError(t, err)
	require.Equal(t, strings.Split(old[1], "-")[0], fmt.Sprint(h.At.UnixMilli()), "it is not lost, it waits")
	got := read(t, q, 3)
	require.ElementsMatch(t, []string{old[1], old[2], fresh[0]}, ids(got))
	page, err := q.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 4)
	require.Equal(t, old[0], page[0].ID)
	require.Equal(t, before.Name(), page[0].Consumer)
	require.True(t, page[0].Alive, "its reader's heartbeat is that of the single stream")
	found, err := q.Adopt(t.Context(), old[0])
	require.NoError(t, err)
	require.True(t, found[old[0]])
	require.NoError(t, q.DeadLetters(t.Context(), []ingestq.DeadLetter{{TaskID: "a", SourceRecordID: old[0]}, {TaskID: "c", SourceRecordID: fresh[0]}, {TaskID: "k"}}))
	sources := map[string]string{}
	for _, l := range r.deadLetters() {
		sources[l["taskId"]] = l["sourceStream"] + " " + l["sourceRecordId"]
	}
	home, entry, _ := splitID(fresh[0])
	require.Equal(t, map[string]string{
		"a": r.cfg.StreamKey + " " + old[0], "c": streammq.StreamKey(Topic, home) + " " + entry, "k": r.cfg.StreamKey + " ",
	}, sources)
	require.NoError(t, q.Ack(t.Context(), append(ids(got), old[0])...))
	removed, err := q.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, removed)
}

// TestTheTopicGrowsAndDoesNotShrink: members and publishers that run find new partitions by themselves.
func TestTheTopicGrowsAndDoesNotShrink(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	now := time.Now()
	q := r.member(nil)
	q.now = func() time.Time { return now }
	published, err := q.Publish(t.Context(), []*pb.TaskEnvelope{envelope("a", 0)})
	require.NoError(t, err)
	require.Equal(t, published, ids(read(t, q, 1)))

	grown := r.member(func(c *Config) { c.Partitions = 5 })
	require.NoError(t, grown.Check(t.Context()))
	for i := range 5 {
		r.do("XADD", streammq.StreamKey(Topic, i), "*", "payload", "x")
	}
	got := read(t, q, 5)
	now = now.Add(2 * lookEvery)
	require.NoError(t, q.Ack(t.Context(), append(ids(got), published...)...))
	stats, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, ingestq.Stats{Length: 6}, stats)

	err = q.Check(t.Context())
	require.ErrorIs(t, err, ErrFewer)
	require.ErrorContains(t, err, "set it to 5")
}

func TestAMemberThatLeavesPassesOnAndLeavesNoName(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	q := r.member(nil)
	for _, doc := range []string{"a", "b", "c", "d"} {
		_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{envelope(doc, 0)})
		require.NoError(t, err)
	}
	got := read(t, q, 4)
	require.NoError(t, q.Ack(t.Context(), ids(got)...))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	alive := func() int64 {
		m := r.do("EXISTS", beats+":alive:"+r.cfg.Group+":"+q.Name())
		n, err := m.AsInt64()
		require.NoError(t, err)
		return n
	}
	require.EqualValues(t, 1, alive())
	cancel()
	require.NoError(t, <-ended)
	require.Zero(t, alive())
	for i := range 2 {
		m := r.do("XINFO", "CONSUMERS", streammq.StreamKey(Topic, i), r.cfg.Group)
		consumers, err := m.ToArray()
		require.NoError(t, err)
		require.Empty(t, consumers)
		m = r.do("EXISTS", "streaming:mq:lease:"+Topic+":"+r.cfg.Group+":"+fmt.Sprint(i))
		n, err := m.AsInt64()
		require.NoError(t, err)
		require.Zero(t, n, "no lease is left to expire")
	}
}

// TestZombiesGoFromEveryPartition: a process that adopted and died leaves its name where it owned nothing.
func TestZombiesGoFromEveryPartition(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	q := r.member(func(c *Config) { c.ZombieMinIdle = 0 })
	require.NoError(t, q.Ping(t.Context()))
	_, err := q.Watermark(t.Context()) // makes the groups
	require.NoError(t, err)
	for i := range 3 {
		r.do("XGROUP", "CREATECONSUMER", streammq.StreamKey(Topic, i), r.cfg.Group, "dead")
	}
	require.NoError(t, q.removeZombies(t.Context()))
	for i := range 3 {
		m := r.do("XINFO", "CONSUMERS", streammq.StreamKey(Topic, i), r.cfg.Group)
		consumers, err := m.ToArray()
		require.NoError(t, err)
		require.Empty(t, consumers)
	}
}

func TestInspectorLooksAtAllPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	i := NewInspector(r.raw, r.cfg)
	state, err := i.Look(t.Context())
	require.NoError(t, err)
	require.Zero(t, state, "there is no topic yet, and a look makes none")
	q := r.member(nil)
	var all []*pb.TaskEnvelope
	for n := range 9 {
		all = append(all, envelope(fmt.Sprint("doc-", n), 0))
	}
	published, err := q.Publish(t.Context(), all)
	require.NoError(t, err)
	_, err = q.Watermark(t.Context()) // makes the groups
	require.NoError(t, err)
	state, err = i.Look(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 9, state.Length)
	require.Len(t, state.Groups, 3)
	require.False(t, state.Watermark.IsZero())
	got := read(t, q, 9)
	require.NoError(t, q.Ack(t.Context(), got[0].ID))
	state, err = i.Look(t.Context())
	require.NoError(t, err)
	require.True(t, state.Watermark.IsZero())
	var pending []string
	for _, p := range state.Pending {
		require.True(t, strings.HasPrefix(p.TaskID, "doc-"), p.TaskID)
		pending = append(pending, p.ID)
	}
	require.ElementsMatch(t, slices.DeleteFunc(published, func(id string) bool { return id == got[0].ID }), pending)
	require.NoError(t, q.DeadLetters(t.Context(), []ingestq.DeadLetter{{TaskID: "t", Fence: 4}}))
	require.NoError(t, i.DeadLetters(t.Context(), func(l ingestq.WrittenDeadLetter) error {
		require.EqualValues(t, 4, l.Fence)
		return nil
	}))
}

func TestFiguresOfEachPartition(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	p, err := NewPublisher(r.client(), r.cfg, slog.New(slog.DiscardHandler), time.Now, nil)
	require.NoError(t, err)
	_, err = p.Publish(t.Context(), []*pb.TaskEnvelope{envelope("a", 0)})
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(redisq.NewCollector(p.Streams, time.Now))
	require.Eventually(t, func() bool { // a scrape that takes longer than 1 s shows none
		n, err := testutil.GatherAndCount(registry, "ingest_stream_length")
		return err == nil && n == 2
	}, waitLimit, 100*time.Millisecond)
	length, err := p.StreamLength(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, length)
	require.NoError(t, p.Ping(t.Context()))
	system, name := p.Destination("document")
	require.Equal(t, "redis "+Topic, system+" "+name)
}

func TestIDsAndConfig(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]struct {
		partition int
		entry     string
		ok        bool
	}{
		"3:1700000000000-0": {3, "1700000000000-0", true}, "1700000000000-0": {single, "1700000000000-0", true}, "": {single, "", true},
		"-1:1-1": {}, "01:1-1": {}, "1024:1-1": {}, "kafka:ingest-tasks:0:17": {}, ":1-1": {}, "1023:9-9": {1023, "9-9", true},
	} {
		partition, entry, ok := splitID(id)
		require.Equal(t, want.ok, ok, id)
		if ok {
			require.Equal(t, want.partition, partition, id)
			require.Equal(t, want.entry, entry, id)
			require.Equal(t, id, idOf(partition, entry))
		}
	}
	r := newRig(t, 2)
	for name, change := range map[string]func(*Config){
		"INGEST_STREAM_PARTITIONS": func(c *Config) { c.Partitions = 1025 },
		"INGEST_STREAM_GROUP":      func(c *Config) { c.Group = "a:b" },
		"INGEST_STREAM_KEY":        func(c *Config) { c.StreamKey = "" },
	} {
		cfg := r.cfg
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), name)
	}
}

// TestADeletedTopicIsMadeAgain: a member whose topic somebody deleted is not stalled from then on.
func TestADeletedTopicIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	q := r.member(nil)
	_, err := q.Publish(t.Context(), []*pb.TaskEnvelope{envelope("a", 0)})
	require.NoError(t, err)
	read(t, q, 1)
	before := q.Name()
	mq, err := r.cfg.queue(r.raw, slog.New(slog.DiscardHandler), time.Now)
	require.NoError(t, err)
	require.NoError(t, mq.Admin(Topic).Delete(t.Context(), streammq.Removal{Force: true}))
	var got []string
	require.Eventually(t, func() bool {
		if _, err := q.Publish(t.Context(), []*pb.TaskEnvelope{envelope("b", 0)}); err != nil {
			return false
		}
		some, err := q.Read(t.Context(), 10, 200*time.Millisecond)
		got = append(got, ids(some)...)
		return err == nil && len(got) > 0
	}, waitLimit, 10*time.Millisecond)
	require.Equal(t, before, q.Name())
}
