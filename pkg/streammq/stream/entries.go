package stream

import (
	"fmt"

	"github.com/redis/rueidis"
)

// Entry is an entry as it was read.
type Entry struct {
	ID     string
	Fields Fields // nil: its data is gone
}

// Fields are the fields of an entry, name and value by turns, in the memory of the answer.
type Fields []rueidis.RedisMessage

// Len is how many fields there are.
func (f Fields) Len() int { return len(f) / 2 }

// At is the field at a place.
func (f Fields) At(i int) (name, value string) { return Text(f[2*i]), Text(f[2*i+1]) }

// Map is the fields by name; of two with one name the last.
func (f Fields) Map() map[string]string {
	named := make(map[string]string, f.Len())
	for i := range f.Len() {
		name, value := f.At(i)
		named[name] = value
	}
	return named
}

// ReadEntries reads the answer of an XREADGROUP of one stream without copying it; no entries when it is null.
func ReadEntries(r rueidis.RedisResult, key string) ([]Entry, error) {
	answer, err := r.ToMessage()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := rowsOf(&answer, key)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(rows))
	for i := range rows {
		pair, err := rows[i].ToArray()
		if err != nil || len(pair) != 2 {
			return nil, fmt.Errorf("%w to XREADGROUP: %d parts of an entry", ErrAnswer, len(pair))
		}
		entries[i].ID = Text(pair[0])
		if pair[1].IsNil() {
			continue
		}
		if entries[i].Fields, err = pair[1].ToArray(); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// rowsOf are the entries of a stream: RESP3 has the streams as a map, RESP2 as pairs.
func rowsOf(answer *rueidis.RedisMessage, key string) ([]rueidis.RedisMessage, error) {
	if answer.IsMap() {
		streams, err := answer.ToMap()
		if err != nil {
			return nil, err
		}
		rows := streams[key]
		return rows.ToArray()
	}
	streams, err := answer.ToArray()
	if err != nil {
		return nil, err
	}
	for i := range streams {
		pair, err := streams[i].ToArray()
		if err != nil || len(pair) != 2 {
			return nil, fmt.Errorf("%w to XREADGROUP: %d parts of a stream", ErrAnswer, len(pair))
		}
		if Text(pair[0]) == key {
			return pair[1].ToArray()
		}
	}
	return nil, fmt.Errorf("%w to XREADGROUP: no stream %q", ErrAnswer, key)
}
