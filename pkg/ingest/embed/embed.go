// Package embed holds what all embedders share: the mark of the call that they work for, the check of the vectors
// that they give back, and the names of batches and texts. The embedders themselves are in its sub-packages:
// openai (over HTTP), local (built in, lexical) and embedtest (fakes with faults).
package embed

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
)

// Headers that every embedding request carries, so that an effect seen outside can be traced to the claim that
// caused it: a lab's fake service writes them down, and I28 is judged by them.
const (
	HeaderTask  = "X-Millweir-Task"
	HeaderFence = "X-Millweir-Fence"
	HeaderBatch = "X-Millweir-Batch"
)

// excerptRunes is how much of a text is shown in an error, characters.
const excerptRunes = 60

// Errors of Check; they say what is wrong with an embedder's answer.
var (
	ErrCount      = errors.New("wrong number of vectors")
	ErrEmptyDim   = errors.New("vector without values")
	ErrDimension  = errors.New("vector of another dimension")
	ErrNotFinite  = errors.New("vector with a value that is not finite")
	ErrZeroVector = errors.New("vector of zeros only")
)

// Call says for which claim a batch is embedded.
type Call struct {
	TaskID string // empty: no task
	Fence  int64
	Batch  string // BatchHash of the batch
	Query  bool   // the text is a search: some models make another vector of it than of a document's text, and somebody waits
}

type callKey struct{}

// WithCall returns a context whose embedding requests carry c.
func WithCall(ctx context.Context, c Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// CallFrom returns the Call of ctx; false when there is none.
func CallFrom(ctx context.Context) (Call, bool) {
	c, ok := ctx.Value(callKey{}).(Call)
	return c, ok
}

// ForQueries is an embedder whose texts are searches.
func ForQueries(e ingest.Embedder) ingest.Embedder { return queries{e} }

// AllForQueries are embedders whose texts are searches.
func AllForQueries(all []ingest.Embedder) []ingest.Embedder {
	out := make([]ingest.Embedder, len(all))
	for i, e := range all {
		out[i] = ForQueries(e)
	}
	return out
}

type queries struct{ ingest.Embedder }

// Embed marks the texts.
func (q queries) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	c, _ := CallFrom(ctx)
	c.Query = true
	return q.Embedder.Embed(WithCall(ctx, c), texts)
}

// BatchHash names a batch by its texts in their order: 32 hex characters.
func BatchHash(texts []string) string {
	h := sha256.New()
	var length [8]byte
	for _, text := range texts {
		binary.BigEndian.PutUint64(length[:], uint64(len(text)))
		h.Write(length[:])
		h.Write([]byte(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// VectorError is a bad vector; Index is that of its text.
type VectorError struct {
	Index int
	Err   error
}

// Error names the text by its index.
func (e *VectorError) Error() string { return fmt.Sprintf("text %d: %v", e.Index, e.Err) }

// Unwrap returns one of the errors of Check.
func (e *VectorError) Unwrap() error { return e.Err }

// Check proves an answer: want vectors, all of one dimension, finite and not all zero.
// dim is the dimension that they must have; 0 takes that of the first.
// Errors: ErrCount; *VectorError with one of the other errors.
func Check(vectors [][]float32, want, dim int) error {
	if len(vectors) != want {
		return fmt.Errorf("%w: %d for %d texts", ErrCount, len(vectors), want)
	}
	for i, vector := range vectors {
		if len(vector) == 0 {
			return &VectorError{Index: i, Err: ErrEmptyDim}
		}
		if dim == 0 {
			dim = len(vector)
		}
		if len(vector) != dim {
			return &VectorError{Index: i, Err: fmt.Errorf("%w: %d, not %d", ErrDimension, len(vector), dim)}
		}
		if err := CheckValues(vector); err != nil {
			return &VectorError{Index: i, Err: err}
		}
	}
	return nil
}

// CheckValues returns ErrNotFinite or ErrZeroVector for values that no cosine can be made of.
func CheckValues(vector []float32) error {
	zero := true
	for _, v := range vector {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return ErrNotFinite
		}
		zero = zero && v == 0
	}
	if zero {
		return ErrZeroVector
	}
	return nil
}

// Excerpt is the beginning of a text for an error message: at most 60 characters, one line, quoted.
func Excerpt(text string) string {
	// Cut bytes first: a text may be long, and only its beginning is looked at.
	const most = excerptRunes * 8
	if len(text) > most {
		text = text[:most]
	}
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " "))
	if len(runes) > excerptRunes {
		return fmt.Sprintf("%q…", string(runes[:excerptRunes]))
	}
	return fmt.Sprintf("%q", string(runes))
}
