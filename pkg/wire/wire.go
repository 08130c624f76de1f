// Package wire has the JSON types of the HTTP API (contract §4): what the gateway writes and what its clients read.
//
// A type has the name of its schema in the OpenAPI document; a test of the gateway compares them field by field.
// The package knows the form alone: which values are allowed is said by the domain.
package wire

import (
	"encoding/json"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// List is the form of every list.
type List[T any] struct {
	Items      []T      `json:"items"`
	NextCursor NullText `json:"nextCursor"` // null: this was the last page
	HasMore    bool     `json:"hasMore"`
}

// Problem is the body of every error (RFC 9457).
type Problem struct {
	Type       string           `json:"type"`
	Title      string           `json:"title"`
	Status     int              `json:"status"`
	Code       string           `json:"code"`
	Message    string           `json:"message"`
	Detail     string           `json:"detail"` // the same as message, for readers that know RFC 9457 only
	Remedy     string           `json:"remedy"`
	RequestID  string           `json:"requestId"`
	Parameter  string           `json:"parameter,omitempty"`  // the parameter, field or file that is wrong
	TaskStatus taskstate.Status `json:"taskStatus,omitempty"` // of a task that refuses
	RetryAfter int              `json:"retryAfterSeconds,omitempty"`
}

// timeLayout is RFC 3339 in UTC with microseconds, always of the same length.
const timeLayout = `"2006-01-02T15:04:05.000000Z07:00"`

// null is the JSON of what is missing.
var null = []byte("null")

// Time is a time as the API writes it.
type Time struct{ time.Time }

// At is t for the wire.
func At(t time.Time) Time { return Time{t} }

// Text is the time without quotes.
func (t Time) Text() string { return t.UTC().Format(timeLayout[1 : len(timeLayout)-1]) }

// MarshalJSON writes microseconds in UTC.
func (t Time) MarshalJSON() ([]byte, error) { return []byte(t.UTC().Format(timeLayout)), nil }

// NullTime is a time that may be missing: the zero time, and the fixed date that stands for "never" in the tables.
type NullTime struct{ time.Time }

// MaybeAt is t for the wire, null when there is none.
func MaybeAt(t time.Time) NullTime { return NullTime{t} }

// Missing reports whether there is no time.
func (t NullTime) Missing() bool { return t.IsZero() || t.Year() >= 9999 }

// MarshalJSON writes microseconds in UTC, or null.
func (t NullTime) MarshalJSON() ([]byte, error) {
	if t.Missing() {
		return null, nil
	}
	return Time(t).MarshalJSON()
}

// NullText is a text that is null when it is empty.
type NullText string

// MarshalJSON writes the text or null.
func (t NullText) MarshalJSON() ([]byte, error) {
	if t == "" {
		return null, nil
	}
	return json.Marshal(string(t))
}

// NullInt is a number from 1 that is null when it is 0 or less.
type NullInt int64

// MarshalJSON writes the number or null.
func (n NullInt) MarshalJSON() ([]byte, error) {
	if n <= 0 {
		return null, nil
	}
	return json.Marshal(int64(n))
}

// Blob is a value that somebody else wrote: text as it is, anything else as base64.
type Blob struct {
	Value    string `json:"value"`
	Encoding string `json:"encoding"` // utf-8 or base64
	Bytes    int    `json:"bytes"`    // of the whole value
	Clipped  bool   `json:"clipped"`  // value is only its beginning
}
