// Package produce adds messages to topics and single streams, and sends requests.
package produce

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Producer publishes to topics. It is safe for concurrent use; concurrent calls share pipelines.
type Producer struct {
	mq          *core.Core
	partitioner Partitioner
	single      bool // the topic is the key of a single stream; see StreamProducer
	status      bool // its messages have one
	format      wire.Format
	trims       *writeTrim
}

// NewProducer makes a producer; nil is NewHash().
func NewProducer(q *core.Core, p Partitioner) *Producer {
	if p == nil {
		p = NewHash()
	}
	return &Producer{mq: q, partitioner: p}
}

// Publish adds one message. When the answer is lost (ErrUnavailable) the message may have been added: who repeats it
// sets HeaderUUID, so that readers know it for the same.
// Errors: ErrTooLarge, ErrHeader, ErrPartition, ErrUnknownTopic, ErrLayout, ErrFull, ErrUnavailable.
func (p *Producer) Publish(ctx context.Context, topic string, m model.Message) (model.Receipt, error) {
	receipts, err := p.PublishBatch(ctx, topic, []model.Message{m})
	if err != nil {
		return model.Receipt{}, err
	}
	return receipts[0], nil
}

// PublishBatch adds messages in one pipeline, in their order within each partition. Nothing is added if one of them is
// refused by its form. If the server refuses some, the error joins theirs, each with its number, and the receipts of
// those have an empty ID. Errors as of Publish.
func (p *Producer) PublishBatch(ctx context.Context, topic string, messages []model.Message) ([]model.Receipt, error) {
	partitions, err := p.mq.Topics.Known(ctx, topic)
	if err != nil {
		return nil, err
	}
	return p.publish(ctx, topic, "topic", partitions, messages)
}

// publish adds messages to a topic, or to a single stream; kind says which, in errors.
func (p *Producer) publish(ctx context.Context, topic, kind string, partitions int, messages []model.Message) ([]model.Receipt, error) {
	receipts := make([]model.Receipt, len(messages))
	entries := make([]wire.Entry, len(messages))
	for i := range messages {
		var err error
		if receipts[i], entries[i], err = p.prepare(topic, &messages[i], partitions); err != nil {
			return nil, fmt.Errorf("message %d for %s %s: %w", i, kind, topic, err)
		}
	}
	return receipts, p.add(ctx, receipts, entries)
}

func (p *Producer) prepare(topic string, m *model.Message, partitions int) (model.Receipt, wire.Entry, error) {
	if err := model.Validate(*m, p.mq.Cfg.MaxPayload); err != nil {
		return model.Receipt{}, wire.Entry{}, err
	}
	partition, err := Choose(p.partitioner, m, partitions)
	if err != nil {
		return model.Receipt{}, wire.Entry{}, err
	}
	now := p.mq.Cfg.Now()
	headers := model.WithUUID(m.Headers, now)
	e := wire.Entry{
		Payload: m.Payload, Timestamp: now, MaxRetries: m.MaxAttempts, Topic: topic, Partition: partition, Key: m.Key, Headers: headers,
	}
	err = p.inFormat(&e)
	return model.Receipt{UUID: headers[model.HeaderUUID], Partition: partition}, e, err
}

// add sends the entries in order, none to a stream that is not there: a deleted topic stays deleted. Those with a payload
// beside the stream go by a script.
func (p *Producer) add(ctx context.Context, receipts []model.Receipt, entries []wire.Entry) error {
	results := p.send(ctx, receipts, entries)
	var homeless []int // entries whose stream is not there
	for i, r := range results {
		if stream.UnknownScript(r) {
			results[i] = p.mq.Client.Do(ctx, p.mq.Eval(p.besideCall(&entries[i], receipts[i].UUID)))
		}
		if rueidis.IsRedisNil(results[i].Error()) {
			homeless = append(homeless, i)
		}
	}
	if len(homeless) > 0 {
		if err := p.house(ctx, receipts, entries, results, homeless); err != nil {
			return err
		}
	}
	var errs []error
	counts := map[int]int{}
	for i, r := range results {
		e := &entries[i]
		id, err := r.ToString()
		if err != nil {
			p.mq.Observe(model.Event{Kind: model.EventProduced, Topic: e.Topic, Partition: e.Partition, Count: 1, Err: err})
			errs = append(errs, model.Failure(ctx, fmt.Sprintf("publish message %d to %s", i, e.Topic), err))
			continue
		}
		receipts[i].ID = id
		counts[e.Partition]++
	}
	for partition, n := range counts {
		p.mq.Observe(model.Event{Kind: model.EventProduced, Topic: entries[0].Topic, Partition: partition, Count: n})
		if p.trims != nil {
			p.trims.added(ctx, p, core.Source{Layout: p.mq.Cfg.Layout, Topic: entries[0].Topic, Part: partition, Single: p.single}, n)
		}
	}
	return errors.Join(errs...)
}

// house makes the streams that were not there, if the topic still is, and adds their entries again, in order: the server
// was flushed, the stream was deleted by hand, or another system made the topic.
func (p *Producer) house(ctx context.Context, receipts []model.Receipt, entries []wire.Entry, results []rueidis.RedisResult, homeless []int) error {
	topic := entries[0].Topic
	partitions := make([]int, len(homeless))
	commands := make(rueidis.Commands, len(homeless))
	for j, i := range homeless {
		partitions[j], commands[j] = entries[i].Partition, p.command(&entries[i], receipts[i].UUID)
	}
	var err error
	if p.single {
		err = model.Failure(ctx, "make stream "+topic, p.mq.Run(ctx, p.mq.Scripts.StreamMake, []string{topic}).Error())
	} else if _, err = p.mq.Topics.Partitions(ctx, topic); err == nil {
		slices.Sort(partitions)
		err = p.mq.Topics.MakeStreams(ctx, topic, slices.Compact(partitions)...)
	}
	if err != nil {
		return err
	}
	for j, r := range p.mq.Client.DoMulti(ctx, commands...) {
		results[homeless[j]] = r
	}
	return nil
}

// send returns one result per entry. A status goes right before its entry.
func (p *Producer) send(ctx context.Context, receipts []model.Receipt, entries []wire.Entry) []rueidis.RedisResult {
	status := len(entries) > 0 && (p.status || p.mq.HasStatus(p.source(&entries[0])))
	commands := make(rueidis.Commands, 0, len(entries))
	places := make([]int, len(entries)) // of the entries among the commands
	for i := range entries {
		if status {
			commands = append(commands, p.mq.SetPending(receipts[i].UUID, entries[i].Format, entries[i].Timestamp))
			if user := entries[i].Headers[model.HeaderUser]; user != "" {
				commands = append(commands, p.mq.SetOwner(receipts[i].UUID, user))
			}
		}
		places[i] = len(commands)
		commands = append(commands, p.command(&entries[i], receipts[i].UUID))
	}
	results := p.mq.Client.DoMulti(ctx, commands...)
	for i, place := range places { // a place is never below the number of its entry
		results[i] = results[place]
	}
	return results[:len(entries)]
}

func (p *Producer) command(e *wire.Entry, uuid string) rueidis.Completed {
	if len(e.Payload) > p.inlineMax() && e.Format == wire.FormatOwn {
		return p.mq.EvalSHA(p.besideCall(e, uuid))
	}
	// One slice, no copy per field: this is the path of every message.
	add := p.mq.Client.B().Arbitrary("XADD").Keys(p.source(e).Stream()).Args("NOMKSTREAM", "*").Args(e.Fields()...)
	return add.Build()
}

func (p *Producer) inlineMax() int {
	switch most := p.mq.Cfg.InlineMax; {
	case most != model.InlineAuto:
		return most
	case p.single || p.mq.Cfg.Layout != model.LayoutSingle:
		return model.DefaultInlineMax
	}
	return p.mq.Cfg.MaxPayload
}

func (p *Producer) source(e *wire.Entry) core.Source {
	return core.Source{Layout: p.mq.Cfg.Layout, Topic: e.Topic, Part: e.Partition, Single: p.single}
}

func (p *Producer) besideCall(e *wire.Entry, uuid string) stream.Call {
	s := p.source(e)
	beside := *e
	beside.PayloadRef = uuid
	args := append([]string{uuid, string(e.Payload)}, beside.Fields()...)
	return stream.Call{Script: p.mq.Scripts.PublishBeside, Keys: []string{s.Stream(), s.Body(uuid), s.Bodies()}, Args: args}
}

// inFormat makes an entry one of FastStream's. Error: ErrMalformed.
func (p *Producer) inFormat(e *wire.Entry) error {
	if p.format == wire.FormatOwn {
		return nil
	}
	if p.format == wire.FormatFastStreamJSON && !utf8.Valid(e.Payload) {
		return fmt.Errorf("payload: %w: %s carries valid UTF-8 only, %s any bytes", model.ErrMalformed, wire.FormatFastStreamJSON, wire.FormatFastStream)
	}
	e.Format = p.format
	if e.Headers[wire.FastStreamCorrelationID] == "" {
		e.Headers[wire.FastStreamCorrelationID] = e.Headers[model.HeaderUUID]
	}
	return nil
}

// writeTrim trims what a producer writes to.
type writeTrim struct {
	keep  model.Retention
	every int

	mu    sync.Mutex
	since map[core.Source]int // messages added since the last trim
}

// Trimming returns a producer that also trims: a partition after each every messages that it added there. So a topic that
// nobody consumes does not grow without end. What a group has not finished stays, as with every trim. The publish that it falls
// to waits for it; a trim that fails is logged, and tried again after as many messages more.
// Errors: ErrConfig when the retention is negative or keeps all, or every is below 1.
func (p *Producer) Trimming(keep model.Retention, every int) (*Producer, error) {
	var bad model.Problems
	bad.Refuse(keep.MaxLen < 0 || keep.MaxAge < 0 || keep == (model.Retention{}), "Retention %+v: must keep less than all, and not be negative", keep)
	bad.Refuse(every < 1, "every %d: at least 1", every)
	q := *p
	q.trims = &writeTrim{keep: keep, every: every, since: map[core.Source]int{}}
	return &q, bad.Err()
}

// added counts messages and trims when it is time.
func (t *writeTrim) added(ctx context.Context, p *Producer, s core.Source, n int) {
	t.mu.Lock()
	t.since[s] += n
	due := t.since[s] >= t.every
	if due {
		t.since[s] = 0
	}
	t.mu.Unlock()
	if !due {
		return
	}
	if _, _, err := p.mq.TrimTo(ctx, s, t.keep, false); err != nil && ctx.Err() == nil {
		p.mq.Cfg.Log.WarnContext(ctx, "streammq: trim failed", slog.String("stream", s.Stream()), slog.Any("error", err))
	}
}

// StreamProducer publishes to one single stream. It is safe for concurrent use; concurrent calls share pipelines.
type StreamProducer struct {
	p   *Producer
	key string
}

// NewStreamProducer makes a producer for a single stream. Error: ErrStreamKey.
func NewStreamProducer(q *core.Core, key string, status bool) (*StreamProducer, error) {
	p := NewProducer(q, NewRoundRobin())
	p.single, p.status = true, status
	return &StreamProducer{p: p, key: key}, model.CheckStreamKey(key)
}

// Publish adds messages in one pipeline, in their order. Errors as of Producer.PublishBatch.
func (p *StreamProducer) Publish(ctx context.Context, messages ...model.Message) ([]model.Receipt, error) {
	return p.p.publish(ctx, p.key, "stream", 1, messages)
}

// NewFastStreamProducer makes a producer for a stream that FastStream reads. Errors: ErrStreamKey, ErrConfig.
func NewFastStreamProducer(q *core.Core, key string, format wire.Format, status bool) (*StreamProducer, error) {
	p, err := NewStreamProducer(q, key, status)
	if err != nil {
		return nil, err
	}
	if format == wire.FormatOwn || !wire.Known(format) {
		return nil, fmt.Errorf("%w: Format %q: %s or %s", model.ErrConfig, format, wire.FormatFastStream, wire.FormatFastStreamJSON)
	}
	p.p.format = format
	return p, nil
}

// Trimming is Producer.Trimming for a single stream.
func (p *StreamProducer) Trimming(keep model.Retention, every int) (*StreamProducer, error) {
	q, err := p.p.Trimming(keep, every)
	return &StreamProducer{p: q, key: p.key}, err
}
