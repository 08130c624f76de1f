// Package chroma keeps vectors in Chroma 1.5 over its v2 HTTP API: one collection with cosine space per knowledge
// base, named by the base's id, each row with the metadata document_id and birth.
//
// Chroma does not isolate tenants: who may see a base is checked before a Store is asked. It is a trusted back end
// behind a proxy; Ping refuses the versions that run code of their callers.
package chroma

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

const (
	// batchRows is the most rows of a write. Each request costs the server as much as some 30 rows, whatever is in it
	// (measured: CPU a row 0.42 ms at 50 rows, 0.27 at 200, 0.25 at 400 and 1,000), and a larger one keeps readers waiting.
	batchRows = 400
	// slowWrite is the time of one write after which the next ones are smaller, down to leastRows.
	slowWrite = 4 * time.Second
	leastRows = 25
	// batchIDs is the most ids of a get or delete, far below SQLite's 32,766 variables.
	batchIDs = 1000
	// batchValues is the most rows that are read with their values: at 3,072 dimensions 8 MiB of decimals.
	batchValues = 200
	// batchBirths is the most values of an `$in`; 32,000 works, 40,000 is "too many SQL variables".
	batchBirths = 10000
	// maxBody keeps a request under the server's 40 MiB, bytes.
	maxBody = 30 << 20
	// maxReply bounds any answer, bytes; the largest is a page of ids.
	maxReply = 64 << 20
	// deleteTries is how often ids that are still there are deleted again.
	deleteTries = 3
)

// Store is a vector store on one Chroma database. It is safe for concurrent use.
type Store struct {
	cfg    Config
	client *rest.Client
	now    func() time.Time // what requests and Retry-After are measured by
	root   string           // path of the database

	mu          sync.Mutex
	collections map[string]*collection // by name
}

var _ ingest.VectorStore = (*Store)(nil)

// collection is what is known of one. Its write lock lets one writer in at a time: several writers on one collection are
// slower than one (measured 114 against 287 rows/s).
type collection struct {
	name    string
	writing chan struct{}

	mu      sync.Mutex
	id      string // empty: not known
	most    int    // rows of one write now
	upserts *batcher.Batcher[*vector.UpsertCall]
}

// New returns a store; nothing is called yet.
// Errors: those of cfg.Validate.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	header := http.Header{"User-Agent": {"millweir"}}
	if cfg.Token != "" {
		header.Set("Authorization", "Bearer "+cfg.Token)
		header.Set("X-Chroma-Token", cfg.Token)
	}
	client, err := rest.New(cfg.BaseURL, header, cfg.Token)
	if err != nil {
		return nil, fmt.Errorf("CHROMA_BASE_URL: %w", err)
	}
	return &Store{
		cfg: cfg, client: client, now: time.Now, collections: map[string]*collection{},
		root: "/api/v2/tenants/" + url.PathEscape(cfg.Tenant) + "/databases/" + url.PathEscape(cfg.Database) + "/collections",
	}, nil
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.client.CloseIdle()
	return nil
}

// rowsPerBody keeps a body under maxBody: a float32 takes 16/3 bytes in base64, the ids at most 3·512 and change.
func rowsPerBody(dim int) int {
	return max(1, min(batchRows, maxBody/(dim*6+4096)))
}

// upsert adds the rows that are new and replaces those that are held.
//
// When two processes write to a collection at the same time, Chroma 1.5.9 forgets how far it has applied its log to the
// index, and the next write, whatever its size, applies up to 1,000 records again (apply_log_chunk of its local_hnsw.rs).
// An upsert of a row that is in the index costs 6 to 10 ms of CPU there, an add of one nothing.
func (s *Store) upsert(ctx context.Context, c *collection, rows []ingest.Vector) error {
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	held, err := s.held(ctx, c, ids)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(held))
	for _, id := range held {
		known[id] = true
	}
	var fresh, old []ingest.Vector
	for _, row := range rows {
		if known[row.ID] {
			old = append(old, row)
		} else {
			fresh = append(fresh, row)
		}
	}
	if err := s.write(ctx, c, "add", fresh); err != nil {
		return err
	}
	return s.write(ctx, c, "upsert", old)
}

// write sends rows by one of Chroma's operations, in halves when they are too large for one request.
func (s *Store) write(ctx context.Context, c *collection, operation string, rows []ingest.Vector) error {
	if len(rows) == 0 {
		return nil
	}
	err := s.onCollection(ctx, c, true, operation, upsertBody(rows), nil)
	if len(rows) > 1 && rest.IsStatus(err, http.StatusRequestEntityTooLarge) {
		half := len(rows) / 2
		if err := s.write(ctx, c, operation, rows[:half]); err != nil {
			return err
		}
		return s.write(ctx, c, operation, rows[half:])
	}
	return err
}

// Delete removes ids and returns after the store answered that it holds none of them; see ingest.VectorStore.
// The count that Chroma answers is not reliable, so what is left is asked for.
func (s *Store) Delete(ctx context.Context, base string, ids []string) error {
	c := s.collection(base)
	release, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	for part := range slices.Chunk(ids, batchIDs) {
		if err := s.deleteVerified(ctx, c, part); err != nil {
			return s.failure(ctx, err)
		}
	}
	return nil
}

func (s *Store) deleteVerified(ctx context.Context, c *collection, ids []string) error {
	for range deleteTries {
		err := s.onCollection(ctx, c, false, "delete", idsBody{IDs: ids}, nil)
		if err != nil {
			return err
		}
		if ids, err = s.held(ctx, c, ids); err != nil || len(ids) == 0 {
			return err
		}
	}
	return ingest.Transient(ingest.CodeVector, "delete from collection %s: %d ids are still there, %.80s among them", c.name, len(ids), ids[0])
}

// Query finds the nearest rows; see ingest.VectorStore.
// Chroma's index is approximate: with many rows a near neighbour may be missing.
func (s *Store) Query(ctx context.Context, base string, values []float32, k int, births []string) ([]ingest.Hit, error) {
	if k <= 0 {
		return nil, nil
	}
	if err := vector.CheckQuery(values); err != nil {
		return nil, err
	}
	if len(births) == 0 {
		hits, err := s.query(ctx, s.collection(base), values, k, nil)
		return hits, s.failure(ctx, err)
	}
	var all []ingest.Hit
	for part := range slices.Chunk(births, batchBirths) {
		hits, err := s.query(ctx, s.collection(base), values, k, part)
		if err != nil {
			return nil, s.failure(ctx, err)
		}
		all = append(all, hits...)
	}
	return best(all, k), nil
}

func (s *Store) query(ctx context.Context, c *collection, values []float32, k int, births []string) ([]ingest.Hit, error) {
	body := queryBody{Embeddings: [][]float32{values}, K: k, Include: []string{"distances"}}
	if births != nil {
		body.Where = map[string]any{keyBirth: map[string]any{"$in": births}}
	}
	var reply queryReply
	if err := s.onCollection(ctx, c, false, "query", body, &reply); err != nil {
		return nil, err
	}
	hits, err := reply.hits()
	return best(hits, k), err
}

// Get returns the rows that are held; see ingest.VectorStore.
func (s *Store) Get(ctx context.Context, base string, ids []string, values bool) (map[string]ingest.Vector, error) {
	found := make(map[string]ingest.Vector, len(ids))
	c := s.collection(base)
	include, size := []string{"metadatas"}, batchIDs
	if values {
		include, size = append(include, "embeddings"), batchValues
	}
	for part := range slices.Chunk(ids, size) {
		var reply getReply
		err := s.onCollection(ctx, c, false, "get", getBody{IDs: part, Include: include}, &reply)
		if err == nil {
			err = reply.into(found, values)
		}
		if err != nil {
			return nil, s.failure(ctx, err)
		}
	}
	return found, nil
}

func (s *Store) held(ctx context.Context, c *collection, ids []string) ([]string, error) {
	var reply idsBody
	err := s.onCollection(ctx, c, false, "get", getBody{IDs: ids, Include: []string{}}, &reply)
	return reply.IDs, err
}

// List pages through all ids in the order of their first writing; see ingest.VectorStore.
func (s *Store) List(ctx context.Context, base string, offset, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	var reply idsBody
	err := s.onCollection(ctx, s.collection(base), false, "get", getBody{Offset: offset, Limit: limit, Include: []string{}}, &reply)
	return reply.IDs, s.failure(ctx, err)
}

// Drop removes a base's collection; one that does not exist is no error.
func (s *Store) Drop(ctx context.Context, base string) error {
	c := s.collection(base)
	release, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer release()
	err = s.call(ctx, rest.Call{Method: http.MethodDelete, Path: s.root + "/" + url.PathEscape(c.name)}, nil)
	c.forget("")
	if isMissing(err) {
		return nil
	}
	return s.failure(ctx, err)
}

func (s *Store) collection(base string) *collection {
	name := vector.CollectionName(base)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.collections[name]
	if c == nil {
		c = &collection{name: name, writing: make(chan struct{}, 1), most: batchRows}
		c.upserts = s.batchUpserts(c)
		s.collections[name] = c
	}
	return c
}

// enter waits for the write lock; release frees it.
func (c *collection) enter(ctx context.Context) (release func(), err error) {
	select {
	case c.writing <- struct{}{}:
		return func() { <-c.writing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for collection %s: %w", c.name, ctx.Err())
	}
}

// forget drops the known id; old not empty: only if it is that one.
func (c *collection) forget(old string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old == "" || c.id == old {
		c.id = ""
	}
}
