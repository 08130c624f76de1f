package streammq

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Fields of an entry, a retry item and a dead letter (contract §6).
const (
	fieldPayload    = "payload"
	fieldPayloadRef = "payloadRef" // instead of payload: the uuid of a payload that lies beside the stream
	fieldTimestamp  = "timestamp"
	fieldRetryCount = "retryCount"
	fieldMaxRetries = "maxRetries"
	fieldTopic      = "topic"
	fieldPartition  = "partitionId"
	fieldKey        = "key"
	fieldHeaders    = "headers"
	fieldOriginalID = "originalMessageId"

	fieldOriginalTopic = "originalTopic"
	fieldFailedAt      = "failedAt"
	fieldError         = "error"
	fieldGroup         = "group"
	fieldSingle        = "single" // 1: originalTopic is the key of a single stream
	singleOn           = "1"
	fieldFormat        = "format" // of the entry, if it is not our own

	fieldCorrelation = "correlationId" // of a reply
	fieldErrorType   = "errorType"
	fieldAttempt     = "attempt"

	rawPrefix = "raw:" // before the names of the fields of an entry that could not be read
)

// javaRetries is what the Java original takes for a maxRetries that is missing or no number.
const javaRetries = 3

// entry is what a stream holds of a message.
type entry struct {
	payload    []byte
	payloadRef string
	timestamp  time.Time // zero: unknown
	retryCount int
	maxRetries int // attempts in all; on the wire it is one less, the number of retries. 0: DefaultMaxAttempts
	topic      string
	partition  int
	key        string
	headers    map[string]string
	originalID string // empty: this is the first entry
	format     Format
}

// fields are the entry's names and values in turn, as XADD takes them. A program in Java reads them too: the time is
// ISO 8601 in UTC, and what is not there is left out, since an empty key is a key to it.
func (e *entry) fields() []string {
	if e.format != FormatOwn {
		return e.enveloped()
	}
	f := make([]string, 0, 20)
	if e.payloadRef != "" {
		f = append(f, fieldPayloadRef, e.payloadRef)
	} else {
		f = append(f, fieldPayload, string(e.payload))
	}
	if !e.timestamp.IsZero() {
		f = append(f, fieldTimestamp, encodeTime(e.timestamp))
	}
	f = append(f,
		fieldRetryCount, strconv.Itoa(e.retryCount),
		fieldMaxRetries, encodeAttempts(e.maxRetries),
		fieldTopic, e.topic,
		fieldPartition, strconv.Itoa(e.partition),
		fieldHeaders, encodeHeaders(e.headers))
	if e.key != "" {
		f = append(f, fieldKey, e.key)
	}
	if e.originalID != "" {
		f = append(f, fieldOriginalID, e.originalID)
	}
	return f
}

// item are the fields of a retry item: the mover of the Java original wants a key in each, "" for none.
func (e *entry) item() []string {
	f := e.fields()
	if e.key == "" {
		f = append(f, fieldKey, "")
	}
	return f
}

// decodeEntry reads names and values in turn. It is as lenient as the Java original: a field that is missing or cannot be
// read has its default, and unknown fields are left out. What has none of an entry's fields is malformed. What it returns shares no
// memory with the fields: a key that is kept must not keep the whole batch that it was read in. Its error wraps ErrMalformed.
func decodeEntry(fields []string) (entry, error) {
	e := entry{}
	if len(fields)%2 != 0 {
		return e, fmt.Errorf("%w: %d names and values", ErrMalformed, len(fields))
	}
	if isKryo(fields) {
		plain, err := kryoFields(fields)
		if err != nil {
			return e, err
		}
		fields = plain
	}
	known, iso, retries := false, true, ""
	for i := 0; i < len(fields); i += 2 {
		switch value := fields[i+1]; fields[i] {
		case fieldPayload:
			e.payload = []byte(value)
		case fieldPayloadRef:
			e.payloadRef = strings.Clone(value)
		case fieldTimestamp:
			e.timestamp, iso = decodeTime(value)
		case fieldRetryCount:
			e.retryCount, _ = decodeCount(value)
		case fieldMaxRetries:
			retries = value
		case fieldTopic, fieldOriginalTopic:
			e.topic = strings.Clone(value)
		case fieldPartition:
			e.partition, _ = decodeCount(value)
		case fieldKey:
			e.key = strings.Clone(value)
		case fieldHeaders:
			e.headers, _ = decodeHeaders(strings.Clone(value)) // what is no object of texts is no headers
		case fieldOriginalID:
			e.originalID = strings.Clone(value)
		default:
			continue
		}
		known = true
	}
	if !known {
		return e, fmt.Errorf("%w: no field %s", ErrMalformed, fieldPayload)
	}
	e.maxRetries = decodeAttempts(retries, iso)
	return e, nil
}

// encodeAttempts writes attempts in all as the number of retries.
func encodeAttempts(attempts int) string {
	if attempts < 1 {
		attempts = DefaultMaxAttempts
	}
	return strconv.Itoa(attempts - 1)
}

// decodeAttempts reads a number of retries as attempts in all. Beside a time in milliseconds it is of an earlier version of
// this queue, which wrote attempts.
func decodeAttempts(s string, iso bool) int {
	n, ok := decodeCount(s)
	switch {
	case !ok:
		return javaRetries + 1
	case !iso:
		return min(n, maxAttempts)
	}
	return min(n, maxAttempts-1) + 1
}

// decodeCount is 0 and false for what is no number of 32 bits; below zero counts as zero.
func decodeCount(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, false
	}
	return max(0, int(n)), true
}

// timeFormat is what Instant.parse reads; it wants a Z.
const timeFormat = time.RFC3339Nano

func encodeTime(t time.Time) string { return t.UTC().Format(timeFormat) }

// The first and the last time that encodeTime can write, in ms.
var (
	earliest = time.Time{}.UnixMilli()
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMilli()
)

// decodeTime reads ISO 8601 with a zone and 0 to 9 decimals, and milliseconds, as earlier versions of this queue wrote
// them, for which it says false. What it cannot read is the zero time.
func decodeTime(s string) (t time.Time, iso bool) {
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
