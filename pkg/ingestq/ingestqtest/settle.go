package ingestqtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingestq"
)

func testAdopt(t *testing.T, _ Features, b Bench) {
	one, two := b.Member(), b.Member()
	ids := publish(t, one, 3)
	readAll(t, one, 3)
	found, err := two.Adopt(t.Context(), ids[0], ids[2])
	require.NoError(t, err)
	require.Equal(t, map[string]bool{ids[0]: true, ids[2]: true}, found)
	page, err := one.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 3)
	for i, owner := range []string{two.Name(), one.Name(), two.Name()} {
		require.Equal(t, owner, page[i].Consumer)
	}
	found, err = two.Adopt(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)
}

func testAdoptGone(t *testing.T, f Features, b Bench) {
	one, two := b.Member(), b.Member()
	ids := publish(t, one, 4)
	readAll(t, one, 3)
	require.NoError(t, one.Ack(t.Context(), ids[0]))
	b.DeleteData(ids[1])
	found, err := two.Adopt(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, map[string]bool{ids[0]: false, ids[1]: false, ids[2]: true, ids[3]: false}, found)
	if f.ForgetsGone {
		require.Equal(t, ids[2:3], pendingIDs(t, one))
	}
}

func testLocate(t *testing.T, _ Features, b Bench) {
	if b.Locator == nil {
		t.Skip("nothing can say where deliveries are")
	}
	one, where := b.Member(), b.Locator()
	locate := func(id string) *ingestq.Place {
		t.Helper()
		p, err := where.Locate(t.Context(), id)
		require.NoError(t, err)
		return p
	}
	require.Nil(t, locate("1-1"), "of an empty queue")
	ids := publish(t, one, 2)
	p := locate(ids[1])
	require.NotEmpty(t, p.Stream)
	require.Equal(t, ingestq.Place{Stream: p.Stream}, *p, "nobody was given it")
	readAll(t, one, 2)
	p = locate(ids[1])
	require.Equal(t, one.Name(), p.Consumer)
	require.EqualValues(t, 1, p.Deliveries)
	b.DeleteData(ids[1])
	require.Equal(t, one.Name(), locate(ids[1]).Consumer, "its data is gone")
	require.NoError(t, one.Ack(t.Context(), ids...))
	if p := locate(ids[0]); p != nil { // until it is trimmed
		require.Empty(t, p.Consumer)
	}
	for _, id := range []string{ids[1], "", "x", "k:0:1", "7:1-1", "-", "0-0", "99999999999999999999-0"} {
		require.Nil(t, locate(id), id)
	}
}

func testPending(t *testing.T, _ Features, b Bench) {
	one, two := b.Member(), b.Member()
	ids := publish(t, one, 3)
	if b.Rest == nil {
		readAll(t, one, 2)
		readAll(t, two, 1)
	} else { // its owner alone reads a stream
		readAll(t, one, 3)
		_, err := two.Adopt(t.Context(), ids[2])
		require.NoError(t, err)
	}
	b.DeleteData(ids[1])
	b.Kill(one)
	page, err := two.Pending(t.Context(), 0, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 3)
	for i, p := range page {
		require.Equal(t, ids[i], p.ID)
		require.Equal(t, i == 2, p.Alive, "only the second member lives")
		require.Equal(t, i == 1, p.Gone)
		if b.Rest == nil || i < 2 { // the embedded server counts an adoption as one
			require.Equal(t, int64(1), p.Deliveries)
		}
		require.Less(t, p.Idle, time.Minute)
	}
	requireEnvelope(t, envelope(0), page[0].Envelope())
	require.Nil(t, page[1].Envelope())
	require.Nil(t, page[1].Raw)
	require.NoError(t, page[1].Err, "gone is not undecodable")

	page, err = two.Pending(t.Context(), time.Hour, "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

func testPendingPages(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	ids := publish(t, c, 25)
	readAll(t, c, 25)
	var seen []string
	for after := ""; ; {
		page, err := c.Pending(t.Context(), 0, after, 10)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		require.LessOrEqual(t, len(page), 10)
		for _, p := range page {
			seen = append(seen, p.ID)
		}
		after = page[len(page)-1].ID
	}
	require.Equal(t, ids, seen)
}

// testPendingOldBehindYoung: of 5 old entries behind 20 young ones a filter on the client's side found none (measured).
func testPendingOldBehindYoung(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	ids := publish(t, c, 25)
	readAll(t, c, 25)
	const old = 150 * time.Millisecond
	idleFor(t, c, old, ids...)
	var got []string
	within(old, func() {
		_, err := c.Adopt(t.Context(), ids[:20]...) // young again
		require.NoError(t, err)
		page, err := c.Pending(t.Context(), old, "", 5)
		require.NoError(t, err)
		got = got[:0]
		for _, p := range page {
			got = append(got, p.ID)
		}
	})
	require.Equal(t, ids[20:], got)
}

func testRequeue(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	ids := publish(t, c, 3)
	readAll(t, c, 3)
	require.NoError(t, c.Ack(t.Context(), ids[1]))
	b.DeleteData(ids[2]) // the copy comes out of the row, not out of the entry
	copies := make([]ingestq.Copy, 0, 3)
	for i, id := range ids {
		copies = append(copies, ingestq.Copy{ID: id, Envelope: envelope(100 + i)})
	}
	n, err := c.Requeue(t.Context(), copies)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Empty(t, pendingIDs(t, c))
	again := readAll(t, c, 2)
	requireEnvelope(t, envelope(100), again[0].Envelope())
	requireEnvelope(t, envelope(102), again[1].Envelope())
	n, err = c.Requeue(t.Context(), copies)
	require.NoError(t, err)
	require.Zero(t, n, "copied once")
	requireNothingToRead(t, c)
}

func testRequeueRace(t *testing.T, _ Features, b Bench) {
	const rounds, settlers = 40, 4
	members := make([]ingestq.PendingQueue, settlers)
	for i := range members {
		members[i] = b.Member()
	}
	ids := publish(t, members[0], rounds)
	readAll(t, members[0], rounds)
	var copied atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make(chan error, settlers*rounds)
	for _, m := range members {
		wg.Go(func() {
			<-start
			for i, id := range ids {
				n, err := m.Requeue(t.Context(), []ingestq.Copy{{ID: id, Envelope: envelope(i)}})
				copied.Add(int64(n))
				errs <- err
			}
		})
	}
	close(start)
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, rounds, copied.Load())
	require.Len(t, readAll(t, members[0], rounds), rounds)
	requireNothingToRead(t, members[0])
}

func testUnpin(t *testing.T, _ Features, b Bench) {
	c := b.Member()
	const idle = 150 * time.Millisecond
	var ids []string
	young := time.Duration(0) // at most so old is what was adopted
	for young == 0 || young >= idle {
		require.NoError(t, c.Unpin(t.Context(), 0, ids...))
		ids = publish(t, c, 3)
		readAll(t, c, 3)
		idleFor(t, c, idle, ids...)
		began := time.Now()
		_, err := c.Adopt(t.Context(), ids[1]) // somebody is at it again
		require.NoError(t, err)
		require.NoError(t, c.Unpin(t.Context(), idle, ids[0], ids[1]))
		young = time.Since(began)
	}
	require.Equal(t, ids[1:], pendingIDs(t, c))
	require.NoError(t, c.Unpin(t.Context(), 0, ids...))
	require.Empty(t, pendingIDs(t, c))
	require.NoError(t, c.Unpin(t.Context(), 0))
}

func testDeadLetters(t *testing.T, f Features, b Bench) {
	c := b.Member()
	const n = 601 // more than a pipeline
	deadLetters := make([]ingestq.DeadLetter, n)
	at := time.Date(2025, 6, 15, 17, 6, 40, 123456000, time.FixedZone("", 2*3600))
	for i := range deadLetters {
		deadLetters[i] = ingestq.DeadLetter{
			TaskID: fmt.Sprintf("task-%04d", i), Fence: int64(i), SourceRecordID: "1-1", LastError: "connection refused",
			AttemptCount: 2, FailedAt: at,
		}
	}
	require.NoError(t, c.DeadLetters(t.Context(), deadLetters))
	require.NoError(t, c.DeadLetters(t.Context(), nil))
	if !f.DeadLetters {
		return
	}
	got := b.DeadLetters()
	require.Len(t, got, n)
	require.NotEmpty(t, got[7]["sourceStream"])
	require.NotEmpty(t, got[7]["sourceGroup"])
	delete(got[7], "sourceStream")
	delete(got[7], "sourceGroup")
	require.Equal(t, map[string]string{
		"taskId": "task-0007", "fence": "7", "sourceRecordId": "1-1", "lastError": "connection refused",
		"attemptCount": "2", "failedAt": "2025-06-15T15:06:40.123456Z",
	}, got[7])
}
