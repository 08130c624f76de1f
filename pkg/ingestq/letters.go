package ingestq

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// StoredLetter is an entry of the dead letter queue as it lies there.
type StoredLetter struct {
	ID string // the queue's own id: a stream entry id, or k:partition:offset
	DeadLetter
	SourceStream string
	SourceGroup  string
	// Raw are the fields of a delivery that could not be read, as they came; nil for all others. TaskID is then empty.
	Raw map[string]string
}

// LetterPlace is a place in a list of dead letters, newest first. The zero one is its start.
type LetterPlace struct {
	ID string    // of the last one that was seen
	At time.Time // when that one failed; lists in order of their ids take no notice of it
}

// After reports whether p comes after another place in a list by time: it is older, or of the same time and its id is smaller.
func After(other, p LetterPlace) bool {
	return cmp.Or(other.At.Compare(p.At), strings.Compare(other.ID, p.ID)) > 0
}

// DeadLetterReader reads dead letters and takes them out, for operators. Errors wrap ErrUnavailable or ctx.Err().
type DeadLetterReader interface {
	// List returns at most n letters (n ≥ 1) after a place, the newest first.
	List(ctx context.Context, after LetterPlace, n int) ([]StoredLetter, error)
	// Letter reads one; found is false when there is none of that id.
	Letter(ctx context.Context, id string) (l StoredLetter, found bool, err error)
	// Drop takes letters out for good and returns how many there were; unknown ids are no error.
	Drop(ctx context.Context, ids ...string) (int64, error)
	// Length counts letters.
	Length(ctx context.Context) (int64, error)
}
