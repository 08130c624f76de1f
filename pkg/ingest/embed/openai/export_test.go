package openai

import "time"

// SetClock replaces the clock that Retry-After is measured by.
func (e *Embedder) SetClock(now func() time.Time) { e.now = now }
