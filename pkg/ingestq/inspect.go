package ingestq

import (
	"context"
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
