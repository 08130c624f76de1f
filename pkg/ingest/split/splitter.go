package split

import (
	"fmt"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
)

// version goes up whenever equal blocks may give other segments.
const version = 1

// Splitter implements ingest.Splitter. It is safe for use by many goroutines; its runs are not.
type Splitter struct {
	cfg   Config
	count func(string) int // size of a text in the mode's unit
}

var _ ingest.Splitter = (*Splitter)(nil)

// New returns a splitter. Errors: those of Config.Validate.
func New(cfg Config) (*Splitter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Splitter{cfg: cfg.Resolved(), count: utf8.RuneCountInString}
	if s.cfg.Mode == ModeTokens {
		s.count = newTokenCounter().count
	}
	return s, nil
}

// NewRun implements ingest.Splitter.
func (s *Splitter) NewRun() ingest.SplitRun { return &run{s: s} }

// Fingerprint implements ingest.Splitter.
func (s *Splitter) Fingerprint() string {
	return fmt.Sprintf("recursive/%d %s %d/%d", version, s.cfg.Mode, s.cfg.Size, s.cfg.Overlap)
}
