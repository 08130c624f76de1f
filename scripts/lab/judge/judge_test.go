package judge

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/tables"
)

func TestALoadsOwnAccountFindsDoublesAndRefusals(t *testing.T) {
	t.Parallel()
	all := []tables.TaskRow{{ID: "a", Base: "b1", File: "a.txt"}, {ID: "b", Base: "b1", File: "b.txt"}}
	load := &apiclient.Record{Accepted: map[string]apiclient.Doc{"a": {Name: "a.txt"}, "b": {Name: "b.txt"}}, Other: map[int]int{}}
	require.NoError(t, problems(load, all))
	elsewhere := append(all[:2:2], tables.TaskRow{ID: "c", Base: "b2", File: "a.txt"})
	require.NoError(t, problems(load, elsewhere), "another base may hold the same file")
	twin := append(all[:2:2], tables.TaskRow{ID: "c", Base: "b1", File: "a.txt"})
	require.ErrorContains(t, problems(load, twin), "became several tasks, one of them c")
	require.ErrorContains(t, problems(&apiclient.Record{Maybe: []apiclient.Doc{{Name: "a.txt"}}}, twin), "became several tasks")
	require.NoError(t, problems(&apiclient.Record{}, twin), "somebody else's documents")
	require.ErrorContains(t, problems(&apiclient.Record{Other: map[int]int{500: 3}}, all), "3 uploads were answered with 500")
}
