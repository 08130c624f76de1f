package textindex

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// A cache keeps what was used last up to its bound, and nothing that was not used for long.
func TestTheCacheKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	c := newCache(3500)
	c.now = func() time.Time { return now }
	put := func(seq int) { c.put(key{"part", seq}, make([]byte, 1000-200)) }
	kept := func() (seqs []int) {
		for seq := range 9 {
			if _, ok := c.items[key{"part", seq}]; ok {
				seqs = append(seqs, seq)
			}
		}
		return seqs
	}
	put(1)
	put(2)
	put(3)
	require.Equal(t, []int{1, 2, 3}, kept())
	require.NotNil(t, c.get(key{"part", 1}))
	put(4)
	require.Equal(t, []int{1, 3, 4}, kept(), "2 was not used for longest")
	now = now.Add(cacheIdle / 2)
	require.NotNil(t, c.get(key{"part", 3}))
	now = now.Add(cacheIdle / 2)
	put(5)
	require.Equal(t, []int{3, 5}, kept())
	require.Equal(t, 2000, c.bytes)
	put(6)
	put(7)
	require.Equal(t, []int{5, 6, 7}, kept())
	require.Nil(t, c.get(key{"part", 3}))
}

// A damaged part may name any range: no chunk outside of the part is asked for.
func TestChunksOfARange(t *testing.T) {
	t.Parallel()
	const size, chunk = 3*part.ChunkSize + 10, part.ChunkSize
	for _, c := range []struct {
		offset      int64
		n           int
		first, last int
		ok          bool
	}{
		{0, 1, 0, 0, true},
		{chunk - 1, 1, 0, 0, true},
		{chunk - 1, 2, 0, 1, true},
		{chunk, chunk, 1, 1, true},
		{0, size, 0, 3, true},
		{size, 0, 0, -1, true},
		{size, 1, 0, -1, false},
		{5, 1 << 40, 0, -1, false},
		{1 << 40, 5, 0, -1, false},
		{5, -5, 0, -1, false},
		{-5, 5, 0, -1, false},
	} {
		first, last, ok := chunksOf(size, part.Span{Offset: c.offset, Size: c.n})
		require.Equal(t, c.ok, ok, c)
		require.Equal(t, []int{c.first, c.last}, []int{first, last}, c)
	}
}
