package gateway

import "time"

const (
	// maxJSONBytes bounds a JSON request body.
	maxJSONBytes = 1 << 20
	// writeTimeout bounds one write to a client: who does not read for that long is let go.
	writeTimeout = 20 * time.Second
	// readTimeout bounds the reading of a JSON body as a whole.
	readTimeout = 30 * time.Second
)
