package ingestq

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Inspector looks at a queue from outside, for checks: it is no member and changes nothing.
type Inspector interface {
	// Look reads the borders, the groups and what they have read and not acknowledged. A missing queue is an empty one.
	Look(ctx context.Context) (State, error)
	// DeadLetters gives every dead letter to f, oldest first, and stops at f's first error.
	DeadLetters(ctx context.Context, f func(WrittenDeadLetter) error) error
}

// State is a queue at one moment.
type State struct {
	Length int64
	// First is the id of the oldest entry that is kept, Deleted of the youngest that was ever removed; empty: none.
	First, Deleted string
	Groups         []Group
	// Watermark is the time part of the first entry that was given to no member, by the queue's clock; zero: all were given.
	Watermark time.Time
	Pending   []Unacked

	// Commits says that the group commits offsets (Kafka): Parts tell how far it has come, and there are neither Groups nor
	// Pending. Watermark is then the time of the first record at or after a committed offset.
	Commits bool
	Parts   []Part
	// NoWatermark says that what is there allows no judgement about lost deliveries (ErrNoWatermark).
	NoWatermark bool
	// DeadLettersFrom is the time of the first dead letter that is kept, where older ones were removed; zero: none was.
	DeadLettersFrom time.Time
}

// Part is one partition of a queue that commits offsets.
type Part struct {
	Number         int32
	Oldest, Newest int64 // the first offset that is kept, and the one after the last
	Committed      int64 // the first that the group has not finished; -1: it never committed one
}

// Group is one consumer group.
type Group struct {
	Name  string
	Given string // id of the last entry that was given to a member
	// Deleted is that of the group's own stream, where a queue has several; empty: State.Deleted.
	Deleted string
}

// Unacked is a delivery that was read and not acknowledged.
type Unacked struct {
	Group, ID string
	TaskID    string // empty: it cannot be read
	Gone      bool   // its entry was removed
	Idle      time.Duration
}

// WrittenDeadLetter is a dead letter.
type WrittenDeadLetter struct {
	ID     string
	TaskID string // empty: raw bytes that could not be read
	Fence  int64
}

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
	// List returns at most n dead letters (n ≥ 1) after a place, the newest first.
	List(ctx context.Context, after DeadLetterPlace, n int) ([]StoredDeadLetter, error)
	// WrittenDeadLetter reads one; found is false when there is none of that id.
	DeadLetter(ctx context.Context, id string) (l StoredDeadLetter, found bool, err error)
	// Drop takes dead letters out for good and returns how many there were; unknown ids are no error.
	Drop(ctx context.Context, ids ...string) (int64, error)
	// Length counts dead letters.
	Length(ctx context.Context) (int64, error)
}
