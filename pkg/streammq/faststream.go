package streammq

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Format is how the entries of a single stream are written. They are read in every format, whatever is set.
type Format string

// The formats. A topic's partitions have FormatOwn only.
const (
	// FormatOwn is that of this package, see EncodeEntry.
	FormatOwn Format = ""
	// FormatFastStream is FastStream's binary envelope, which FastStream writes and reads from 0.6 on, by default from 0.7 on.
	FormatFastStream Format = "faststream"
	// FormatFastStreamJSON is FastStream's JSON envelope, the default up to 0.6, which later ones read. Its payloads are text.
	FormatFastStreamJSON Format = "faststream-json"
)

// Headers that FastStream reads or writes. Beside them it knows HeaderContentType.
const (
	// FastStreamCorrelationID joins a reply with its request. A message without it gets its uuid.
	FastStreamCorrelationID = "correlation_id"
	// FastStreamReplyTo is the Pub/Sub channel on which a reply is expected.
	FastStreamReplyTo = "reply_to"
)

// fieldEnvelope is the one field of FastStream's entries. It ignores others beside it: there lies what only we read.
const fieldEnvelope = "__data__"

func (f Format) known() bool {
	return f == FormatOwn || f == FormatFastStream || f == FormatFastStreamJSON
}

// NewFastStreamProducer is NewStreamProducer for a stream that FastStream reads. Who sets HeaderContentType tells FastStream
// what a payload is (see Encode); without it FastStream takes what can be read as JSON for that, and all else for bytes.
// Errors: ErrStreamKey, ErrConfig.
func (q *MQ) NewFastStreamProducer(key string, format Format, status bool) (*StreamProducer, error) {
	p, err := q.NewStreamProducer(key, status)
	if err != nil {
		return nil, err
	}
	if format == FormatOwn || !format.known() {
		return nil, fmt.Errorf("%w: Format %q: %s or %s", ErrConfig, format, FormatFastStream, FormatFastStreamJSON)
	}
	p.p.format = format
	return p, nil
}

// inFormat makes an entry one of FastStream's. Error: ErrMalformed.
func (p *Producer) inFormat(e *entry, m *Message) error {
	if p.format == FormatOwn {
		return nil
	}
	if p.format == FormatFastStreamJSON && !utf8.Valid(e.payload) {
		return fmt.Errorf("payload: %w: %s carries valid UTF-8 only, %s any bytes", ErrMalformed, FormatFastStreamJSON, FormatFastStream)
	}
	e.format, e.maxRetries = p.format, m.MaxAttempts
	if e.headers[FastStreamCorrelationID] == "" {
		e.headers[FastStreamCorrelationID] = e.headers[HeaderUUID]
	}
	return nil
}

// enveloped are the names and values of an entry in FastStream's format.
func (e *entry) enveloped() []string {
	f := []string{fieldEnvelope, string(encodeEnvelope(e.format, e.headers, e.payload))}
	if e.key != "" {
		f = append(f, fieldKey, e.key)
	}
	if e.maxRetries > 0 {
		f = append(f, fieldMaxRetries, encodeAttempts(e.maxRetries))
	}
	if e.originalID != "" {
		f = append(f, fieldRetryCount, strconv.Itoa(e.retryCount), fieldOriginalID, e.originalID)
	}
	return f
}

// decode reads an entry in any format that its source may have.
func (r *reader) decode(e raw) (entry, error) {
	if !r.src.single {
		return decodeEntry(e.fields)
	}
	data, own := "", false
	for i := 0; i+1 < len(e.fields); i += 2 {
		switch e.fields[i] {
		case fieldEnvelope:
			data = e.fields[i+1]
		case fieldPayload, fieldPayloadRef:
			own = true
		}
	}
	if data == "" && (own || r.format == FormatOwn) {
		return decodeEntry(e.fields)
	}
	return decodeFastStream(e, data, r.format)
}

// decodeFastStream reads the envelope of an entry; without one its body is a JSON object of all its fields, as FastStream
// reads it. standard is the format of what has none. Its error wraps ErrMalformed.
func decodeFastStream(e raw, data string, standard Format) (entry, error) {
	var out entry
	var err error
	body := []byte(data)
	if data == "" {
		if body, err = fieldsAsJSON(e.fields); err != nil {
			return out, err
		}
	}
	if out.format, out.headers, out.payload, err = decodeEnvelope(body); err != nil {
		return out, err
	}
	if out.format == FormatOwn {
		if out.format = standard; standard == FormatOwn {
			out.format = FormatFastStream
		}
	}
	for i := 0; data != "" && i+1 < len(e.fields); i += 2 { // what is no number is somebody else's
		switch value := e.fields[i+1]; e.fields[i] {
		case fieldKey:
			out.key = strings.Clone(value)
		case fieldMaxRetries:
			out.maxRetries = decodeAttempts(value, true)
		case fieldRetryCount:
			out.retryCount, _ = decodeCount(value)
		case fieldOriginalID:
			out.originalID = strings.Clone(value)
		}
	}
	return out, nil
}

func fieldsAsJSON(fields []string) ([]byte, error) {
	if len(fields)%2 != 0 {
		return nil, fmt.Errorf("%w: %d names and values", ErrMalformed, len(fields))
	}
	b := []byte{'{'}
	for i := 0; i < len(fields); i += 2 {
		if !utf8.ValidString(fields[i]) || !utf8.ValidString(fields[i+1]) {
			return nil, fmt.Errorf("%w: field %q: not valid UTF-8", ErrMalformed, clip(fields[i], 64))
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(appendJSON(b, fields[i]), ':'), fields[i+1])
	}
	return append(b, '}'), nil
}

// publishReply returns a requester of FastStream on its channel, in the format of its request. There is no reply that says
// that a request failed: its requester waits for its time to end.
func (w *worker) publishReply(ctx context.Context, d *Delivery, to string, result Result) error {
	e := Event{Kind: EventReplied, Count: 1}
	format := d.format
	switch size := len(result.Reply); {
	case size > w.mq.cfg.MaxPayload:
		e.Err = fmt.Errorf("reply of %d bytes: %w: at most %d", size, ErrTooLarge, w.mq.cfg.MaxPayload)
	case format == FormatFastStreamJSON && !utf8.Valid(result.Reply):
		e.Err = fmt.Errorf("reply: %w: the request's format carries valid UTF-8 only", ErrMalformed)
	}
	if e.Err == nil {
		heard, err := w.publishTo(ctx, to, encodeEnvelope(format, replyHeaders(d, result), result.Reply))
		if err != nil {
			return failure(ctx, "reply to "+strconv.Quote(to), err)
		}
		if heard == 0 {
			e.Err = ErrNoReply
		}
	}
	w.event(e)
	return nil
}

func (w *worker) publishTo(ctx context.Context, channel string, message []byte) (heard int64, err error) {
	return w.mq.client.Do(ctx, w.mq.client.B().Publish().Channel(channel).Message(string(message)).Build()).AsInt64()
}

func replyHeaders(d *Delivery, result Result) map[string]string {
	headers := map[string]string{}
	if id := d.Headers[FastStreamCorrelationID]; id != "" {
		headers[FastStreamCorrelationID] = id
	}
	maps.Copy(headers, result.ReplyHeaders)
	return headers
}
