package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

func TestReportsOfSeveralLooksAddUp(t *testing.T) {
	t.Parallel()
	examples := make([]history.Example, history.DefaultExamples)
	for i := range examples {
		examples[i].Task = string(rune('a' + i))
	}
	first := history.Report{{Rule: "I1", Judged: 2, NotJudged: "x"}, {Rule: "I2", Violations: 1, Examples: examples[:1]}, {Rule: "I3", NotJudged: "x"}}
	second := history.Report{{Rule: "I3", NotJudged: "y"}, {Rule: "I2", Judged: 3, Violations: 9, Examples: examples}, {Rule: "I1"}, {Rule: "L6", Judged: 1}}
	sum := rules.Merge(first, second)
	require.Equal(t, history.Result{Rule: "I1", Judged: 2}, sum[0], "one look could judge it")
	require.Equal(t, "x", sum[2].NotJudged, "neither could")
	require.Equal(t, "L6", sum[3].Rule)
	require.EqualValues(t, 10, sum[1].Violations)
	require.Len(t, sum[1].Examples, history.DefaultExamples)
	require.Len(t, first[1].Examples, 1, "the reports stay as they are")
	require.Empty(t, rules.Merge())
}
