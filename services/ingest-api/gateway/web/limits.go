package web

import "time"

const (
	// MaxJSONBytes bounds a JSON request body.
	MaxJSONBytes = 1 << 20
	// WriteTimeout bounds one write to a client: who does not read for that long is let go.
	WriteTimeout = 20 * time.Second
	// readTimeout bounds the reading of a JSON body as a whole.
	readTimeout = 30 * time.Second
)
