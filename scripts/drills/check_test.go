package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

func TestEveryApplicableRuleIsNamedBySomeDrill(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, d := range drills {
		known[d.name] = true
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
	n := &notebook{}
	require.ErrorContains(t, n.proved("main-x", true), "was not asked")
	require.NoError(t, n.proved("main-x", false), "a drill that failed has said why")
	var whole, bare history.Report
	for _, id := range fsck.Applicable() {
		whole = append(whole, history.Result{Rule: id, Judged: 1})
		bare = append(bare, history.Result{Rule: id})
	}
	n.add(bare)
	require.ErrorContains(t, n.proved("main-x", true), "I1")
	n.add(whole)
	require.NoError(t, n.proved("main-kill9-worker", true), "several looks add up")
	require.NoError(t, n.proved("streammq-kill9-dev", true), "its Redis is inside")
	for _, id := range onTopic {
		require.ErrorContains(t, n.proved("streammq-kill9-worker", true), id)
		n.add(history.Report{{Rule: id, Judged: 1}})
	}
	require.NoError(t, n.proved("streammq-kill9-worker", true))
	var out bytes.Buffer
	require.NoError(t, n.summarize(&out))
	require.Contains(t, out.String(), "I28 1 ·")
	bare = slices.DeleteFunc(whole, func(r history.Result) bool { return r.Rule == "L6" })
	short := &notebook{}
	short.add(bare)
	require.ErrorContains(t, short.summarize(&out), "L6")
}
