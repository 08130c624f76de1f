package consume

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
)

// forReply gives the handler of a request the time that its requester still waits; false: that is over. Both ends of it
// are Redis' clock, which made the id of the message's first entry.
func (w *Worker) forReply(ctx context.Context, p *fence.Parcel, d *model.Delivery) (context.Context, bool, context.CancelFunc) {
	if requesterOf(p, d) == "" {
		return ctx, true, func() {}
	}
	timeout, err := strconv.ParseInt(d.Headers[model.HeaderReplyTimeout], 10, 64)
	text, _, _ := strings.Cut(d.OriginalID, "-")
	began, errID := strconv.ParseInt(text, 10, 64)
	if err != nil || errID != nil {
		return ctx, true, func() {}
	}
	clock, err := w.Mq.Client.Do(ctx, w.Mq.Client.B().Time().Build()).AsIntSlice()
	if err != nil || len(clock) != 2 {
		return ctx, true, func() {} // it may be in time, and its reconciling will tell of the server
	}
	left := began + timeout - clock[0]*1000 - clock[1]/1000
	if left <= 0 {
		w.event(model.Event{Kind: model.EventOverdue, Count: 1})
		return ctx, false, func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(left)*time.Millisecond)
	return ctx, true, cancel
}

// requesterOf names who waits for a reply; "" when nobody does, or when the name cannot be one of ours.
func requesterOf(p *fence.Parcel, d *model.Delivery) string {
	if p.Entry.Format != wire.FormatOwn {
		return d.Headers[wire.FastStreamReplyTo]
	}
	to := d.Headers[model.HeaderReplyTo]
	if to != "" && model.CheckName(to, model.ErrGroupName) != nil { // most messages have none, and an error is not free
		return ""
	}
	return to
}

// Respond tells a requester what became of its message, once nothing more can become of it, and before it is settled:
// a crash between the two lets the next owner answer again, and the first answer counts.
func (w *Worker) Respond(ctx context.Context, p *fence.Parcel, d *model.Delivery, result model.Result) error {
	to, failed := requesterOf(p, d), result.Outcome != model.OutcomeSuccess
	if to == "" || result.Outcome == model.OutcomeSettled || failed && result.Outcome == model.OutcomeRetry && !model.Exhausted(w.cfg.Retry, d) {
		return nil
	}
	if !failed && result.Reply == nil {
		return nil // another group may have the answer
	}
	if p.Entry.Format != wire.FormatOwn {
		if failed {
			return nil
		}
		return w.publishReply(ctx, p.Entry.Format, d, to, result)
	}
	if size := len(result.Reply); size > w.Mq.Cfg.MaxPayload {
		failed, result.Err = true, fmt.Errorf("reply of %d bytes: %w: at most %d", size, model.ErrTooLarge, w.Mq.Cfg.MaxPayload)
	}
	fields := []string{
		wire.FieldCorrelation, d.Headers[model.HeaderCorrelationID], wire.FieldGroup, w.Group, wire.FieldAttempt, strconv.Itoa(d.Attempt),
	}
	if failed {
		why := model.Describe(model.Reason(result))
		fields = append(fields, wire.FieldError, why.Message, wire.FieldErrorType, why.Type)
	} else {
		fields = append(fields, wire.FieldPayload, string(result.Reply), wire.FieldHeaders, wire.EncodeHeaders(result.ReplyHeaders))
	}
	e := model.Event{Kind: model.EventReplied, Count: 1}
	add := w.Mq.Client.B().Arbitrary("XADD").Keys(core.ReplyKey(to)).Args("NOMKSTREAM", "MAXLEN", "~", strconv.Itoa(model.MaxReplies), "*").Args(fields...)
	err := w.Mq.Client.Do(ctx, add.Build()).Error()
	if rueidis.IsRedisNil(err) {
		e.Err, err = model.ErrNoReply, nil
	}
	if err == nil {
		w.event(e)
	}
	return model.Failure(ctx, "reply to "+to, err)
}

// publishReply replies to a requester of FastStream on its channel, in the format of its request. There is no reply that says
// that a request failed: its requester waits for its time to end.
func (w *Worker) publishReply(ctx context.Context, format wire.Format, d *model.Delivery, to string, result model.Result) error {
	e, headers := model.Event{Kind: model.EventReplied, Count: 1}, replyHeaders(d, result)
	switch size := len(result.Reply); {
	case size > w.Mq.Cfg.MaxPayload:
		e.Err = fmt.Errorf("reply of %d bytes: %w: at most %d", size, model.ErrTooLarge, w.Mq.Cfg.MaxPayload)
	case format == wire.FormatFastStreamJSON && !utf8.Valid(result.Reply):
		e.Err = fmt.Errorf("reply: %w: the request's format carries valid UTF-8 only", model.ErrMalformed)
	case format == wire.FormatFastStream: // its lengths have two bytes, and its reader stops at what is no text
		e.Err = model.Validate(model.Message{Headers: headers}, 0)
	}
	if e.Err == nil {
		message := string(wire.EncodeEnvelope(format, headers, result.Reply))
		heard, err := w.Mq.Client.Do(ctx, w.Mq.Client.B().Publish().Channel(to).Message(message).Build()).AsInt64()
		if err != nil {
			return model.Failure(ctx, "reply to "+strconv.Quote(to), err)
		}
		if heard == 0 {
			e.Err = model.ErrNoReply
		}
	}
	w.event(e)
	return nil
}

func replyHeaders(d *model.Delivery, result model.Result) map[string]string {
	headers := map[string]string{}
	if id := d.Headers[wire.FastStreamCorrelationID]; id != "" {
		headers[wire.FastStreamCorrelationID] = id
	}
	maps.Copy(headers, result.ReplyHeaders)
	return headers
}
