// Package vector holds what all vector stores share: the name of a base's collection and the check of rows and
// queries before they are written or sent. The stores are in its sub-packages chroma, embedded, pgvector and qdrant;
// vectortest is the suite that all pass.
package vector

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"regexp"

	"github.com/millweir/millweir/pkg/ingest"
)

// unitSlack is how far from 1 the square of a length may be and count as 1: what is read and written again changes no value.
const unitSlack = 1e-6

// MaxIDBytes is the most bytes of an id, a document id or a birth.
const MaxIDBytes = 512

// Errors that rows and queries are refused with; always inside a permanent *ingest.Failure.
var (
	ErrDimension = errors.New("vector of another dimension")
	ErrBadRow    = errors.New("row that cannot be stored")
)

// plainBase is what can stand in a collection's or file's name as it is; lower case only, so that two bases never
// meet on a file system that does not tell cases apart.
var plainBase = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,98}[a-z0-9]$`)

// CollectionName is "kb-" and the base's id; an id that could not stand in a name is replaced by its hash.
// The result is 5 to 103 characters of [a-z0-9_-] and begins and ends with a letter or digit.
func CollectionName(base string) string {
	if plainBase.MatchString(base) {
		return "kb-" + base
	}
	sum := sha256.Sum256([]byte(base))
	return "kb-x" + hex.EncodeToString(sum[:]) + "x"
}

// CheckRows proves that rows can be stored and returns their common dimension.
// Errors: *ingest.Failure, permanent, CodeDimension or CodeVectorRejected.
func CheckRows(rows []ingest.Vector) (dim int, err error) {
	for i, row := range rows {
		if dim == 0 {
			dim = len(row.Values)
		}
		if row.ID == "" || len(row.ID) > MaxIDBytes || len(row.DocumentID) > MaxIDBytes || len(row.Birth) > MaxIDBytes {
			return 0, ingest.Permanent(ingest.CodeVectorRejected, "", "%w: row %d: ids are 1..%d bytes", ErrBadRow, i, MaxIDBytes)
		}
		if len(row.Values) == 0 || len(row.Values) != dim {
			return 0, DimensionFailure(len(row.Values), dim)
		}
		if err := CheckValues(row.Values); err != nil {
			return 0, ingest.Permanent(ingest.CodeVectorRejected, "", "row %d (%.80s): %w", i, row.ID, err)
		}
	}
	return dim, nil
}

// CheckDimension refuses vectors of more values than a store keeps.
// Errors: *ingest.Failure, permanent, CodeVectorRejected.
func CheckDimension(dim, most int, store string) error {
	if dim <= most {
		return nil
	}
	return ingest.Permanent(ingest.CodeVectorRejected, "Use a model, or EMBEDDING_DIMENSIONS, with fewer values, or another VECTOR_STORE.",
		"vectors of %d values: %s keeps at most %d", dim, store, most)
}

// CheckValues returns ErrBadRow for values that have no direction: NaN, infinite, or all zero.
func CheckValues(values []float32) error {
	var square float64
	for _, v := range values {
		square += float64(v) * float64(v)
	}
	if square == 0 || math.IsNaN(square) || math.IsInf(square, 0) {
		return fmt.Errorf("%w: its length is %v", ErrBadRow, math.Sqrt(square))
	}
	return nil
}

// CheckQuery proves that a query's vector can be compared.
// Errors: *ingest.Failure, permanent, CodeVectorRejected.
func CheckQuery(values []float32) error {
	if err := CheckValues(values); err != nil {
		return ingest.Permanent(ingest.CodeVectorRejected, "", "query: %w", err)
	}
	return nil
}

// UnitInto writes values at length 1 into unit, which is as long as they are.
func UnitInto(unit, values []float32) {
	var square float64
	for _, v := range values {
		square += float64(v) * float64(v)
	}
	if math.Abs(square-1) <= unitSlack {
		copy(unit, values)
		return
	}
	length := math.Sqrt(square)
	for i, v := range values {
		unit[i] = float32(float64(v) / length)
	}
}

// DimensionFailure is the permanent failure of a vector of got values where the collection has want.
func DimensionFailure(got, want int) *ingest.Failure {
	return ingest.Permanent(ingest.CodeDimension,
		"The embedding model's vectors do not fit this knowledge base: use the model that it was made with, or make a new base.",
		"%w: %d values, the collection has %d", ErrDimension, got, want)
}

// CompareHits puts the better first; equal scores by id, so that answers are the same every time.
func CompareHits(a, b ingest.Hit) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID))
}

// LastWins drops all but the last row of each id and keeps the order of the rest.
// A store that is given an id twice in one request would have to choose; it is not asked to.
func LastWins(rows []ingest.Vector) []ingest.Vector {
	last := make(map[string]int, len(rows))
	for i, row := range rows {
		last[row.ID] = i
	}
	if len(last) == len(rows) {
		return rows
	}
	kept := make([]ingest.Vector, 0, len(last))
	for i, row := range rows {
		if last[row.ID] == i {
			kept = append(kept, row)
		}
	}
	return kept
}
