package ingestqtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

func testTrim(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	removed, err := c.Trim(t.Context())
	require.NoError(t, err, "nothing there yet")
	require.Zero(t, removed)
	ids := publish(t, c, 10)
	removed, err = c.Trim(t.Context())
	require.NoError(t, err)
	require.Zero(t, removed, "nobody has read yet")
	readAll(t, c, 6)
	require.NoError(t, c.Ack(t.Context(), ids[0], ids[1], ids[3], ids[4], ids[5]))
	removed, err = c.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, removed, "entry 2 is pending")
	require.NoError(t, c.Ack(t.Context(), ids[2]))
	removed, err = c.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, removed)
	require.Equal(t, ids[6:], deliveryIDs(readAll(t, c, 4)))
	require.NoError(t, c.Ack(t.Context(), ids...))
	removed, err = c.Trim(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 4, removed)
	stats, err := c.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, stats.Length)
	more := publish(t, c, 1)
	require.Equal(t, more, deliveryIDs(readAll(t, c, 1)), "an emptied queue goes on")
}

func testWatermark(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	requireNothingToRead(t, c)
	before := b.Clock()
	h, err := c.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, h.At.IsZero(), "nothing waits")
	require.False(t, h.Now.Before(before.Add(-time.Millisecond)), "%s before %s", h.Now, before)
	require.False(t, h.Now.After(b.Clock().Add(time.Millisecond)))

	from := b.Clock().Truncate(time.Millisecond)
	publish(t, c, 2)
	to := b.Clock()
	h, err = c.Watermark(t.Context())
	require.NoError(t, err)
	require.False(t, h.At.Before(from), "%s before %s", h.At, from)
	require.False(t, h.At.After(to))
	first := h.At

	readAll(t, c, 1)
	h, err = c.Watermark(t.Context())
	require.NoError(t, err)
	require.False(t, h.At.Before(first))
	readAll(t, c, 1)
	h, err = c.Watermark(t.Context())
	require.NoError(t, err)
	require.True(t, h.At.IsZero(), "all was read, though nothing was acknowledged")
}

// testWatermarkOfNewGroup: a group that never was must not make the sweep add everything again (design D5).
func testWatermarkOfNewGroup(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	from := b.Clock().Truncate(time.Millisecond)
	ids := publish(t, c, 3)
	h, err := c.Watermark(t.Context())
	require.NoError(t, err)
	require.False(t, h.At.IsZero(), "the backlog from before the first read counts")
	require.False(t, h.At.Before(from))
	require.Equal(t, ids, deliveryIDs(readAll(t, c, 3)))
}

func testStats(t *testing.T, f Features, b Bench) {
	c := b.Member()
	stats, err := c.Stats(t.Context())
	require.NoError(t, err, "nothing there yet")
	require.Equal(t, ingestq.Stats{Lag: -1}, stats)
	publish(t, c, 5)
	ids := deliveryIDs(readAll(t, c, 3))
	require.NoError(t, c.Ack(t.Context(), ids[0]))
	stats, err = c.Stats(t.Context())
	require.NoError(t, err)
	want := ingestq.Stats{Length: 5, Pending: 2, Lag: -1}
	if f.Lag {
		want.Lag = 2
	}
	require.Equal(t, want, stats)
	require.NoError(t, c.Ping(t.Context()))
}

func testWipe(t *testing.T, _ Features, b Bench) {
	c, other := b.Member(), b.Member()
	ids := publish(t, c, 3)
	readAll(t, c, 2)

	b.Wipe()
	found, err := c.Adopt(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{ids[0]: false, ids[1]: false, ids[2]: false}, found)

	for name, use := range map[string]func() error{
		"ack":     func() error { return c.Ack(t.Context(), ids...) },
		"letgo":   func() error { return c.Unpin(t.Context(), 0, ids...) },
		"trim":    func() error { _, err := c.Trim(t.Context()); return err },
		"stats":   func() error { _, err := c.Stats(t.Context()); return err },
		"pending": func() error { _, err := c.Pending(t.Context(), 0, "", 10); return err },
		"horizon": func() error { _, err := c.Watermark(t.Context()); return err },
		"requeue": func() error {
			n, err := c.Requeue(t.Context(), []ingestq.Copy{{ID: ids[0], Envelope: envelope(0)}})
			require.Zero(t, n)
			return err
		},
		"quarantine": func() error { return c.Quarantine(t.Context(), ingestq.Delivery{ID: ids[0]}) },
	} {
		b.Wipe()
		require.EventuallyWithT(t, func(ct *assert.CollectT) { require.NoError(ct, use()) }, waitLimit, 20*time.Millisecond, name)
	}

	b.Wipe()
	more := publish(t, other, 2) // before anybody has made the group again
	var got []string
	require.Eventually(t, func() bool {
		some, err := c.Read(t.Context(), 10, shortTime)
		if err == nil {
			got = append(got, deliveryIDs(some)...)
		}
		return len(got) == 2
	}, waitLimit, time.Millisecond)
	require.Equal(t, more, got)
}

func testLeave(t *testing.T, _ Features, b Bench) {
	one, two, three := b.Member(), b.Member(), b.Member()
	ids := publish(t, one, 2)
	readAll(t, one, 2)
	_, err := two.Adopt(t.Context(), ids[1])
	require.NoError(t, err)
	require.NoError(t, two.Ack(t.Context(), ids[1]))
	for _, m := range []ingestq.PendingQueue{one, two} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		cancel()
		require.NoError(t, <-ended)
	}
	page, err := three.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 1, "what a member holds outlives it")
	require.Equal(t, ids[0], page[0].ID)
	require.Equal(t, one.Name(), page[0].Consumer)
	require.False(t, page[0].Alive, "its heartbeat ended with it")
}

// A member whose process was drained runs again, and is given what comes then.
func testComesBack(t *testing.T, _ Features, b Bench) {
	m := b.Member()
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		ids := publish(t, m, 2)
		require.Len(t, readAll(t, m, 2), 2)
		require.NoError(t, m.Ack(t.Context(), ids...))
		cancel()
		require.NoError(t, <-ended)
	}
}
