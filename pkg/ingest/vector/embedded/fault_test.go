package embedded

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

// waitLimit and waitTick bound a polled condition.
const (
	waitLimit = time.Minute
	waitTick  = time.Millisecond
)

func faultRows(from, to int) []ingest.Vector {
	var rows []ingest.Vector
	for n := from; n < to; n++ {
		rows = append(rows, ingest.Vector{ID: string(rune('a' + n)), Birth: "v", Values: []float32{1, float32(n)}})
	}
	return rows
}

// A disk that fails in the middle of a write: the caller is told, readers never see the rows, what was there stays,
// and once the disk works again the store goes on without a restart, with nothing of the failed call in its file.
func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := Open(dir, Options{})
	require.NoError(t, err)
	require.NoError(t, store.Upsert(t.Context(), "base", faultRows(0, 2)))
	c, err := store.open("base", 0)
	require.NoError(t, err)

	good := c.file
	broken, err := os.Open(dir + "/" + c.name) // read-only: every write and truncate fails
	require.NoError(t, err)
	c.file = broken
	for range 2 {
		err = store.Upsert(t.Context(), "base", faultRows(2, 4))
		require.Equal(t, ingest.CodeVector, ingest.AsFailure(err).Code)
		require.False(t, ingest.AsFailure(err).Permanent)
		require.NotEmpty(t, ingest.AsFailure(err).Remedy)
	}
	ids, err := store.List(t.Context(), "base", 0, 10)
	require.NoError(t, err, "readers go on")
	require.Equal(t, []string{"a", "b"}, ids)

	// Half of a record reached the file before the disk failed.
	_, err = good.WriteAt([]byte("half of a record"), c.size)
	require.NoError(t, err)
	c.file = good
	require.NoError(t, broken.Close())
	require.NoError(t, store.Upsert(t.Context(), "base", faultRows(4, 5)))
	require.NoError(t, store.Close())

	store, err = Open(dir, Options{})
	require.NoError(t, err)
	ids, err = store.List(t.Context(), "base", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "e"}, ids)
	require.NoError(t, store.Close())
}

// A rewrite that cannot be written leaves the old file in use.
func TestFailedRewriteLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := Open(dir, Options{CompactBytes: 1})
	require.NoError(t, err)
	require.NoError(t, store.Upsert(t.Context(), "base", faultRows(0, 5)))
	c, err := store.open("base", 0)
	require.NoError(t, err)
	// A directory in the place of the temporary file.
	require.NoError(t, os.MkdirAll(dir+"/"+c.name+tempSuffix+"/x", 0o700))
	require.NoError(t, store.Delete(t.Context(), "base", []string{"a", "b", "c"}))
	ids, err := store.List(t.Context(), "base", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"d", "e"}, ids)
	require.NoError(t, os.RemoveAll(dir+"/"+c.name+tempSuffix))
	before := c.size
	require.NoError(t, store.Upsert(t.Context(), "base", faultRows(3, 5)))
	require.NoError(t, store.Upsert(t.Context(), "base", faultRows(3, 5)))
	require.Less(t, c.size, before, "the next rewrite goes well")
	require.NoError(t, store.Close())
	store, err = Open(dir, Options{})
	require.NoError(t, err)
	ids, err = store.List(t.Context(), "base", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"d", "e"}, ids)
	require.NoError(t, store.Close())
}

// Callers that wait at the same time share one record, and so one fsync.
func TestWaitingCallersShareOneRecord(t *testing.T) {
	t.Parallel()
	store, err := Open(t.TempDir(), Options{})
	require.NoError(t, err)
	require.NoError(t, store.Upsert(t.Context(), "base", faultRows(0, 1)))
	c, err := store.open("base", 0)
	require.NoError(t, err)
	c.writing <- struct{}{} // nobody can write
	results := make(chan error, 11)
	upsert := func(n int) { results <- store.Upsert(t.Context(), "base", faultRows(n, n+1)) }
	for n := range 11 {
		go upsert(n)
	}
	require.Eventually(t, func() bool { return c.commits.Waiting() == 10 }, waitLimit, waitTick, "one is at work")
	start := c.size
	<-c.writing
	for range 11 {
		require.NoError(t, <-results)
	}
	records := 0
	for at := start; at < c.size; records++ {
		payload, err := readRecord(c.file, at, c.size, nil)
		require.NoError(t, err)
		at += recordHeader + int64(len(payload))
	}
	require.Equal(t, 2, records, "the first, and the ten that came meanwhile")
	require.NoError(t, store.Close())
}
