// Package admin looks at, and changes, topics and groups as their operator.
package admin

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Admin looks at, and changes, one topic or one single stream as its operator. It is safe for concurrent use.
type Admin struct {
	mq     *core.Core
	name   string // the topic, or the stream's key
	single bool
}

// New gives an operator's access to a topic.
func New(q *core.Core, topic string) *Admin { return &Admin{mq: q, name: topic} }

// NewStream gives an operator's access to a single stream.
func NewStream(q *core.Core, streamKey string) *Admin {
	return &Admin{mq: q, name: streamKey, single: true}
}

func (a *Admin) source(partition int) core.Source {
	return core.Source{Layout: a.mq.Cfg.Layout, Topic: a.name, Part: partition, Single: a.single}
}

// sources are the partitions, in order. Errors: ErrUnknownTopic, ErrStreamKey, ErrLayout, ErrUnavailable.
func (a *Admin) sources(ctx context.Context) ([]core.Source, error) {
	if a.single {
		return []core.Source{a.source(0)}, model.CheckStreamKey(a.name)
	}
	n, err := a.mq.Topics.Partitions(ctx, a.name)
	list := make([]core.Source, n)
	for i := range list {
		list[i] = a.source(i)
	}
	return list, err
}

// one is a partition that there is. Errors: ErrPartition, and those of sources.
func (a *Admin) one(ctx context.Context, partition int) (core.Source, error) {
	list, err := a.sources(ctx)
	if err != nil {
		return core.Source{}, err
	}
	if partition < 0 || partition >= len(list) {
		return core.Source{}, fmt.Errorf("partition %d of %s: %w: 0 to %d", partition, a.name, model.ErrPartition, len(list)-1)
	}
	return list[partition], nil
}

// Stats counts what a topic or a single stream holds.
type Stats struct {
	Partitions int
	Entries    int64 // in the streams, finished ones too
	Retries    int64 // republished messages that wait for their time
	Malformed  int64 // retry items that were put aside
	Letters    int64 // dead letters, replayed ones too
	Beside     int64 // payloads beside the streams
	Each       []PartitionCount
}

// PartitionCount is what one partition holds.
type PartitionCount struct {
	Partition int
	Entries   int64
	Beside    int64
	FirstID   string // of the oldest entry; "": there is none
	LastID    string // of the newest
}

// Stats counts. Errors: ErrUnknownTopic, ErrUnavailable.
func (a *Admin) Stats(ctx context.Context) (Stats, error) {
	sources, err := a.sources(ctx)
	if err != nil {
		return Stats{}, err
	}
	total := Stats{Partitions: len(sources)}
	const each = 8
	commands := make(rueidis.Commands, 0, each*len(sources))
	b := a.mq.Client.B
	for _, s := range sources {
		commands = append(commands, b().Xlen().Key(s.Stream()).Build(), b().Zcard().Key(s.Bodies()).Build(),
			b().Xrevrange().Key(s.Stream()).End("+").Start("-").Count(1).Build(),
			b().Zcard().Key(s.Retry()).Build(), b().Zcard().Key(s.Quarantine()).Build(), b().Xlen().Key(s.Dlq()).Build(),
			b().Xrange().Key(s.Stream()).Start("-").End("+").Count(1).Build())
		letters := s.LetterKeys()
		commands = append(commands, b().Xlen().Key(letters[len(letters)-1][0]).Build())
	}
	results := a.mq.Client.DoMulti(ctx, commands...)
	if err := stream.FirstError(results); err != nil {
		return total, model.Failure(ctx, "count what "+a.name+" holds", err)
	}
	number := func(i int) int64 {
		n, _ := results[i].AsInt64() // an error was judged above
		return n
	}
	for i, s := range sources {
		at := each * i
		p := PartitionCount{Partition: s.Part, Entries: number(at), Beside: number(at + 1)}
		p.LastID, p.FirstID = core.OneID(results[at+2]), core.OneID(results[at+6])
		total.Entries, total.Beside = total.Entries+p.Entries, total.Beside+p.Beside
		total.Each = append(total.Each, p)
		if i == 0 || s.Apart() { // otherwise it is the same key again
			total.Retries, total.Malformed, total.Letters = total.Retries+number(at+3), total.Malformed+number(at+4), total.Letters+number(at+5)
			if !s.Apart() {
				total.Letters += number(at + 7)
			}
		}
	}
	return total, nil
}

// PartitionTrim is what a trim removes from one partition.
type PartitionTrim struct {
	Partition int
	Entries   int
	// Frontier is the oldest entry that some group still needs: the smallest, over the groups, of the first pending one and
	// the one after the last delivered. Nothing from it on is ever removed. "": there is no group.
	Frontier string
}

// Trim removes what the retention does not keep, payloads beside the stream with it; a dry run only counts.
// After an error it tells what was done before it. Errors: ErrConfig when the retention is negative, ErrUnknownTopic, ErrUnavailable.
func (a *Admin) Trim(ctx context.Context, r model.Retention, dryRun bool) ([]PartitionTrim, error) {
	if err := model.ValidateRetention(r); err != nil {
		return nil, err
	}
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	parts := make([]PartitionTrim, 0, len(sources))
	for _, s := range sources {
		p := PartitionTrim{Partition: s.Part}
		p.Entries, p.Frontier, err = a.mq.TrimTo(ctx, s, r, dryRun)
		if parts = append(parts, p); err != nil {
			return parts, err
		}
	}
	return parts, nil
}
