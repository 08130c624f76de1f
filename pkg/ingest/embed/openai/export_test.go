package openai

import "time"

// SetClock replaces the clock that Retry-After is measured by.
func (e *Embedder) SetClock(now func() time.Time) { e.now = now }

// KnownAPI is the shape that the setting or the address tells.
func (e *Embedder) KnownAPI() API { return apiOf(e.cfg.API, e.client) }
