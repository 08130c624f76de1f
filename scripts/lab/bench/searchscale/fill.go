package searchscale

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/ingest/query"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

//go:embed sql/*.sql
var statements embed.FS

const (
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
		if p.server, err = labserver.Start(ctx, kind, labserver.Options{Database: "search", Args: args}); err != nil {
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
}

// fill puts a base of so many segments into each database. The first one's index is written as workers do and merged as the
// reclaimer does; the others get its parts.
func fill(ctx context.Context, places []*place, segments int) (out filled, err error) {
	base := idOf("base", segments, 0)
	for _, p := range places {
		p.base = base
		name := fmt.Sprintf("base of %d", segments)
		if err := p.insert(ctx, rows{name: "BaseInsert", n: 1, args: []any{base, caller.Scope.UserID, name, name, time.Now(), time.Now()}}); err != nil {
			return out, err
		}
	}
	merge := func() error {
		began := time.Now()
		defer func() { out.merging += time.Since(began) }()
		for {
			if n, err := places[0].index.MergeGrown(ctx); err != nil || n == 0 {
				return err
			}
		}
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
			if err := merge(); err != nil {
				return out, err
			}
		}
	}
	if err := merge(); err != nil {
		return out, err
	}
	copies, within := errgroup.WithContext(ctx)
	for _, p := range places[1:] {
		copies.Go(func() error { return places[0].copyIndex(within, p) })
	}
	return out, copies.Wait()
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

// copyIndex gives another database the index of the base.
func (p *place) copyIndex(ctx context.Context, to *place) error {
	parts, err := sqldb.ReadAll(ctx, p.store, "parts", p.q.Get("Parts"), []any{p.base}, func(r *sql.Rows) (one rows, err error) {
		return scanned(r, rows{name: "PartInsert"}, new(string), new(string), new(int), new(int64), new(int64), new([]byte))
	})
	if err != nil {
		return err
	}
	for _, part := range parts {
		id, head, now := part.args[0], part.args[5], time.Now().UTC()
		part.args = append(part.args[:5], now, now, head)
		if err := to.insert(ctx, part); err != nil {
			return err
		}
		for from, found := 1, chunksTogether; found == chunksTogether; from += chunksTogether {
			chunks, err := sqldb.ReadAll(ctx, p.store, "chunks", p.q.Get("Chunks"), []any{id, from, from + chunksTogether}, func(r *sql.Rows) (rows, error) {
				return scanned(r, rows{name: "ChunkInsert"}, new(string), new(int), new([]byte))
			})
			if err != nil {
				return err
			}
			if found = len(chunks); found > 0 {
				all := rows{name: "ChunkInsert", n: found}
				for _, c := range chunks {
					all.args = append(all.args, c.args...)
				}
				if err := to.insert(ctx, all); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// scanned reads a row for another database.
func scanned(r *sql.Rows, to rows, columns ...any) (rows, error) {
	err := r.Scan(columns...)
	for _, c := range columns {
		to.args = append(to.args, reflect.ValueOf(c).Elem().Interface())
	}
	to.n = 1
	return to, err
}
