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

	fieldCorrelation = "correlationId" // of a reply
	fieldErrorType   = "errorType"
	fieldAttempt     = "attempt"

	rawPrefix = "raw:" // before the names of the fields of an entry that could not be read
)

// entry is what a stream holds of a message.
type entry struct {
	payload    []byte
	payloadRef string
	timestamp  time.Time
	retryCount int
	maxRetries int // attempts in all; 0: the reader's policy
	topic      string
	partition  int
	key        string
	headers    map[string]string
	originalID string // empty: this is the first entry
}

// fields are the entry's names and values in turn, as XADD and HSET take them.
func (e *entry) fields() []string {
	f := make([]string, 0, 20)
	if e.payloadRef != "" {
		f = append(f, fieldPayloadRef, e.payloadRef)
	} else {
		f = append(f, fieldPayload, string(e.payload))
	}
	return append(f,
		fieldTimestamp, strconv.FormatInt(e.timestamp.UnixMilli(), 10),
		fieldRetryCount, strconv.Itoa(e.retryCount),
		fieldMaxRetries, strconv.Itoa(e.maxRetries),
		fieldTopic, e.topic,
		fieldPartition, strconv.Itoa(e.partition),
		fieldKey, e.key,
		fieldHeaders, encodeHeaders(e.headers),
		fieldOriginalID, e.originalID)
}

// decodeEntry reads names and values in turn. A field that is missing has its zero value, only a payload is needed;
// unknown fields are left out. What it returns shares no memory with the fields: a key that is kept must not keep the
// whole batch that it was read in. Its error wraps ErrMalformed.
func decodeEntry(fields []string) (entry, error) {
	e := entry{}
	if len(fields)%2 != 0 {
		return e, fmt.Errorf("%w: %d names and values", ErrMalformed, len(fields))
	}
	paid := false
	for i := 0; i < len(fields); i += 2 {
		var err error
		switch value := fields[i+1]; fields[i] {
		case fieldPayload:
			e.payload, paid = []byte(value), true
		case fieldPayloadRef:
			e.payloadRef, paid = strings.Clone(value), value != "" || paid
		case fieldTimestamp:
			e.timestamp, err = decodeTime(value)
		case fieldRetryCount:
			e.retryCount, err = decodeCount(value)
		case fieldMaxRetries:
			e.maxRetries, err = decodeCount(value)
		case fieldTopic, fieldOriginalTopic:
			e.topic = strings.Clone(value)
		case fieldPartition:
			e.partition, err = decodeCount(value)
		case fieldKey:
			e.key = strings.Clone(value)
		case fieldHeaders:
			e.headers, err = decodeHeaders(strings.Clone(value))
		case fieldOriginalID:
			e.originalID = strings.Clone(value)
		}
		if err != nil {
			return e, fmt.Errorf("%w: field %s: %w", ErrMalformed, fields[i], err)
		}
	}
	if !paid {
		return e, fmt.Errorf("%w: no field %s", ErrMalformed, fieldPayload)
	}
	return e, nil
}

func decodeCount(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err //nolint:gosec // 31 bits
}

func decodeTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(s, 10, 64)
	return time.UnixMilli(ms), err
}
