package qdrant

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

const (
	minTimeout     = time.Second
	defaultTimeout = time.Minute
)

// Config is what an operator sets about Qdrant.
type Config struct {
	URL     string        // QDRANT_URL: REST API, 1.10 or later, e.g. http://127.0.0.1:6333
	APIKey  string        // QDRANT_API_KEY: sent as api-key; empty: none
	Timeout time.Duration // QDRANT_TIMEOUT: longest time of one request, 1s..1h
}

// NewDefaultConfig returns the defaults; URL has none.
func NewDefaultConfig() Config { return Config{Timeout: defaultTimeout} }

// Validate names every setting that cannot be used, and its range.
func (c Config) Validate() error {
	var problems []error
	if _, err := rest.ParseBase(c.URL); err != nil {
		problems = append(problems, fmt.Errorf("QDRANT_URL: %w", err))
	}
	if c.Timeout < minTimeout || c.Timeout > time.Hour {
		problems = append(problems, fmt.Errorf("QDRANT_TIMEOUT: %v is not within %v..1h", c.Timeout, minTimeout))
	}
	return errors.Join(problems...)
}

// String shows the configuration without its secrets.
func (c Config) String() string { return fmt.Sprintf("{Timeout:%v}", c.Timeout) }

// LogValue shows the configuration without its secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
