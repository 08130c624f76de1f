package ingest

import "github.com/google/uuid"

// NewID is a UUIDv7 text; reading random numbers does not fail on the systems that we run on.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

const (
	// TypeDocument is the task type that the application works on.
	TypeDocument = "document"
)
