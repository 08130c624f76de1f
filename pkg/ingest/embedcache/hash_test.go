package embedcache_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embedcache"
)

// A hash of a row that somebody damaged is an error of the row, not a panic of the run that reads it.
func TestHashesAreReadStrictly(t *testing.T) {
	t.Parallel()
	var h embedcache.TextHash
	good := strings.Repeat("0f", 32)
	for _, column := range []any{good, []byte(good), strings.ToUpper(good)} {
		require.NoError(t, h.Scan(column))
		require.Equal(t, good, h.String())
	}
	for _, column := range []any{nil, "", good[:62], good[:63], good + "0", good + "0f", good + good, "g" + good[1:], " " + good[1:], 7} {
		require.ErrorContains(t, h.Scan(column), "is not 64 hex digits", "%v", column)
	}
}
