package pgvector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

const (
	// schema holds the tables, apart from all others of the database: a dump can leave it out.
	schema = "millweir_vectors"
	// maxName is the longest name that Postgres keeps, bytes.
	maxName = 63
	// makingLock is the advisory lock of whoever makes extension, schema or tables; any number that is ours.
	makingLock = 0x6d696c6c77656972

	// maxIndexed is the most values of a vector that an HNSW index takes, maxHalf of one whose values take half the bytes.
	maxIndexed, maxHalf = 2000, 4000
	// maxDim is the most values of the type vector.
	maxDim = 16000
)

// collection is a base's table, as it was found. Its names are quoted.
type collection struct {
	table     string
	extension string // schema of the extension
	dim       int    // 0: there is no table
}

// tableName is a base's table, at most 63 bytes: what is longer than that is replaced by its hash.
func tableName(base string) string {
	name := vector.CollectionName(base)
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(name))
		name = "kb." + hex.EncodeToString(sum[:28]) // with a dot, which no other name has
	}
	return pgx.Identifier{schema, name}.Sanitize()
}

// sql is a statement for the collection: {table}, {vector} for the schema of the extension, and {dim}.
func (c collection) sql(text string) string {
	return strings.NewReplacer("{table}", c.table, "{vector}", c.extension, "{dim}", strconv.Itoa(c.dim)).Replace(text)
}

// Definitions of a table. A vector of more than 2,000 values is indexed with half of its precision and compared with all of it;
// above 4,000 there is no index.
const (
	createTable = `CREATE TABLE {table} (
	id text COLLATE "C" PRIMARY KEY,
	document_id text NOT NULL,
	birth text COLLATE "C" NOT NULL,
	embedding {vector}.vector({dim}) NOT NULL)`
	createBirths = `CREATE INDEX ON {table} (birth)`
	createIndex  = `CREATE INDEX ON {table} USING hnsw (embedding {vector}.vector_cosine_ops) WITH (m = 16, ef_construction = 64)`
	createHalf   = `CREATE INDEX ON {table} USING hnsw ((embedding::{vector}.halfvec({dim})) {vector}.halfvec_cosine_ops) WITH (m = 16, ef_construction = 64)`
)

// definitions are the statements that make the table.
func (c collection) definitions() []string {
	all := []string{createTable, createBirths}
	switch {
	case c.dim <= maxIndexed:
		all = append(all, createIndex)
	case c.dim <= maxHalf:
		all = append(all, createHalf)
	}
	return all
}

// lookQuery finds the extension and a table, by its quoted name.
const lookQuery = `SELECT
	(SELECT extversion FROM pg_extension WHERE extname = 'vector'),
	(SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'),
	to_regnamespace('` + schema + `') IS NOT NULL,
	(SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'embedding')`

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// look finds a base's collection. ready tells whether extension and schema are there.
func look(ctx context.Context, q querier, table string) (c collection, ready bool, err error) {
	var version, extension *string
	var dim *int
	if err := q.QueryRow(ctx, lookQuery, table).Scan(&version, &extension, &ready, &dim); err != nil {
		return c, false, fmt.Errorf("look for table %s: %w", table, err)
	}
	c.table = table
	if version == nil {
		return c, false, nil
	}
	if err := versionFailure(*version); err != nil {
		return c, false, err
	}
	c.extension = pgx.Identifier{*extension}.Sanitize()
	if dim != nil {
		c.dim = *dim
	}
	return c, ready, nil
}

// versionFailure is nil for 0.8 and later, which can go on with a search whose filter has left too few rows.
func versionFailure(version string) error {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && err == nil && (major > 0 || minor >= 8) {
		return nil
	}
	f := ingest.Transient(ingest.CodeVector, "pgvector %.40s is refused: 0.8 or later is needed", version)
	f.Remedy = "Install pgvector 0.8 or later on the Postgres server, then run ALTER EXTENSION vector UPDATE in the database."
	return f
}

// makeMissing makes what is missing: extension, schema, and the table when dim is not 0. Others wait meanwhile, and find it.
func makeMissing(ctx context.Context, conn *pgxpool.Conn, table string, dim int) (c collection, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(makingLock)); err != nil {
			return fmt.Errorf("wait for who makes tables: %w", err)
		}
		var ready bool
		if c, ready, err = look(ctx, tx, table); err == nil && !ready {
			if err = prepare(ctx, tx, c.extension == ""); err == nil {
				c, _, err = look(ctx, tx, table)
			}
		}
		if err != nil || dim == 0 || c.dim != 0 {
			return err
		}
		c.dim = dim
		for _, definition := range c.definitions() {
			if _, err := tx.Exec(ctx, c.sql(definition)); err != nil {
				return fmt.Errorf("make table %s: %w", table, err)
			}
		}
		return nil
	})
	return c, err
}

// prepare makes extension and schema.
func prepare(ctx context.Context, tx pgx.Tx, extension bool) error {
	if extension {
		if _, err := tx.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS vector"); err != nil {
			return withRemedy(fmt.Errorf("make the extension: %w", err), map[string]string{
				codeForbidden: createExtension, codeUnsupported: installPGVector, codeNoFile: installPGVector,
			})
		}
	}
	if _, err := tx.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+schema); err != nil {
		return withRemedy(fmt.Errorf("make the schema: %w", err), map[string]string{codeForbidden: createSchema})
	}
	return nil
}

// withRemedy makes an error of one of the codes a failure that says what to do.
func withRemedy(err error, remedies map[string]string) error {
	remedy := remedies[sqlState(err)]
	if remedy == "" {
		return err
	}
	f := ingest.Transient(ingest.CodeVector, "pgvector: %w", err)
	f.Remedy = remedy
	return f
}
