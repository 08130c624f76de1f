package checker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/checks"
)

// A result that is too large loses its histories, then all examples but one of a rule, and says so; counts stay.
func TestLargeResultsAreShortened(t *testing.T) {
	t.Parallel()
	result := func(rules, examples, history, problem int) checks.Result {
		out := checks.Result{Violations: int64(rules * examples)}
		for n := range rules {
			r := checks.Rule{Rule: fmt.Sprintf("I%d", n+1), Judged: 1000, Violations: int64(examples)}
			for range examples {
				r.Examples = append(r.Examples, checks.Example{About: "t", Problem: strings.Repeat("p", problem), History: strings.Repeat("h", history)})
			}
			out.Rules = append(out.Rules, r)
		}
		return out
	}
	for name, tc := range map[string]struct {
		in                checks.Result
		shortened         bool
		examples, history int // of a rule: how many, and how many characters of history each
	}{
		"all fits":             {result(5, 5, 10, 10), false, 5, 10},
		"histories go":         {result(47, 5, maxHistory, 10), true, 5, 0},
		"examples but one go":  {result(47, 40, maxHistory, maxText), true, 1, 0},
		"nothing is wrong yet": {result(47, 0, 0, 0), false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := fit(tc.in)
			require.NoError(t, err)
			require.LessOrEqual(t, len(text), maxResult)
			var got checks.Result
			require.NoError(t, json.Unmarshal(text, &got))
			require.Equal(t, tc.shortened, got.Shortened)
			require.Equal(t, tc.in.Violations, got.Violations)
			require.Len(t, got.Rules, len(tc.in.Rules))
			for _, r := range got.Rules {
				require.Len(t, r.Examples, tc.examples)
				for _, e := range r.Examples {
					require.Len(t, e.History, tc.history)
				}
			}
		})
	}
	_, err := fit(result(47, 1, 0, maxResult))
	require.ErrorContains(t, err, "too large")
}
