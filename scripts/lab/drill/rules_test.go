package drill

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
)

func TestEveryApplicableRuleIsNamedBySomeDrill(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, d := range drills {
		known[d.Name] = true
	}
	named := map[string]bool{}
	for _, id := range always {
		named[id] = true
	}
	for drill, ids := range must {
		require.True(t, known[drill], "%s is no drill", drill)
		for _, id := range ids {
			named[id] = true
		}
	}
	byChance := []string{"I19", "L2"} // judged by a look under way: which drill has something pending or running then is chance
	for _, id := range fsck.Applicable() {
		require.True(t, named[id] || slices.Contains(byChance, id), "no drill names %s", id)
	}
	for id := range named {
		require.Contains(t, append(fsck.Applicable(), onKafka...), id)
	}
}

func TestARuleThatJudgedNothingFailsTheDrillAndTheRun(t *testing.T) {
	t.Parallel()
	n := &stage.Notebook{}
	require.ErrorContains(t, proved(n, "main-x", true), "was not asked")
	require.NoError(t, proved(n, "main-x", false), "a drill that failed has said why")
	var whole, bare history.Report
	for _, id := range fsck.Applicable() {
		whole = append(whole, history.Result{Rule: id, Judged: 1})
		bare = append(bare, history.Result{Rule: id})
	}
	n.Add(bare)
	require.ErrorContains(t, proved(n, "main-x", true), "I1")
	n.Add(whole)
	require.NoError(t, proved(n, "main-kill9-worker", true), "several looks add up")
	require.NoError(t, proved(n, "streammq-kill9-dev", true), "its Redis is inside")
	for _, id := range onTopic {
		require.ErrorContains(t, proved(n, "streammq-kill9-worker", true), id)
		n.Add(history.Report{{Rule: id, Judged: 1}})
	}
	require.NoError(t, proved(n, "streammq-kill9-worker", true))
	var out bytes.Buffer
	require.NoError(t, summarize(n, &out))
	require.Contains(t, out.String(), "I28 1 ·")
	bare = slices.DeleteFunc(whole, func(r history.Result) bool { return r.Rule == "L6" })
	short := &stage.Notebook{}
	short.Add(bare)
	require.ErrorContains(t, summarize(short, &out), "L6")
}
