package searchscale

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

//go:embed sql/*.sql
var statements embed.FS

const (
	database       = "search"
	together       = 50 // documents of one transaction, and of one part of the index
	mergeEvery     = 32 // transactions
	chunksTogether = 16
	fillTimeout    = 5 * time.Minute
)

// caller owns the bases.
var caller = ingest.Caller{Scope: taskstate.Scope{UserID: "bench"}}

// place is a database with a base of each size.
type place struct {
	name    string
	server  *labserver.Server // nil: SQLite
	store   *taskstore.Store
	q       sqldb.Queries
	catalog *catalog.Catalog
	index   *textindex.Index
	reads   *query.Reads
	base    string // of the size in question
}

// newPlace opens a database; kind "": SQLite in a folder.
func newPlace(ctx context.Context, name string, kind labserver.Kind, dir string, args ...string) (*place, error) {
	p := &place{name: name}
	url := "sqlite:" + filepath.Join(dir, "search.db")
	if kind != "" {
		var err error
		if p.server, err = labserver.Start(ctx, kind, labserver.Options{Database: database, Args: args}); err != nil {
			return nil, err
		}
		url = p.server.URL("")
	}
	var err error
	if p.store, err = taskstore.Open(ctx, taskstore.Config{DatabaseURL: url, Timeout: fillTimeout}); err != nil {
		p.close()
		return nil, err
	}
	if _, err = p.store.Migrate(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("migrate %s: %w", name, err)
	}
	p.q = sqldb.MustLoad(statements, "sql", p.store.Dialect())
	p.restart()
	return p, nil
}

// restart does what a new process begins with: nothing of the index is in its memory.
func (p *place) restart() {
	log := slog.New(slog.DiscardHandler)
	p.catalog = catalog.New(ingest.Deps{Store: p.store, Log: log, Clock: time.Now})
	p.index = textindex.New(p.store)
	p.reads = query.NewReads(query.ReadsDeps{Store: p.store, Catalog: p.catalog, Index: p.index, Log: log})
}

func (p *place) close() {
	if p.store != nil {
		_ = p.store.Close()
	}
	if p.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.server.Kill(ctx)
	}
}

// filled is what fill has written.
type filled struct {
	documents int
	text      int64 // bytes
	merging   time.Duration
	took      time.Duration // all of it, on all databases side by side
}

// fill puts a base of so many segments into each database. The first one's index is written as workers do and merged as the
// reclaimer does; the others get its parts.
func fill(ctx context.Context, places []*place, segments int) (out filled, err error) {
	base, err := begin(ctx, places, segments)
	if err != nil {
		return out, err
	}
	out.documents = segments / perDocument
	for from, n := 0, 1; from < out.documents; from, n = from+together, n+1 {
		docs := make([][]textindex.Text, min(together, out.documents-from))
		var makers errgroup.Group
		for i := range docs {
			makers.Go(func() error { docs[i] = document(segments, from+i); return nil })
		}
		_ = makers.Wait()
		texts := slices.Concat(docs...)
		for _, t := range texts {
			out.text += int64(len(t.Text))
		}
		made, err := rowsOf(base, segments, from, docs)
		if err != nil {
			return out, err
		}
		writers, within := errgroup.WithContext(ctx)
		for _, p := range places[1:] {
			writers.Go(func() error { return p.insert(within, made...) })
		}
		writers.Go(func() error {
			batch := textindex.Build(base, texts)
			return places[0].store.InTx(within, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
				return errors.Join(places[0].insertIn(ctx, tx, made...), places[0].index.Add(ctx, tx, m.Now, batch))
			})
		})
		if err := writers.Wait(); err != nil {
			return out, err
		}
		if n%mergeEvery == 0 {
			if err := places[0].merge(ctx, &out); err != nil {
				return out, err
			}
		}
	}
	return out, share(ctx, places, &out)
}

// multiply puts a base of many segments into each database: copies of one that is there, under other ids.
func multiply(ctx context.Context, places []*place, segments, of int, made filled) (out filled, err error) {
	from := idOf("base", of, 0)
	base, err := begin(ctx, places, segments)
	if err != nil {
		return out, err
	}
	out = filled{documents: made.documents, text: made.text * int64(segments/of)}
	for i := range segments / of {
		old, other := numbered(of/1000), numbered(segments/1000+i)
		writers, within := errgroup.WithContext(ctx)
		for _, p := range places {
			writers.Go(func() error {
				return p.store.InTx(within, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
					for _, one := range []struct {
						name string
						args []any
					}{
						{"DocumentCopy", []any{old, other, base, old, other, from}},
						{"VersionCopy", []any{old, other, old, other, base, from}},
						{"SegmentCopy", []any{old, other, old, other, old, other, from}},
					} {
						if _, err := tx.ExecContext(ctx, p.q.Get(one.name), one.args...); err != nil {
							return fmt.Errorf("%s: %w", one.name, err)
						}
					}
					return nil
				})
			})
		}
		writers.Go(func() error {
			return places[0].copyIndex(within, places[0], from, base, func(b []byte) []byte { return renumbered(b, old, other) })
		})
		if err := writers.Wait(); err != nil {
			return out, err
		}
		if err := places[0].merge(ctx, &out); err != nil { // as the reclaimer does, which waits for nobody
			return out, err
		}
	}
	return out, share(ctx, places, &out)
}

// renumbered is a part of the index whose versions have other ids, with its checksum.
func renumbered(raw []byte, old, other string) []byte {
	out := bytes.ReplaceAll(raw, []byte(old), []byte(other))
	end := len(out) - crc32.Size
	binary.LittleEndian.PutUint32(out[end:], crc32.Checksum(out[:end], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// begin makes a base in each database.
func begin(ctx context.Context, places []*place, segments int) (base string, err error) {
	base = idOf("base", segments, 0)
	name := fmt.Sprintf("base of %d", segments)
	for _, p := range places {
		p.base = base
		if err := p.insert(ctx, rows{name: "BaseInsert", n: 1, args: []any{base, caller.Scope.UserID, name, name, time.Now(), time.Now()}}); err != nil {
			return base, err
		}
	}
	return base, nil
}

// share merges the first database's index and gives it to the others.
func share(ctx context.Context, places []*place, out *filled) error {
	if err := places[0].merge(ctx, out); err != nil {
		return err
	}
	copies, ctx := errgroup.WithContext(ctx)
	for _, p := range places[1:] {
		copies.Go(func() error {
			return places[0].copyIndex(ctx, p, p.base, p.base, func(b []byte) []byte { return b })
		})
	}
	return copies.Wait()
}

// merge merges until nothing is left to merge.
func (p *place) merge(ctx context.Context, out *filled) error {
	began := time.Now()
	defer func() { out.merging += time.Since(began) }()
	for {
		if n, err := p.index.MergeGrown(ctx); err != nil || n == 0 {
			return err
		}
	}
}

// rows are rows of one statement.
type rows struct {
	name string
	n    int
	args []any
}

// rowsOf are the rows of documents.
func rowsOf(base string, series, from int, docs [][]textindex.Text) ([]rows, error) {
	documents, versions, segments := rows{name: "DocumentInsert"}, rows{name: "VersionInsert"}, rows{name: "SegmentInsert"}
	now := time.Now().UTC()
	for n, d := range docs {
		id := func(kind string) string { return idOf(kind, series, from+n) }
		document, version, title := id("document"), d[0].Version, d[0].Title
		documents.args = append(documents.args, document, caller.Scope.UserID, base, title, fmt.Sprintf("%d.txt", from+n), "text/plain", "READY", len(d), 1,
			fmt.Sprintf("%064x", from+n), version, 1, 1, 1, 1, id("task"), now, now, catalog.Never())
		versions.args = append(versions.args, version, document, base, id("task"), id("file"), 1, 1, "VISIBLE", title, len(d), now, now, catalog.Never())
		documents.n, versions.n, segments.n = documents.n+1, versions.n+1, segments.n+len(d)
		for _, t := range d {
			path, err := json.Marshal(t.Heading)
			if err != nil {
				return nil, err
			}
			segments.args = append(segments.args, document, version, 1, t.Index, t.Text, t.TextHash, t.TextHash, version, 0, string(path), 0, len(t.Text), 0)
		}
	}
	return []rows{documents, versions, segments}, nil
}

// insert writes rows in one transaction.
func (p *place) insert(ctx context.Context, all ...rows) error {
	return p.store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		return p.insertIn(ctx, tx, all...)
	})
}

func (p *place) insertIn(ctx context.Context, tx taskstate.Tx, all ...rows) error {
	for _, one := range all {
		if _, err := tx.ExecContext(ctx, p.q.Rows(one.name, one.n), one.args...); err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
	}
	return nil
}

// copyIndex gives another database, or another base, the index of a base with its bytes changed.
func (p *place) copyIndex(ctx context.Context, to *place, from, base string, change func([]byte) []byte) error {
	type partRow struct {
		id       string
		segments int
		tokens   int64
		bytes    []byte
	}
	parts, err := sqldb.ReadAll(ctx, p.store, "parts", p.q.Get("Parts"), []any{from}, func(r *sql.Rows) (x partRow, err error) {
		return x, r.Scan(&x.id, &x.segments, &x.tokens, &x.bytes)
	})
	if err != nil {
		return err
	}
	for _, x := range parts {
		chunks, err := sqldb.ReadAll(ctx, p.store, "chunks", p.q.Get("Chunks"), []any{x.id}, func(r *sql.Rows) (data []byte, err error) {
			return data, r.Scan(&data)
		})
		if err != nil {
			return err
		}
		raw := change(slices.Concat(append([][]byte{x.bytes}, chunks...)...))
		id, now := ingest.NewID(), time.Now().UTC()
		head := raw[:min(len(raw), part.ChunkSize)]
		if err := to.insert(ctx, rows{"PartInsert", 1, []any{id, base, x.segments, x.tokens, len(raw), now, now, head}}); err != nil {
			return err
		}
		seq := 1
		for some := range slices.Chunk(raw[len(head):], chunksTogether*part.ChunkSize) {
			all := rows{name: "ChunkInsert"}
			for data := range slices.Chunk(some, part.ChunkSize) {
				all.args = append(all.args, id, seq, data)
				all.n, seq = all.n+1, seq+1
			}
			if err := to.insert(ctx, all); err != nil {
				return err
			}
		}
	}
	return nil
}
