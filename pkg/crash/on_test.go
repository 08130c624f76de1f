//go:build lab

package crash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "api.after_commit:1:kill", "a:2:stop", "a:3:error", "a:1:sleep=2s"} {
		_, err := parse(good)
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"a", "a:0:kill", "a:x:kill", "a:1:explode", "a:1:sleep=long", "a:1:nap"} {
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
