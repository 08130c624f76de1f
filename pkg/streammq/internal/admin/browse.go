package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/fence"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// maxBrowse is the most messages of one look: their payloads are read too.
const maxBrowse = 1000

// Stored is a message as it lies in a stream, whoever has run it.
type Stored struct {
	Partition  int
	ID         string
	UUID       string
	Key        string
	Payload    []byte
	Headers    map[string]string
	Published  time.Time
	Failed     int    // attempts that failed before this entry was added
	OriginalID string // of the first entry; ID itself unless it was added again
	Group      string // the only group that it is for; "": all
	// Problem says why the entry, or its payload beside the stream, cannot be read; then Raw is what is there.
	Problem error
	Raw     map[string]string
}

// Range lists the messages of one partition with ids from … to ("-" and "+" for the ends, "(" before an id excludes it),
// at most limit (0: 100, at most 1,000). Errors: ErrUnknownTopic, ErrPartition, ErrEntryID, ErrUnavailable.
func (a *Admin) Range(ctx context.Context, partition int, from, to string, limit int) ([]Stored, error) {
	s, err := a.one(ctx, partition)
	if err != nil {
		return nil, err
	}
	entries, err := a.mq.Client.Do(ctx, a.mq.Client.B().Arbitrary("XRANGE").Keys(s.Stream()).Args(from, to, "COUNT", count(limit)).Build()).ToArray()
	if err != nil {
		return nil, model.Failure(ctx, "list "+s.Stream(), err)
	}
	return a.stored(ctx, s, entries)
}

// Recent lists the newest messages of all partitions, the newest first, at most limit (0: 100, at most 1,000).
// Errors: ErrUnknownTopic, ErrUnavailable.
func (a *Admin) Recent(ctx context.Context, limit int) ([]Stored, error) {
	return a.newest(ctx, func(core.Source) string { return "+" }, limit)
}

// Older goes on after a message that Recent or Older listed last. Errors: ErrEntryID, and those of Recent.
func (a *Admin) Older(ctx context.Context, partition int, id string, limit int) ([]Stored, error) {
	if _, err := PositionAfter(id); err != nil {
		return nil, err
	}
	return a.newest(ctx, func(s core.Source) string {
		if s.Part > partition { // of the same id it comes after that one
			return id
		}
		return "(" + id
	}, limit)
}

// newest lists messages from an id of each partition on, the newest first, and of one id by partition.
func (a *Admin) newest(ctx context.Context, from func(core.Source) string, limit int) ([]Stored, error) {
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	var list []Stored
	for _, s := range sources {
		entries, err := a.mq.Client.Do(ctx, a.mq.Client.B().Arbitrary("XREVRANGE").Keys(s.Stream()).Args(from(s), "-", "COUNT", count(limit)).Build()).ToArray()
		if err != nil {
			return nil, model.Failure(ctx, "list "+s.Stream(), err)
		}
		some, err := a.stored(ctx, s, entries)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
		slices.SortStableFunc(list, func(a, b Stored) int { return stream.CompareIDs(b.ID, a.ID) })
		list = list[:min(len(list), browseLimit(limit))]
	}
	return list, nil
}

func browseLimit(limit int) int {
	if limit <= 0 {
		return model.PageSize
	}
	return min(limit, maxBrowse)
}

func count(limit int) string { return fmt.Sprint(browseLimit(limit)) }

func (a *Admin) stored(ctx context.Context, s core.Source, entries []rueidis.RedisMessage) ([]Stored, error) {
	raws := make([]wire.Raw, len(entries))
	for i := range entries {
		var err error
		if raws[i].Id, raws[i].Fields, err = fence.DecodePair(&entries[i]); err != nil {
			return nil, err
		}
	}
	r := fence.Reader{Mq: a.mq, Src: s}
	parcels, err := r.Unpack(ctx, raws)
	if err != nil {
		return nil, model.Failure(ctx, "read payloads beside "+s.Stream(), err)
	}
	list := make([]Stored, len(parcels))
	for i := range parcels {
		p := &parcels[i]
		d := r.Delivery(p)
		list[i] = Stored{
			Partition: s.Part, ID: p.Id, UUID: d.UUID, Key: d.Key, Payload: d.Payload, Headers: d.Headers, Published: d.Published,
			Failed: p.Entry.RetryCount, OriginalID: d.OriginalID, Group: d.Headers[model.HeaderRetryGroup], Problem: p.Bad,
		}
		if p.Bad != nil {
			list[i].Raw = wire.Mapped(p.Fields)
		}
	}
	return list, nil
}
