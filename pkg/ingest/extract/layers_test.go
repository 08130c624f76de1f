package extract

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// without makes a pool whose children go without some layers of the sandbox.
func without(t testing.TB, sandbox sandbox.Mode, layers ...sandbox.Layer) *Pool {
	p := newPool(t, func(c *Config) { c.Sandbox, c.Parallel = sandbox, 1 })
	p.without = layers
	return p
}

func TestRequireFailsClosedAndSaysWhy(t *testing.T) {
	t.Parallel()
	for _, missing := range []sandbox.Layer{sandbox.Landlock, sandbox.Seccomp} {
		t.Run(string(missing), func(t *testing.T) {
			t.Parallel()
			required := without(t, sandbox.Require, missing)
			require.ErrorContains(t, required.Warm(t.Context()), string(missing)+": left out")
			_, blocks, err := extracttest.ExtractPath(t, t.Context(), required, filepath.Join("testdata", "corpus", "txt_utf8.txt"))
			require.Empty(t, blocks)
			require.Equal(t, ingest.CodeExtractCrashed, ingest.AsFailure(err).Code)
			require.ErrorContains(t, err, string(missing)+": left out")
			require.Zero(t, required.Stats().Live)

			readText1(t, without(t, sandbox.Auto, missing)) // what the kernel gives is enough for auto
		})
	}
	readText1(t, without(t, sandbox.Require, sandbox.Namespaces)) // they are no part of what is required
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
		isolated, err := s.start(sandbox.Setup{Sandbox: sandbox.Auto}, start)
		require.NoError(t, err)
		require.False(t, isolated)
	}
	require.Equal(t, 3, tried, "asked for once")
	require.ErrorIs(t, *s.refused.Load(), syscall.EPERM)

	broken := errors.New("no memory")
	other := newStarter()
	defer other.stop()
	_, err := other.start(sandbox.Setup{Sandbox: sandbox.Auto}, func(*syscall.SysProcAttr) error { return broken })
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
