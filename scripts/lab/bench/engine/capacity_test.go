package engine

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the model says of one worker are the costs that it was given, and no prediction needs more processors than there are.
func TestTheModelGivesBackItsCosts(t *testing.T) {
	t.Parallel()
	c := costs{cores: float64(runtime.NumCPU()), task: 60e-6, share: 2e-3, turn: 2.5e-3}
	got := fit(c.predict(1, wideSlots, 0), c.predict(1, capacitySlots, capacityTakes))
	require.InEpsilon(t, c.task, got.task, 1e-3)
	require.InEpsilon(t, c.share, got.share, 1e-3)
	require.InEpsilon(t, c.turn, got.turn, 1e-3)
	for _, workers := range []int{1, 2, 4, 1000} {
		d := c.predict(workers, capacitySlots, capacityTakes)
		require.Less(t, d.rate*d.cpu, c.cores*1.001)
	}
}
