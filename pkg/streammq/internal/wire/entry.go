// Package wire reads and writes entries, retry items and dead letters: in the form of this queue, in that of the Java original (Kryo
// too), in FastStream's envelopes, and packed as the scripts return them.
package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Fields of an entry, a retry item and a dead letter (contract §6).
const (
	FieldPayload    = "payload"
	FieldPayloadRef = "payloadRef" // instead of payload: the uuid of a payload that lies beside the stream
	FieldTimestamp  = "timestamp"
	FieldRetryCount = "retryCount"
	FieldMaxRetries = "maxRetries"
	fieldTopic      = "topic"
	FieldPartition  = "partitionId"
	FieldKey        = "key"
	FieldHeaders    = "headers"
	FieldOriginalID = "originalMessageId"

	FieldOriginalTopic = "originalTopic"
	FieldFailedAt      = "failedAt"
	FieldError         = "error"
	FieldGroup         = "group"
	FieldSingle        = "single" // 1: originalTopic is the key of a single stream
	SingleOn           = "1"
	FieldFormat        = "format" // of the entry, if it is not our own

	FieldCorrelation = "correlationId" // of a reply
	FieldErrorType   = "errorType"
	FieldAttempt     = "attempt"

	// FieldEnvelope is the one field of FastStream's entries. It ignores others beside it: there lies what only we read.
	FieldEnvelope = "__data__"

	RawPrefix = "raw:" // before the names of the fields of an entry that could not be read
)

// javaRetries is what the Java original takes for a maxRetries that is missing or no number.
const javaRetries = 3

// Entry is what a stream holds of a message.
type Entry struct {
	Payload    []byte
	PayloadRef string
	Timestamp  time.Time // zero: unknown
	RetryCount int
	MaxRetries int // attempts in all; on the wire it is one less, the number of retries. 0: DefaultMaxAttempts
	Topic      string
	Partition  int
	Key        string
	Headers    map[string]string
	OriginalID string // empty: this is the first entry
	Format     Format
}

// Fields are the entry's names and values in turn, as XADD takes them. A program in Java reads them too: the time is
// ISO 8601 in UTC, and what is not there is left out, since an empty key is a key to it.
func (e *Entry) Fields() []string {
	if e.Format != FormatOwn {
		return e.enveloped()
	}
	f := make([]string, 0, 20)
	if e.PayloadRef != "" {
		f = append(f, FieldPayloadRef, e.PayloadRef)
	} else {
		f = append(f, FieldPayload, string(e.Payload))
	}
	if !e.Timestamp.IsZero() {
		f = append(f, FieldTimestamp, EncodeTime(e.Timestamp))
	}
	f = append(f,
		FieldRetryCount, strconv.Itoa(e.RetryCount),
		FieldMaxRetries, EncodeAttempts(e.MaxRetries),
		fieldTopic, e.Topic,
		FieldPartition, strconv.Itoa(e.Partition),
		FieldHeaders, EncodeHeaders(e.Headers))
	if e.Key != "" {
		f = append(f, FieldKey, e.Key)
	}
	if e.OriginalID != "" {
		f = append(f, FieldOriginalID, e.OriginalID)
	}
	return f
}

// Item are the fields of a retry item: the mover of the Java original wants a key in each, "" for none.
func (e *Entry) Item() []string {
	f := e.Fields()
	if e.Key == "" {
		f = append(f, FieldKey, "")
	}
	return f
}

// DecodeEntry reads names and values in turn. It is as lenient as the Java original: a field that is missing or cannot be
// read has its default, and unknown fields are left out. What has none of an entry's fields is malformed. What it returns shares no
// memory with the fields: a key that is kept must not keep the whole batch that it was read in. Its error wraps ErrMalformed.
func DecodeEntry(fields []string) (Entry, error) {
	e := Entry{}
	if len(fields)%2 != 0 {
		return e, fmt.Errorf("%w: %d names and values", model.ErrMalformed, len(fields))
	}
	if IsKryo(fields) {
		plain, err := kryoFields(fields)
		if err != nil {
			return e, err
		}
		fields = plain
	}
	known, iso, retries := false, true, ""
	for i := 0; i < len(fields); i += 2 {
		switch value := fields[i+1]; fields[i] {
		case FieldPayload:
			e.Payload = []byte(value)
		case FieldPayloadRef:
			e.PayloadRef = strings.Clone(value)
		case FieldTimestamp:
			e.Timestamp, iso = DecodeTime(value)
		case FieldRetryCount:
			e.RetryCount, _ = DecodeCount(value)
		case FieldMaxRetries:
			retries = value
		case fieldTopic, FieldOriginalTopic:
			e.Topic = strings.Clone(value)
		case FieldPartition:
			e.Partition, _ = DecodeCount(value)
		case FieldKey:
			e.Key = strings.Clone(value)
		case FieldHeaders:
			e.Headers, _ = DecodeHeaders(strings.Clone(value)) // what is no object of texts is no headers
		case FieldOriginalID:
			e.OriginalID = strings.Clone(value)
		default:
			continue
		}
		known = true
	}
	if !known {
		return e, fmt.Errorf("%w: no field %s", model.ErrMalformed, FieldPayload)
	}
	e.MaxRetries = decodeAttempts(retries, iso)
	return e, nil
}

// Flat are names and values in turn.
func Flat(fields map[string]string) []string {
	flat := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		flat = append(flat, name, value)
	}
	return flat
}

// Mapped is the opposite of Flat.
func Mapped(flat []string) map[string]string {
	fields := make(map[string]string, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		fields[flat[i]] = flat[i+1]
	}
	return fields
}

// EncodeAttempts writes attempts in all as the number of retries.
func EncodeAttempts(attempts int) string {
	if attempts < 1 {
		attempts = model.DefaultMaxAttempts
	}
	return strconv.Itoa(attempts - 1)
}

// decodeAttempts reads a number of retries as attempts in all. Beside a time in milliseconds it is of an earlier version of
// this queue, which wrote attempts.
func decodeAttempts(s string, iso bool) int {
	n, ok := DecodeCount(s)
	switch {
	case !ok:
		return javaRetries + 1
	case !iso:
		return min(n, model.MaxAttempts)
	}
	return min(n, model.MaxAttempts-1) + 1
}

// DecodeCount is 0 and false for what is no number of 32 bits; below zero counts as zero.
func DecodeCount(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, false
	}
	return max(0, int(n)), true
}

// timeFormat is what Instant.parse reads; it wants a Z.
const timeFormat = time.RFC3339Nano

func EncodeTime(t time.Time) string { return t.UTC().Format(timeFormat) }

// The first and the last time that encodeTime can write, in ms.
var (
	earliest = time.Time{}.UnixMilli()
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMilli()
)

// DecodeTime reads ISO 8601 with a zone and 0 to 9 decimals, and milliseconds, as earlier versions of this queue wrote
// them, for which it says false. What it cannot read is the zero time.
func DecodeTime(s string) (t time.Time, iso bool) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		if ms > latest || ms < earliest {
			return time.Time{}, false
		}
		return time.UnixMilli(ms), false
	}
	for _, layout := range []string{timeFormat, "2006-01-02T15:04:05.999999999Z0700", "2006-01-02T15:04:05.999999999Z07"} {
		if t, err := time.Parse(layout, s); err == nil {
			return time.Unix(t.Unix(), int64(t.Nanosecond())), true
		}
	}
	return time.Time{}, true
}

// enveloped are the names and values of an entry in FastStream's format.
func (e *Entry) enveloped() []string {
	f := []string{FieldEnvelope, string(EncodeEnvelope(e.Format, e.Headers, e.Payload))}
	if e.Key != "" {
		f = append(f, FieldKey, e.Key)
	}
	if e.MaxRetries > 0 {
		f = append(f, FieldMaxRetries, EncodeAttempts(e.MaxRetries))
	}
	if e.OriginalID != "" {
		f = append(f, FieldRetryCount, strconv.Itoa(e.RetryCount), FieldOriginalID, e.OriginalID)
	}
	return f
}

// PayloadJava is how the Java original says that the payload is where its header says.
const PayloadJava = "hash"

// Bring puts what lay beside the stream, where this queue names it by payloadRef and the Java original by a header, into the entry; the headers that told where go, since the payload may soon be gone.
// It returns what makes the message unreadable, and what the server did not say.
func (e *Entry) Bring(key string, r rueidis.RedisResult) (bad, err error) {
	text, err := r.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return fmt.Errorf("%w: the payload %s beside the stream was removed", model.ErrMalformed, strconv.Quote(model.Clip(key, 256))), nil
	case stream.IsError(err, "WRONGTYPE"):
		return fmt.Errorf("%w: the payload %s beside the stream is no string", model.ErrMalformed, strconv.Quote(model.Clip(key, 256))), nil
	case err != nil:
		return nil, err
	}
	e.Payload = []byte(text)
	if e.PayloadRef == "" {
		e.Payload = unwrapped(e.Payload, 1)
		for _, name := range []string{model.HeaderPayloadRef, model.HeaderPayloadStorage, model.HeaderPayloadSize} {
			delete(e.Headers, name)
		}
	}
	return nil, nil
}

// Unwrap takes off the quotes that the Java original put around the payload: each of its retries writes it as JSON, a text as
// a JSON string. No more are taken than it has put the message off, so that a payload that is a JSON string stays one.
func (e *Entry) Unwrap() {
	if e.OriginalID == "" && e.Headers[model.HeaderOriginalID] == "" {
		return
	}
	ours := 0
	if _, of := e.Headers[model.HeaderRetryGroup]; of {
		ours = e.RetryCount // of an earlier version of this queue, which counted nothing
	}
	if n, ok := DecodeCount(e.Headers[model.HeaderRetryCount]); ok {
		ours = n
	}
	e.Payload = unwrapped(e.Payload, e.RetryCount-ours)
}

// unwrapped takes off at most n layers of quotes: the text that a JSON string means. Other payloads stay as they are.
func unwrapped(payload []byte, n int) []byte {
	for ; n > 0 && len(payload) > 0 && payload[0] == '"'; n-- {
		var text string
		if json.Unmarshal(payload, &text) != nil {
			break
		}
		payload = []byte(text)
	}
	return payload
}
