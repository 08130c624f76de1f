package streammq

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An id is "ms-seq" or "ms"; the server refuses all else, and a member that begins there would never begin.
func TestEntryIDs(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"0", "5", "5-0", "0-1", "1700000000000-18446744073709551615", "18446744073709551615"} {
		_, err := PositionAfter(good)
		require.NoError(t, err, good)
		cfg := NewDefaultStreamConfig("s", "g", "c", (&log{}).handler(succeed))
		cfg.Start = good
		require.NoError(t, cfg.Validate(), good)
	}
	for _, bad := range []string{"", "-", "5-", "-5", "5-5-5", "+5", "5-+5", " 5", "5-5 ", "five", "18446744073709551616", "0-18446744073709551616"} {
		_, err := PositionAfter(bad)
		require.ErrorIs(t, err, ErrEntryID, bad)
		cfg := NewDefaultStreamConfig("s", "g", "c", (&log{}).handler(succeed))
		cfg.Start = bad
		require.ErrorIs(t, cfg.Validate(), ErrConfig, bad)
	}
}
