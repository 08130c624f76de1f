package chroma

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

const (
	// minTimeout: a delete has been seen to stall for 11 s.
	minTimeout     = 30 * time.Second
	defaultTimeout = time.Minute
)

// nameRule is Chroma's own for tenants and databases.
var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{1,510}[a-zA-Z0-9]$`)

// Config is what an operator sets about Chroma.
type Config struct {
	BaseURL  string        // CHROMA_BASE_URL: v2 API, 1.5.9 or later, e.g. http://127.0.0.1:8000
	Tenant   string        // CHROMA_TENANT, 3..512 of [a-zA-Z0-9._-]
	Database string        // CHROMA_DATABASE, as the tenant
	Token    string        // CHROMA_TOKEN: sent as Bearer and x-chroma-token for the proxy in front; empty: none
	Timeout  time.Duration // CHROMA_TIMEOUT: longest time of one request, 30s..1h
}

// NewDefaultConfig returns the defaults; BaseURL has none.
func NewDefaultConfig() Config {
	return Config{Tenant: "default_tenant", Database: "default_database", Timeout: defaultTimeout}
}

// Validate names every setting that cannot be used, and its range.
func (c Config) Validate() error {
	var problems []error
	if _, err := rest.ParseBase(c.BaseURL); err != nil {
		problems = append(problems, fmt.Errorf("CHROMA_BASE_URL: %w", err))
	}
	for _, setting := range [][2]string{{"CHROMA_TENANT", c.Tenant}, {"CHROMA_DATABASE", c.Database}} {
		if !nameRule.MatchString(setting[1]) {
			problems = append(problems, fmt.Errorf("%s: %q is not 3..512 of [a-zA-Z0-9._-] between letters or digits", setting[0], setting[1]))
		}
	}
	if c.Timeout < minTimeout || c.Timeout > time.Hour {
		problems = append(problems, fmt.Errorf("CHROMA_TIMEOUT: %v is not within %v..1h", c.Timeout, minTimeout))
	}
	return errors.Join(problems...)
}

// String shows the configuration without its secrets.
func (c Config) String() string {
	return fmt.Sprintf("{Tenant:%s Database:%s Timeout:%v}", c.Tenant, c.Database, c.Timeout)
}

// LogValue shows the configuration without its secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
