package telemetry

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConcealedValuesAreHiddenInAnyWords(t *testing.T) {
	t.Parallel()
	const long, longer = "plum Tree/77+concealed", "plum Tree/77+concealed and more"
	Conceal(long)
	Conceal(longer)
	Conceal(long)
	Conceal("shortling") // a word of ordinary length stays
	for text, want := range map[string]string{
		"no such key: " + long + "!":                                "no such key: ***!",
		"twice " + longer + ", " + long:                             "twice ***, ***",
		`Get "https://x.example/plum+Tree%2F77%2Bconcealed": EOF`:   `Get "https://x.example/***": EOF`,
		`Get "https://x.example/plum%20Tree%2F77+concealed/a": EOF`: `Get "https://x.example/***/a": EOF`,
		"a shortling stays":                                         "a shortling stays",
		"plum Tree/77":                                              "plum Tree/77",
	} {
		require.Equal(t, want, Redact(text))
		require.Equal(t, want, Redact(Redact(text)))
	}
}
