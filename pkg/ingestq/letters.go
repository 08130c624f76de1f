package ingestq

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// StoredDeadLetter is an entry of the dead letter queue as it lies there.
type StoredDeadLetter struct {
	ID string // the queue's own id: a stream entry id, or k:partition:offset
	DeadLetter
	SourceStream string
	SourceGroup  string
	// Raw are the fields of a delivery that could not be read, as they came; nil for all others. TaskID is then empty.
	Raw map[string]string
}

// DeadLetterPlace is a place in a list of dead letters, newest first. The zero one is its start.
type DeadLetterPlace struct {
	ID string    // of the last one that was seen
	At time.Time // when that one failed; lists in order of their ids take no notice of it
}

// After reports whether p comes after another place in a list by time: it is older, or of the same time and its id is smaller.
func After(other, p DeadLetterPlace) bool {
	return cmp.Or(other.At.Compare(p.At), strings.Compare(other.ID, p.ID)) > 0
}

// DeadLetterReader reads dead letters and takes them out, for operators. Errors wrap ErrUnavailable or ctx.Err().
type DeadLetterReader interface {
	// List returns at most n letters (n ≥ 1) after a place, the newest first.
	List(ctx context.Context, after DeadLetterPlace, n int) ([]StoredDeadLetter, error)
	// WrittenDeadLetter reads one; found is false when there is none of that id.
	DeadLetter(ctx context.Context, id string) (l StoredDeadLetter, found bool, err error)
	// Drop takes letters out for good and returns how many there were; unknown ids are no error.
	Drop(ctx context.Context, ids ...string) (int64, error)
	// Length counts letters.
	Length(ctx context.Context) (int64, error)
}
