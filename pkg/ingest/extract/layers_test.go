package extract

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
)

// without makes a pool whose children go without some layers of the sandbox.
func without(t testing.TB, sandbox Sandbox, layers ...layer) *Pool {
	p := newPool(t, func(c *Config) { c.Sandbox, c.Parallel = sandbox, 1 })
	p.without = layers
	return p
}

// TestEachLayerHoldsAlone lets a child try what one layer must refuse by itself,
// and first shows that without any layer it would have gone through.
func TestEachLayerHoldsAlone(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	victim, me := writeTemp(t, "victim", []byte("x")), strconv.Itoa(os.Getpid())
	address := listener.Addr().String()
	files := []string{"read " + victim, "list /", "create " + t.TempDir() + "/x", "connect " + address, "exec /bin/true", "kill " + me}
	namespaced := []string{"connect " + address, "udp " + address}
	if ownProcesses != 0 {
		namespaced = append(namespaced, "kill "+me)
	}
	for _, c := range []struct {
		alone  layer
		others []layer
		orders []string
	}{
		{layerLandlock, []layer{layerSeccomp, layerNamespaces}, files},
		{layerSeccomp, []layer{layerLandlock, layerNamespaces}, append(files, "udp "+address, "unix", "bomb", "code", "owner")},
		{layerNamespaces, []layer{layerLandlock, layerSeccomp}, namespaced},
	} {
		t.Run(string(c.alone), func(t *testing.T) {
			t.Parallel()
			alone, bare := without(t, SandboxAuto, c.others...), without(t, SandboxOff)
			for _, what := range c.orders {
				said, err := order(t, bare, what)
				require.NoError(t, err, what)
				require.True(t, strings.HasPrefix(said, "done: "), "%s without any layer: %s", what, said)
				said, err = order(t, alone, what)
				require.NoError(t, err, what)
				require.True(t, strings.HasPrefix(said, "refused: "), "%s with %s: %s", what, c.alone, said)
			}
			require.Equal(t, 1, alone.Stats().Started)
			s := alone.Stats()
			require.Equal(t, map[layer]bool{layerLandlock: s.Landlock, layerSeccomp: s.Seccomp, layerNamespaces: s.Namespaces},
				map[layer]bool{layerLandlock: c.alone == layerLandlock, layerSeccomp: c.alone == layerSeccomp, layerNamespaces: c.alone == layerNamespaces})
		})
	}
}

func TestRequireFailsClosedAndSaysWhy(t *testing.T) {
	t.Parallel()
	for _, missing := range []layer{layerLandlock, layerSeccomp} {
		t.Run(string(missing), func(t *testing.T) {
			t.Parallel()
			required := without(t, SandboxRequire, missing)
			require.ErrorContains(t, required.Warm(t.Context()), string(missing)+": left out")
			_, blocks, err := extractPath(t, t.Context(), required, filepath.Join("testdata", "corpus", "txt_utf8.txt"))
			require.Empty(t, blocks)
			require.Equal(t, ingest.CodeExtractCrashed, ingest.AsFailure(err).Code)
			require.ErrorContains(t, err, string(missing)+": left out")
			require.Zero(t, required.Stats().Live)

			readText1(t, without(t, SandboxAuto, missing)) // what the kernel gives is enough for auto
		})
	}
	readText1(t, without(t, SandboxRequire, layerNamespaces)) // they are no part of what is required
}

// TestConfinementIsInForce looks at a living child from outside.
func TestConfinementIsInForce(t *testing.T) {
	t.Parallel()
	p := without(t, SandboxRequire)
	readText1(t, p)
	proc := "/proc/" + strconv.Itoa(p.idle[0].cmd.Process.Pid)
	spaces := []string{"user", "net", "ipc", "uts", "mnt"}
	if ownProcesses != 0 {
		spaces = append(spaces, "pid")
	}
	for _, space := range spaces {
		theirs, err := os.Readlink(proc + "/ns/" + space)
		require.NoError(t, err)
		ours, err := os.Readlink("/proc/self/ns/" + space)
		require.NoError(t, err)
		require.NotEqual(t, ours, theirs)
	}
	status := procTable(t, proc+"/status", ":")
	for field, want := range map[string]string{
		"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		require.Equal(t, want, status[field], field)
	}
	limits := procTable(t, proc+"/limits", "  ")
	for name, want := range map[string]string{"Max core file size": "0", "Max file size": "0", "Max open files": "64", "Max cpu time": "14400"} {
		require.Equal(t, []string{want, want}, strings.Fields(limits[name])[:2], name)
	}
	environ, err := os.ReadFile(proc + "/environ")
	require.NoError(t, err)
	require.Empty(t, environ)
	require.NoError(t, testutil.CollectAndCompare(p.Collector(), strings.NewReader(`
# HELP ingest_extract_sandbox_layer 1 while children that read documents are confined by the layer, 0 while not or before the first child.
# TYPE ingest_extract_sandbox_layer gauge
ingest_extract_sandbox_layer{layer="landlock"} 1
ingest_extract_sandbox_layer{layer="namespaces"} 1
ingest_extract_sandbox_layer{layer="seccomp"} 1
`), "ingest_extract_sandbox_layer"))
}

// procTable reads lines of a name and a value.
func procTable(t *testing.T, path, separator string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	table := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, separator)
		table[name] = strings.TrimSpace(value)
	}
	return table
}

func TestRefusedNamespacesAreDoneWithout(t *testing.T) {
	t.Parallel()
	s := newStarter()
	defer s.stop()
	tried := 0
	start := func(attr *syscall.SysProcAttr) error {
		tried++
		if attr.Cloneflags != 0 {
			return syscall.EPERM
		}
		return nil
	}
	for range 2 {
		isolated, err := s.start(setup{Sandbox: SandboxAuto}, start)
		require.NoError(t, err)
		require.False(t, isolated)
	}
	require.Equal(t, 3, tried, "asked for once")
	require.ErrorIs(t, *s.refused.Load(), syscall.EPERM)

	broken := errors.New("no memory")
	other := newStarter()
	defer other.stop()
	_, err := other.start(setup{Sandbox: SandboxAuto}, func(*syscall.SysProcAttr) error { return broken })
	require.ErrorIs(t, err, broken)
	require.Nil(t, other.refused.Load(), "what fails without namespaces too is not their fault")
}

func TestLoudChildCostsTheParentNothing(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Parallel = 1 })
	said, err := order(t, p, "shout")
	require.NoError(t, err)
	require.Equal(t, "done: shout", said)
	said, err = order(t, p, "progress")
	require.NoError(t, err)
	require.Equal(t, "done: progress", said)
	require.Equal(t, 1, p.Stats().Started)
}
