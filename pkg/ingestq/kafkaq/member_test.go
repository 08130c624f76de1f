package kafkaq

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

func TestDeliveriesArriveOnce(t *testing.T) {
	t.Parallel()
	eachBroker(t, 3, func(t *testing.T, b *bench) {
		m := b.join()
		b.add(300)
		got := b.read(m, 300)
		require.Len(t, tasks(got), 300)
		last := map[int32]int64{}
		for _, d := range got {
			at, ok := parseID(d.ID)
			require.True(t, ok)
			require.Equal(t, last[at.partition], at.offset, "in order, none left out")
			last[at.partition]++
		}
		b.quiet(m)
		stats, err := m.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, ingestq.Stats{Length: 300, Pending: 300, Lag: 300}, stats)
		require.NoError(t, m.Ack(t.Context(), ids(got)...))
		b.committed(last)
		stats, err = m.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, ingestq.Stats{Length: 300}, stats)
		require.NoError(t, m.Ping(t.Context()))
	})
}

// What was sent before the first member ever came is not skipped, and where it starts is the group's at once.
func TestAGroupStartsAtTheOldestAndCommitsThat(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		b.add(10)
		b.deleteRecords(0, 4)
		m := b.join()
		got := b.read(m, 6)
		require.Equal(t, "k:0:4", got[0].ID)
		b.committed(map[int32]int64{0: 4})
	})
}

// Offsets are committed only up to the first record that is not finished; what follows comes again after a crash.
func TestOnlyTheFinishedPrefixIsCommitted(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		m := b.join()
		b.add(6)
		got := ids(b.read(m, 6))
		require.NoError(t, m.Ack(t.Context(), got[5], got[1]))
		require.NoError(t, m.Ack(t.Context(), got[1], "1700000000000-0", "k:0:99", "k:9:0", "k:x", ""), "unknown ids")
		b.committed(map[int32]int64{0: 0})
		require.NoError(t, m.Ack(t.Context(), got[0]))
		b.committed(map[int32]int64{0: 2})
		require.NoError(t, m.Ack(t.Context(), got[3]))
		m.stop()
		b.committed(map[int32]int64{0: 2})
		next := b.join()
		require.Equal(t, got[2:], ids(b.read(next, 4)), "finished ones behind the first unfinished come again")
		require.NoError(t, next.Ack(t.Context(), got[2:]...))
		b.committed(map[int32]int64{0: 6})
	})
}

// A topic that was lost and made again: the group's offset lies beyond its end.
func TestACommittedOffsetBeyondTheEndIsSetToTheEnd(t *testing.T) {
	t.Parallel()
	eachBroker(t, 2, func(t *testing.T, b *bench) {
		b.add(40)
		end := map[int32]int64{}
		borders, err := b.client.lags(t.Context())
		require.NoError(t, err)
		for _, x := range borders {
			require.Positive(t, x.Newest)
			end[x.Partition] = x.Newest
		}
		first := b.join() // the embedded broker knows only groups that somebody joined
		b.read(first, 40)
		first.stop()
		b.setCommitted(0, end[0]+1000)
		b.setCommitted(1, end[1])
		_, err = b.join().Watermark(t.Context())
		require.ErrorIs(t, err, ingestq.ErrNoWatermark)
		m := b.join()
		b.eventually("it reads from the end", func() bool {
			some, err := m.Read(t.Context(), 10, 50*time.Millisecond)
			require.Empty(t, some)
			return err == nil && has(m) == 2
		})
		b.committed(end)
		b.quiet(m)
		b.add(20)
		require.Len(t, tasks(b.read(m, 20)), 20, "and it goes on from there")
	})
}

// Records that retention removed before they were read: the sweep re-issues what fell between.
func TestACommittedOffsetBeforeTheStartIsSetToTheStart(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		b.add(10)
		first := b.join()
		require.NoError(t, first.Ack(t.Context(), ids(b.read(first, 10))[:2]...))
		first.stop()
		b.committed(map[int32]int64{0: 2})
		b.deleteRecords(0, 7)
		m := b.join()
		require.Equal(t, []string{"k:0:7", "k:0:8", "k:0:9"}, ids(b.read(m, 3)))
		b.committed(map[int32]int64{0: 7})
	})
}

func TestWhatCannotBeDecodedIsPutAwayRaw(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		bad := []string{"\x00\xff not json", "", `{"schemaVersion":99}`}
		for _, v := range bad {
			b.raw("some key", v)
		}
		b.add(1)
		m := b.join()
		got := b.read(m, 4)
		for i := range bad {
			require.Nil(t, got[i].Envelope())
			require.Error(t, got[i].Err)
			require.Equal(t, bad[i], got[i].Raw["value"])
			require.NoError(t, m.Quarantine(t.Context(), got[i]))
		}
		require.NotNil(t, got[3].Envelope())
		b.committed(map[int32]int64{0: 3})
		deadLetters := b.records(b.cfg.DLQTopic())
		require.Len(t, deadLetters, 3)
		for i, l := range deadLetters {
			require.Equal(t, bad[i], string(l.Value))
			require.Equal(t, "some key", string(l.Key))
			require.Equal(t, b.cfg.Topic, header(l, "source-topic"))
			require.Equal(t, "0", header(l, "source-partition"))
			require.Equal(t, string(rune('0'+i)), header(l, "source-offset"))
			require.NotEmpty(t, header(l, "error"))
		}
		require.NoError(t, m.Quarantine(t.Context(), ingestq.Delivery{ID: "1-1"}), "of another transport")
	})
}

// The topic of dead letters may be missing: the record is read again, and its offset stays.
func TestWhatCannotBePutAwayIsReadAgain(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		admin := b.admin()
		require.NoError(t, admin.DeleteTopic(b.cfg.DLQTopic()))
		b.eventually("the topic is gone", func() bool { // the answer comes before the broker has let it go
			topics, err := admin.ListTopics()
			_, there := topics[b.cfg.DLQTopic()]
			return err == nil && !there
		})
		b.raw("k", "nonsense")
		m := b.join()
		got := b.read(m, 1)
		require.ErrorIs(t, m.Quarantine(t.Context(), got[0]), ingestq.ErrUnavailable)
		b.committed(map[int32]int64{0: 0})
		again := b.read(m, 1)
		require.Equal(t, got[0].ID, again[0].ID)
		require.Equal(t, got[0].Raw["value"], again[0].Raw["value"])
		_, err := Init(t.Context(), b.cfg, TopicParams{Partitions: 1})
		require.NoError(t, err)
		require.NoError(t, m.Quarantine(t.Context(), again[0]))
		b.committed(map[int32]int64{0: 1})
	})
}

// A slow member pauses its partitions instead of reading the topic into memory.
func TestAFullPartitionIsPaused(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		const n = 12_000
		events := b.events(n)
		for i := range events {
			events[i].Payload = append(events[i].Payload, []byte(repeat(" ", 1000))...)
		}
		for i := 0; i < n; i += 3000 {
			b.send(events[i : i+3000])
		}
		m := b.join()
		held := b.read(m, 1)
		waiting := func() int {
			m.mu.Lock()
			defer m.mu.Unlock()
			most := 0
			for _, p := range m.parts {
				most = max(most, len(p.waiting))
			}
			return most
		}
		b.eventually("it is full", func() bool { return waiting() >= highWater })
		for range 20 { // a fetch under way may still come, but no more
			<-time.After(50 * time.Millisecond)
			require.Less(t, waiting(), n/2)
		}
		rest := b.read(m, n-1)
		require.Len(t, tasks(append(held, rest...)), n, "and goes on when it was taken")
		b.quiet(m)
	})
}

// A member that joins takes partitions over; what the first one held of them is its own no more.
func TestAcksOfLostPartitionsDoNothing(t *testing.T) {
	t.Parallel()
	eachBroker(t, 4, func(t *testing.T, b *bench) {
		one := b.join()
		b.add(80)
		held := b.read(one, 80)
		two := b.join()
		var moved []ingestq.Delivery
		b.eventually("the second member has partitions", func() bool {
			some, err := two.Read(t.Context(), 100, 50*time.Millisecond)
			moved = append(moved, some...)
			return err == nil && len(moved) > 0 && has(one) == 2 && has(two) == 2
		})
		theirs := map[int32]bool{}
		two.mu.Lock()
		for p := range two.parts {
			theirs[p] = true
		}
		two.mu.Unlock()
		require.NoError(t, one.Ack(t.Context(), ids(held)...))
		want := map[int32]int64{}
		for _, d := range held {
			if at, _ := parseID(d.ID); !theirs[at.partition] {
				want[at.partition] = max(want[at.partition], at.offset+1)
			} else {
				want[at.partition] = 0
			}
		}
		b.committed(want)
		one.stop()
		b.eventually("the second member has all", func() bool {
			some, _ := two.Read(t.Context(), 100, 50*time.Millisecond)
			moved = append(moved, some...)
			return has(two) == 4
		})
		require.NoError(t, two.Ack(t.Context(), ids(moved)...))
		b.eventually("nothing is left", func() bool {
			some, _ := two.Read(t.Context(), 100, 50*time.Millisecond)
			require.NoError(t, two.Ack(t.Context(), ids(some)...))
			stats, err := two.Stats(t.Context())
			return err == nil && stats.Lag == 0
		})
	})
}

// A member that yields leaves its partitions to the others at once, with what it has not finished, and is back with its next Read.
func TestAMemberThatYieldsIsOutUntilItReads(t *testing.T) {
	t.Parallel()
	eachBroker(t, 2, func(t *testing.T, b *bench) {
		one := b.join()
		b.add(20)
		held := b.read(one, 20)
		require.Equal(t, 2, has(one))
		one.Yield()
		two := b.join()
		b.add(20)
		again := b.read(two, 40)
		require.Len(t, again, 40, "what the first one holds comes too")
		require.Zero(t, has(one))
		require.NoError(t, one.Ping(t.Context()), "it is not to be in the group")
		require.NoError(t, one.Ack(t.Context(), ids(held)...))
		require.NoError(t, two.Ack(t.Context(), ids(again)...))
		two.Yield()
		b.add(20)
		require.Len(t, tasks(b.read(one, 20)), 20)
		b.eventually("they are all the first one's again", func() bool { return has(one) == 2 && has(two) == 0 })
	})
}

// has is how many partitions a member has.
func has(m *member) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.parts)
}

// A task that takes longer than the session: the group's clock does not look at tasks.
func TestLongTasksDoNotLoseTheSession(t *testing.T) {
	t.Parallel()
	eachBroker(t, 1, func(t *testing.T, b *bench) {
		b.cfg.SessionTimeout = 15 * time.Second // brokers allow 6 s; a member that stands still that long loses it
		b.client, b.sender = b.open()
		m := b.join()
		b.add(3)
		held := b.read(m, 3)
		began := time.Now()
		for time.Since(began) < 18*time.Second {
			b.quiet(m) // a rebalance would give them again
		}
		require.NoError(t, m.Ack(t.Context(), ids(held)...))
		b.committed(map[int32]int64{0: 3})
	})
}

// A process that never reads, such as a reclaimer, must not keep partitions from those that do.
func TestWhoDoesNotReadDoesNotJoin(t *testing.T) {
	t.Parallel()
	eachBroker(t, 2, func(t *testing.T, b *bench) {
		idle := b.join()
		m := b.join()
		b.add(20)
		require.Len(t, tasks(b.read(m, 20)), 20)
		require.Equal(t, 2, has(m))
		require.Zero(t, has(idle))
		_, err := idle.Watermark(t.Context())
		require.NoError(t, err)
		require.NoError(t, idle.Ping(t.Context()))
	})
}

func TestWatermarkIsTheFirstUnfinishedRecord(t *testing.T) {
	t.Parallel()
	eachBroker(t, 2, func(t *testing.T, b *bench) {
		m := b.join()
		h, err := m.Watermark(t.Context())
		require.NoError(t, err)
		require.True(t, h.At.IsZero(), "nothing there: %v", h.At)
		require.WithinDuration(t, time.Now(), h.Now, time.Minute)

		b.add(20)
		stamps := map[string]time.Time{}
		for _, r := range b.records(b.cfg.Topic) {
			stamps[place{r.Partition, r.Offset}.id()] = r.Timestamp
		}
		want := func(first ...string) time.Time {
			at := stamps[first[0]]
			for _, id := range first {
				if stamps[id].Before(at) {
					at = stamps[id]
				}
			}
			return at
		}
		h, err = m.Watermark(t.Context())
		require.NoError(t, err)
		require.True(t, h.At.Equal(want("k:0:0", "k:1:0")), "without an offset it is the log's start")

		got := b.read(m, 20)
		<-time.After(5 * time.Millisecond) // the records after these have a later time
		b.add(20)
		for _, r := range b.records(b.cfg.Topic) {
			stamps[place{r.Partition, r.Offset}.id()] = r.Timestamp
		}
		require.NoError(t, m.Ack(t.Context(), ids(got)...))
		ends := map[int32]int64{}
		for _, d := range got {
			at, _ := parseID(d.ID)
			ends[at.partition] = max(ends[at.partition], at.offset+1)
		}
		b.committed(ends)
		h, err = m.Watermark(t.Context())
		require.NoError(t, err)
		require.True(t, h.At.Equal(want(place{0, ends[0]}.id(), place{1, ends[1]}.id())))
	})
}

func TestWatermarkWithoutABroker(t *testing.T) {
	t.Parallel()
	b := newBench(t, closedPort, 0)
	m := b.join()
	_, err := m.Watermark(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	_, err = m.Read(t.Context(), 1, 300*time.Millisecond)
	if err == nil { // the first try to join was still under way
		_, err = m.Read(t.Context(), 1, waitLimit/2)
	}
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.ErrorIs(t, m.Ping(t.Context()), ingestq.ErrUnavailable)
	_, err = m.Stats(t.Context())
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
}

func TestReadIsBoundedAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	eachBroker(t, 3, func(t *testing.T, b *bench) {
		m := b.join()
		b.add(50)
		b.eventually("all are there", func() bool {
			m.wake()
			m.mu.Lock()
			defer m.mu.Unlock()
			n := 0
			for _, p := range m.parts {
				n += len(p.waiting)
			}
			return n == 50
		})
		got, err := m.Read(t.Context(), 7, time.Second)
		require.NoError(t, err)
		require.Len(t, got, 7)
		got, err = m.Read(t.Context(), 100, time.Second)
		require.NoError(t, err)
		require.Len(t, got, 43)

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := m.Read(ctx, 1, time.Hour)
			ended <- err
		}()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

// A member that commits offsets is no PendingQueue: what pending deliveries need cannot be asked of it.
func TestNothingIsPendingOnThisTransport(t *testing.T) {
	t.Parallel()
	var m ingestq.Consumer = newBench(t, closedPort, 0).join()
	_, pending := m.(ingestq.PendingQueue)
	require.False(t, pending)
}
