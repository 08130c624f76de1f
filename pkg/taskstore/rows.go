package taskstore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// maxBytes bounds the rows of one statement, well below what the servers take as one message.
const maxBytes = 4 << 20

// row is one row of a batch as a statement reads it: by name out of JSON, or as values in the order of the …Row statement.
type row interface {
	sized
	values(place int) []any
}

// sized is a row with long fields.
type sized interface {
	size() int // bytes that it may be long by; small fields do not count
}

// withRows puts a batch into the statement of that name: one JSON array, or on MySQL a SELECT of constants for each row.
func withRows[T row](s *Store, name string, batch []T) (query string, args []any, err error) {
	query = s.queries.Get(name)
	one, constants := s.queries[name+"Row"]
	if !constants {
		text, err := asJSON(batch)
		return query, []any{text}, err
	}
	var b strings.Builder
	b.Grow(len(batch) * (len(one) + len(" UNION ALL ")))
	for i, r := range batch {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		b.WriteString(one)
		args = append(args, r.values(i)...)
	}
	return fill(query, "@rows", b.String()), args, nil
}

// asJSON renders a batch as one JSON array.
func asJSON[T any](batch []T) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(batch); err != nil {
		return "", fmt.Errorf("encode rows: %w", err)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// bySize cuts a batch so that no part is longer than maxBytes, except for a single row: one part unless rows are large.
func bySize[T sized](batch []T) [][]T {
	var parts [][]T
	from, sum := 0, 0
	for i, r := range batch {
		n := r.size()
		sum += n
		if i > from && sum > maxBytes {
			parts = append(parts, batch[from:i])
			from, sum = i, n
		}
	}
	return append(parts, batch[from:])
}

// length is the size of an optional text.
func length(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}

func (r changeRow) size() int {
	return length(r.LastError) + length(r.Message) + length(r.Result)
}

func (r logRow) size() int { return len(r.Message) }

func (r newRow) values(place int) []any {
	return []any{
		place, r.ID, r.User, r.Document, r.Base, r.File, r.Workflow, r.Type, r.Channel, r.Chat,
		r.Payload, r.TraceParent, r.Request, r.Key, r.Hash, r.Max,
	}
}

func (r newRow) size() int { return length(r.Payload) + length(r.File) }

func (r beatRow) values(int) []any {
	return []any{r.ID, r.Status, r.Fence, r.Epoch, r.Owner, r.Renew, r.Lease, r.Stage, r.Percent, r.Processed, r.Total}
}

func (beatRow) size() int { return 0 }

func (r afterRow) values(int) []any { return []any{r.ID, r.After} }

func (afterRow) size() int { return 0 }
