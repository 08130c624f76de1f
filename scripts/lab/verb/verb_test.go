package verb

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNamesChoose(t *testing.T) {
	t.Parallel()
	all := []string{"m1", "m10", "m2", "kill"}
	for names, want := range map[string][]string{"": all, "m1": {"m1"}, "m": {"m1", "m10", "m2"}, "k,m2": {"m2", "kill"}} {
		got, err := Choose(names, all, func(s string) string { return s })
		require.NoError(t, err)
		require.Equal(t, want, got, names)
	}
	_, err := Choose("m1,x", all, func(s string) string { return s })
	require.ErrorContains(t, err, `nothing begins with "x"`)
}

func TestAResultIsOneLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.True(t, Result{Name: "a", Took: 1500 * time.Millisecond, Saw: "all well"}.Print(&out))
	require.True(t, Result{Name: "a"}.Print(&out))
	require.False(t, Result{Name: "b", Seed: 7, At: "kill", Err: errors.New("lost"), Logs: "run/b"}.Print(&out))
	require.False(t, Result{Name: "c", Err: errors.New("lost")}.Print(&out))
	require.Equal(t, "PASS a (1.5 s): all well\nPASS a (0.0 s)\nFAIL b (0.0 s, seed 7, kill): lost\n  logs: run/b\nFAIL c (0.0 s): lost\n", out.String())
}

func TestEveryVerbHasTheSameFlags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	f := Flags{Names: "m1"}
	_, ok := Parse("x", []string{"-seed", "7", "-list"}, &out, &f, nil)
	require.True(t, ok)
	require.Equal(t, Flags{Names: "m1", List: true, Seed: 7}, f)
	code, ok := Parse("x", []string{"-h"}, &out, &f, nil)
	require.False(t, ok)
	require.Zero(t, code)
	code, ok = Parse("x", []string{"-nonsense"}, &out, &f, nil)
	require.False(t, ok)
	require.Equal(t, 2, code)
}
