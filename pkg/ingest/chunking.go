package ingest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ChunkStrategy is a way of cutting documents into segments. All of them keep the rows of tables and the lines of code whole as far as
// they fit, and repeat a table's header row.
type ChunkStrategy string

// The strategies.
const (
	ChunkRecursive ChunkStrategy = "recursive" // whole sentences up to the size; small sections of one section stay together
	ChunkHeadings  ChunkStrategy = "headings"  // the same, and each section begins a segment
	ChunkSentences ChunkStrategy = "sentences" // a segment for each sentence; hits have the sentences around it
	ChunkRows      ChunkStrategy = "rows"      // a segment for each row of a table; the rest as recursive
	ChunkParents   ChunkStrategy = "parents"   // small segments; hits have the larger piece that they are part of
)

// ChunkUnit is what sizes of segments are counted in.
type ChunkUnit string

// The units.
const (
	ChunkTokens ChunkUnit = "tokens" // of the cl100k_base vocabulary
	ChunkChars  ChunkUnit = "chars"  // Unicode characters
)

// Chunking says how documents are cut into segments. The zero value is the operator's (CHUNK_*); in any other each member counts.
type Chunking struct {
	Strategy   ChunkStrategy `json:"strategy"`
	Unit       ChunkUnit     `json:"unit"`
	Size       int           `json:"size"`                 // the most of a segment, in units
	Overlap    int           `json:"overlap,omitempty"`    // what a segment repeats of the one before, in units
	ParentSize int           `json:"parentSize,omitempty"` // parents: the most of the larger piece, in units
	Window     int           `json:"window,omitempty"`     // sentences: how many before and behind a hit it has
}

// ChunkOptions are the members of a Chunking that somebody has set; nil and empty ones have defaults.
type ChunkOptions struct {
	Strategy   ChunkStrategy `json:"strategy,omitempty"`
	Unit       ChunkUnit     `json:"unit,omitempty"`
	Size       *int          `json:"size,omitempty"`
	Overlap    *int          `json:"overlap,omitempty"`
	ParentSize *int          `json:"parentSize,omitempty"`
	Window     *int          `json:"window,omitempty"`
}

// chunkDefaults are the sizes that apply when none is set, and what a size may be.
var chunkDefaults = map[ChunkUnit]struct{ size, overlap, child, low, high int }{
	ChunkTokens: {size: 512, overlap: 60, child: 128, low: 32, high: 8192},
	ChunkChars:  {size: 900, overlap: 120, child: 400, low: 100, high: 32_768},
}

const (
	parentRatio   = 8 // of a parent to its children
	defaultWindow = 3
	maxWindow     = 20
)

// Chunking checks the options and fills in the defaults. The default overlap keeps its share of a size that was set.
// field is what stands before the members' names in errors, such as "chunking.". The error joins a *TextError for each problem.
func (o ChunkOptions) Chunking(field string) (Chunking, error) {
	c := Chunking{Strategy: cmp.Or(o.Strategy, ChunkRecursive), Unit: cmp.Or(o.Unit, ChunkTokens)}
	if err := errors.Join(
		oneOf(field+"strategy", c.Strategy, ChunkRecursive, ChunkHeadings, ChunkSentences, ChunkRows, ChunkParents),
		oneOf(field+"unit", c.Unit, ChunkTokens, ChunkChars),
	); err != nil {
		return c, err
	}
	d := chunkDefaults[c.Unit]
	if c.Size = d.size; c.Strategy == ChunkParents {
		c.Size = d.child
	}
	sized := set(field+"size", o.Size, &c.Size, d.low, d.high)
	most := c.Size / 2
	if c.Strategy == ChunkSentences || c.Strategy == ChunkParents {
		most = 0 // what stands around a segment comes with its hits
	}
	c.Overlap = min(c.Size*d.overlap/d.size, most)
	return c, errors.Join(sized, set(field+"overlap", o.Overlap, &c.Overlap, 0, most),
		c.around(field, o, d.high))
}

// around sets what hits have around their segments.
func (c *Chunking) around(field string, o ChunkOptions, high int) (err error) {
	if c.Strategy == ChunkParents {
		c.ParentSize = min(c.Size*parentRatio, high)
		err = set(field+"parentSize", o.ParentSize, &c.ParentSize, c.Size, high)
	} else if o.ParentSize != nil {
		err = otherStrategy(field+"parentSize", ChunkParents, c.Strategy)
	}
	if c.Strategy == ChunkSentences {
		c.Window = defaultWindow
		return errors.Join(err, set(field+"window", o.Window, &c.Window, 1, maxWindow))
	} else if o.Window != nil {
		return errors.Join(err, otherStrategy(field+"window", ChunkSentences, c.Strategy))
	}
	return err
}

func otherStrategy(field string, of, is ChunkStrategy) error {
	return &TextError{Field: field, Form: true, why: fmt.Sprintf("is for the strategy %s, not for %s; leave it out", of, is)}
}

// oneOf refuses a value that is none of the allowed ones.
func oneOf[T ~string](field string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return &TextError{Field: field, Form: true, why: fmt.Sprintf("is %q, allowed are %s", value, strings.Join(names, ", "))}
}

// set takes a value over if there is one.
func set(field string, value, to *int, low, high int) error {
	switch {
	case value == nil:
	case *value < low || *value > high:
		return &TextError{Field: field, Form: true, why: fmt.Sprintf("is %d, allowed are %d to %d", *value, low, high)}
	default:
		*to = *value
	}
	return nil
}

// Fits refuses segments that are larger than the model takes texts; most in tokens, 0: not known. *TextError.
func (c Chunking) Fits(field string, most int) error {
	if most > 0 && c.Unit == ChunkTokens && c.Size > most {
		return &TextError{Field: field + "size", Form: true, why: fmt.Sprintf("is %d tokens, and the embedding model takes texts of at most %d", c.Size, most)}
	}
	return nil
}

// Scan implements sql.Scanner: the JSON of a column, NULL or empty for the zero value.
func (c *Chunking) Scan(from any) error {
	var text []byte
	switch v := from.(type) {
	case nil:
	case []byte:
		text = v
	case string:
		text = []byte(v)
	default:
		return fmt.Errorf("chunking is %T", from)
	}
	*c = Chunking{}
	if len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, c)
}

// Column is the JSON for a column; nil for the zero value.
func (c Chunking) Column() any {
	if c == (Chunking{}) {
		return nil
	}
	text, _ := json.Marshal(c) // which cannot fail
	return string(text)
}
