package embed_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, c := range map[string]struct {
		vectors   [][]float32
		want, dim int
		err       error
	}{
		"good":           {[][]float32{{1, 0}, {0, -1}}, 2, 0, nil},
		"good dimension": {[][]float32{{1, 0}}, 1, 2, nil},
		"too few":        {[][]float32{{1, 0}}, 2, 0, embed.ErrCount},
		"too many":       {[][]float32{{1, 0}, {1, 0}}, 1, 0, embed.ErrCount},
		"none":           {nil, 1, 0, embed.ErrCount},
		"empty":          {[][]float32{{}}, 1, 0, embed.ErrEmptyDim},
		"mixed":          {[][]float32{{1, 0}, {1}}, 2, 0, embed.ErrDimension},
		"other":          {[][]float32{{1, 0}}, 1, 3, embed.ErrDimension},
		"NaN":            {[][]float32{{1, nan}}, 1, 0, embed.ErrNotFinite},
		"infinite":       {[][]float32{{inf, 0}}, 1, 0, embed.ErrNotFinite},
		"zero":           {[][]float32{{1, 0}, {0, 0}}, 2, 0, embed.ErrZeroVector},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, embed.Check(c.vectors, c.want, c.dim), c.err)
		})
	}
	var bad *embed.VectorError
	require.ErrorAs(t, embed.Check([][]float32{{1}, {2}, {0}}, 3, 0), &bad)
	require.Equal(t, 2, bad.Index)
}

func TestBatchHash(t *testing.T) {
	t.Parallel()
	one := embed.BatchHash([]string{"a", "bc"})
	require.Len(t, one, 32)
	require.Equal(t, one, embed.BatchHash([]string{"a", "bc"}))
	for _, other := range [][]string{{"ab", "c"}, {"bc", "a"}, {"a", "bc", ""}, {"abc"}, nil} {
		require.NotEqual(t, one, embed.BatchHash(other), "%q", other)
	}
}

func TestCallTravelsInTheContext(t *testing.T) {
	t.Parallel()
	_, ok := embed.CallFrom(t.Context())
	require.False(t, ok)
	want := embed.Call{TaskID: "t", Fence: 3, Batch: "b"}
	got, ok := embed.CallFrom(embed.WithCall(t.Context(), want))
	require.True(t, ok)
	require.Equal(t, want, got)
}

func TestExcerpt(t *testing.T) {
	t.Parallel()
	require.Equal(t, `"short text"`, embed.Excerpt(" short\n text "))
	require.Equal(t, `"`+strings.Repeat("知", 60)+`"…`, embed.Excerpt(strings.Repeat("知", 1000)))
	require.Equal(t, `"ab"`, embed.Excerpt("a\xffb"))
	require.Equal(t, `""`, embed.Excerpt(""))
}
