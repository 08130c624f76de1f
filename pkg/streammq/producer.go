package streammq

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Producer publishes to topics. It is safe for concurrent use; concurrent calls share pipelines.
type Producer struct {
	mq          *core
	partitioner Partitioner
	single      bool // the topic is the key of a single stream; see StreamProducer
	status      bool // its messages have one
	format      Format
	trims       *writeTrim
}

// NewProducer makes a producer; nil is NewHash().
func (q *core) NewProducer(p Partitioner) *Producer {
	if p == nil {
		p = NewHash()
	}
	return &Producer{mq: q, partitioner: p}
}

// Publish adds one message. When the answer is lost (ErrUnavailable) the message may have been added: who repeats it
// sets HeaderUUID, so that readers know it for the same.
// Errors: ErrTooLarge, ErrHeader, ErrPartition, ErrUnknownTopic, ErrLayout, ErrFull, ErrUnavailable.
func (p *Producer) Publish(ctx context.Context, topic string, m Message) (Receipt, error) {
	receipts, err := p.PublishBatch(ctx, topic, []Message{m})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// PublishBatch adds messages in one pipeline, in their order within each partition. Nothing is added if one of them is
// refused by its form. If the server refuses some, the error joins theirs, each with its number, and the receipts of
// those have an empty ID. Errors as of Publish.
func (p *Producer) PublishBatch(ctx context.Context, topic string, messages []Message) ([]Receipt, error) {
	partitions, err := p.mq.partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	receipts := make([]Receipt, len(messages))
	entries := make([]entry, len(messages))
	for i := range messages {
		if receipts[i], entries[i], err = p.prepare(topic, &messages[i], partitions); err != nil {
			return nil, fmt.Errorf("message %d for topic %s: %w", i, topic, err)
		}
	}
	return receipts, p.add(ctx, receipts, entries)
}

func (p *Producer) prepare(topic string, m *Message, partitions int) (Receipt, entry, error) {
	if err := m.validate(p.mq.cfg.MaxPayload); err != nil {
		return Receipt{}, entry{}, err
	}
	partition, err := choose(p.partitioner, m, partitions)
	if err != nil {
		return Receipt{}, entry{}, err
	}
	now := p.mq.cfg.Now()
	headers := make(map[string]string, len(m.Headers)+1)
	maps.Copy(headers, m.Headers)
	if headers[HeaderUUID] == "" {
		headers[HeaderUUID] = newUUID(now)
	}
	attempts := m.MaxAttempts
	if attempts == 0 {
		attempts = DefaultMaxAttempts
	}
	e := entry{
		payload: m.Payload, timestamp: now, maxRetries: attempts, topic: topic, partition: partition, key: m.Key, headers: headers,
	}
	err = p.inFormat(&e, m)
	return Receipt{UUID: headers[HeaderUUID], Partition: partition}, e, err
}

// add sends the entries in order, none to a stream that is not there: a deleted topic stays deleted. Those with a payload
// beside the stream go by a script.
func (p *Producer) add(ctx context.Context, receipts []Receipt, entries []entry) error {
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
			p.mq.observe(Event{Kind: EventProduced, Topic: e.topic, Partition: e.partition, Count: 1, Err: err})
			errs = append(errs, failure(ctx, fmt.Sprintf("publish message %d to %s", i, e.topic), err))
			continue
		}
		receipts[i].ID = id
		counts[e.partition]++
	}
	for partition, n := range counts {
		p.mq.observe(Event{Kind: EventProduced, Topic: entries[0].topic, Partition: partition, Count: n})
		if p.trims != nil {
			p.trims.added(ctx, p, source{layout: p.mq.cfg.Layout, topic: entries[0].topic, part: partition, single: p.single}, n)
		}
	}
	return errors.Join(errs...)
}

// house makes the streams that were not there, if the topic still is, and adds their entries again, in order: the server
// was flushed, the stream was deleted by hand, or another system made the topic.
func (p *Producer) house(ctx context.Context, receipts []Receipt, entries []entry, results []rueidis.RedisResult, homeless []int) error {
	topic := entries[0].topic
	if !p.single {
		if _, err := p.mq.Partitions(ctx, topic); err != nil {
			return err
		}
	}
	var partitions []int
	seen := map[int]bool{}
	commands := make(rueidis.Commands, len(homeless))
	for j, i := range homeless {
		if partition := entries[i].partition; !seen[partition] {
			seen[partition], partitions = true, append(partitions, partition)
		}
		commands[j] = p.command(&entries[i], receipts[i].UUID)
	}
	var err error
	if p.single {
		err = failure(ctx, "make stream "+topic, p.mq.Run(ctx, p.mq.scripts.StreamMake, []string{topic}).Error())
	} else {
		err = p.mq.makeStreams(ctx, topic, partitions...)
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
func (p *Producer) send(ctx context.Context, receipts []Receipt, entries []entry) []rueidis.RedisResult {
	if len(entries) == 0 || !p.status && !p.mq.hasStatus(p.source(&entries[0])) {
		commands := make(rueidis.Commands, len(entries))
		for i := range entries {
			commands[i] = p.command(&entries[i], receipts[i].UUID)
		}
		return p.mq.Client.DoMulti(ctx, commands...)
	}
	commands := make(rueidis.Commands, 0, 2*len(entries))
	places := make([]int, len(entries)) // of the entries among the commands
	for i := range entries {
		commands = append(commands, p.mq.setPending(receipts[i].UUID, entries[i].format, entries[i].timestamp))
		if user := entries[i].headers[HeaderUser]; user != "" {
			commands = append(commands, p.mq.setOwner(receipts[i].UUID, user))
		}
		places[i] = len(commands)
		commands = append(commands, p.command(&entries[i], receipts[i].UUID))
	}
	results := p.mq.Client.DoMulti(ctx, commands...)
	added := make([]rueidis.RedisResult, len(entries))
	for i, place := range places {
		added[i] = results[place]
	}
	return added
}

func (p *Producer) command(e *entry, uuid string) rueidis.Completed {
	if len(e.payload) > p.inlineMax() && e.format == FormatOwn {
		return p.mq.EvalSHA(p.besideCall(e, uuid))
	}
	// One slice, no copy per field: this is the path of every message.
	add := p.mq.Client.B().Arbitrary("XADD").Keys(p.source(e).stream()).Args("NOMKSTREAM", "*").Args(e.fields()...)
	return add.Build()
}

func (p *Producer) inlineMax() int {
	switch most := p.mq.cfg.InlineMax; {
	case most != InlineAuto:
		return most
	case p.single || p.mq.cfg.Layout != LayoutSingle:
		return DefaultInlineMax
	}
	return p.mq.cfg.MaxPayload
}

func (p *Producer) source(e *entry) source {
	return source{layout: p.mq.cfg.Layout, topic: e.topic, part: e.partition, single: p.single}
}

func (p *Producer) besideCall(e *entry, uuid string) stream.Call {
	s := p.source(e)
	beside := *e
	beside.payloadRef = uuid
	args := append([]string{uuid, string(e.payload)}, beside.fields()...)
	return stream.Call{Script: p.mq.scripts.PublishBeside, Keys: []string{s.stream(), s.body(uuid), s.bodies()}, Args: args}
}
