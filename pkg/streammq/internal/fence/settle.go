package fence

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

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

// Answers of status_write.lua that matter.
const statusCompletedBefore = 2

// WriteStatus notes where a delivery is, before the script that settles it: a crash between the two is healed by the
// next delivery. It returns false when this group has completed the message before.
func (r *Reader) WriteStatus(ctx context.Context, p *Parcel, state model.State, cause error) (bool, error) {
	if !r.HasStatus(p) {
		return true, nil
	}
	reason := ""
	if cause != nil {
		text, err := json.Marshal(model.Describe(cause))
		if err != nil {
			return true, err
		}
		reason = string(text)
	}
	code, err := r.Mq.Run(ctx, r.Mq.Scripts.StatusWrite, []string{core.StatusKey(p.Entry.Headers[model.HeaderUUID])},
		string(state), r.Group, p.Id, r.Epoch, strconv.FormatInt(p.Deliveries, 10),
		r.Mq.Cfg.Now().UTC().Format(core.StatusFormat), reason, strconv.FormatInt(int64(core.StatusTTL/time.Second), 10),
		string(p.Entry.Format)).AsInt64()
	if user := p.Entry.Headers[model.HeaderUser]; err == nil && user != "" {
		err = r.keepOwner(ctx, p.Entry.Headers[model.HeaderUUID], user)
	}
	return code != statusCompletedBefore, err
}

// keepOwner lets the owner live as long as the status that was written; the entry of another publisher has none before.
func (r *Reader) keepOwner(ctx context.Context, uuid, user string) error {
	keep := r.Mq.Client.B().Expire().Key(core.OwnerKey(uuid)).Seconds(int64(core.StatusTTL / time.Second)).Build()
	for _, answer := range r.Mq.Client.DoMulti(ctx, r.Mq.SetOwner(uuid, user), keep) {
		if err := answer.Error(); err != nil && !rueidis.IsRedisNil(err) { // nil: it is there
			return model.Failure(ctx, "keep the owner", err)
		}
	}
	return nil
}

func (r *Reader) HasStatus(p *Parcel) bool {
	return p.Entry.Headers[model.HeaderUUID] != "" && (r.Status || r.Mq.HasStatus(r.Src))
}

// Acks gathers what was handled, so that many entries share one script: at the end of a batch, or after a short delay
// should a handler run longer than that.
type Acks struct {
	Reader *Reader
	Delay  time.Duration
	Event  func(model.Event) // says who, of what and in which group

	sending sync.Mutex     // one script at a time; taken before mu
	running sync.WaitGroup // flushes that nobody waits for

	mu      sync.Mutex
	items   []Held
	since   time.Time
	timer   *time.Timer
	refused bool
	err     error
}

func (a *Acks) Add(ctx context.Context, h Held) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.items) == 0 {
		a.since = a.Reader.Mq.Cfg.Now()
		a.timer = time.AfterFunc(a.Delay, func() { a.Flush(ctx) })
	}
	a.items = append(a.items, h)
}

// Begin acknowledges what was gathered without waiting for it; what it finds is told by a later verdict.
func (a *Acks) Begin(ctx context.Context) { a.running.Go(func() { a.Flush(ctx) }) }

// End acknowledges what was gathered, and waits for all that was begun.
func (a *Acks) End(ctx context.Context) {
	a.Flush(ctx)
	a.running.Wait()
}

// Flush acknowledges what was gathered, after all that was being acknowledged. What it finds is told by verdict.
func (a *Acks) Flush(ctx context.Context) {
	a.sending.Lock()
	defer a.sending.Unlock()
	items, since := a.taken()
	if len(items) == 0 {
		return
	}
	slices.SortFunc(items, func(a, b Held) int { return stream.CompareIDs(a.Id, b.Id) }) // lanes end in any order
	ctx, cancel := core.Writing(ctx)
	defer cancel()
	n, err := a.Reader.Ack(ctx, items)
	if err != nil {
		a.note(false, err)
		a.Event(model.Event{Kind: model.EventFailed, Of: model.EventAcked, Count: len(items), Err: err})
		return
	}
	a.Event(model.Event{Kind: model.EventAcked, Count: max(0, n), Took: a.Reader.Mq.Cfg.Now().Sub(since)})
	if n < len(items) {
		a.note(true, nil)
		a.Event(model.Event{Kind: model.EventRefused, Of: model.EventAcked, Count: len(items) - max(0, n)})
	}
}

// taken are the items gathered so far, and since when.
func (a *Acks) taken() ([]Held, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := a.items
	if len(items) > 0 {
		a.timer.Stop()
		a.items = make([]Held, 0, len(items))
	}
	return items, a.since
}

func (a *Acks) note(refused bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refused = a.refused || refused
	if err != nil {
		a.err = err
	}
}

// Verdict tells, once, whether an acknowledgement was refused or failed since the last call.
func (a *Acks) Verdict() (refused bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refused, err = a.refused, a.err
	a.refused, a.err = false, nil
	return refused, err
}
