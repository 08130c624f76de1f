package extract

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestALargerFileMayTakeLonger(t *testing.T) {
	t.Parallel()
	cfg := NewDefaultConfig()
	for size, want := range map[int64]time.Duration{
		0: cfg.TimeoutSmall, 1 << 20: cfg.TimeoutSmall, 1<<20 + 1: cfg.TimeoutMedium, 16 << 20: cfg.TimeoutMedium, 16<<20 + 1: cfg.TimeoutLarge, 1 << 40: cfg.TimeoutLarge,
	} {
		require.Equal(t, want, cfg.timeout(size), "%d bytes", size)
	}
}

func TestEverySettingHasItsRange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(c *Config){
		"EXTRACT_PARALLEL":       func(c *Config) { c.Parallel = 65 },
		"EXTRACT_MEMORY_MB":      func(c *Config) { c.MemoryMB = 64 },
		"EXTRACT_MAX_TEXT_BYTES": func(c *Config) { c.MaxTextBytes = 1 },
		"EXTRACT_MAX_PAGES":      func(c *Config) { c.MaxPages = 0 },
		"EXTRACT_CHILD_FILES":    func(c *Config) { c.ChildFiles = -1 },
		"EXTRACT_TIMEOUT_SMALL":  func(c *Config) { c.TimeoutSmall = 0 },
		"EXTRACT_TIMEOUT_MEDIUM": func(c *Config) { c.TimeoutMedium = 7 * time.Hour },
		"EXTRACT_TIMEOUT_LARGE":  func(c *Config) { c.TimeoutLarge = -time.Second },
		"EXTRACT_IDLE_TIMEOUT":   func(c *Config) { c.IdleTimeout = 48 * time.Hour },
		"EXTRACT_SANDBOX":        func(c *Config) { c.Sandbox = "" },
	} {
		cfg := NewDefaultConfig()
		change(&cfg)
		err := cfg.Validate()
		require.ErrorContains(t, err, name)
		require.Equal(t, 1, strings.Count(err.Error(), "EXTRACT_"), "and no other")
	}
}

func TestFiguresOfAPoolThatDidNothing(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(p.Collector()))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ingest_extract_children Child processes alive that read documents.
# TYPE ingest_extract_children gauge
ingest_extract_children 0
`), "ingest_extract_children"))
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			require.Zero(t, metric.GetGauge().GetValue()+metric.GetCounter().GetValue(), family.GetName())
		}
	}
}

func TestLastWordsAreOneShortLine(t *testing.T) {
	t.Parallel()
	l := &lastWords{}
	require.Empty(t, l.String())
	for _, part := range []string{"\n\n", "fatal error:\x1b[31m out of ", "memory\n", strings.Repeat("goroutine 1\n", 1000)} {
		n, err := l.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n, "the child must never be held up")
	}
	require.Equal(t, "fatal error:[31m out of memory", l.String())
	require.LessOrEqual(t, len(l.text), stderrBytes)
}

func TestFoldersOfCodeAreOursAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fresh := filepath.Join(dir, "a", "b")
	require.NoError(t, privateFolder(fresh), "it is made")
	info, err := os.Stat(fresh)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for _, mode := range []os.FileMode{0o722, 0o770, 0o777} {
		open := filepath.Join(dir, mode.String())
		require.NoError(t, os.Mkdir(open, 0o700))
		require.NoError(t, os.Chmod(open, mode))
		require.ErrorContains(t, privateFolder(open), "EXTRACT_CACHE_DIR")
	}
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.ErrorContains(t, privateFolder(file), "EXTRACT_CACHE_DIR")
	temporary, own, err := temporaryFolder()
	require.NoError(t, err)
	require.True(t, own)
	require.NoError(t, privateFolder(temporary))
	require.NoError(t, os.RemoveAll(temporary))
	configured, own, err := cacheFolder(fresh)
	require.NoError(t, err)
	require.False(t, own, "the operator's folder stays")
	require.Equal(t, fresh, configured)
}

func TestAProcesssSizeIsWhatTheSystemSays(t *testing.T) {
	t.Parallel()
	rss, threads := processSize(os.Getpid())
	require.Greater(t, rss, int64(1<<20))
	require.Positive(t, threads)
	require.GreaterOrEqual(t, peakBytes(os.Getpid()), residentBytes(os.Getpid())/2)
	rss, threads = processSize(1 << 30) // no such process
	require.Zero(t, rss+threads)
	require.Zero(t, peakBytes(1<<30))
}
