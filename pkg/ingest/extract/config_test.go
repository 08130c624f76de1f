package extract

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	require.NoError(t, NewDefaultConfig().Validate())
	cfg := NewDefaultConfig()
	cfg.Parallel, cfg.Sandbox, cfg.TimeoutSmall, cfg.MemoryMB = 0, "maybe", time.Microsecond, 1
	err := cfg.Validate()
	for _, name := range []string{"EXTRACT_PARALLEL: 0 is not in 1..64", "EXTRACT_SANDBOX", "EXTRACT_TIMEOUT_SMALL: 1µs is not in 100ms..1h0m0s", "EXTRACT_MEMORY_MB: 1 is not in 128..4096"} {
		require.ErrorContains(t, err, name)
	}
	_, err = NewPool(cfg, testLog(t))
	require.Error(t, err)
}
