package streammq

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
)

// Codec turns values into payloads and back. Implementations are safe for concurrent use.
type Codec interface {
	Encode(value any) ([]byte, error)
	// Decode fills what value points to.
	Decode(payload []byte, value any) error
	ContentType() string
}

// JSON is the Codec of encoding/json.
type JSON struct{}

// Encode implements Codec.
func (JSON) Encode(value any) ([]byte, error) { return json.Marshal(value) }

// Decode implements Codec.
func (JSON) Decode(payload []byte, value any) error { return json.Unmarshal(payload, value) }

// ContentType implements Codec.
func (JSON) ContentType() string { return "application/json" }

// Handle makes a Handler of one for values of a type. A payload that is none becomes a dead letter without a run.
func Handle[T any](codec Codec, run func(ctx context.Context, value T, d *Delivery) Result) Handler {
	return func(ctx context.Context, d *Delivery) Result {
		var value T
		if err := codec.Decode(d.Payload, &value); err != nil {
			return DeadLetter(fmt.Errorf("payload as %T: %w: %w", value, ErrMalformed, err))
		}
		return run(ctx, value, d)
	}
}

// Respond makes a Handler of a function that answers requests. An error is judged by FromError.
func Respond[Req, Resp any](codec Codec, run func(ctx context.Context, request Req, d *Delivery) (Resp, error)) Handler {
	return Handle(codec, func(ctx context.Context, request Req, d *Delivery) Result {
		response, err := run(ctx, request, d)
		if err != nil {
			return FromError(err)
		}
		payload, err := codec.Encode(response)
		if err != nil {
			return Fail(fmt.Errorf("encode the reply: %w", err))
		}
		result := Replied(payload)
		result.ReplyHeaders = map[string]string{HeaderContentType: codec.ContentType()}
		return result
	})
}

// Publish encodes a value as m's payload and publishes it. Errors: the codec's, and as of Producer.Publish.
func Publish[T any](ctx context.Context, p *Producer, codec Codec, topic string, value T, m Message) (Receipt, error) {
	m, err := encoded(codec, value, m)
	if err != nil {
		return Receipt{}, err
	}
	return p.Publish(ctx, topic, m)
}

// RequestAs encodes a request as m's payload, and decodes the reply. Errors: the codec's, ErrMalformed when the reply is of
// another form, and as of Requester.Request.
func RequestAs[Req, Resp any](ctx context.Context, r *Requester, codec Codec, topic string, request Req, m Message) (Resp, error) {
	var response Resp
	m, err := encoded(codec, request, m)
	if err != nil {
		return response, err
	}
	reply, err := r.Request(ctx, topic, m)
	if err != nil {
		return response, err
	}
	if err := codec.Decode(reply.Payload, &response); err != nil {
		return response, fmt.Errorf("reply as %T: %w: %w", response, ErrMalformed, err)
	}
	return response, nil
}

// Encode returns m with a value as its payload, and its content type in HeaderContentType: for producers that Publish does not
// know, such as a StreamProducer. Errors: the codec's.
func Encode(codec Codec, value any, m Message) (Message, error) { return encoded(codec, value, m) }

func encoded(codec Codec, value any, m Message) (Message, error) {
	payload, err := codec.Encode(value)
	if err != nil {
		return m, fmt.Errorf("encode %T: %w", value, err)
	}
	headers := make(map[string]string, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	headers[HeaderContentType] = codec.ContentType()
	m.Payload, m.Headers = payload, headers
	return m, nil
}
