package streammq

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// A payload lies in its entry, or beside its stream: this queue names it by payloadRef, the Java original by a header.

// payloadJava is how the Java original says that the payload is where its header says.
const payloadJava = "hash"

// payloadKey is the key of a payload beside the stream; "" when it is in the entry.
func (s source) payloadKey(e *entry) string {
	if e.payloadRef != "" {
		return s.body(e.payloadRef)
	}
	if s.apart() || len(e.payload) > 0 && e.headers[HeaderPayloadStorage] != payloadJava {
		return ""
	}
	return e.headers[HeaderPayloadRef]
}

// bring puts what lay beside the stream into the entry; the headers that told where go, since the payload may soon be gone.
// It returns what makes the message unreadable, and what the server did not say.
func (e *entry) bring(key string, r rueidis.RedisResult) (bad, err error) {
	text, err := r.ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return fmt.Errorf("%w: the payload %s beside the stream was removed", ErrMalformed, strconv.Quote(clip(key, 256))), nil
	case isRedisError(err, "WRONGTYPE"):
		return fmt.Errorf("%w: the payload %s beside the stream is no string", ErrMalformed, strconv.Quote(clip(key, 256))), nil
	case err != nil:
		return nil, err
	}
	e.payload = []byte(text)
	if e.payloadRef == "" {
		e.payload = unquoted(e.payload)
		for _, name := range []string{HeaderPayloadRef, HeaderPayloadStorage, HeaderPayloadSize} {
			delete(e.headers, name)
		}
	}
	return nil, nil
}

// unquoted is the text that a JSON string means; other payloads stay as they are.
func unquoted(payload []byte) []byte {
	text, err := jsonText(payload)
	if err != nil {
		return payload
	}
	return []byte(text)
}

var errNoText = errors.New("no JSON string")

func jsonText(payload []byte) (text string, err error) {
	if len(payload) < 2 || payload[0] != '"' {
		return "", errNoText
	}
	err = json.Unmarshal(payload, &text)
	return text, err
}

// unwrap takes off the quotes that the Java original put around the payload: each of its retries writes it as JSON, a text as
// a JSON string. No more are taken than it has put the message off, so that a payload that is a JSON string stays one.
func (e *entry) unwrap() {
	if e.originalID == "" && e.headers[HeaderOriginalID] == "" {
		return
	}
	ours := 0
	if _, of := e.headers[HeaderRetryGroup]; of {
		ours = e.retryCount // of an earlier version of this queue, which counted nothing
	}
	if n, ok := decodeCount(e.headers[HeaderRetryCount]); ok {
		ours = n
	}
	e.payload = unwrapped(e.payload, e.retryCount-ours)
}

// unwrapped takes off at most n layers of quotes.
func unwrapped(payload []byte, n int) []byte {
	for ; n > 0; n-- {
		text, err := jsonText(payload)
		if err != nil {
			break
		}
		payload = []byte(text)
	}
	return payload
}
