package ingest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

func TestPageRanges(t *testing.T) {
	t.Parallel()
	for want, pages := range map[string][]int{"": nil, "4": {4}, "3, 7-9": {3, 7, 8, 9}, "1-2, 4, 6": {1, 2, 4, 6}} {
		require.Equal(t, want, ingest.PageRanges(pages, 100))
	}
	var odd []int
	for n := range 200 {
		odd = append(odd, 2*n+1)
	}
	many := make([]int, ingest.MaxUnread)
	for i := range many {
		many[i] = i + 1
	}
	require.Equal(t, "1-1000, …", ingest.PageRanges(many, 100))
	require.True(t, strings.HasSuffix(ingest.PageRanges(odd, 100), ", 199, …"), "a result stays short")
}
