package streammq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// forReply gives the handler of a request the time that its requester still waits; false: that is over. Both ends of it
// are Redis' clock, which made the id of the message's first entry.
func (w *worker) forReply(ctx context.Context, d *Delivery) (context.Context, bool, context.CancelFunc) {
	if requesterOf(d) == "" {
		return ctx, true, func() {}
	}
	timeout, err := strconv.ParseInt(d.Headers[HeaderReplyTimeout], 10, 64)
	text, _, _ := strings.Cut(d.OriginalID, "-")
	began, errID := strconv.ParseInt(text, 10, 64)
	if err != nil || errID != nil {
		return ctx, true, func() {}
	}
	clock, err := w.mq.client.Do(ctx, w.mq.client.B().Time().Build()).AsIntSlice()
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
func requesterOf(d *Delivery) string {
	if d.format != FormatOwn {
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
func (w *worker) respond(ctx context.Context, d *Delivery, result Result) error {
	to, failed := requesterOf(d), result.Outcome != OutcomeSuccess
	if to == "" || result.Outcome == OutcomeSettled || failed && result.Outcome == OutcomeRetry && !w.sub.cfg.Retry.exhausted(d) {
		return nil
	}
	if !failed && result.Reply == nil {
		return nil // another group may have the answer
	}
	if d.format != FormatOwn {
		if failed {
			return nil
		}
		return w.publishReply(ctx, d, to, result)
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
	add := w.mq.client.B().Arbitrary("XADD").Keys(replyKey(to)).Args("NOMKSTREAM", "MAXLEN", "~", strconv.Itoa(maxReplies), "*").Args(fields...)
	err := w.mq.client.Do(ctx, add.Build()).Error()
	if rueidis.IsRedisNil(err) {
		e.Err, err = ErrNoReply, nil
	}
	if err == nil {
		w.event(e)
	}
	return failure(ctx, "reply to "+to, err)
}
