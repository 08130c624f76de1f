package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestALoadsOwnAccountFindsDoublesAndRefusals(t *testing.T) {
	t.Parallel()
	rows := []taskRow{{id: "a", base: "b1", file: "a.txt"}, {id: "b", base: "b1", file: "b.txt"}}
	load := &Record{Accepted: map[string]Doc{"a": {Name: "a.txt"}, "b": {Name: "b.txt"}}, Other: map[int]int{}}
	require.NoError(t, load.problems(rows))
	elsewhere := append(rows[:2:2], taskRow{id: "c", base: "b2", file: "a.txt"})
	require.NoError(t, load.problems(elsewhere), "another base may hold the same file")
	twin := append(rows[:2:2], taskRow{id: "c", base: "b1", file: "a.txt"})
	require.ErrorContains(t, load.problems(twin), "became several tasks, one of them c")
	require.ErrorContains(t, (&Record{Maybe: []Doc{{Name: "a.txt"}}}).problems(twin), "became several tasks")
	require.NoError(t, (&Record{}).problems(twin), "somebody else's documents")
	require.ErrorContains(t, (&Record{Other: map[int]int{500: 3}}).problems(rows), "3 uploads were answered with 500")
}

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
