package ingest

import (
	"cmp"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is sent: metadata that is taken is its own kept form, says what was sent, and is found by a filter of itself.
func FuzzParseMetadata(f *testing.F) {
	for _, text := range []string{
		`{}`, ` {"b" : 1.50, "a":"x" } `, `{"a":-0}`, `{"a":1e-400}`, `{"a":1e400}`, `{"a":"\u0000"}`, `{"a":1,"A":2}`, `{"a":[[[`, "{\"a\":\"\xff\"}", `{"a":"\ud800<&>"}`, `null`, `{"a":1}{`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMetadata("metadata", text)
		if err != nil || m == "" {
			return
		}
		again, err := ParseMetadata("metadata", string(m))
		require.NoError(t, err)
		require.Equal(t, m, again)
		var sent map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &sent))
		require.Equal(t, sent, m.Values())
		for key, value := range sent {
			rules, err := ParseMetadataRules("metadata", map[string]any{key: value})
			require.NoError(t, err)
			require.Contains(t, m.Pairs(), [2]string{key, rules[0].AnyOf[0]})
		}
	})
}

// Texts of numbers order as the numbers do, and so do those of texts.
func FuzzMetadataText(f *testing.F) {
	f.Add(0.0, -1.0, "a", "b")
	f.Add(-math.MaxFloat64, math.SmallestNonzeroFloat64, "", "\U0010ffff")
	f.Fuzz(func(t *testing.T, a, b float64, x, y string) {
		if math.IsNaN(a) || math.IsNaN(b) {
			return
		}
		a, b = a+0, b+0 // as metadataValue keeps them
		require.Equal(t, cmp.Compare(a, b), strings.Compare(metadataText(a), metadataText(b)), "%v %v", a, b)
		require.Equal(t, strings.Compare(x, y), strings.Compare(metadataText(x), metadataText(y)))
		require.Less(t, metadataText(x), "t", "a range without an end holds every text")
		require.Less(t, metadataText(a), "o")
	})
}
