package textindex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// fanout is how many parts of about one size make a larger one: a base of n segments has about fanout × log(n) / log(fanout).
	fanout = 8
	// mergeMost bounds the parts of one merge, and mergeSegments the segments: its memory is about 100 bytes a segment.
	mergeMost     = 64
	mergeSegments = 4 << 20
	// mergeLimit is how long parts are kept from other merges. A merge that takes longer may be done twice, and only once counts.
	mergeLimit = 10 * time.Minute
	// orphanAge is how old chunks without a part's row are before they are removed: older than any merge that still runs.
	orphanAge = time.Hour
	// chunksTogether is how many chunks one transaction writes or removes.
	chunksTogether = 16
	// grownOverlap is how much of the time before the last look is looked at again: ids are of workers' clocks, and a part is
	// seen when its transaction is committed.
	grownOverlap = 2 * time.Minute
	// mergesAtOnce bounds the merges of one look.
	mergesAtOnce = 50
)

// errRaced says that another process has merged the same parts.
var errRaced = errors.New("the parts were merged by somebody else")

// MergeGrown merges the parts of the bases that were added to since the last call, by whichever process; at first in the last
// minutes. It returns how many parts it merged.
func (x *Index) MergeGrown(ctx context.Context) (int, error) {
	m, err := x.store.Moment(ctx)
	if err != nil {
		return 0, err
	}
	since := cmp.Or(x.looked.Swap(m.Now.UnixMilli()), m.Now.UnixMilli())
	bases, err := x.texts(ctx, x.q.Get("BasesGrown"), idBefore(time.UnixMilli(since).Add(-grownOverlap)))
	if err != nil {
		return 0, err
	}
	return x.mergeAll(ctx, bases)
}

// Tidy merges the parts of all bases, for those whose process has died. It removes the parts of bases that are gone and bytes that no part
// names, and indexes bases that have no part at all: they are older than the index.
func (x *Index) Tidy(ctx context.Context) (int, error) {
	bases, err := x.texts(ctx, x.q.Get("BasesWithParts"), fanout)
	if err != nil {
		return 0, err
	}
	n, err := x.mergeAll(ctx, bases)
	return n, errors.Join(err, x.removeBases(ctx), x.removeOrphans(ctx), x.indexOld(ctx))
}

// mergeAll merges the parts of bases until none has too many. A damaged part keeps its base from merges, not the others.
func (x *Index) mergeAll(ctx context.Context, bases []string) (n int, err error) {
	for _, base := range bases {
		for range mergesAtOnce {
			merged, failed := x.mergeOnce(ctx, base)
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("merge the text index of %s: %w", base, failed))
				break
			}
			if n += merged; merged == 0 {
				break
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return n, err
}

// texts reads a column.
func (x *Index) texts(ctx context.Context, query string, args ...any) ([]string, error) {
	return read(ctx, x, sqldb.Column[string], query, args...)
}

// level is the size class of a part: parts of one level differ by less than fanout times.
func level(segments int) int { return bits.Len(uint(max(0, segments))) / bits.Len(uint(fanout-1)) }

// choose returns parts that are to become one; fewer than two: none.
func choose(parts []info) []info {
	slices.SortFunc(parts, func(a, b info) int { return cmp.Or(cmp.Compare(a.segments, b.segments), cmp.Compare(a.id, b.id)) })
	for from := 0; from < len(parts); {
		to, segments := from, 0
		for to < len(parts) && level(parts[to].segments) == level(parts[from].segments) && to-from < mergeMost &&
			segments+parts[to].segments <= mergeSegments {
			segments += parts[to].segments
			to++
		}
		if to-from >= fanout {
			return parts[from:to]
		}
		from = max(to, from+1)
	}
	return nil
}

// mergeOnce merges some parts of a base, if it has too many.
func (x *Index) mergeOnce(ctx context.Context, base string) (int, error) {
	m, err := x.store.Moment(ctx)
	if err != nil {
		return 0, err
	}
	idle, err := x.infos(ctx, x.q.Get("PartsIdle"), base, m.Now)
	if err != nil {
		return 0, err
	}
	chosen := choose(idle)
	if len(chosen) == 0 {
		return 0, nil
	}
	if err = x.claim(ctx, chosen, m.Now); err == nil {
		err = x.merge(ctx, base, chosen)
	}
	if errors.Is(err, errRaced) || errors.Is(err, errGone) {
		return 0, nil
	}
	return len(chosen), err
}

// claim keeps other processes from merging the same parts. errRaced: one of them does already.
func (x *Index) claim(ctx context.Context, parts []info, now time.Time) error {
	return x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		return x.changeAll(ctx, tx, "PartsClaim", parts, now.Add(mergeLimit), now)
	})
}

// changeAll runs a statement on parts, which come after the other arguments. errRaced unless it changes each of them.
func (x *Index) changeAll(ctx context.Context, tx taskstate.Tx, name string, parts []info, args ...any) error {
	res, err := tx.ExecContext(ctx, x.q.List(name, len(parts)), append(args, sqldb.Args(idsOf(parts))...)...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n != int64(len(parts)) {
		return errors.Join(errRaced, err)
	}
	return nil
}

// idsOf are the ids of parts.
func idsOf(parts []info) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = p.id
	}
	return out
}

// merge writes the new part's bytes, then exchanges the rows in one transaction, then removes the old bytes. A process that
// dies before the exchange leaves bytes that no row names, and one that dies after it leaves the old ones: both are removed
// by removeOrphans.
func (x *Index) merge(ctx context.Context, base string, old []info) error {
	parts, err := x.once().open(ctx, old)
	if err != nil {
		return err
	}
	for i, p := range parts { // a wrong byte would get a right checksum
		if err := p.Verify(ctx); err != nil {
			return fmt.Errorf("part %s: %w", old[i].id, err)
		}
	}
	alive, err := x.alive(ctx, parts)
	if err != nil {
		return err
	}
	merged := info{id: newID()}
	var head []byte
	var pending [][]byte
	seq := 1
	flush := func() error {
		first := seq
		seq += len(pending)
		chunks := pending
		pending = nil
		return x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			var args []any
			for i, data := range chunks {
				args = append(args, merged.id, first+i, data)
			}
			_, err := tx.ExecContext(ctx, x.q.Rows("ChunkInsert", len(chunks)), args...)
			return err
		})
	}
	merged.bytes, merged.segments, merged.tokens, err = part.Merge(ctx, parts, func(v string) bool { return alive[v] }, func(chunk []byte) error {
		if head == nil {
			head = chunk
			return nil
		}
		if pending = append(pending, chunk); len(pending) < chunksTogether {
			return nil
		}
		return flush()
	})
	if err == nil && len(pending) > 0 {
		err = flush()
	}
	if err != nil {
		return err
	}
	crash.Point("gc.after_merge")
	if err := x.exchange(ctx, base, old, merged, head); err != nil {
		return err
	}
	crash.Point("gc.after_exchange")
	for _, p := range old {
		if err := x.removeChunks(ctx, p.id); err != nil {
			return err
		}
	}
	return nil
}

// exchange puts a part in the place of others.
func (x *Index) exchange(ctx context.Context, base string, old []info, merged info, head []byte) error {
	return x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		if err := x.changeAll(ctx, tx, "PartsDelete", old); err != nil || merged.segments == 0 {
			return err
		}
		_, err := tx.ExecContext(ctx, x.q.Rows("PartInsert", 1), merged.id, base, merged.segments, merged.tokens, merged.bytes, m.Now, m.Now, head)
		return err
	})
}

// alive are the versions of parts that are or may become visible.
func (x *Index) alive(ctx context.Context, parts []*part.Part) (map[string]bool, error) {
	versions := map[string]bool{}
	for _, p := range parts {
		for _, v := range p.Versions() {
			versions[v] = true
		}
	}
	out := make(map[string]bool, len(versions))
	for some := range slices.Chunk(slices.Sorted(maps.Keys(versions)), 500) {
		found, err := x.texts(ctx, x.q.List("VersionsAlive", len(some)), sqldb.Args(some)...)
		if err != nil {
			return nil, fmt.Errorf("versions of the text index: %w", err)
		}
		for _, v := range found {
			out[v] = true
		}
	}
	return out, nil
}

// removeChunks removes the chunks of a part, some at a time.
func (x *Index) removeChunks(ctx context.Context, id string) error {
	last, err := read(ctx, x, sqldb.Column[int], x.q.Get("ChunkLast"), id)
	for end := 1; err == nil && end <= last[0]; {
		end += chunksTogether
		err = x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, x.q.Get("ChunksDelete"), id, end)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("remove chunks of part %s: %w", id, err)
	}
	return nil
}

// removeBases removes the parts of bases that are gone.
func (x *Index) removeBases(ctx context.Context) error {
	return x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, x.q.Get("PartsOfNoBase"))
		return err
	})
}

// removeOrphans removes the bytes of merges that did not end and of parts that are gone.
func (x *Index) removeOrphans(ctx context.Context) error {
	m, err := x.store.Moment(ctx)
	if err != nil {
		return err
	}
	ids, err := x.texts(ctx, x.q.Get("ChunksOrphaned"), idBefore(m.Now.Add(-orphanAge)))
	for _, id := range ids {
		if err := x.removeChunks(ctx, id); err != nil {
			return err
		}
	}
	return err
}

// idBefore is the least id of a part that is made at a time.
func idBefore(t time.Time) string {
	return fmt.Sprintf("%08x-%04x-7000-8000-000000000000", t.UnixMilli()>>16, t.UnixMilli()&0xffff)
}
