package redisq

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// TestTrimKeepsWhatAnyGroupNeeds: with two groups the slower one decides what may go.
func TestTrimKeepsWhatAnyGroupNeeds(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q, slow := r.queue(nil), r.queue(func(c *Config) { c.Group = "mirror" })
	_, err := slow.Watermark(t.Context()) // makes its group
	require.NoError(t, err)
	ids := publish(t, q, 10)
	require.NoError(t, q.Ack(t.Context(), read(t, q, 10)...))
	length := func() int64 {
		_, err := q.Trim(t.Context())
		require.NoError(t, err)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		return stats.Length
	}
	require.EqualValues(t, 10, length(), "the other group has read nothing")
	read(t, slow, 4)
	require.EqualValues(t, 10, length(), "nor finished anything")
	require.NoError(t, slow.Ack(t.Context(), ids[0], ids[2], ids[3]))
	require.EqualValues(t, 9, length(), "it still has entry 1")
	require.NoError(t, slow.Unpin(t.Context(), 0, ids[1]))
	require.EqualValues(t, 6, length(), "the pin is gone")
	r.do(t, "XGROUP", "SETID", r.cfg.StreamKey, "mirror", ids[3])
	require.EqualValues(t, 6, length())
	r.do(t, "XGROUP", "DESTROY", r.cfg.StreamKey, "mirror")
	require.EqualValues(t, 0, length(), "a group that is no more needs nothing")
}

// TestTrimAfterAGroupWasSetBack: its last delivered id then lies below entries that it still has pending.
func TestTrimAfterAGroupWasSetBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	ids := publish(t, q, 5)
	read(t, q, 5)
	require.NoError(t, q.Ack(t.Context(), ids[:4]...))
	r.do(t, "XGROUP", "SETID", r.cfg.StreamKey, r.cfg.Group, ids[1])
	removed, err := q.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, removed)
}

func TestTrimOrdersIDsAsNumbers(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	ids := []string{"9-9", "9-10", "10-1", "9007199254740993-9007199254740993", "18446744073709551615-1"}
	for _, id := range ids {
		r.do(t, "XADD", r.cfg.StreamKey, id, "taskId", "t")
	}
	q, other := r.queue(nil), r.queue(func(c *Config) { c.Group = "other" })
	read(t, q, 5)
	read(t, other, 2)
	require.NoError(t, other.Ack(t.Context(), ids[:2]...))
	for i, want := range []int64{1, 1, 0, 0} { // the other group still needs 10-1
		require.NoError(t, q.Ack(t.Context(), ids[i]))
		removed, err := q.Trim(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, removed, "after %s", ids[i])
	}
	read(t, other, 2)
	require.NoError(t, other.Ack(t.Context(), ids[2], ids[3]))
	_, err := q.Trim(t.Context())
	require.NoError(t, err)
	left := stream.Number(r.do(t, "XLEN", r.cfg.StreamKey), -1)
	require.GreaterOrEqual(t, left, int64(1))
	require.LessOrEqual(t, left, int64(2), "where a Lua number would lose digits one entry more may stay")
}

// TestTrimUnderLoadLosesNothing: producers, two groups that acknowledge out of order, and three trimmers.
func TestTrimUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	const n, batch = 4000, 50
	groups := []*Queue{r.queue(nil), r.queue(func(c *Config) { c.Group = "mirror" })}
	for _, g := range groups {
		_, err := g.Watermark(t.Context())
		require.NoError(t, err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*waitLimit)
	defer stop()
	errs := make(chan error, 16)
	var work, trimmers sync.WaitGroup
	work.Go(func() {
		for range n / batch {
			if _, err := groups[0].Publish(ctx, tasks(batch)); err != nil {
				errs <- err
			}
		}
	})
	for _, g := range groups {
		work.Go(func() { errs <- consumeOutOfOrder(ctx, g, n) })
	}
	done := make(chan struct{})
	for range 3 {
		trimmers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if _, err := groups[0].Trim(ctx); err != nil {
						errs <- err
						return
					}
				}
			}
		})
	}
	work.Wait()
	close(done)
	trimmers.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	_, err := groups[0].Trim(t.Context())
	require.NoError(t, err)
	stats, err := groups[0].Stats(t.Context())
	require.NoError(t, err)
	require.Equal(t, ingestq.Stats{}, stats, "all was finished, so nothing stays")
}

// consumeOutOfOrder keeps every third delivery pending for a while; none of those may lose its data.
func consumeOutOfOrder(ctx context.Context, q *Queue, n int) error {
	var kept []string
	for got := 0; got < n; {
		some, err := q.Read(ctx, 64, time.Second)
		if err != nil {
			return err
		}
		var ack []string
		for _, d := range some {
			if got++; d.Err != nil {
				return d.Err
			}
			if got%3 == 0 {
				kept = append(kept, d.ID)
			} else {
				ack = append(ack, d.ID)
			}
		}
		if len(kept) > 100 {
			page, err := q.Pending(ctx, 0, "", 1000)
			if err != nil {
				return err
			}
			for _, p := range page {
				if p.Gone {
					return fmt.Errorf("pending entry %s of %s lost its data", p.ID, q.cfg.Group)
				}
			}
			ack, kept = append(ack, kept...), nil
		}
		if err := q.Ack(ctx, ack...); err != nil {
			return err
		}
	}
	return q.Ack(ctx, kept...)
}

// TestWatermarkBeyondTheStreamsEnd: a group set past the end would get nothing for as long.
func TestWatermarkBeyondTheStreamsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, labserver.RedisURL(t))
	q := r.queue(nil)
	publish(t, q, 2)
	read(t, q, 2)
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)
	r.do(t, "XGROUP", "SETID", r.cfg.StreamKey, r.cfg.Group, ahead+"-0")
	ids := publish(t, q, 1)
	some, err := q.Read(t.Context(), 1, 50*time.Millisecond)
	require.NoError(t, err)
	require.Empty(t, some, "Redis gives it nothing")
	h, err := q.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, h.At.IsZero(), "what it passed over counts as lost: the table adds it again")
	more := publish(t, q, 1)
	require.Equal(t, more, read(t, q, 1))
	require.NotEqual(t, ids, more)
}

// At the bound nothing is added and nothing unfinished is removed; what was finished makes room.
func TestABoundedStreamLeavesTheRestToTheSweep(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": labserver.RedisURL(t), "embedded": embeddedURL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			r := newRig(t, url)
			r.cfg.MaxUnfinished = 5
			q := New(newTestClient(t, url), r.cfg, slog.New(slog.DiscardHandler), func() time.Time { return now }, nil)
			ids, err := q.Publish(t.Context(), tasks(8))
			require.ErrorIs(t, err, ingestq.ErrFull)
			require.ErrorContains(t, err, "3 are not added")
			require.Len(t, ids, 8)
			require.NotEmpty(t, ids[4])
			require.Equal(t, []string{"", "", ""}, ids[5:])
			got := read(t, q, 3)
			_, err = q.Publish(t.Context(), tasks(1))
			require.ErrorIs(t, err, ingestq.ErrFull, "what is pending is not finished")
			require.NoError(t, q.Ack(t.Context(), got...))
			removed, err := q.Trim(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 3, removed)
			_, err = q.Publish(t.Context(), tasks(3))
			require.NoError(t, err, "it is counted again when there seems to be no room")
			_, err = q.Publish(t.Context(), tasks(1))
			require.ErrorIs(t, err, ingestq.ErrFull)
			require.Len(t, read(t, q, 5), 5, "nothing was trimmed")
		})
	}
}

// Who does not answer a count is unavailable, not full.
func TestABoundedStreamThatIsAwayIsNotFull(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig("redis://127.0.0.1:1")
	cfg.MaxUnfinished = 5
	q := New(newTestClient(t, cfg.URL), cfg, slog.New(slog.DiscardHandler), time.Now, nil)
	_, err := q.Publish(t.Context(), tasks(1))
	require.ErrorIs(t, err, ingestq.ErrUnavailable)
	require.NotErrorIs(t, err, ingestq.ErrFull)
}
