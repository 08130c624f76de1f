package ingestq

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sizes []int
		want  [][2]int
	}{
		"nothing":           {},
		"by number":         {[]int{1, 1, 1, 1}, [][2]int{{0, 3}, {3, 4}}},
		"by bytes":          {[]int{6, 4, 1, 9}, [][2]int{{0, 2}, {2, 4}}},
		"one that is large": {[]int{1, 20, 1}, [][2]int{{0, 1}, {1, 2}, {2, 3}}},
	} {
		var got [][2]int
		for from, to := range Portions(len(c.sizes), 3, 10, func(i int) int { return c.sizes[i] }) {
			got = append(got, [2]int{from, to})
		}
		require.Equal(t, c.want, got, name)
	}
}
