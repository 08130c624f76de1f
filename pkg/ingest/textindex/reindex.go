package textindex

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// comparedTogether is how many versions one statement reads the hashes of.
const comparedTogether = 100

// Gap is something wrong with the index of a base: a damaged part, or a version of which the index does not have what the
// rows have.
type Gap struct {
	Base              string
	Part              string // a damaged one; empty: it is about a version
	Document, Version string
	Missing           []int // indexes of segments that the index does not have, or has with another text
	Extra             int   // segments that the index has and whose row is gone or has another text
	title             string
}

// Check compares the index with the visible versions of all bases, or of one. It calls f for each damaged part and each
// version that differs, and returns how many parts and segments it looked at. Merges, uploads and deletions may go on: what
// differs is read again. Of one base at a time it keeps about 20 bytes a segment that the index has, and 100 a document.
func (x *Index) Check(ctx context.Context, base string, f func(Gap) error) (judged int, err error) {
	err = x.eachBase(ctx, base, func(base string) error {
		l := x.lookAt(base)
		err := l.check(ctx, f)
		judged += l.judged
		return err
	})
	return judged, err
}

// Reindex adds what the index lacks of the visible versions of all bases, or of one. Parts that are damaged, or have segments
// that no row has, are removed after the rest of what they had was added from the rows. It may be stopped and begun again,
// and searches go on meanwhile. done is told each version that was added to and each part that was removed; it may be nil.
func (x *Index) Reindex(ctx context.Context, base string, done func(Gap)) error {
	if done == nil {
		done = func(Gap) {}
	}
	return x.eachBase(ctx, base, func(base string) error { return x.reindex(ctx, base, done) })
}

// eachBase calls f for one base, or for all.
func (x *Index) eachBase(ctx context.Context, base string, f func(base string) error) error {
	if base != "" {
		return f(base)
	}
	for after := ""; ; {
		bases, err := x.texts(ctx, x.q.Get("BasesAll"), after)
		if err != nil || len(bases) == 0 {
			return err
		}
		for _, b := range bases {
			if err := f(b); err != nil {
				return fmt.Errorf("text index of base %s: %w", b, err)
			}
		}
		after = bases[len(bases)-1]
	}
}

// indexOld indexes bases that are older than the index.
func (x *Index) indexOld(ctx context.Context) error {
	bases, err := x.texts(ctx, x.q.Get("BasesUnindexed"))
	for _, base := range bases {
		if err := x.Reindex(ctx, base, nil); err != nil {
			return err
		}
	}
	return err
}

// reindex is Reindex of one base.
func (x *Index) reindex(ctx context.Context, base string, done func(Gap)) error {
	replaced, extra := map[string]bool{}, map[string]bool{}
	l := x.lookAt(base)
	err := l.check(ctx, func(g Gap) error {
		if g.Part != "" {
			replaced[g.Part] = true
			return nil
		}
		if g.Extra > 0 {
			extra[g.Version] = true
		}
		return x.add(ctx, g, done)
	})
	if err == nil {
		err = l.stale(ctx, extra, replaced)
	}
	if err != nil || len(replaced) == 0 {
		return err
	}
	// Of versions that are not visible yet the rows that stand have no other words than those of these parts.
	l = x.lookAt(base)
	l.read = maps.Clone(replaced)
	if err := l.refresh(ctx); err != nil {
		return err
	}
	for _, query := range []string{"VersionsBuilding", "VersionsVisible"} { // in this order: one may become visible meanwhile
		if err := l.versions(ctx, query, func(g Gap) error { return x.add(ctx, g, done) }); err != nil {
			return err
		}
	}
	for id := range replaced {
		if err := x.remove(ctx, id); err != nil {
			return err
		}
		done(Gap{Base: base, Part: id})
	}
	return nil
}

// look is what the index has of a base, as far as it was read.
type look struct {
	x       *Index
	base    string
	read    map[string]bool // parts that need not be read, or not again: they never change
	held    map[string][]place
	damaged []string // parts
	judged  int      // parts and segments
}

// place is a segment of a version as the index has it.
type place struct {
	index int
	hash  uint64
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(a.hash, b.hash))
}

func (x *Index) lookAt(base string) *look {
	return &look{x: x.once(), base: base, read: map[string]bool{}, held: map[string][]place{}}
}

// check is Check of one base.
func (l *look) check(ctx context.Context, f func(Gap) error) error {
	if err := l.refresh(ctx); err != nil {
		return err
	}
	for _, id := range l.damaged {
		if err := f(Gap{Base: l.base, Part: id}); err != nil {
			return err
		}
	}
	return l.versions(ctx, "VersionsVisible", f)
}

// refresh reads the parts that are new since the last call. What a merge took away meanwhile is in a part that it wrote.
func (l *look) refresh(ctx context.Context) error {
	for merged := true; merged; {
		merged = false
		parts, err := l.x.partsOf(ctx, l.base)
		if err != nil {
			return err
		}
		parts = slices.DeleteFunc(parts, func(p info) bool { return l.read[p.id] })
		for some := range slices.Chunk(parts, partsTogether) {
			if err := l.x.fetchHeads(ctx, some); err != nil {
				return err
			}
			for _, one := range some {
				gone, err := l.readPart(ctx, one)
				if err != nil {
					return err
				}
				merged = merged || gone
			}
		}
	}
	for version, places := range l.held {
		slices.SortFunc(places, comparePlaces)
		l.held[version] = slices.Compact(places)
	}
	return nil
}

// readPart reads one part; gone: it was merged.
func (l *look) readPart(ctx context.Context, one info) (gone bool, err error) {
	segments, err := l.x.whole(ctx, one)
	if errors.Is(err, errGone) || errors.Is(err, part.ErrCorrupt) {
		there, err := l.x.texts(ctx, l.x.q.Get("PartThere"), one.id)
		if err != nil || len(there) == 0 {
			return true, err
		}
		l.damaged = append(l.damaged, one.id)
	} else if err != nil {
		return false, err
	}
	l.read[one.id] = true
	l.judged++
	for _, s := range segments {
		l.held[s.Version] = append(l.held[s.Version], place{s.Index, s.Hash})
	}
	return false, nil
}

// whole returns the segments of a part whose bytes are all there and as they were written.
func (x *Index) whole(ctx context.Context, one info) ([]part.Segment, error) {
	opened, err := x.open(ctx, []info{one})
	if err != nil {
		return nil, err
	}
	p := opened[0]
	if p.Segments() != one.segments || p.Tokens() != one.tokens {
		return nil, part.ErrCorrupt
	}
	if err := p.Verify(ctx); err != nil {
		return nil, err
	}
	return p.All(), nil
}

// versions calls f for each version of a list that differs.
func (l *look) versions(ctx context.Context, query string, f func(Gap) error) error {
	for after := ""; ; {
		ids, err := l.x.texts(ctx, l.x.q.Get(query), l.base, after)
		if err != nil || len(ids) == 0 {
			return err
		}
		after = ids[len(ids)-1]
		var differ []string
		for some := range slices.Chunk(ids, comparedTogether) {
			found, err := l.differing(ctx, some)
			if err != nil {
				return err
			}
			differ = append(differ, found...)
		}
		if len(differ) == 0 {
			continue
		}
		if err := l.refresh(ctx); err != nil { // a version may be younger than the first look at the parts
			return err
		}
		for _, id := range differ {
			if err := l.again(ctx, id, f); err != nil {
				return err
			}
		}
	}
}

// differing returns those of versions that differ.
func (l *look) differing(ctx context.Context, versions []string) (out []string, err error) {
	type count struct{ rows, held int }
	counts, err := sqldb.Read(ctx, l.x.store, func(ctx context.Context, db taskstate.Tx) (map[string]count, error) {
		counts := map[string]count{}
		return counts, sqldb.Each(ctx, db, func(rows *sql.Rows) error {
			var version, hash string
			var index int
			if err := rows.Scan(&version, &index, &hash); err != nil {
				return err
			}
			c := counts[version]
			c.rows++
			if l.has(version, place{index, HashOf(hash)}) {
				c.held++
			}
			counts[version] = c
			return nil
		}, l.x.q.List("HashesOf", len(versions)), sqldb.Args(versions)...)
	})
	for _, id := range versions {
		c := counts[id]
		l.judged += c.rows
		if c.held < c.rows || c.held < len(l.held[id]) {
			out = append(out, id)
		}
	}
	return out, err
}

// has reports whether the index has a segment.
func (l *look) has(version string, at place) bool {
	_, known := slices.BinarySearchFunc(l.held[version], at, comparePlaces)
	return known
}

// again compares a version that seemed to differ once more, and calls f if it does and was not closed meanwhile.
func (l *look) again(ctx context.Context, version string, f func(Gap) error) error {
	rows, err := l.x.segmentsOf(ctx, version)
	if err != nil {
		return err
	}
	g := Gap{Base: l.base, Version: version, Extra: len(l.held[version]) - len(rows)}
	for _, s := range rows {
		if !l.has(version, place{s.Index, s.Hash}) {
			g.Missing = append(g.Missing, s.Index)
			g.Extra++
		}
	}
	if len(g.Missing) == 0 && g.Extra == 0 {
		return nil
	}
	alive, err := read(ctx, l.x, func(rows *sql.Rows) (Gap, error) {
		return g, rows.Scan(&g.Document, &g.title)
	}, l.x.q.Get("VersionAlive"), version)
	if err != nil || len(alive) == 0 {
		return err
	}
	return f(g)
}

// segmentsOf reads the segments of a version as its rows have them.
func (x *Index) segmentsOf(ctx context.Context, version string) ([]part.Segment, error) {
	return read(ctx, x, func(rows *sql.Rows) (s part.Segment, err error) {
		var hash string
		err = rows.Scan(&s.Version, &s.Index, &hash)
		s.Hash = HashOf(hash)
		return s, err
	}, x.q.List("HashesOf", 1), version)
}

// stale adds the parts that have segments of some versions whose rows do not have them.
func (l *look) stale(ctx context.Context, versions, to map[string]bool) error {
	if len(versions) == 0 {
		return nil
	}
	known := map[part.Segment]bool{}
	for version := range versions {
		rows, err := l.x.segmentsOf(ctx, version)
		if err != nil {
			return err
		}
		for _, s := range rows {
			known[s] = true
		}
	}
	parts, err := l.x.partsOf(ctx, l.base)
	if err != nil {
		return err
	}
	for _, one := range parts {
		if to[one.id] {
			continue
		}
		segments, err := l.x.whole(ctx, one)
		switch {
		case errors.Is(err, errGone): // merged: what it had is seen the next time
		case err != nil:
			return err
		case slices.ContainsFunc(segments, func(s part.Segment) bool { return versions[s.Version] && !known[s] }):
			to[one.id] = true
		}
	}
	return nil
}

// row is a segment's row.
type row struct {
	index               int
	hash, heading, text string
}

// rowsOf calls f with the rows of a version, some at a time.
func (x *Index) rowsOf(ctx context.Context, version string, f func([]row) error) error {
	for after := -1; ; {
		rows, err := read(ctx, x, func(rows *sql.Rows) (r row, err error) {
			return r, rows.Scan(&r.index, &r.hash, &r.heading, &r.text)
		}, x.q.Get("SegmentsOfVersion"), version, after)
		if err != nil || len(rows) == 0 {
			return err
		}
		after = rows[len(rows)-1].index
		if err := f(rows); err != nil {
			return err
		}
	}
}

// add indexes the missing segments of a version.
func (x *Index) add(ctx context.Context, g Gap, done func(Gap)) error {
	if len(g.Missing) == 0 {
		return nil
	}
	missing := make(map[int]bool, len(g.Missing))
	for _, i := range g.Missing {
		missing[i] = true
	}
	err := x.rowsOf(ctx, g.Version, func(rows []row) error {
		var texts []Text
		for _, r := range rows {
			if !missing[r.index] {
				continue
			}
			t := Text{Version: g.Version, Index: r.index, TextHash: r.hash, Title: g.title, Text: r.text}
			_ = json.Unmarshal([]byte(r.heading), &t.Heading) // what is no list of texts has no headings
			texts = append(texts, t)
		}
		if len(texts) == 0 {
			return nil
		}
		built := Build(g.Base, texts)
		return x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			return x.Add(ctx, tx, m.Now, built)
		})
	})
	if err != nil {
		return fmt.Errorf("index version %s: %w", g.Version, err)
	}
	done(g)
	return nil
}

// remove removes a part, unless it was merged.
func (x *Index) remove(ctx context.Context, id string) error {
	err := x.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, x.q.List("PartsDelete", 1), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("remove part %s of the text index: %w", id, err)
	}
	return x.removeChunks(ctx, id)
}

// read reads all rows of a query.
func read[T any](ctx context.Context, x *Index, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	return sqldb.Read(ctx, x.store, func(ctx context.Context, db taskstate.Tx) ([]T, error) {
		return sqldb.Collect(ctx, db, scan, query, args...)
	})
}
