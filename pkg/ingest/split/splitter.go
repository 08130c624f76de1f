// Package split cuts a document's blocks into segments of bounded size.
//
// It is recursive and knows headings: a section begins a segment unless it and the one before are small parts of a
// larger one, a full segment ends between sentences,
// a sentence that is too long ends at a line, a clause, a word, and only at last inside a run of characters.
// A table's pieces repeat its header row; code is cut between lines and never re-flowed,
// and between blocks of code when the next one does not fit as a whole. The other strategies differ in where
// segments begin; those with parents or windows say which segments stand around each (ingest.ChunkStrategy).
// The same blocks always give the same segments, and no text is lost.
package split

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
)

// version goes up whenever equal blocks may give other segments.
const version = 4

// Splitter implements ingest.Splitter. It is safe for use by many goroutines; its runs are not.
type Splitter struct {
	standard ingest.Chunking // the operator's
	most     int             // tokens of a segment that the model takes; 0: not known
	tokens   *tokenCounter
}

var _ ingest.Splitter = (*Splitter)(nil)

// New returns a splitter whose segments have at most so many tokens, whatever a knowledge base says; 0: no limit.
// Errors: those of Config.Validate, and a size beyond that limit.
func New(cfg Config, maxTokens int) (*Splitter, error) {
	c, err := cfg.chunking()
	if err == nil {
		err = renamed(c.Fits(settings, maxTokens))
	}
	if err != nil {
		return nil, err
	}
	return &Splitter{standard: c, most: maxTokens, tokens: newTokenCounter()}, nil
}

// NewRun implements ingest.Splitter.
func (s *Splitter) NewRun(c ingest.Chunking) ingest.SplitRun {
	c = s.of(c)
	r := &run{cfg: c, count: s.tokens.count}
	switch {
	case c.Unit == ingest.ChunkTokens:
	case s.most == 0:
		r.count = utf8.RuneCountInString
	default: // a text that is full for the model counts as a full segment
		r.count = func(text string) int {
			return max(utf8.RuneCountInString(text), (s.tokens.count(text)*c.Size+s.most-1)/s.most)
		}
	}
	return r
}

// of is the chunking that applies, within the model's limit.
func (s *Splitter) of(c ingest.Chunking) ingest.Chunking {
	if c == (ingest.Chunking{}) {
		c = s.standard
	}
	if c.Unit == ingest.ChunkTokens && s.most > 0 {
		c.Size = min(c.Size, s.most)
		c.Overlap = min(c.Overlap, c.Size/2)
	}
	return c
}

// Fingerprint implements ingest.Splitter.
func (s *Splitter) Fingerprint(c ingest.Chunking) string {
	c = s.of(c)
	text := fmt.Sprintf("%s/%d %s %d/%d", c.Strategy, version, c.Unit, c.Size, c.Overlap)
	switch {
	case c.ParentSize > 0:
		text += fmt.Sprintf(" in %d", c.ParentSize)
	case c.Window > 0:
		text += fmt.Sprintf(" among %d", c.Window)
	}
	return text
}

// Config is what an operator sets for splitting (CHUNK_*).
type Config struct {
	Strategy ingest.ChunkStrategy `envconfig:"CHUNK_STRATEGY" default:"recursive" desc:"how documents are cut: recursive, headings, sentences, rows or parents; a knowledge base may say otherwise"`
	Mode     ingest.ChunkUnit     `envconfig:"CHUNK_MODE" default:"tokens" desc:"what sizes are counted in: tokens or chars"`
	Size     int                  `envconfig:"CHUNK_SIZE" default:"0" desc:"most tokens (characters) of a segment; 0: 512 (900), with parents 128 (400)"`
	Overlap  int                  `envconfig:"CHUNK_OVERLAP" default:"-1" desc:"tokens (characters) that a segment repeats of the one before; -1: 60 (120), or none with sentences and parents"`
}

// NewDefaultConfig returns the defaults that the struct tags name.
func NewDefaultConfig() Config {
	return Config{Strategy: ingest.ChunkRecursive, Mode: ingest.ChunkTokens, Overlap: -1}
}

// settings stands before the names of a Config's members in errors.
const settings = "CHUNK_"

// chunking fills in what is not set. Errors name the setting.
func (c Config) chunking() (ingest.Chunking, error) {
	o := ingest.ChunkOptions{Strategy: c.Strategy, Unit: c.Mode}
	if c.Size != 0 {
		o.Size = &c.Size
	}
	if c.Overlap != -1 {
		o.Overlap = &c.Overlap
	}
	out, err := o.Chunking(settings)
	return out, renamed(err)
}

// renamed names the settings of members in an error that joins some.
func renamed(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs := joined.Unwrap()
		for i := range errs {
			errs[i] = renamed(errs[i])
		}
		return errors.Join(errs...)
	}
	text, ok := errors.AsType[*ingest.TextError](err)
	if !ok {
		return err
	}
	name := strings.ToUpper(text.Field)
	if name == "CHUNK_UNIT" {
		name = "CHUNK_MODE"
	}
	return fmt.Errorf("%s%s", name, strings.TrimPrefix(text.Error(), text.Field))
}

// Validate lists every setting that is out of range, by name.
func (c Config) Validate() error {
	_, err := c.chunking()
	return err
}
