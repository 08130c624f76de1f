package streammq

import (
	"fmt"
	"maps"
	"strconv"
	"time"
)

// StreamKey is the key of a partition's stream; the same in both layouts.
func StreamKey(topic string, partition int) string {
	return source{topic: topic, part: partition}.stream()
}

// EncodeEntry is a message as a partition's stream holds it (contract §6): names and values in turn, as XADD takes them,
// with the payload in it whatever its size. It is for who adds to a partition by a script of their own; everybody else
// has a Producer.
func EncodeEntry(topic string, partition int, m Message, now time.Time) []string {
	headers := make(map[string]string, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	if headers[HeaderUUID] == "" {
		headers[HeaderUUID] = newUUID(now)
	}
	e := entry{
		payload: m.Payload, timestamp: now, maxRetries: m.MaxAttempts, topic: topic, partition: partition, key: m.Key, headers: headers,
	}
	return e.fields()
}

// DecodeEntry reads the names and values of an entry. Its error wraps ErrMalformed, also for an entry whose payload lies
// beside the stream.
func DecodeEntry(fields map[string]string) (Message, error) {
	if ref := fields[fieldPayloadRef]; ref != "" {
		return Message{}, fmt.Errorf("%w: the payload %s lies beside the stream", ErrMalformed, strconv.Quote(ref))
	}
	flat := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		flat = append(flat, name, value)
	}
	e, err := decodeEntry(flat)
	if err != nil {
		return Message{}, err
	}
	e.unwrap()
	return Message{Key: e.key, Payload: e.payload, Headers: e.headers, MaxAttempts: e.maxRetries}, nil
}
