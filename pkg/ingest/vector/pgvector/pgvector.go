// Package pgvector keeps vectors in Postgres with the extension pgvector 0.8 or later: one table per knowledge base in the
// schema millweir_vectors, each with an HNSW index for the cosine distance.
//
// A table of its own gives each base its own dimension, which the index needs, and its own index: a search of a small base
// does not wade through the rows of a large one, and a dropped base is gone at once.
//
// Postgres does not isolate tenants here: who may see a base is checked before a Store is asked.
package pgvector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

const (
	// batchRows is the most rows of a statement, batchBytes about the most bytes of their values, as decimals of 13 bytes.
	batchRows, batchBytes = 400, 8 << 20
	// batchIDs is the most ids of a statement.
	batchIDs = 1000
	// batchValues is the most rows that are read with their values.
	batchValues = 200

	// efSearch is how many candidates a search looks at first. Measured with 6,000 rows of 384 values around 20 centres: the
	// server's 40 finds 0.998 of the ten nearest in 1.2 ms, these all of them in 2.3 ms. An index of m = 32 finds no more, and
	// takes half as many rows a second.
	efSearch = 400
	// maxScanTuples and scanMemory bound a search that goes on because a filter, or deleted rows, left too few: rows, and
	// times work_mem. Beyond them the rows are compared one by one.
	maxScanTuples, scanMemory = 20000, 8
)

// Store is a vector store on one Postgres database. It is safe for concurrent use.
type Store struct {
	cfg     Config
	pool    *pgxpool.Pool
	writing chan struct{} // one place for each connection that writers may have

	mu          sync.Mutex
	collections map[string]collection // by base; those that were found
}

var _ ingest.VectorStore = (*Store)(nil)

// New returns a store; nothing is connected yet.
// Errors: those of cfg.Validate.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	poolConfig, err := cfg.pool()
	if err != nil {
		return nil, err
	}
	cfg.sessions(poolConfig)
	pool, err := pgxpool.NewWithConfig(context.Background(), poolConfig)
	if err != nil {
		return nil, fmt.Errorf("PGVECTOR_URL: %w", err)
	}
	return &Store{
		cfg: cfg, pool: pool, writing: make(chan struct{}, poolConfig.MaxConns/2), collections: map[string]collection{},
	}, nil
}

// Close closes the connections when those in use are free.
func (s *Store) Close() error {
	s.pool.Close()
	return nil
}

const upsertQuery = `INSERT INTO {table} AS t (id, document_id, birth, embedding)
SELECT id, document_id, birth, embedding::{vector}.vector
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS r (id, document_id, birth, embedding)
ON CONFLICT (id) DO UPDATE SET document_id = excluded.document_id, birth = excluded.birth, embedding = excluded.embedding
WHERE t.document_id <> excluded.document_id OR t.birth <> excluded.birth OR t.embedding OPERATOR({vector}.<>) excluded.embedding`

// Upsert writes rows, their values at length 1, in statements of at most 400; see ingest.VectorStore. A row that is held as it
// is costs no write. A failure may leave some statements done: the same call again completes it.
func (s *Store) Upsert(ctx context.Context, base string, rows []ingest.Vector) error {
	if len(rows) == 0 {
		return nil
	}
	dim, err := vector.CheckRows(rows)
	if err != nil {
		return err
	}
	if err := vector.CheckDimension(dim, maxDim, "pgvector"); err != nil {
		return err
	}
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	rows = slices.Clone(vector.LastWins(rows))
	// In one order: two writers of the same rows wait for each other, and not both for ever.
	slices.SortFunc(rows, func(a, b ingest.Vector) int { return cmp.Compare(a.ID, b.ID) })
	for part := range slices.Chunk(rows, max(1, min(batchRows, batchBytes/(13*dim)))) {
		args := upsertArgs(part)
		err := s.on(ctx, "upsert", base, dim, true, func(ctx context.Context, conn *pgxpool.Conn, c collection) error {
			_, err := conn.Exec(ctx, c.sql(upsertQuery), args...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// upsertArgs are the columns of rows.
func upsertArgs(rows []ingest.Vector) []any {
	var columns [4][]string
	unit := make([]float32, len(rows[0].Values))
	for _, row := range rows {
		vector.UnitInto(unit, row.Values)
		for i, value := range []string{row.ID, row.DocumentID, row.Birth, text(unit)} {
			columns[i] = append(columns[i], value)
		}
	}
	return []any{columns[0], columns[1], columns[2], columns[3]}
}

// text is a vector as pgvector reads it, with all digits.
func text(values []float32) string {
	b := make([]byte, 0, 13*len(values)+2)
	for _, v := range values {
		b = append(strconv.AppendFloat(b, float64(v), 'g', -1, 32), ',')
	}
	return "[" + string(b[:len(b)-1]) + "]"
}

// enter waits for a writer's place; leave frees it.
func (s *Store) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s.writing <- struct{}{}:
		return func() { <-s.writing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("pgvector: wait for other writers: %w", ctx.Err())
	}
}

// deleteQuery locks the rows in the order of upsertQuery.
const deleteQuery = `WITH gone AS (SELECT id FROM {table} WHERE id = ANY($1::text[]) ORDER BY id FOR UPDATE)
DELETE FROM {table} AS t USING gone WHERE t.id = gone.id`

// Delete removes ids, and returns after that is committed; see ingest.VectorStore.
func (s *Store) Delete(ctx context.Context, base string, ids []string) error {
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	for part := range slices.Chunk(ids, batchIDs) {
		err := s.on(ctx, "delete", base, 0, false, func(ctx context.Context, conn *pgxpool.Conn, c collection) error {
			_, err := conn.Exec(ctx, c.sql(deleteQuery), part)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Searches; {where} is empty or whereBirth. An order by the distance itself uses the index, one by the score computed out of it
// compares all rows.
const (
	whereBirth = `WHERE birth = ANY($2::text[])`
	nearQuery  = `SELECT id, 1 - (embedding OPERATOR({vector}.<=>) $1::{vector}.vector) FROM {table} {where}
ORDER BY embedding OPERATOR({vector}.<=>) $1::{vector}.vector LIMIT {k}`
	halfQuery = `WITH near AS MATERIALIZED (
	SELECT id, embedding FROM {table} {where}
	ORDER BY embedding::{vector}.halfvec({dim}) OPERATOR({vector}.<=>) $1::{vector}.vector::{vector}.halfvec({dim}) LIMIT {k})
SELECT id, 1 - (embedding OPERATOR({vector}.<=>) $1::{vector}.vector) FROM near`
	exactQuery = `SELECT id, 1 - (embedding OPERATOR({vector}.<=>) $1::{vector}.vector) AS score FROM {table} {where}
ORDER BY score DESC LIMIT {k}`
)

// Query finds the nearest rows by the index; see ingest.VectorStore. With many rows a near neighbour may be missing. When the
// index gives fewer than k, as it may where few rows have one of the births, all that have are compared.
func (s *Store) Query(ctx context.Context, base string, values []float32, k int, births []string) ([]ingest.Hit, error) {
	if k <= 0 {
		return nil, nil
	}
	if err := vector.CheckQuery(values); err != nil {
		return nil, err
	}
	unit := make([]float32, len(values))
	vector.UnitInto(unit, values)
	where, args := "", []any{text(unit)}
	if len(births) > 0 {
		where, args = whereBirth, append(args, births)
	}
	var hits []ingest.Hit
	err := s.on(ctx, "query", base, len(values), false, func(ctx context.Context, conn *pgxpool.Conn, c collection) (err error) {
		for _, query := range c.searches() {
			query = strings.NewReplacer("{where}", where, "{k}", strconv.Itoa(k)).Replace(query)
			rows, _ := conn.Query(ctx, c.sql(query), args...) // its error is that of the rows
			if hits, err = pgx.CollectRows(rows, toHit); err != nil || len(hits) >= k {
				break
			}
		}
		return err
	})
	slices.SortFunc(hits, vector.CompareHits)
	return hits, err
}

// searches are the queries of a search: the next one is asked when one finds fewer than are wanted.
func (c collection) searches() []string {
	switch {
	case c.dim <= maxIndexed:
		return []string{nearQuery, exactQuery}
	case c.dim <= maxHalf:
		return []string{halfQuery, exactQuery}
	}
	return []string{exactQuery}
}

func toHit(row pgx.CollectableRow) (hit ingest.Hit, err error) {
	err = row.Scan(&hit.ID, &hit.Score)
	hit.Score = min(1, max(-1, hit.Score))
	return hit, err
}

// Get returns the rows that are held; see ingest.VectorStore. Their values have length 1.
func (s *Store) Get(ctx context.Context, base string, ids []string, values bool) (map[string]ingest.Vector, error) {
	query, size := "SELECT id, document_id, birth, NULL::real[] FROM {table} WHERE id = ANY($1::text[])", batchIDs
	if values {
		query, size = "SELECT id, document_id, birth, embedding::real[] FROM {table} WHERE id = ANY($1::text[])", batchValues
	}
	found := make(map[string]ingest.Vector, len(ids))
	for part := range slices.Chunk(ids, size) {
		err := s.on(ctx, "get", base, 0, false, func(ctx context.Context, conn *pgxpool.Conn, c collection) error {
			rows, _ := conn.Query(ctx, c.sql(query), part) // its error is that of the rows
			held, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ingest.Vector])
			for _, row := range held {
				found[row.ID] = row
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// List pages through all ids in ascending order; see ingest.VectorStore.
func (s *Store) List(ctx context.Context, base string, offset, limit int) (ids []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	err = s.on(ctx, "list", base, 0, false, func(ctx context.Context, conn *pgxpool.Conn, c collection) (err error) {
		rows, _ := conn.Query(ctx, c.sql("SELECT id FROM {table} ORDER BY id OFFSET $1 LIMIT $2"), offset, limit) // its error is that of the rows
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return ids, err
}

// Drop removes a base's table; one that does not exist is no error.
func (s *Store) Drop(ctx context.Context, base string) error {
	defer s.forget(base)
	return s.try(ctx, "drop", func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, "DROP TABLE IF EXISTS "+tableName(base))
		return err
	})
}

// Ping returns nil when the database takes writes and has extension and schema, which it makes when they are missing; one short try.
func (s *Store) Ping(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return failure(ctx, "ping", s.once(limited, func(ctx context.Context, conn *pgxpool.Conn) error {
		var readOnly string
		if err := conn.QueryRow(ctx, "SHOW transaction_read_only").Scan(&readOnly); err != nil {
			return err
		}
		if readOnly == "on" {
			return errReadOnly
		}
		table := tableName("") // no base's
		_, ready, err := look(ctx, conn, table)
		if err == nil && !ready {
			_, err = makeMissing(ctx, conn, table, 0)
		}
		return err
	}))
}
