package reading

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWordsThatTwoAgreeOn(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]int{"the": 2, "hyphened": 1, "水": 1, "道": 1, "x2": 1, "fi": 1}, count("The the hyphe-\n ned, 水道x2 ﬁ<!-- Slide 1 --> ![a picture](a.png)[](b.html)"))
	got := agreed(count("a a a b c"), count("a a b b d"), count("a e"))
	require.Equal(t, map[string]int{"a": 2, "b": 1}, got)
	require.InDelta(t, 2.0/3, recall(count("a b b"), got), 1e-9)
	require.Zero(t, recall(nil, got))
}
