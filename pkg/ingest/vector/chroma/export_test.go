package chroma

import "time"

// Waiting is how many calls wait for a request of a base.
func (s *Store) Waiting(base string) int { return s.collection(base).upserts.Waiting() }

// SetClock replaces the clock that requests and Retry-After are measured by.
func (s *Store) SetClock(now func() time.Time) { s.now = now }
