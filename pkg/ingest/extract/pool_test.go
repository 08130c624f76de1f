package extract

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxChildBytes is what a child may reach on any file.
const maxChildBytes = 300 << 20

func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{t}, nil))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func newPool(t testing.TB, change func(*Config)) *Pool {
	t.Helper()
	cfg := NewDefaultConfig()
	if change != nil {
		change(&cfg)
	}
	p, err := NewPool(cfg, testLog(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func TestCorpusInChildren(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.Sandbox = SandboxRequire })
	require.NoError(t, p.Warm(t.Context()))
	for _, s := range samples(t) {
		t.Run(s.File, func(t *testing.T) {
			ex, blocks, err := extractPath(t, t.Context(), p, filepath.Join("testdata", "corpus", s.File))
			requireSample(t, s, ex, blocks, err)
			if strings.HasPrefix(ex.MediaType, typePDF) {
				require.Positive(t, ex.Pages)
				require.Positive(t, blocks[0].Page)
			}
		})
	}
	require.LessOrEqual(t, p.Stats().PeakBytes, int64(maxChildBytes))
	t.Logf("stats %+v", p.Stats())
}
