package fsck

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALostDeliveryIsNobodysToAcknowledge(t *testing.T) {
	t.Parallel()
	added := time.UnixMilli(1_700_000_000_000)
	flush := added.Add(time.Minute)
	c := &checker{o: Options{Flushes: []time.Time{flush}}}
	require.True(t, c.lostBefore("1700000000000-3", flush.Add(time.Millisecond)), "settling found it gone")
	require.False(t, c.lostBefore("1700000000000-3", added.Add(time.Second)), "acknowledged while it was there")
	require.False(t, c.lostBefore("1700000060001-0", flush.Add(time.Minute)), "added after the loss")
	require.False(t, (&checker{}).lostBefore("1700000000000-3", flush))
}
