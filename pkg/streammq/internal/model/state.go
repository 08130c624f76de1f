package model

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const maxTraceback = 4000 // bytes

// State is how far a message of a topic with status is.
type State string

// The states. Failed is left again by a retry or a replay; completed is final.
const (
	StatePending    State = "pending"
	StateProcessing State = "processing"
	StateCompleted  State = "completed"
	StateFailed     State = "failed"
)

// Status is what is known of one message.
type Status struct {
	State     State           `json:"status"`
	UpdatedAt time.Time       `json:"updatedAt"`
	Error     *StatusError    `json:"error,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"` // of the handler; FastStream's best-practice project writes it
}

// UnmarshalJSON reads what this package and FastStream's best-practice project write: that one calls the time updated_at, and
// writes it in its local time without a zone, which is taken for this process' zone.
func (s *Status) UnmarshalJSON(text []byte) error {
	type plain Status
	read := struct {
		*plain
		UpdatedAt string `json:"updatedAt"`
		Theirs    string `json:"updated_at"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	at := cmp.Or(read.UpdatedAt, read.Theirs)
	if at == "" {
		return nil
	}
	var err error
	if s.UpdatedAt, err = time.Parse(time.RFC3339, at); err != nil {
		s.UpdatedAt, err = time.ParseInLocation("2006-01-02T15:04:05", at, time.Local)
	}
	return err
}

// StatusError is why a message failed.
type StatusError struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	Traceback string `json:"traceback,omitempty"` // of a panic
}

// PanicError is what a handler panicked with; it is ErrPanic.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("%v: %v", ErrPanic, e.Value) }

// Unwrap makes it ErrPanic.
func (e *PanicError) Unwrap() error { return ErrPanic }

// Describe names an error by its innermost type: the outer ones are mostly texts around it.
func Describe(err error) StatusError {
	s := StatusError{Message: Clip(err.Error(), MaxErrorText)}
	var panicked *PanicError
	if errors.As(err, &panicked) {
		s.Traceback = Clip(string(panicked.Stack), maxTraceback)
	}
	inner := err
	for next := errors.Unwrap(inner); next != nil; next = errors.Unwrap(inner) {
		inner = next
	}
	s.Type = fmt.Sprintf("%T", inner)
	return s
}
