package fence

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/dlq"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Held names one delivery of an entry, as the fence wants it.
type Held struct {
	Id         string
	Deliveries int64
}

// Ack acknowledges deliveries and returns how many were still the caller's; -1 when the lease is lost.
func (r *Reader) Ack(ctx context.Context, items []Held) (int, error) {
	n, err := r.Mq.Run(ctx, r.Mq.Scripts.Ack, r.keys(), r.fence(items...)...).AsInt64()
	if n > 0 {
		r.Drop(ctx, items...)
	}
	return int(n), err
}

// Drop deletes what every group has finished, by the policy. What is left behind by a crash or an error, retention removes.
func (r *Reader) Drop(ctx context.Context, items ...Held) {
	if r.Deletes == model.DeleteNever {
		return
	}
	args := []string{stream.Flag(r.Deletes == model.DeleteImmediately)}
	for _, h := range items {
		args = append(args, h.Id)
	}
	n, err := r.Mq.Run(ctx, r.Mq.Scripts.Drop, []string{r.Src.Stream()}, args...).AsInt64()
	if err != nil && ctx.Err() == nil {
		r.Mq.Cfg.Log.WarnContext(ctx, "streammq: finished entries are left to retention", slog.String("stream", r.Src.Stream()), slog.Any("error", err))
	}
	if n > 0 {
		r.Mq.Observe(model.Event{Kind: model.EventTrimmed, Topic: r.Src.Topic, Partition: r.Src.Part, Count: int(n)})
	}
}

// Touch resets the idle time of deliveries that are still the caller's.
func (r *Reader) Touch(ctx context.Context, items []Held) error {
	return r.Mq.Run(ctx, r.Mq.Scripts.Touch, r.keys()[:2], r.fence(items...)...).Error()
}

func (r *Reader) fence(items ...Held) []string {
	args := make([]string, 0, 3+2*len(items))
	args = append(args, r.Epoch, r.Group, r.Consumer)
	for _, h := range items {
		args = append(args, h.Id, strconv.FormatInt(h.Deliveries, 10))
	}
	return args
}

// RetryInPlace puts a delivery off; false: it is not the caller's any more.
func (r *Reader) RetryInPlace(ctx context.Context, h Held, failed int, delay time.Duration) (bool, error) {
	args := append(r.fence(h), strconv.Itoa(failed), strconv.FormatInt(delay.Milliseconds(), 10))
	return r.Mq.Run(ctx, r.Mq.Scripts.RetryInPlace, r.keys(), args...).AsBool()
}

// RetryLater stores a delivery's message to be added again; false: it is not the caller's any more.
func (r *Reader) RetryLater(ctx context.Context, h Held, e wire.Entry, failed int, delay time.Duration) (bool, error) {
	again := Again(r.Src, r.Group, e, h.Id)
	again.RetryCount = failed
	again.Headers[model.HeaderRetryCount] = strconv.Itoa(failed)
	name := r.Src.ItemName(r.Group, h.Id)
	keys := []string{r.Src.Stream(), r.Src.Epoch(r.Group), r.Src.Retry(), r.Src.Item(name)}
	args := append(r.fence(h), name, strconv.FormatInt(delay.Milliseconds(), 10))
	done, err := r.Mq.Run(ctx, r.Mq.Scripts.RetryLater, keys, append(args, again.Item()...)...).AsBool()
	if done {
		r.Drop(ctx, h)
	}
	return done, err
}

// Again is an entry as it is added a second time: for this group only, with the payload in it.
func Again(src core.Source, group string, e wire.Entry, id string) wire.Entry {
	e.PayloadRef = ""
	e.Topic, e.Partition = src.Topic, src.Part
	e.OriginalID = cmp.Or(e.OriginalID, e.Headers[model.HeaderOriginalID], id)
	headers := make(map[string]string, len(e.Headers)+4)
	maps.Copy(headers, e.Headers)
	headers[model.HeaderRetryGroup] = group
	if group == "" { // of a dead letter of the Java original, which names none: for all
		delete(headers, model.HeaderRetryGroup)
	}
	delete(headers, model.HeaderRetryCount)
	headers[model.HeaderOriginalID] = e.OriginalID
	headers[model.HeaderPartition] = strconv.Itoa(src.Part)
	e.Headers = headers
	return e
}

// DeadLetter moves a delivery to the dead letters; false: it is not the caller's any more.
func (r *Reader) DeadLetter(ctx context.Context, p *Parcel, failed int, cause error) (bool, error) {
	fields := r.Letter(p, failed, cause, r.Mq.Cfg.Now())
	h, to, own := Held{p.Id, p.Deliveries}, r.Src.Dlq(), false
	switch {
	case r.Letters != "" && r.Mq.Cfg.Layout == model.LayoutCluster:
		return r.deadLetterFar(ctx, h, fields)
	case r.Letters != "":
		to = r.Letters
	case !r.Src.Apart():
		var err error
		if own, err = dlq.LettersApart(r.Mq, ctx, r.Src); err != nil {
			return false, err
		}
		if own {
			to = r.Src.OwnDeadLetters()
		}
	}
	args := append(append(r.fence(h), stream.Flag(own)), fields...)
	keys := append([]string{r.Src.Stream(), to}, r.keys()[1:]...)
	done, err := r.Mq.Run(ctx, r.Mq.Scripts.Move, keys, args...).AsBool()
	if done {
		r.Drop(ctx, h)
	}
	return done, err
}

// deadLetterFar is deadLetter into a slot of its own: first the dead letter, once for each entry however often this is
// repeated, then the fenced acknowledgement. So a crash between the two loses nothing and doubles nothing. A member that
// lost the entry meanwhile learns it before; should it lose it in this very moment, there is a dead letter of a message that
// another member has in hand.
func (r *Reader) deadLetterFar(ctx context.Context, h Held, fields []string) (bool, error) {
	still, err := r.Mq.Run(ctx, r.Mq.Scripts.Touch, r.keys()[:2], r.fence(h)...).AsBool()
	if err != nil || !still {
		return false, err
	}
	if err := r.AddDeadLetter(ctx, h, fields); err != nil {
		return false, err
	}
	n, err := r.Ack(ctx, []Held{h})
	return n == 1, err
}

func (r *Reader) AddDeadLetter(ctx context.Context, h Held, fields []string) error {
	_, err := r.Mq.AddLetter(ctx, r.Mq.Scripts.LetterAdd, r.Letters, core.Written(r.Letters), stream.EntryName(r.Src.Stream(), r.Group, h.Id), fields)
	return err
}

func (r *Reader) Letter(p *Parcel, failed int, cause error, now time.Time) []string {
	text := model.Clip(model.Reason(model.Result{Err: cause}).Error(), model.MaxErrorText)
	e := p.Entry
	fields := []string{
		wire.FieldOriginalTopic, r.Src.Topic, wire.FieldPartition, strconv.Itoa(r.Src.Part), wire.FieldOriginalID, p.original(),
		wire.FieldGroup, r.Group, wire.FieldRetryCount, strconv.Itoa(failed), wire.FieldMaxRetries, wire.EncodeAttempts(e.MaxRetries),
		wire.FieldFailedAt, wire.EncodeTime(now), wire.FieldError, text,
	}
	if r.Src.Single {
		fields = append(fields, wire.FieldSingle, wire.SingleOn)
	}
	if e.Format != wire.FormatOwn {
		fields = append(fields, wire.FieldFormat, string(e.Format))
	}
	if p.Bad != nil { // as it is, byte by byte
		for i := 0; i+1 < len(p.Fields); i += 2 {
			fields = append(fields, wire.RawPrefix+p.Fields[i], p.Fields[i+1])
		}
		return fields
	}
	fields = append(fields, wire.FieldPayload, string(e.Payload), wire.FieldHeaders, wire.EncodeHeaders(e.Headers), wire.FieldTimestamp, wire.EncodeTime(p.Published()))
	if e.Key != "" {
		fields = append(fields, wire.FieldKey, e.Key)
	}
	return fields
}
