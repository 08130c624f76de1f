package world

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPolicyIsWhatTheServicesWereTold(t *testing.T) {
	t.Parallel()
	w := &World{opts: Options{Env: []string{"INGEST_LEASE_MS=2000"}}}
	require.Equal(t, int64(2000), w.Policy().Lease.Milliseconds())
	require.Equal(t, int64(1000), w.Policy().BaseBackoff.Milliseconds())
	w.told = [][]string{{"INGEST_MAX_CRASHES=5", "INGEST_MAX_CRASHES=7"}}
	require.Equal(t, 7, w.Policy().MaxCrashes, "the last one counts, as in the process itself")
	w.told = append(w.told, []string{"INGEST_MAX_CRASHES=3"})
	require.Nil(t, w.Policy(), "two processes were told different things")
}
