//go:build lab

package crash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "api.after_commit:1:kill", "a:2:stop", "a:3:error", "a:1:sleep=2s", "*:1:jitter=5ms"} {
		_, err := parse(good)
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"a", "a:0:kill", "a:x:kill", "a:1:explode", "a:1:sleep=long", "a:1:sleep=0s", "*:1:jitter=-5ms", "a:1:jitter", "a:1:nap"} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
}

func TestFaultActsOnceAtTheNthPassage(t *testing.T) {
	dir := t.TempDir()
	old := armed
	t.Cleanup(func() { armed = old })
	armed = func() plan { return plan{name: "t.here", nth: 2, kind: "error", dir: dir} }
	require.NoError(t, Fault("t.elsewhere"))
	require.NoError(t, Fault("t.here"))
	require.ErrorIs(t, Fault("t.here"), ErrInjected)
	require.NoError(t, Fault("t.here"), "fired once in the fleet")
	require.FileExists(t, dir+"/hits/t.here")
	require.FileExists(t, dir+"/hits/t.elsewhere")
}

func TestJitterIsEverywhereAndInEachProcess(t *testing.T) {
	dir := t.TempDir()
	old := armed
	t.Cleanup(func() { armed = old })
	armed = func() plan { return plan{name: everywhere, nth: 1, kind: "jitter", wait: 1, dir: dir} }
	for range 20 {
		require.NoError(t, Fault("t.jitter"))
		require.NoError(t, Fault("t.jitter_too"))
	}
	require.NoFileExists(t, dir+"/fired", "nobody else is kept from it")
}
