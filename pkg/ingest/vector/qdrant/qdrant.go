// Package qdrant keeps vectors in Qdrant 1.10 or later over its REST API: one collection with the cosine distance per
// knowledge base, named by the base's id, each point with the payload id, document_id and birth.
//
// A collection of its own gives each base its own dimension, which Qdrant then judges itself, and its own index: a search of a
// small base compares all of its rows, and a dropped base is gone at once. One collection for all, with the base as a tenant in
// the payload, is what Qdrant advises for many thousands of tenants; it would take a second place that says which base has
// which dimension, and a delete by filter for each drop.
//
// Qdrant does not isolate the bases: who may see one is checked before a Store is asked.
package qdrant

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/batcher"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

const (
	// batchRows is the most rows of a write.
	batchRows = 400
	// batchIDs is the most ids of a get or delete.
	batchIDs = 1000
	// batchValues is the most rows that are read with their values: at 3,072 dimensions 8 MiB of decimals.
	batchValues = 200
	// batchBirths is the most values of a filter: of 512 bytes each, written at length, 15 MiB.
	batchBirths = 5000
	// maxBody keeps a request under the 32 MiB that a server takes if it is not told otherwise, bytes.
	maxBody = 24 << 20
	// maxReply bounds any reply, bytes; the largest is a page of ids.
	maxReply = 64 << 20
	// maxDim is the most values of a vector that Qdrant takes.
	maxDim = 65536
	// deleteTries is how often ids that are still there are deleted again.
	deleteTries = 3
)

// Store is a vector store on one Qdrant server or cluster. It is safe for concurrent use.
type Store struct {
	cfg    Config
	client *rest.Client
	now    func() time.Time // what Retry-After is measured by

	mu          sync.Mutex
	collections map[string]*collection // by name
}

var _ ingest.VectorStore = (*Store)(nil)

// collection is what is known of one.
type collection struct {
	name    string
	upserts *batcher.Batcher[*vector.UpsertCall]

	mu     sync.Mutex
	held   held
	listed cursor
}

// held is a collection as it was found.
type held struct {
	dim     int // 0: there is none
	indexed bool
}

// cursor is where a listing goes on: after the point, so many rows from the first.
type cursor struct {
	offset int
	point  string
}

// New returns a store; nothing is called yet.
// Errors: those of cfg.Validate.
func New(cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	header := http.Header{"User-Agent": {"millweir"}}
	if cfg.APIKey != "" {
		header.Set("Api-Key", cfg.APIKey)
	}
	client, err := rest.New(cfg.URL, header, cfg.APIKey)
	if err != nil {
		return nil, fmt.Errorf("QDRANT_URL: %w", err)
	}
	return &Store{cfg: cfg, client: client, now: time.Now, collections: map[string]*collection{}}, nil
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.client.CloseIdle()
	return nil
}

// Upsert writes rows, their values at length 1, in requests of at most 400; see ingest.VectorStore.
// A failure may leave some requests done: the same call again completes it.
func (s *Store) Upsert(ctx context.Context, base string, rows []ingest.Vector) error {
	if len(rows) == 0 {
		return nil
	}
	dim, err := vector.CheckRows(rows)
	if err != nil {
		return err
	}
	if err := vector.CheckDimension(dim, maxDim, "Qdrant"); err != nil {
		return err
	}
	for i, row := range rows {
		if !utf8.ValidString(row.ID) || !utf8.ValidString(row.DocumentID) || !utf8.ValidString(row.Birth) {
			return ingest.Permanent(ingest.CodeVectorRejected, "", "%w: row %d: ids must be UTF-8", vector.ErrBadRow, i)
		}
	}
	return s.collection(base).upserts.Do(ctx, &vector.UpsertCall{Rows: rows, Dim: dim})[0]
}

// write sends rows, in halves when they are too many for one request.
func (s *Store) write(ctx context.Context, c *collection, rows []ingest.Vector) error {
	err := s.onCollection(ctx, c, len(rows[0].Values), true, func() error {
		return s.update(ctx, http.MethodPut, c.path("/points"), pointsBody{Points: points(rows)})
	})
	if len(rows) > 1 && isTooLarge(err) {
		half := len(rows) / 2
		if err := s.write(ctx, c, rows[:half]); err != nil {
			return err
		}
		return s.write(ctx, c, rows[half:])
	}
	return err
}

// Delete removes ids and returns once the store has none of them, as a read says; see ingest.VectorStore.
func (s *Store) Delete(ctx context.Context, base string, ids []string) error {
	c := s.collection(base)
	for part := range slices.Chunk(ids, batchIDs) {
		err := s.onCollection(ctx, c, 0, false, func() error { return s.deleteVerified(ctx, c, pointIDs(part)) })
		if err != nil {
			return s.failure(ctx, err)
		}
	}
	return nil
}

func (s *Store) deleteVerified(ctx context.Context, c *collection, ids []string) error {
	for range deleteTries {
		if err := s.update(ctx, http.MethodPost, c.path("/points/delete"), deleteBody{Points: ids}); err != nil {
			return err
		}
		var left []point
		if err := s.call(ctx, http.MethodPost, c.path("/points"), getBody{IDs: ids}, &left); err != nil || len(left) == 0 {
			return err
		}
		ids = ids[:0]
		for _, p := range left {
			ids = append(ids, p.ID)
		}
	}
	return ingest.Transient(ingest.CodeVector, "delete from collection %s: %d points are still there, %.80s among them", c.name, len(ids), ids[0])
}

// Query finds the nearest rows by the index; see ingest.VectorStore. With many rows a near neighbour may be missing. When the
// index gives fewer than k, as it may where few rows have one of the births, all that have are compared.
func (s *Store) Query(ctx context.Context, base string, values []float32, k int, births []string) ([]ingest.Hit, error) {
	if k <= 0 {
		return nil, nil
	}
	if err := vector.CheckQuery(values); err != nil {
		return nil, err
	}
	body := queryBody{Query: make([]float32, len(values)), Limit: k, WithPayload: []string{keyID}}
	vector.UnitInto(body.Query, values)
	parts := [][]string{nil} // no filter
	if len(births) > 0 {
		parts = slices.Collect(slices.Chunk(births, batchBirths))
	}
	c, all := s.collection(base), []ingest.Hit(nil)
	for _, part := range parts {
		err := s.onCollection(ctx, c, len(values), false, func() error {
			hits, err := s.query(ctx, c, body, part)
			all = append(all, hits...)
			return err
		})
		if err != nil {
			return nil, s.failure(ctx, err)
		}
	}
	slices.SortFunc(all, vector.CompareHits)
	return all[:min(k, len(all))], nil
}

func (s *Store) query(ctx context.Context, c *collection, body queryBody, births []string) (hits []ingest.Hit, err error) {
	if births != nil {
		body.Filter = &filter{Must: []condition{{Key: keyBirth, Match: match{Any: births}}}}
	}
	for _, params := range []searchParams{{EF: efSearch}, {Exact: true}} {
		var reply queryReply
		body.Params = params
		if err := s.call(ctx, http.MethodPost, c.path("/points/query"), body, &reply); err != nil {
			return nil, err
		}
		if hits, err = reply.hits(); err != nil || len(reply.Points) >= body.Limit {
			break
		}
	}
	return hits, err
}

// Get returns the rows that are held; see ingest.VectorStore. Their values have length 1.
func (s *Store) Get(ctx context.Context, base string, ids []string, values bool) (map[string]ingest.Vector, error) {
	size := batchIDs
	if values {
		size = batchValues
	}
	found := make(map[string]ingest.Vector, len(ids))
	c := s.collection(base)
	for part := range slices.Chunk(ids, size) {
		err := s.onCollection(ctx, c, 0, false, func() error {
			var reply []point
			body := getBody{IDs: pointIDs(part), WithPayload: true, WithVector: values}
			if err := s.call(ctx, http.MethodPost, c.path("/points"), body, &reply); err != nil {
				return err
			}
			return into(found, reply, values)
		})
		if err != nil {
			return nil, s.failure(ctx, err)
		}
	}
	return found, nil
}

// List pages through all ids in the order of their points; see ingest.VectorStore. A page begins where the one before has ended,
// if that is what is asked for, else it counts from the first: Qdrant pages by the point, not by its number.
func (s *Store) List(ctx context.Context, base string, offset, limit int) (ids []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	c := s.collection(base)
	err = s.onCollection(ctx, c, 0, false, func() (err error) {
		c.mu.Lock()
		from := c.listed
		c.mu.Unlock()
		if from.offset != offset {
			from = cursor{}
		}
		if from.offset < offset {
			if _, from, err = s.scroll(ctx, c, from, offset-from.offset); err != nil || from.offset < offset {
				return err
			}
		}
		if ids, from, err = s.scroll(ctx, c, from, limit); err == nil {
			c.mu.Lock()
			c.listed = from
			c.mu.Unlock()
		}
		return err
	})
	return ids, s.failure(ctx, err)
}

// scroll reads up to limit ids from a place on, and returns the place after them.
func (s *Store) scroll(ctx context.Context, c *collection, from cursor, limit int) (ids []string, to cursor, err error) {
	for len(ids) < limit {
		// The first is the last of before, unless that is gone.
		body := scrollBody{Offset: place(from.point), Limit: min(limit-len(ids), batchIDs) + 1, WithPayload: []string{keyID}}
		var reply scrollReply
		if err := s.call(ctx, http.MethodPost, c.path("/points/scroll"), body, &reply); err != nil {
			return nil, from, err
		}
		read := 0
		for _, p := range reply.Points {
			if p.ID == from.point || len(ids) == limit {
				continue
			}
			read++
			from.point = p.ID
			if id, ours := p.ours(); ours {
				ids = append(ids, id)
				from.offset++
			}
		}
		if read == 0 {
			break
		}
	}
	return ids, from, nil
}

// Drop removes a base's collection; one that does not exist is no error.
func (s *Store) Drop(ctx context.Context, base string) error {
	c := s.collection(base)
	var gone bool // false: there was none
	err := s.call(ctx, http.MethodDelete, c.path(""), nil, &gone)
	c.forget()
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
		c = &collection{name: name}
		c.upserts = s.batchUpserts(c)
		s.collections[name] = c
	}
	return c
}

// path is that of the collection, and of what is below it.
func (c *collection) path(below string) string { return "/collections/" + c.name + below }

func (c *collection) known() held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

func (c *collection) know(h held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = h
}

// forget drops what is known of it.
func (c *collection) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.listed = held{}, cursor{}
}
