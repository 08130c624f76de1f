package ingestqtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
	pb "github.com/millweir/millweir/proto"
)

func testDelivery(t *testing.T, _ Features, b Bench) {
	one, two := b.Member(), b.Member()
	require.NotEqual(t, one.Name(), two.Name())
	const n = 1203 // more than a pipeline
	ids, err := one.Publish(t.Context(), envelopes(n))
	for errors.Is(err, ingestq.ErrUnavailable) { // it was held up for longer than it may take: what has arrived is read away
		for some, err := one.Read(t.Context(), n, blockTime); err != nil || len(some) > 0; some, err = one.Read(t.Context(), n, blockTime) {
			require.NoError(t, one.Ack(t.Context(), deliveryIDs(some)...))
		}
		ids, err = one.Publish(t.Context(), envelopes(n))
	}
	require.NoError(t, err)
	some := readAll(t, one, 700)
	b.rest(t, one, some)
	all := slices.Concat(some, readAll(t, two, n-700))
	b.rest(t, two, all)
	require.Equal(t, ids, deliveryIDs(all))
	for i, d := range all {
		require.NoError(t, d.Err)
		requireEnvelope(t, envelope(i), d.Envelope())
	}
	requireNothingToRead(t, one)
	requireNothingToRead(t, two)
}

func testReadBounds(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	publish(t, c, 5)
	some, err := c.Read(t.Context(), 2, blockTime)
	require.NoError(t, err)
	require.Len(t, some, 2)
	readAll(t, c, 3)
	for _, block := range []time.Duration{0, shortTime, 400 * time.Millisecond} {
		start := time.Now()
		some, err = c.Read(t.Context(), 2, block)
		require.NoError(t, err)
		require.Empty(t, some)
		require.GreaterOrEqual(t, time.Since(start), block-time.Millisecond)
		require.Less(t, time.Since(start), block+time.Minute)
	}
}

func testReadWakes(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	requireNothingToRead(t, c)
	got := make(chan []ingestq.Delivery, 1)
	go func() {
		some, _ := c.Read(t.Context(), 1, waitLimit)
		got <- some
	}()
	publish(t, b.Member(), 1)
	select {
	case some := <-got:
		require.Len(t, some, 1)
	case <-time.After(waitLimit / 2):
		t.Fatal("a blocked read did not see a new delivery")
	}
}

func testReadContext(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	requireNothingToRead(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(ctx, 1, 2*waitLimit)
		ended <- err
	}()
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(waitLimit / 2):
		t.Fatal("a read outlived its context")
	}
	// Nothing that comes later is swallowed by the read that ended.
	ids := publish(t, c, 1)
	b.rest(t, c, nil)
	require.Equal(t, ids, deliveryIDs(readAll(t, b.Member(), 1)))
}

// testReadCancelledInTime: whatever the queue gave to a read that is being cancelled is answered, not swallowed.
func testReadCancelledInTime(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	requireNothingToRead(t, c)
	answered := map[string]bool{}
	for round := range 40 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan []ingestq.Delivery, 1)
		go func() {
			some, _ := c.Read(ctx, 10, time.Minute)
			ended <- some
		}()
		published := make(chan error, 1)
		time.AfterFunc(5*time.Millisecond, func() {
			_, err := c.Publish(t.Context(), envelopes(1))
			published <- err
		})
		// Around the moment at which the entry comes.
		time.AfterFunc(4*time.Millisecond+time.Duration(round)*50*time.Microsecond, cancel)
		require.NoError(t, <-published)
		for _, d := range <-ended {
			answered[d.ID] = true
		}
	}
	require.Eventually(t, func() bool { // a member may keep what came too late for its next read
		last, _ := c.Read(t.Context(), 10, shortTime)
		for _, d := range last {
			answered[d.ID] = true
		}
		return !slices.ContainsFunc(pendingIDs(t, c), func(id string) bool { return !answered[id] })
	}, waitLimit, time.Millisecond, "an entry was given to a read that did not answer it")
}

func testAck(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	ids := publish(t, c, 3)
	readAll(t, c, 3)
	require.Equal(t, ids, pendingIDs(t, c))
	require.NoError(t, c.Ack(t.Context(), ids[0], ids[2]))
	require.Equal(t, ids[1:2], pendingIDs(t, c))
	require.NoError(t, c.Ack(t.Context(), ids...), "unknown ids are no error")
	require.NoError(t, c.Ack(t.Context()))
	require.Empty(t, pendingIDs(t, c))
}

func testQuarantine(t *testing.T, f Features, b Bench) {
	c := b.Member()
	raw := map[string]string{"taskId": "t", "payload": "{not JSON", "bytes": "\xff\x00\xfe", "lastError": "theirs"}
	id := b.AddRaw(raw)
	publish(t, c, 1)
	all := readAll(t, c, 2)
	require.Nil(t, all[0].Envelope())
	require.ErrorIs(t, all[0].Err, pb.ErrMalformed)
	require.Equal(t, raw, all[0].Raw)
	require.NotNil(t, all[1].Envelope(), "the one behind it is not held up")

	page, err := c.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Equal(t, raw, page[0].Raw)
	require.ErrorIs(t, page[0].Err, pb.ErrMalformed)

	require.NoError(t, c.Quarantine(t.Context(), all[0]))
	require.NoError(t, c.Quarantine(t.Context(), all[0]), "a second one finds its work done")
	require.Equal(t, []string{all[1].ID}, pendingIDs(t, c))
	if !f.DeadLetters {
		return
	}
	deadLetters := b.DeadLetters()
	require.Len(t, deadLetters, 1)
	require.Equal(t, id, deadLetters[0]["sourceRecordId"])
	require.Equal(t, "t", deadLetters[0]["taskId"])
	require.Equal(t, raw["bytes"], deadLetters[0]["bytes"], "bytes as they came")
	require.Equal(t, raw["payload"], deadLetters[0]["payload"])
	require.Equal(t, "theirs", deadLetters[0]["raw.lastError"])
	require.Contains(t, deadLetters[0]["lastError"], "malformed")
	require.NotEmpty(t, deadLetters[0]["sourceStream"])
	require.NotEmpty(t, deadLetters[0]["sourceGroup"])
	_, err = time.Parse(time.RFC3339Nano, deadLetters[0]["failedAt"])
	require.NoError(t, err)
}

func testBadEnvelope(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	batch := envelopes(3)
	batch[1].FilePath = strings.Repeat("x", pb.MaxEnvelope+1)
	ids, err := c.Publish(t.Context(), batch)
	require.ErrorIs(t, err, pb.ErrTooLarge)
	require.NotErrorIs(t, err, ingestq.ErrUnavailable)
	require.ErrorContains(t, err, "task-0001")
	require.Len(t, ids, 3)
	require.Empty(t, ids[1])
	require.Equal(t, []string{ids[0], ids[2]}, deliveryIDs(readAll(t, c, 2)))

	n, err := c.Requeue(t.Context(), []ingestq.Copy{{ID: ids[0], Envelope: batch[1]}, {ID: ids[2], Envelope: batch[2]}})
	require.ErrorIs(t, err, pb.ErrTooLarge)
	require.Equal(t, 1, n)
	require.Equal(t, ids[:1], pendingIDs(t, c), "what could not be copied was not acknowledged")
}

func testForeignIDs(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	ids := publish(t, c, 1)
	readAll(t, c, 1)
	foreign := []string{"", "kafka:ingest-tasks:0:17", "1-", "-1", "01-1", ids[0] + "x"}
	require.NoError(t, c.Ack(t.Context(), foreign...))
	found, err := c.Adopt(t.Context(), append(foreign, ids[0])...)
	require.NoError(t, err)
	for _, id := range foreign {
		require.Contains(t, found, id)
		require.False(t, found[id], id)
	}
	require.True(t, found[ids[0]])
	require.NoError(t, c.Unpin(t.Context(), 0, foreign...))
	require.NoError(t, c.Quarantine(t.Context(), ingestq.Delivery{ID: foreign[1]}))
	n, err := c.Requeue(t.Context(), []ingestq.Copy{{ID: foreign[1], Envelope: envelope(1)}})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, ids, pendingIDs(t, c))
}
