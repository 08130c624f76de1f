package fence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/millweir/millweir/pkg/streammq/internal/core"
	"github.com/millweir/millweir/pkg/streammq/internal/model"
	"github.com/millweir/millweir/pkg/streammq/internal/wire"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

// Quick reads new entries for the owner of a busy partition without a script: what a script reads, Redis copies into Lua
// and out of it, field by field, which takes longer than the reading itself. The fence is the same. A connection of its own
// watches the epoch and the retries in place, then looks at both; the XREADGROUP in the transaction that follows is run only
// if neither was written since. Whatever is not as it should be (a retry in place waits, the transaction was not run,
// nothing new is there) is left to the script, which tells why.
type Quick struct {
	Wire    rueidis.DedicatedClient // nil: none yet
	release func()
	Armed   bool // watched, and found as it should be
}

// Fetch is reader.fetch. Errors: errLost, or Redis' own; after these something may have been read, which is pending.
func (q *Quick) Fetch(ctx context.Context, r *Reader, most int) (Fetched, error) {
	got, err := q.transact(ctx, r, most)
	switch {
	case err != nil:
		q.End(ctx)
		return Fetched{}, err
	case len(got) == 0:
		return r.Fetch(ctx, most)
	}
	return Fetched{Entries: got, Wait: -1}, nil
}

// transact runs one transaction, and watches for the next. It returns no entries when the script is to read.
func (q *Quick) transact(ctx context.Context, r *Reader, most int) ([]wire.Raw, error) {
	// With a deadline and without an end of its own it needs no goroutine of the client's.
	ctx, cancel := core.Writing(ctx)
	defer cancel()
	if q.Wire == nil {
		q.Wire, q.release = r.Mq.Client.Dedicate()
	}
	if !q.Armed {
		if err := q.arm(r, q.Wire.DoMulti(ctx, q.watch(r)...)); err != nil || !q.Armed {
			return nil, err
		}
	}
	b := q.Wire.B()
	read := b.Xreadgroup().Group(r.Group, r.Consumer).Count(int64(most)).Streams().Key(r.Src.Stream()).Id(">").Build()
	results := q.Wire.DoMulti(ctx, append(rueidis.Commands{b.Multi().Build(), read, b.Exec().Build()}, q.watch(r)...)...)
	done, err := results[2].ToArray()
	if rueidis.IsRedisNil(err) { // something was written: the read was not run
		return nil, q.arm(r, results[3:])
	}
	if err := stream.FirstError(results); err != nil {
		return nil, err
	}
	entries, err := decodeRead(&done[0], r.Src.Stream())
	if err != nil {
		return nil, err
	}
	// What was read was read in time, even if the lease is lost by now: the next read, and each write, is told so.
	if err := q.arm(r, results[3:]); err != nil && !errors.Is(err, ErrLost) {
		return nil, err
	}
	return entries, nil
}

func (q *Quick) watch(r *Reader) rueidis.Commands {
	b := q.Wire.B()
	epoch, due := r.Src.Epoch(r.Group), r.Src.Due(r.Group)
	return rueidis.Commands{b.Watch().Key(epoch, due).Build(), b.Get().Key(epoch).Build(), b.Exists().Key(due).Build()}
}

// arm judges the answers to watch. Errors: errLost, or Redis' own.
func (q *Quick) arm(r *Reader, results []rueidis.RedisResult) error {
	q.Armed = false
	if err := results[0].Error(); err != nil {
		return err
	}
	epoch, err := results[1].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	if epoch != r.Epoch {
		return ErrLost
	}
	waiting, err := results[2].AsBool()
	q.Armed = err == nil && !waiting
	return err
}

// End gives the connection back.
func (q *Quick) End(ctx context.Context) {
	if q.Wire == nil {
		return
	}
	ctx, cancel := core.Writing(ctx)
	defer cancel()
	_ = q.Wire.Do(ctx, q.Wire.B().Unwatch().Build()) // a broken connection watches nothing
	q.release()
	*q = Quick{}
}

// decodeRead reads the answer of XREADGROUP for the new entries of one stream; nil: there are none.
func decodeRead(m *rueidis.RedisMessage, stream string) ([]wire.Raw, error) {
	if m.IsNil() {
		return nil, nil
	}
	list, err := entriesOf(m, stream)
	if err != nil {
		return nil, err
	}
	items, err := list.ToArray()
	if err != nil {
		return nil, err
	}
	entries := make([]wire.Raw, len(items))
	for i := range items {
		e := wire.Raw{Deliveries: 1}
		if e.Id, e.Fields, err = DecodePair(&items[i]); err != nil {
			return nil, err
		}
		entries[i] = e
	}
	return entries, nil
}

// entriesOf finds a stream's entries in {stream → entries} of RESP3, or {{stream, entries}} of RESP2.
func entriesOf(m *rueidis.RedisMessage, stream string) (rueidis.RedisMessage, error) {
	if m.IsMap() {
		streams, err := m.ToMap()
		return streams[stream], err
	}
	streams, err := m.ToArray()
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	pair, err := streams[0].ToArray()
	if err != nil || len(pair) != 2 {
		return rueidis.RedisMessage{}, fmt.Errorf("%w: %d parts of a stream: %w", model.ErrMalformed, len(pair), err)
	}
	return pair[1], nil
}

// aheadBelow is how long a full batch may take for the next one to be read meanwhile: the read of a batch that takes longer
// is no cost worth hiding, and what is read ahead is handed back at a stop.
const aheadBelow = 100 * time.Millisecond

// Ahead is the read of the next batch while the one before is handled, by the owner of a partition that is busy.
// Its read is fenced as any other. A caller that leaves drops it, and begins again with what is pending: that is all
// that was read ahead too, in its order.
type Ahead struct {
	answer chan answered // not nil: begun, and neither taken nor dropped
	began  time.Time     // of the batch that is handled
	full   bool          // that batch had all entries that were asked for
	quick  Quick
}

type answered struct {
	got Fetched
	err error
}

func (a *Ahead) Begun() bool { return a.answer != nil }

// Read takes what was read ahead, or reads.
func (a *Ahead) Read(ctx context.Context, r *Reader, batch int) (Fetched, error) {
	if a.answer == nil {
		return r.Fetch(ctx, batch)
	}
	answer := <-a.answer
	a.answer = nil
	return answer.got, answer.err
}

// Begin reads ahead while a batch of n entries is handled, if the last one was full and quick and this one is full too.
func (a *Ahead) Begin(ctx context.Context, r *Reader, batch, n int) {
	now := r.Mq.Cfg.Now()
	quick := a.full && now.Sub(a.began) < aheadBelow
	a.began, a.full = now, n == batch && r.Epoch != ""
	if !quick || !a.full {
		return
	}
	a.answer = make(chan answered, 1)
	go func(to chan<- answered) {
		got, err := a.quick.Fetch(ctx, r, batch)
		to <- answered{got, err}
	}(a.answer)
}

// Drop waits for a read that nobody takes: it must be over before the source is read from the beginning.
func (a *Ahead) Drop(ctx context.Context) {
	if a.answer != nil {
		<-a.answer
		a.answer = nil
	}
	a.quick.End(ctx)
}
