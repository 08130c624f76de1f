package ingestq

import "context"

// StoredLetter is an entry of the dead letter queue as it lies there.
type StoredLetter struct {
	ID string // the queue's own id: a stream entry id
	DeadLetter
	SourceStream string
	SourceGroup  string
	// Raw are the fields of a delivery that could not be read, as they came; nil for all others. TaskID is then empty.
	Raw map[string]string
}

// LetterBook reads dead letters and takes them out, for operators. Errors wrap ErrUnavailable or ctx.Err().
type LetterBook interface {
	// List answers at most n letters (n ≥ 1) older than the id before ("": all), the newest first.
	List(ctx context.Context, before string, n int) ([]StoredLetter, error)
	// Letter reads one; found is false when there is none of that id.
	Letter(ctx context.Context, id string) (l StoredLetter, found bool, err error)
	// Drop takes letters out for good and answers how many there were; unknown ids are no error.
	Drop(ctx context.Context, ids ...string) (int64, error)
	// Length counts letters.
	Length(ctx context.Context) (int64, error)
}
