package wire

import (
	"cmp"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
)

// Letter is a dead letter.
type Letter struct {
	Topic      string // or the single stream's key
	Single     bool   // the message came from a single stream
	Partition  int    // of the message
	ID         string // of the dead letter, in the dead letters of its topic or, on a cluster, of its partition
	OriginalID string // of the message's first entry
	Group      string // that gave it up
	Key        string
	Payload    []byte
	Headers    map[string]string
	Attempts   int // failed ones
	MaxRetries int
	FailedAt   time.Time
	Error      string
	// Raw are the fields of an entry that could not be read, as they were; nil for all others.
	Raw map[string]string
	// Replayed is the id of the entry that a replay added; empty: none did.
	Replayed string
	// published is the message's own time.
	published time.Time
	format    Format // of its entry
}

// EntryOf is the message of a dead letter.
func EntryOf(l *Letter) Entry {
	return Entry{
		Payload: l.Payload, Timestamp: l.published, MaxRetries: l.MaxRetries, Key: l.Key, Headers: l.Headers, OriginalID: l.OriginalID, Format: l.format,
	}
}

// DecodeDeadLetter reads what it can, of this queue and of the Java original, whatever codec its client has: a letter that is
// shown half is better than one that hides the others.
func DecodeDeadLetter(id string, fields map[string]string) Letter {
	if flat := Flat(fields); IsKryo(flat) {
		plain, err := kryoFields(flat)
		if err != nil {
			return Letter{ID: id, Raw: fields, Error: err.Error()}
		}
		fields = Mapped(plain)
	}
	letter := Letter{
		ID: id, OriginalID: fields[FieldOriginalID], Group: fields[FieldGroup], Key: fields[FieldKey], Error: fields[FieldError],
		Payload: []byte(fields[FieldPayload]), Topic: fields[FieldOriginalTopic], Single: fields[FieldSingle] == SingleOn,
		format: Format(fields[FieldFormat]),
	}
	failedAt, iso := DecodeTime(fields[FieldFailedAt])
	letter.FailedAt, letter.MaxRetries = failedAt, decodeAttempts(fields[FieldMaxRetries], iso)
	letter.Partition, _ = DecodeCount(fields[FieldPartition])
	letter.Attempts, _ = DecodeCount(fields[FieldRetryCount])
	letter.published, _ = DecodeTime(fields[FieldTimestamp])
	letter.Headers, _ = DecodeHeaders(fields[FieldHeaders])
	if letter.Group == "" && letter.Error == "" { // ours have both
		letter.fromJava(fields)
		return letter
	}
	var raw []string
	for name, value := range fields {
		if rest, ok := strings.CutPrefix(name, RawPrefix); ok {
			raw = append(raw, rest, value)
		}
	}
	if raw != nil && !letter.reread(raw) {
		letter.Raw = Mapped(raw)
	}
	return letter
}

// fromJava reads what the Java original keeps elsewhere: its dead letters have partition 0 and the id of the last entry, and the
// message's own are headers. The payload has quotes of each retry, which it counts from 0.
func (l *Letter) fromJava(fields map[string]string) {
	if l.Headers == nil {
		l.Headers = javaMap(fields[FieldHeaders])
	}
	if n, ok := DecodeCount(l.Headers[model.HeaderPartition]); ok {
		l.Partition = n
	}
	l.Key = cmp.Or(l.Key, l.Headers[FieldKey])
	l.OriginalID = cmp.Or(l.Headers[model.HeaderOriginalID], l.OriginalID)
	l.Payload = unwrapped(l.Payload, l.Attempts)
	l.Attempts++
	delete(l.Headers, FieldKey)
}

// reread reads an entry that could not be read when it became a dead letter, by an earlier version of this queue perhaps. A payload
// that was beside the stream is gone.
func (l *Letter) reread(raw []string) bool {
	e, err := DecodeEntry(raw)
	if err != nil || e.PayloadRef != "" || e.Headers[model.HeaderPayloadRef] != "" {
		return false
	}
	e.Unwrap()
	l.Payload, l.Headers, l.Key, l.MaxRetries, l.published = e.Payload, e.Headers, e.Key, e.MaxRetries, e.Timestamp
	l.Attempts = e.RetryCount
	return true
}

// javaMap reads {a=b, c=d}, as Java prints a map, unless it is not clear where a value ends.
func javaMap(s string) map[string]string {
	inner, opened := strings.CutPrefix(s, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if !opened || !closed || inner == "" {
		return nil
	}
	headers := map[string]string{}
	for _, pair := range strings.Split(inner, ", ") {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := headers[name]; !ok || twice || strings.Contains(value, "=") {
			return nil
		}
		headers[name] = value
	}
	return headers
}
