package streammq

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"
)

// forReply gives the handler of a request the time that its requester still waits; false: that is over. Both ends of it
// are Redis' clock, which made the id of the message's first entry.
func (w *worker) forReply(ctx context.Context, p *parcel, d *Delivery) (context.Context, bool, context.CancelFunc) {
	if requesterOf(p, d) == "" {
		return ctx, true, func() {}
	}
	timeout, err := strconv.ParseInt(d.Headers[HeaderReplyTimeout], 10, 64)
	text, _, _ := strings.Cut(d.OriginalID, "-")
	began, errID := strconv.ParseInt(text, 10, 64)
	if err != nil || errID != nil {
		return ctx, true, func() {}
	}
	clock, err := w.mq.Client.Do(ctx, w.mq.Client.B().Time().Build()).AsIntSlice()
	if err != nil || len(clock) != 2 {
		return ctx, true, func() {} // it may be in time, and its reconciling will tell of the server
	}
	left := began + timeout - clock[0]*1000 - clock[1]/1000
	if left <= 0 {
		w.event(Event{Kind: EventOverdue, Count: 1})
		return ctx, false, func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(left)*time.Millisecond)
	return ctx, true, cancel
}

// requesterOf names who waits for a reply; "" when nobody does, or when the name cannot be one of ours.
func requesterOf(p *parcel, d *Delivery) string {
	if p.entry.format != FormatOwn {
		return d.Headers[FastStreamReplyTo]
	}
	to := d.Headers[HeaderReplyTo]
	if to != "" && checkName(to, ErrGroupName) != nil { // most messages have none, and an error is not free
		return ""
	}
	return to
}

// respond tells a requester what became of its message, once nothing more can become of it, and before it is settled:
// a crash between the two lets the next owner answer again, and the first answer counts.
func (w *worker) respond(ctx context.Context, p *parcel, d *Delivery, result Result) error {
	to, failed := requesterOf(p, d), result.Outcome != OutcomeSuccess
	if to == "" || result.Outcome == OutcomeSettled || failed && result.Outcome == OutcomeRetry && !w.sub.cfg.Retry.exhausted(d) {
		return nil
	}
	if !failed && result.Reply == nil {
		return nil // another group may have the answer
	}
	if p.entry.format != FormatOwn {
		if failed {
			return nil
		}
		return w.publishReply(ctx, p.entry.format, d, to, result)
	}
	if size := len(result.Reply); size > w.mq.cfg.MaxPayload {
		failed, result.Err = true, fmt.Errorf("reply of %d bytes: %w: at most %d", size, ErrTooLarge, w.mq.cfg.MaxPayload)
	}
	fields := []string{
		fieldCorrelation, d.Headers[HeaderCorrelationID], fieldGroup, w.group, fieldAttempt, strconv.Itoa(d.Attempt),
	}
	if failed {
		why := describe(result.reason())
		fields = append(fields, fieldError, why.Message, fieldErrorType, why.Type)
	} else {
		fields = append(fields, fieldPayload, string(result.Reply), fieldHeaders, encodeHeaders(result.ReplyHeaders))
	}
	e := Event{Kind: EventReplied, Count: 1}
	add := w.mq.Client.B().Arbitrary("XADD").Keys(replyKey(to)).Args("NOMKSTREAM", "MAXLEN", "~", strconv.Itoa(maxReplies), "*").Args(fields...)
	err := w.mq.Client.Do(ctx, add.Build()).Error()
	if rueidis.IsRedisNil(err) {
		e.Err, err = ErrNoReply, nil
	}
	if err == nil {
		w.event(e)
	}
	return failure(ctx, "reply to "+to, err)
}

// publishReply replies to a requester of FastStream on its channel, in the format of its request. There is no reply that says
// that a request failed: its requester waits for its time to end.
func (w *worker) publishReply(ctx context.Context, format Format, d *Delivery, to string, result Result) error {
	e := Event{Kind: EventReplied, Count: 1}
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
	return w.mq.Client.Do(ctx, w.mq.Client.B().Publish().Channel(channel).Message(string(message)).Build()).AsInt64()
}

func replyHeaders(d *Delivery, result Result) map[string]string {
	headers := map[string]string{}
	if id := d.Headers[FastStreamCorrelationID]; id != "" {
		headers[FastStreamCorrelationID] = id
	}
	maps.Copy(headers, result.ReplyHeaders)
	return headers
}
