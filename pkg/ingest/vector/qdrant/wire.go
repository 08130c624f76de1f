package qdrant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ingest/vector"
)

// Keys of a point's payload.
const (
	keyID       = "id"
	keyDocument = "document_id"
	keyBirth    = "birth" // with an index: it is the only one that is filtered by
)

// efSearch is how many candidates a search of the index looks at. Measured on the engine alone with 20,000 rows of 384 values around
// 20 centres: its own 100 find 0.995 of the ten nearest and 0.990 of forty in 0.4 ms, these all of them in 0.6 ms.
const efSearch = 400

// written is the query of every write: its reply comes when all can read what it wrote, and in a cluster the writes of a point have
// one order on all replicas. A strong order would stop writes while the one leader of a shard is away.
const written = "?wait=true&ordering=medium"

// pointID is the point of an id: Qdrant takes numbers and UUIDs only. It is a UUID of version 8 out of the id's hash, and the id
// itself is in the payload.
func pointID(id string) string {
	sum := sha256.Sum256([]byte(id))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func pointIDs(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = pointID(id)
	}
	return out
}

// point is one as it is written and read; which of its parts are there depends on the request.
type point struct {
	ID      string         `json:"id"`
	Vector  []float32      `json:"vector,omitempty"`
	Payload map[string]any `json:"payload,omitempty"`
	Score   *float64       `json:"score,omitempty"`
}

// UnmarshalJSON also reads points of others: with a number as their id, or with vectors that have names.
func (p *point) UnmarshalJSON(b []byte) error {
	var raw struct {
		ID      json.RawMessage `json:"id"`
		Vector  json.RawMessage `json:"vector"`
		Payload map[string]any  `json:"payload"`
		Score   *float64        `json:"score"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*p = point{Payload: raw.Payload, Score: raw.Score}
	if json.Unmarshal(raw.ID, &p.ID) != nil {
		p.ID = string(raw.ID)
	}
	if json.Unmarshal(raw.Vector, &p.Vector) != nil {
		p.Vector = nil
	}
	return nil
}

// ours returns the id of a row of ours; false: another program wrote the point.
func (p point) ours() (id string, ours bool) {
	id, _ = p.Payload[keyID].(string)
	return id, id != "" && pointID(id) == p.ID
}

func points(rows []ingest.Vector) []point {
	out := make([]point, len(rows))
	for i, row := range rows {
		unit := make([]float32, len(row.Values))
		vector.UnitInto(unit, row.Values)
		out[i] = point{
			ID: pointID(row.ID), Vector: unit,
			Payload: map[string]any{keyID: row.ID, keyDocument: row.DocumentID, keyBirth: row.Birth},
		}
	}
	return out
}

// into adds the rows of a reply to found. What another program wrote into the payload in another type reads as empty.
func into(found map[string]ingest.Vector, reply []point, values bool) error {
	for _, p := range reply {
		id, ours := p.ours()
		if !ours {
			continue
		}
		row := ingest.Vector{ID: id}
		row.DocumentID, _ = p.Payload[keyDocument].(string)
		row.Birth, _ = p.Payload[keyBirth].(string)
		if values {
			if row.Values = p.Vector; len(row.Values) == 0 {
				return ingest.Transient(ingest.CodeVector, "get: point %.80s without its vector", p.ID)
			}
		}
		found[id] = row
	}
	return nil
}

type pointsBody struct {
	Points []point `json:"points"`
}

type deleteBody struct {
	Points []string `json:"points"`
}

type getBody struct {
	IDs         []string `json:"ids"`
	WithPayload bool     `json:"with_payload"`
	WithVector  bool     `json:"with_vector"`
}

type scrollBody struct {
	Offset      any      `json:"offset,omitempty"` // the first point; nil: of all
	Limit       int      `json:"limit"`
	WithPayload []string `json:"with_payload"`
}

// place is the id of a point as a request names it: one of another program may be a number.
func place(point string) any {
	switch {
	case point == "":
		return nil
	case strings.Contains(point, "-"):
		return point
	}
	return json.Number(point)
}

type scrollReply struct {
	Points []point `json:"points"`
}

type match struct {
	Any []string `json:"any"`
}

type condition struct {
	Key   string `json:"key"`
	Match match  `json:"match"`
}

type filter struct {
	Must []condition `json:"must"`
}

type searchParams struct {
	EF    int  `json:"hnsw_ef,omitempty"`
	Exact bool `json:"exact,omitempty"`
}

type queryBody struct {
	Query       []float32    `json:"query"`
	Filter      *filter      `json:"filter,omitempty"`
	Params      searchParams `json:"params"`
	Limit       int          `json:"limit"`
	WithPayload []string     `json:"with_payload"`
}

type queryReply struct {
	Points []point `json:"points"`
}

func (r queryReply) hits() ([]ingest.Hit, error) {
	hits := make([]ingest.Hit, 0, len(r.Points))
	for _, p := range r.Points {
		id, ours := p.ours()
		if !ours {
			continue
		}
		if p.Score == nil {
			return nil, ingest.Transient(ingest.CodeVector, "query: point %.80s without a score", p.ID)
		}
		hits = append(hits, ingest.Hit{ID: id, Score: min(1, max(-1, *p.Score))})
	}
	return hits, nil
}

// onCollection runs do with a base's collection, and once more when that is not what it was: another process dropped it, and maybe
// made it anew. create makes one of dim values when it is missing; without, nothing is run then. dim is compared with the
// collection's; 0: it may have any.
func (s *Store) onCollection(ctx context.Context, c *collection, dim int, create bool, do func() error) error {
	for again := false; ; again = true {
		h, err := s.resolve(ctx, c, dim, create)
		if err != nil || h.dim == 0 {
			return err
		}
		err = do()
		if !isStale(err) {
			return err
		}
		c.forget()
		if again {
			return err
		}
	}
}

// resolve returns a base's collection; that has dim 0 when it is missing and create is not set.
// Errors: CodeDimension, permanent; those of call.
func (s *Store) resolve(ctx context.Context, c *collection, dim int, create bool) (held, error) {
	if h := c.known(); h.dim != 0 && (dim == 0 || h.dim == dim) && (h.indexed || !create) {
		return h, nil
	}
	h, err := s.look(ctx, c)
	if err == nil && h.dim == 0 && create {
		if err = s.create(ctx, c, dim); err == nil {
			h, err = s.look(ctx, c)
		}
	}
	switch {
	case err != nil:
		return held{}, err
	case h.dim == 0 && create:
		return held{}, ingest.Transient(ingest.CodeVector, "collection %s: it was made, and is not there", c.name)
	case h.dim == 0:
		c.forget()
		return held{}, nil
	case dim != 0 && h.dim != dim:
		c.know(h)
		return h, vector.DimensionFailure(dim, h.dim)
	case create && !h.indexed: // it is new, or who made it got no further
		if err := s.update(ctx, http.MethodPut, c.path("/index"), map[string]string{"field_name": keyBirth, "field_schema": "keyword"}); err != nil {
			return held{}, err
		}
		h.indexed = true
	}
	c.know(h)
	return h, nil
}

// look finds a base's collection; dim 0: there is none.
func (s *Store) look(ctx context.Context, c *collection) (held, error) {
	var info struct {
		Config struct {
			Params struct {
				Vectors struct {
					Size     int    `json:"size"`
					Distance string `json:"distance"`
				} `json:"vectors"`
			} `json:"params"`
		} `json:"config"`
		Schema map[string]json.RawMessage `json:"payload_schema"`
	}
	err := s.call(ctx, http.MethodGet, c.path(""), nil, &info)
	if isMissing(err) {
		return held{}, nil
	}
	if err != nil {
		return held{}, err
	}
	vectors := info.Config.Params.Vectors
	if vectors.Size <= 0 || vectors.Distance != "Cosine" {
		f := ingest.Transient(ingest.CodeVector, "collection %s has %d values and the distance %.40q: Millweir did not make it", c.name, vectors.Size, vectors.Distance)
		f.Remedy = "Another program made this collection in Qdrant: drop it, or let QDRANT_URL lead to a server without it."
		return held{}, f
	}
	_, indexed := info.Schema[keyBirth]
	return held{dim: vectors.Size, indexed: indexed}, nil
}

// create makes the collection; replicas, segments and the like are those that the server is configured for.
func (s *Store) create(ctx context.Context, c *collection, dim int) error {
	body := map[string]any{"vectors": map[string]any{"size": dim, "distance": "Cosine"}}
	err := s.call(ctx, http.MethodPut, c.path(""), body, new(bool))
	if rest.IsStatus(err, http.StatusConflict) {
		return nil // another process made it at this moment
	}
	return err
}

// update makes a write and returns when it is done.
func (s *Store) update(ctx context.Context, method, path string, body any) error {
	var reply struct {
		Status string `json:"status"`
	}
	if err := s.call(ctx, method, path+written, body, &reply); err != nil {
		return err
	}
	if reply.Status != "completed" {
		return ingest.Transient(ingest.CodeVector, "%s %s: the write is %.40q, not completed", method, path, reply.Status)
	}
	return nil
}

// call makes one request with its tries; result is where that of the reply goes. All requests can be repeated: writes are upserts
// and deletes by id.
func (s *Store) call(ctx context.Context, method, path string, body, result any) error {
	path, query, _ := strings.Cut(path, "?")
	call := rest.Call{Method: method, Path: path, Query: query, Template: template(path), MaxReply: maxReply, Timeout: s.cfg.Timeout}
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return ingest.Permanent(ingest.CodeVectorRejected, "", "encode: %w", err)
		}
		call.Body = encoded
	}
	return rest.Retry(ctx, func() error {
		reply, err := s.client.Do(ctx, call)
		if err != nil {
			return err
		}
		if err := decode(reply, result); err != nil {
			return ingest.Transient(ingest.CodeVector, "%s: reply is not what it should be: %w", s.client.Op(call), err)
		}
		return nil
	}, s.wait)
}

// decode reads the result of a reply.
func decode(reply []byte, result any) error {
	var envelope struct {
		Result json.RawMessage `json:"result"`
	}
	if err := json.Unmarshal(reply, &envelope); err != nil {
		return err
	}
	if len(envelope.Result) == 0 || string(envelope.Result) == "null" {
		return fmt.Errorf("it has no result: %.80q", reply)
	}
	return json.Unmarshal(envelope.Result, result)
}

// template is a path without the collection's name.
func template(path string) string {
	name, below, more := strings.Cut(strings.TrimPrefix(path, "/collections/"), "/")
	if name == "" || !more {
		return "/collections/{collection}"
	}
	return "/collections/{collection}/" + below
}
