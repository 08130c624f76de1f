package ingest

import (
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/tasks"
)

// Config is what an operator sets.
type Config struct {
	tasks.Config
	MaxUploadBytes int64         // UPLOAD_MAX_BYTES
	EmbedParallel  int           // embedding calls of one document at the same time
	SweepInterval  time.Duration // pause between two looks of the sweeper
}

// NewDefaultConfig holds the defaults of contract §7.
func NewDefaultConfig() Config {
	return Config{
		Config:         tasks.Config{MaxAttempts: 10, PublishTimeout: 2 * time.Second},
		MaxUploadBytes: 512 << 20, EmbedParallel: 2, SweepInterval: 2 * time.Second,
	}
}

// Validate returns every problem, joined.
func (c Config) Validate() error {
	errs := []error{c.Config.Validate()}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxUploadBytes > 0, "UPLOAD_MAX_BYTES %d is not positive", c.MaxUploadBytes)
	check(c.EmbedParallel >= 1 && c.EmbedParallel <= 64, "embedding calls at the same time: %d is not 1–64", c.EmbedParallel)
	check(c.SweepInterval > 0, "sweep interval %s is not positive", c.SweepInterval)
	return errors.Join(errs...)
}

// WithDefaults checks deps and fills in what may be missing.
func (d Deps) WithDefaults() (Deps, error) {
	if d.Store == nil || d.Log == nil {
		return d, errors.New("ingest: store and log are needed")
	}
	if err := d.Policy.Validate(); err != nil {
		return d, fmt.Errorf("ingest: %w", err)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Redact == nil {
		d.Redact = func(s string) string { return s }
	}
	if d.Changed == nil {
		d.Changed = func(...string) {}
	}
	return d, nil
}
