package proto

import (
	"errors"
	"fmt"
	"unicode/utf8"

	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// SchemaVersion is the version that this release writes. It reads newer ones too.
const SchemaVersion = 1

const (
	// MaxPayload is the most bytes of JSON in the member "payload" (contract §5).
	MaxPayload = 256 << 10
	// MaxEnvelope is the most bytes of a whole envelope: a stream entry or a Kafka record of the default limit.
	MaxEnvelope = 1 << 20

	usualEnvelope = 512 // bytes

	payloadName = "payload"
	contextName = "context"
)

// Errors of the codec; each is wrapped with the member or size that it is about.
var (
	// ErrMalformed: not JSON, not UTF-8, or a member of the wrong kind.
	ErrMalformed = errors.New("malformed envelope")
	// ErrTooLarge: over MaxPayload or MaxEnvelope.
	ErrTooLarge = errors.New("envelope too large")
	// ErrNoTaskID: nothing says which task it is about.
	ErrNoTaskID = errors.New("envelope without taskId")
	// ErrSchemaVersion: a version below 1.
	ErrSchemaVersion = errors.New("unknown schema version")
)

// Encode renders e as JSON: the members in the order of their numbers, then unknown ones by name; equal envelopes give
// equal bytes. A schema version of 0 is written as SchemaVersion.
// Errors: ErrMalformed (nil, invalid UTF-8, NaN), ErrTooLarge, ErrNoTaskID, ErrSchemaVersion.
func Encode(e *TaskEnvelope) ([]byte, error) {
	e, err := writable(e)
	if err != nil {
		return nil, err
	}
	b, err := appendMembers(make([]byte, 0, usualEnvelope), e.ProtoReflect())
	if err != nil {
		return nil, err
	}
	return b, checkSize(len(b))
}

// Decode reads an envelope of any released or newer version out of JSON; "chat_id" is taken for "chatId".
// Errors: ErrMalformed, ErrTooLarge, ErrNoTaskID, ErrSchemaVersion.
func Decode(b []byte) (*TaskEnvelope, error) {
	if err := checkSize(len(b)); err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	if e, ok := quickEnvelope(string(b)); ok {
		return e, nil
	}
	object, err := parseObject(b)
	if err != nil {
		return nil, err
	}
	return decodeObject(object)
}

func decodeObject(object map[string]jsonText) (*TaskEnvelope, error) {
	e := &TaskEnvelope{}
	if err := fill(e, object); err != nil {
		return nil, err
	}
	return e, checkEnvelope(e)
}

// fill reads the members into the empty e; a version that is missing is 1, as before the member existed.
func fill(e *TaskEnvelope, object map[string]jsonText) error {
	if err := checkPayload(len(object[payloadName])); err != nil {
		return err
	}
	if err := readMembers(e.ProtoReflect(), object); err != nil {
		return err
	}
	if e.SchemaVersion == 0 {
		e.SchemaVersion = 1
	}
	return nil
}

// writable checks e and returns it with at least a schema version; the argument is not changed.
func writable(e *TaskEnvelope) (*TaskEnvelope, error) {
	if e == nil {
		return nil, fmt.Errorf("%w: nil", ErrMalformed)
	}
	if e.SchemaVersion == 0 {
		e, _ = protobuf.Clone(e).(*TaskEnvelope)
		e.SchemaVersion = SchemaVersion
	}
	return e, checkEnvelope(e)
}

// Payload is the payload that is this JSON; nil when it is not JSON.
func Payload(text []byte) *structpb.Value {
	v := &structpb.Value{}
	if v.UnmarshalJSON(text) != nil {
		return nil
	}
	return v
}

func checkPayload(n int) error {
	if n > MaxPayload {
		return fmt.Errorf("%w: payload of %d bytes, at most %d", ErrTooLarge, n, MaxPayload)
	}
	return nil
}

func checkEnvelope(e *TaskEnvelope) error {
	if e.SchemaVersion < 1 {
		return fmt.Errorf("%w: %d", ErrSchemaVersion, e.SchemaVersion)
	}
	if e.TaskId == "" {
		return ErrNoTaskID
	}
	return nil
}

func checkSize(n int) error {
	if n > MaxEnvelope {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, MaxEnvelope)
	}
	return nil
}
