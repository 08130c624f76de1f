package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1-1": "1-2", "0-0": "0-1", "7-18446744073709551615": "8-0",
		"18446744073709551615-18446744073709551615": "18446744073709551615-18446744073709551615",
	} {
		id, ok := ParseID(in)
		require.True(t, ok, in)
		require.Equal(t, want, id.Next().String())
	}
	for _, in := range []string{"", "1", "1-", "-1", "a-b", "1-1-1", "+1-1", "01-1", "1-18446744073709551616"} {
		_, ok := ParseID(in)
		require.False(t, ok, in)
	}
}
