package core

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// StreamKey is the key of a partition's stream; the same in both layouts.
func StreamKey(topic string, partition int) string {
	return Source{Topic: topic, Part: partition}.Stream()
}

// EncodeEntry is a message as a partition's stream holds it (contract §6): names and values in turn, as XADD takes them,
// with the payload in it whatever its size. It is for who adds to a partition by a script of their own; everybody else
// has a Producer.
func EncodeEntry(topic string, partition int, m model.Message, now time.Time) []string {
	headers := make(map[string]string, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	if headers[model.HeaderUUID] == "" {
		headers[model.HeaderUUID] = model.NewUUID(now)
	}
	e := wire.Entry{
		Payload: m.Payload, Timestamp: now, MaxRetries: m.MaxAttempts, Topic: topic, Partition: partition, Key: m.Key, Headers: headers,
	}
	return e.Fields()
}

// DecodeEntry reads the names and values of an entry. Its error wraps ErrMalformed, also for an entry whose payload lies
// beside the stream.
func DecodeEntry(fields map[string]string) (model.Message, error) {
	if ref := fields[wire.FieldPayloadRef]; ref != "" {
		return model.Message{}, fmt.Errorf("%w: the payload %s lies beside the stream", model.ErrMalformed, strconv.Quote(ref))
	}
	e, err := wire.DecodeEntry(wire.Flat(fields))
	if err != nil {
		return model.Message{}, err
	}
	e.Unwrap()
	return model.Message{Key: e.Key, Payload: e.Payload, Headers: e.Headers, MaxAttempts: e.MaxRetries}, nil
}
