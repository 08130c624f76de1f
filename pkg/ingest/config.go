package ingest

import (
	"errors"
	"fmt"
	"time"
)

// Config is what an operator sets.
type Config struct {
	MaxUploadBytes int64         // UPLOAD_MAX_BYTES
	MaxAttempts    int           // INGEST_REDIS_MAX_ATTEMPTS: of tasks made from now on
	MaxBacklog     int           // INGEST_MAX_BACKLOG: tasks waiting to run; 0: no limit
	EmbedParallel  int           // embedding calls of one document at the same time
	SpoolDir       string        // where a run keeps the text that it split; empty: the system's temporary folder
	SweepInterval  time.Duration // pause between two looks of the sweeper
	PublishTimeout time.Duration // of the fast path after a commit
}

// NewDefaultConfig holds the defaults of contract §7.
func NewDefaultConfig() Config {
	return Config{
		MaxUploadBytes: 512 << 20, MaxAttempts: 10, MaxBacklog: 0, EmbedParallel: 2,
		SweepInterval: 2 * time.Second, PublishTimeout: 2 * time.Second,
	}
}

// Validate returns every problem, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.MaxUploadBytes > 0, "UPLOAD_MAX_BYTES %d is not positive", c.MaxUploadBytes)
	check(c.MaxAttempts > 0, "INGEST_REDIS_MAX_ATTEMPTS %d is not positive", c.MaxAttempts)
	check(c.MaxBacklog >= 0, "INGEST_MAX_BACKLOG %d is negative", c.MaxBacklog)
	check(c.EmbedParallel >= 1 && c.EmbedParallel <= 64, "embedding calls at the same time: %d is not 1–64", c.EmbedParallel)
	check(c.SweepInterval > 0, "sweep interval %s is not positive", c.SweepInterval)
	check(c.PublishTimeout > 0, "publish timeout %s is not positive", c.PublishTimeout)
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
