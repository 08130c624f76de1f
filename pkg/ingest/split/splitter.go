// Package split cuts a document's blocks into segments of bounded size.
//
// It is recursive and knows headings: a section begins a segment unless it and the one before are small parts of a
// larger one, a full segment ends between sentences,
// a sentence that is too long ends at a line, a clause, a word, and only at last inside a run of characters.
// A table's pieces repeat its header row; code is cut between lines and never re-flowed,
// and between blocks of code when the next one does not fit as a whole.
// The same blocks always give the same segments, and no text is lost.
package split

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
)

// version goes up whenever equal blocks may give other segments.
const version = 3

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

// Mode says in what a segment's size is counted.
type Mode string

// The settings of CHUNK_MODE.
const (
	ModeTokens Mode = "tokens" // of the cl100k_base vocabulary
	ModeChars  Mode = "chars"  // Unicode characters
)

// Sizes that apply when CHUNK_SIZE or CHUNK_OVERLAP is not set.
const (
	defaultTokens        = 512
	defaultTokensOverlap = 60
	defaultChars         = 900
	defaultCharsOverlap  = 120
)

// Config is what an operator sets for splitting (CHUNK_*).
type Config struct {
	Mode    Mode `envconfig:"CHUNK_MODE" default:"tokens" desc:"what sizes are counted in: tokens or chars"`
	Size    int  `envconfig:"CHUNK_SIZE" default:"0" desc:"most tokens (characters) of a segment; 0: 512 (900)"`
	Overlap int  `envconfig:"CHUNK_OVERLAP" default:"-1" desc:"tokens (characters) that a segment repeats of the one before; -1: 60 (120)"`
}

// NewDefaultConfig returns the defaults that the struct tags name.
func NewDefaultConfig() Config { return Config{Mode: ModeTokens, Overlap: -1} }

// Resolved fills in the sizes that depend on the mode.
func (c Config) Resolved() Config {
	size, overlap := defaultTokens, defaultTokensOverlap
	if c.Mode == ModeChars {
		size, overlap = defaultChars, defaultCharsOverlap
	}
	if c.Size != 0 {
		// The default overlap keeps its share of a size that was set.
		overlap = c.Size * overlap / size
		size = c.Size
	}
	if c.Overlap >= 0 {
		overlap = c.Overlap
	}
	return Config{Mode: c.Mode, Size: size, Overlap: overlap}
}

// Validate lists every setting that is out of range, by name.
func (c Config) Validate() error {
	var errs []error
	low, high := 32, 8192
	switch c.Mode {
	case ModeTokens:
	case ModeChars:
		low, high = 100, 32_768
	default:
		return fmt.Errorf("CHUNK_MODE: %q is not one of tokens, chars", c.Mode)
	}
	r := c.Resolved()
	if r.Size < low || r.Size > high {
		errs = append(errs, fmt.Errorf("CHUNK_SIZE: %d is not in %d..%d (nor 0) for CHUNK_MODE=%s", c.Size, low, high, c.Mode))
	}
	if c.Overlap < -1 || r.Overlap > r.Size/2 {
		errs = append(errs, fmt.Errorf("CHUNK_OVERLAP: %d is not in -1..%d, half of CHUNK_SIZE", c.Overlap, r.Size/2))
	}
	return errors.Join(errs...)
}
