package tasks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFullBacklogTellsAWaitThatFitsItsPace(t *testing.T) {
	t.Parallel()
	for oldest, want := range map[time.Duration]time.Duration{
		0:                backlogUnknown,
		time.Second:      backlogLeast,
		10 * time.Minute: time.Minute,
		24 * time.Hour:   backlogMost,
	} {
		g := backlog{waiting: 1000, oldest: oldest}
		require.Equal(t, want, g.wait(), "the oldest waits %s", oldest)
	}
}
