package streammq

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// held names one delivery of an entry, as the fence wants it.
type held struct {
	id         string
	deliveries int64
}

// ack acknowledges deliveries and returns how many were still the caller's; -1 when the lease is lost.
func (r *reader) ack(ctx context.Context, items []held) (int, error) {
	n, err := r.mq.Run(ctx, r.mq.scripts.Ack, r.keys(), r.fence(items...)...).AsInt64()
	if n > 0 {
		r.drop(ctx, items...)
	}
	return int(n), err
}

// drop deletes what every group has finished, by the policy. What is left behind by a crash or an error, retention removes.
func (r *reader) drop(ctx context.Context, items ...held) {
	if r.deletes == DeleteNever {
		return
	}
	args := []string{stream.Flag(r.deletes == DeleteImmediately)}
	for _, h := range items {
		args = append(args, h.id)
	}
	n, err := r.mq.Run(ctx, r.mq.scripts.Drop, []string{r.src.stream()}, args...).AsInt64()
	if err != nil && ctx.Err() == nil {
		r.mq.cfg.Log.WarnContext(ctx, "streammq: finished entries are left to retention", slog.String("stream", r.src.stream()), slog.Any("error", err))
	}
	if n > 0 {
		r.mq.observe(Event{Kind: EventTrimmed, Topic: r.src.topic, Partition: r.src.part, Count: int(n)})
	}
}

// touch resets the idle time of deliveries that are still the caller's.
func (r *reader) touch(ctx context.Context, items []held) error {
	return r.mq.Run(ctx, r.mq.scripts.Touch, r.keys()[:2], r.fence(items...)...).Error()
}

func (r *reader) fence(items ...held) []string {
	args := make([]string, 0, 3+2*len(items))
	args = append(args, r.epoch, r.group, r.consumer)
	for _, h := range items {
		args = append(args, h.id, strconv.FormatInt(h.deliveries, 10))
	}
	return args
}

// retryInPlace puts a delivery off; false: it is not the caller's any more.
func (r *reader) retryInPlace(ctx context.Context, h held, failed int, delay time.Duration) (bool, error) {
	args := append(r.fence(h), strconv.Itoa(failed), strconv.FormatInt(delay.Milliseconds(), 10))
	return r.mq.Run(ctx, r.mq.scripts.RetryInPlace, r.keys(), args...).AsBool()
}

// retryLater stores a delivery's message to be added again; false: it is not the caller's any more.
func (r *reader) retryLater(ctx context.Context, h held, e entry, failed int, delay time.Duration) (bool, error) {
	again := again(r.src, r.group, e, h.id)
	again.retryCount = failed
	again.headers[HeaderRetryCount] = strconv.Itoa(failed)
	name := r.src.itemName(r.group, h.id)
	keys := []string{r.src.stream(), r.src.epoch(r.group), r.src.retry(), r.src.item(name)}
	args := append(r.fence(h), name, strconv.FormatInt(delay.Milliseconds(), 10))
	done, err := r.mq.Run(ctx, r.mq.scripts.RetryLater, keys, append(args, again.item()...)...).AsBool()
	if done {
		r.drop(ctx, h)
	}
	return done, err
}

// again is an entry as it is added a second time: for this group only, with the payload in it.
func again(src source, group string, e entry, id string) entry {
	e.payloadRef = ""
	e.topic, e.partition = src.topic, src.part
	e.originalID = cmp.Or(e.originalID, e.headers[HeaderOriginalID], id)
	headers := make(map[string]string, len(e.headers)+4)
	maps.Copy(headers, e.headers)
	headers[HeaderRetryGroup] = group
	if group == "" { // of a dead letter of the Java original, which names none: for all
		delete(headers, HeaderRetryGroup)
	}
	delete(headers, HeaderRetryCount)
	headers[HeaderOriginalID] = e.originalID
	headers[HeaderPartition] = strconv.Itoa(src.part)
	e.headers = headers
	return e
}

// deadLetter moves a delivery to the dead letters; false: it is not the caller's any more.
func (r *reader) deadLetter(ctx context.Context, p *parcel, failed int, cause error) (bool, error) {
	fields := r.letter(p, failed, cause, r.mq.cfg.Now())
	h, to, own := held{p.id, p.deliveries}, r.src.dlq(), false
	switch {
	case r.letters != "" && r.mq.cfg.Layout == LayoutCluster:
		return r.deadLetterFar(ctx, h, fields)
	case r.letters != "":
		to = r.letters
	case !r.src.apart():
		var err error
		if own, err = r.mq.lettersApart(ctx, r.src); err != nil {
			return false, err
		}
		if own {
			to = r.src.ownDeadLetters()
		}
	}
	args := append(append(r.fence(h), stream.Flag(own)), fields...)
	keys := append([]string{r.src.stream(), to}, r.keys()[1:]...)
	done, err := r.mq.Run(ctx, r.mq.scripts.Move, keys, args...).AsBool()
	if done {
		r.drop(ctx, h)
	}
	return done, err
}

// deadLetterFar is deadLetter into a slot of its own: first the dead letter, once for each entry however often this is
// repeated, then the fenced acknowledgement. So a crash between the two loses nothing and doubles nothing. A member that
// lost the entry meanwhile learns it before; should it lose it in this very moment, there is a dead letter of a message that
// another member has in hand.
func (r *reader) deadLetterFar(ctx context.Context, h held, fields []string) (bool, error) {
	still, err := r.mq.Run(ctx, r.mq.scripts.Touch, r.keys()[:2], r.fence(h)...).AsBool()
	if err != nil || !still {
		return false, err
	}
	if err := r.addDeadLetter(ctx, h, fields); err != nil {
		return false, err
	}
	n, err := r.ack(ctx, []held{h})
	return n == 1, err
}

func (r *reader) addDeadLetter(ctx context.Context, h held, fields []string) error {
	_, err := r.mq.AddLetter(ctx, r.mq.scripts.LetterAdd, r.letters, written(r.letters), stream.EntryName(r.src.stream(), r.group, h.id), fields)
	return err
}

func (r *reader) letter(p *parcel, failed int, cause error, now time.Time) []string {
	text := clip(Result{Err: cause}.reason().Error(), maxErrorText)
	e := p.entry
	fields := []string{
		fieldOriginalTopic, r.src.topic, fieldPartition, strconv.Itoa(r.src.part), fieldOriginalID, p.original(),
		fieldGroup, r.group, fieldRetryCount, strconv.Itoa(failed), fieldMaxRetries, encodeAttempts(e.maxRetries),
		fieldFailedAt, encodeTime(now), fieldError, text,
	}
	if r.src.single {
		fields = append(fields, fieldSingle, singleOn)
	}
	if e.format != FormatOwn {
		fields = append(fields, fieldFormat, string(e.format))
	}
	if p.bad != nil { // as it is, byte by byte
		for i := 0; i+1 < len(p.fields); i += 2 {
			fields = append(fields, rawPrefix+p.fields[i], p.fields[i+1])
		}
		return fields
	}
	fields = append(fields, fieldPayload, string(e.payload), fieldHeaders, encodeHeaders(e.headers), fieldTimestamp, encodeTime(p.published()))
	if e.key != "" {
		fields = append(fields, fieldKey, e.key)
	}
	return fields
}
