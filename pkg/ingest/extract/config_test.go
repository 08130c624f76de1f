package extract

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

// fsck holds that equal bytes under an equal fingerprint give equal segments.
func TestTheFingerprintNamesWhatIsReadBeside(t *testing.T) {
	t.Parallel()
	plain := newPool(t, nil).Fingerprint()
	require.Equal(t, formats.Fingerprint(), plain)
	for want, change := range map[string]func(c *Config){
		" hidden-sheets":    func(c *Config) { c.HiddenSheets = true },
		" headers comments": func(c *Config) { c.Headers, c.Comments = true, true },
		" tesseract=eng":    func(c *Config) { c.Accept.OCR = detect.Tesseract },
		" docling=image/*,application/pdf": func(c *Config) {
			c.Accept.Kind, c.Accept.Types, c.External.URL = detect.Docling, []string{"image/*", "application/pdf"}, "http://127.0.0.1:1"
		},
	} {
		require.Equal(t, plain+want, newPool(t, change).Fingerprint())
	}
}

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
