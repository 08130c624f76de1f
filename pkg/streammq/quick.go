package streammq

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"
)

// quick reads new entries for the owner of a busy partition without a script: what a script reads, Redis copies into Lua
// and out of it, field by field, which takes longer than the reading itself. The fence is the same. A connection of its own
// watches the epoch and the retries in place, then looks at both; the XREADGROUP in the transaction that follows is run only
// if neither was written since. Whatever is not as it should be (a retry in place waits, the transaction was not run,
// nothing new is there) is left to the script, which tells why.
type quick struct {
	wire    rueidis.DedicatedClient // nil: none yet
	release func()
	armed   bool // watched, and found as it should be
}

// fetch is reader.fetch. Errors: errLost, or Redis' own; after these something may have been read, which is pending.
func (q *quick) fetch(ctx context.Context, r *reader, most int) (fetched, error) {
	got, err := q.transact(ctx, r, most)
	switch {
	case err != nil:
		q.end(ctx)
		return fetched{}, err
	case len(got) == 0:
		return r.fetch(ctx, most)
	}
	return fetched{entries: got, wait: -1}, nil
}

// transact runs one transaction, and watches for the next. It returns no entries when the script is to read.
func (q *quick) transact(ctx context.Context, r *reader, most int) ([]raw, error) {
	// With a deadline and without an end of its own it needs no goroutine of the client's.
	ctx, cancel := writing(ctx)
	defer cancel()
	if q.wire == nil {
		q.wire, q.release = r.mq.client.Dedicate()
	}
	if !q.armed {
		if err := q.arm(r, q.wire.DoMulti(ctx, q.watch(r)...)); err != nil || !q.armed {
			return nil, err
		}
	}
	b := q.wire.B()
	read := b.Xreadgroup().Group(r.group, r.consumer).Count(int64(most)).Streams().Key(r.src.stream()).Id(">").Build()
	results := q.wire.DoMulti(ctx, append(rueidis.Commands{b.Multi().Build(), read, b.Exec().Build()}, q.watch(r)...)...)
	done, err := results[2].ToArray()
	if rueidis.IsRedisNil(err) { // something was written: the read was not run
		return nil, q.arm(r, results[3:])
	}
	if err := firstError(results); err != nil {
		return nil, err
	}
	entries, err := decodeRead(&done[0], r.src.stream())
	if err != nil {
		return nil, err
	}
	// What was read was read in time, even if the lease is lost by now: the next read, and each write, is told so.
	if err := q.arm(r, results[3:]); err != nil && !errors.Is(err, errLost) {
		return nil, err
	}
	return entries, nil
}

func (q *quick) watch(r *reader) rueidis.Commands {
	b := q.wire.B()
	epoch, due := r.src.epoch(r.group), r.src.due(r.group)
	return rueidis.Commands{b.Watch().Key(epoch, due).Build(), b.Get().Key(epoch).Build(), b.Exists().Key(due).Build()}
}

// arm judges the answers to watch. Errors: errLost, or Redis' own.
func (q *quick) arm(r *reader, results []rueidis.RedisResult) error {
	q.armed = false
	if err := results[0].Error(); err != nil {
		return err
	}
	epoch, err := results[1].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	if epoch != r.epoch {
		return errLost
	}
	waiting, err := results[2].AsBool()
	q.armed = err == nil && !waiting
	return err
}

// end gives the connection back.
func (q *quick) end(ctx context.Context) {
	if q.wire == nil {
		return
	}
	ctx, cancel := writing(ctx)
	defer cancel()
	_ = q.wire.Do(ctx, q.wire.B().Unwatch().Build()) // a broken connection watches nothing
	q.release()
	*q = quick{}
}

// decodeRead reads the answer of XREADGROUP for the new entries of one stream; nil: there are none.
func decodeRead(m *rueidis.RedisMessage, stream string) ([]raw, error) {
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
	entries := make([]raw, len(items))
	for i := range items {
		e := raw{deliveries: 1}
		if e.id, e.fields, err = decodePair(&items[i]); err != nil {
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
		return rueidis.RedisMessage{}, fmt.Errorf("%w: %d parts of a stream: %w", ErrMalformed, len(pair), err)
	}
	return pair[1], nil
}
