package textindex

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Gap is a visible version that is not, or not rightly, in the index.
type Gap struct {
	Base, Version string
	title         string
	Missing       []int // indexes of visible segments that the index does not have
	Extra         int   // segments that the index has of the version and whose row is gone or has another text
}

// Reindex adds what the index lacks of the visible versions of all bases, or of one. It may be stopped and begun again, and
// searches go on meanwhile. done is told each version that was added; it may be nil.
func (x *Index) Reindex(ctx context.Context, base string, done func(Gap)) error {
	return x.Check(ctx, base, func(g Gap) error {
		if len(g.Missing) == 0 {
			return nil
		}
		if err := x.add(ctx, g); err != nil {
			return fmt.Errorf("index version %s: %w", g.Version, err)
		}
		if done != nil {
			done(g)
		}
		return nil
	})
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

// Check compares the index with the visible versions of all bases, or of one, and calls f for each that differs.
func (x *Index) Check(ctx context.Context, base string, f func(Gap) error) error {
	if base != "" {
		return x.checkBase(ctx, base, f)
	}
	for after := ""; ; {
		bases, err := x.texts(ctx, x.q.Get("BasesAll"), after)
		if err != nil || len(bases) == 0 {
			return err
		}
		for _, b := range bases {
			if err := x.checkBase(ctx, b, f); err != nil {
				return fmt.Errorf("text index of base %s: %w", b, err)
			}
		}
		after = bases[len(bases)-1]
	}
}

// visible is a visible version.
type visible struct {
	id, title string
	segments  int
}

// checkBase is Check of one base.
func (x *Index) checkBase(ctx context.Context, base string, f func(Gap) error) error {
	held := map[string]map[int]uint64{} // hashes by version and index
	err := x.with(ctx, base, func(parts []*part.Part) error {
		clear(held)
		for _, p := range parts {
			all, err := p.All(ctx)
			if err != nil {
				return err
			}
			for _, s := range all {
				if held[s.Version] == nil {
					held[s.Version] = map[int]uint64{}
				}
				held[s.Version][s.Index] = s.Hash
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for after := ""; ; {
		versions, err := read(ctx, x, func(rows *sql.Rows) (v visible, err error) {
			return v, rows.Scan(&v.id, &v.segments, &v.title)
		}, x.q.Get("VersionsVisible"), base, after)
		if err != nil || len(versions) == 0 {
			return err
		}
		for _, v := range versions {
			after = v.id
			g := Gap{Base: base, Version: v.id, title: v.title}
			if err := x.compare(ctx, &g, held[v.id]); err != nil {
				return err
			}
			if len(g.Missing) > 0 || g.Extra > 0 {
				if err := f(g); err != nil {
					return err
				}
			}
		}
	}
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

// compare finds what differs between a version's rows and what the index has of it.
func (x *Index) compare(ctx context.Context, g *Gap, held map[int]uint64) error {
	found := 0
	err := x.rowsOf(ctx, g.Version, func(rows []row) error {
		for _, r := range rows {
			if hash, known := held[r.index]; known && hash == HashOf(r.hash) {
				found++
			} else {
				g.Missing = append(g.Missing, r.index)
			}
		}
		return nil
	})
	g.Extra = len(held) - found
	return err
}

// add indexes the missing segments of a version.
func (x *Index) add(ctx context.Context, g Gap) error {
	missing := make(map[int]bool, len(g.Missing))
	for _, i := range g.Missing {
		missing[i] = true
	}
	return x.rowsOf(ctx, g.Version, func(rows []row) error {
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
}

// read reads all rows of a query.
func read[T any](ctx context.Context, x *Index, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	return sqldb.Read(ctx, x.store, func(ctx context.Context, db taskstate.Tx) ([]T, error) {
		return sqldb.Collect(ctx, db, scan, query, args...)
	})
}
