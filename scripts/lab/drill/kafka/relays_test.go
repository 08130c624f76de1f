package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDuplicatesAreBoundedByWhatWasInFlight(t *testing.T) {
	t.Parallel()
	ids := []string{"a", "b", "c", "d"}
	kills := []map[string]bool{{"a": true, "b": true}, {"a": true}}
	for name, c := range map[string]struct {
		records map[string]int
		Kills   []map[string]bool
		tried   map[string]int
		Want    string // of the error; empty: none
	}{
		"each once":            {map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, kills, nil, ""},
		"all that flew again":  {map[string]int{"a": 3, "b": 2, "c": 1, "d": 1}, kills, nil, ""},
		"a failed attempt":     {map[string]int{"a": 1, "b": 1, "c": 2, "d": 1}, kills, map[string]int{"c": 1}, ""},
		"sum above the bound":  {map[string]int{"a": 2, "b": 2, "c": 2, "d": 2}, kills, nil, "4 events more than were committed are on the topic, 3 were in flight at 2 kills"},
		"one that did not fly": {map[string]int{"a": 1, "b": 1, "c": 2, "d": 1}, kills, nil, "event c is on the topic 2 times"},
		"one is lost":          {map[string]int{"a": 1, "b": 1, "c": 1}, kills, nil, "1 of 4 committed events"},
		"one of nobody":        {map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, kills, nil, "5 events are on the topic"},
		"kills met nothing":    {map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}, []map[string]bool{{}, {}}, nil, "met no event in flight"},
	} {
		saw, err := eachOnce(ids, c.records, c.Kills, c.tried)
		if c.Want == "" {
			require.NoError(t, err, name)
			require.Contains(t, saw, "2 kills with", name)
			continue
		}
		require.ErrorContains(t, err, c.Want, name)
	}
}
