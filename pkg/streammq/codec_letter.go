package streammq

import (
	"cmp"
	"strings"
	"time"
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

// entryOf is the message of a dead letter.
func entryOf(l *Letter) entry {
	return entry{
		payload: l.Payload, timestamp: l.published, maxRetries: l.MaxRetries, key: l.Key, headers: l.Headers, originalID: l.OriginalID, format: l.format,
	}
}

// decodeDeadLetter reads what it can, of this queue and of the Java original, whatever codec its client has: a letter that is
// shown half is better than one that hides the others.
func decodeDeadLetter(id string, fields map[string]string) Letter {
	flat := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		flat = append(flat, name, value)
	}
	if isKryo(flat) {
		plain, err := kryoFields(flat)
		if err != nil {
			return Letter{ID: id, Raw: fields, Error: err.Error()}
		}
		fields = make(map[string]string, len(plain)/2)
		for i := 0; i < len(plain); i += 2 {
			fields[plain[i]] = plain[i+1]
		}
	}
	letter := Letter{
		ID: id, OriginalID: fields[fieldOriginalID], Group: fields[fieldGroup], Key: fields[fieldKey], Error: fields[fieldError],
		Payload: []byte(fields[fieldPayload]), Topic: fields[fieldOriginalTopic], Single: fields[fieldSingle] == singleOn,
		format: Format(fields[fieldFormat]),
	}
	failedAt, iso := decodeTime(fields[fieldFailedAt])
	letter.FailedAt, letter.MaxRetries = failedAt, decodeAttempts(fields[fieldMaxRetries], iso)
	letter.Partition, _ = decodeCount(fields[fieldPartition])
	letter.Attempts, _ = decodeCount(fields[fieldRetryCount])
	letter.published, _ = decodeTime(fields[fieldTimestamp])
	letter.Headers, _ = decodeHeaders(fields[fieldHeaders])
	if letter.Group == "" && letter.Error == "" { // ours have both
		letter.fromJava(fields)
		return letter
	}
	var raw []string
	for name, value := range fields {
		if rest, ok := strings.CutPrefix(name, rawPrefix); ok {
			raw = append(raw, rest, value)
		}
	}
	if raw != nil && !letter.reread(raw) {
		letter.Raw = make(map[string]string, len(raw)/2)
		for i := 0; i < len(raw); i += 2 {
			letter.Raw[raw[i]] = raw[i+1]
		}
	}
	return letter
}

// fromJava reads what the Java original keeps elsewhere: its dead letters have partition 0 and the id of the last entry, and the
// message's own are headers. The payload has quotes of each retry, which it counts from 0.
func (l *Letter) fromJava(fields map[string]string) {
	if l.Headers == nil {
		l.Headers = javaMap(fields[fieldHeaders])
	}
	if n, ok := decodeCount(l.Headers[HeaderPartition]); ok {
		l.Partition = n
	}
	l.Key = cmp.Or(l.Key, l.Headers[fieldKey])
	l.OriginalID = cmp.Or(l.Headers[HeaderOriginalID], l.OriginalID)
	l.Payload = unwrapped(l.Payload, l.Attempts)
	l.Attempts++
	delete(l.Headers, fieldKey)
}

// reread reads an entry that could not be read when it became a dead letter, by an earlier version of this queue perhaps. A payload
// that was beside the stream is gone.
func (l *Letter) reread(raw []string) bool {
	e, err := decodeEntry(raw)
	if err != nil || e.payloadRef != "" || e.headers[HeaderPayloadRef] != "" {
		return false
	}
	e.unwrap()
	l.Payload, l.Headers, l.Key, l.MaxRetries, l.published = e.payload, e.headers, e.key, e.maxRetries, e.timestamp
	l.Attempts = e.retryCount
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
