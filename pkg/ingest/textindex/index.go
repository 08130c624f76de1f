// Package textindex is the full-text index of knowledge bases: BM25 over the segments of all versions, in tables of its own on
// every database, so that all of them rank alike.
//
// A base's index is any number of immutable parts (package part). A worker writes one in the transaction that writes the
// segments' rows, so a row and its words are there together or not at all. Nothing in a part says whether a version is
// visible: whoever searches joins what was found with the rows, as with vectors (design D12). Small parts are merged into
// larger ones, without the versions that are closed; a merge is one transaction that exchanges the parts' rows.
package textindex

import (
	"context"
	"database/sql"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed sql/*.sql
var statements embed.FS

const (
	// searchTries is how often a search begins again because a part was merged under it.
	searchTries = 4
	// partsTogether is how many parts one statement names, and chunksRead how many chunks.
	partsTogether = 64
	chunksRead    = 64
	// fetchMost bounds the chunks that are fetched before they are needed.
	fetchMost = 256
	// keptTogether is how many chunks of one range the cache keeps: a longer one is the end of a part, which is kept as it is open.
	keptTogether = 32
)

// errGone says that a part was merged away.
var errGone = errors.New("the part of the text index is gone")

// Database is what the index needs of one; taskstate.Database is one.
type Database interface {
	sqldb.Source
	InTx(ctx context.Context, f taskstate.TxFunc) error
	Moment(ctx context.Context) (taskstate.DBClock, error)
	Dialect() string
}

// Index is the full-text index of all knowledge bases of a database. It is safe for concurrent use.
type Index struct {
	store Database
	q     sqldb.Queries
	cache *cache
	// looked is when MergeGrown looked last, in milliseconds of the database's clock; 0: never.
	looked atomic.Int64
}

// New makes an Index on a database whose schema is there.
func New(store Database) *Index {
	return &Index{
		store: store, q: sqldb.MustLoad(statements, "sql", store.Dialect()), cache: newCache(cacheBytes()),
	}
}

// once is the index for who reads whole parts: what searches need stays in the cache.
func (x *Index) once() *Index { return &Index{store: x.store, q: x.q, cache: newCache(cacheOnce)} }

// Text is a segment with what is found of it.
type Text struct {
	Version  string
	Index    int
	TextHash string // as its row has it: 64 hex characters
	Title    string // of the document
	Heading  []string
	Text     string
}

// HashOf is the part of a text's hash that the index keeps.
func HashOf(textHash string) uint64 {
	var b [8]byte
	if _, err := hex.Decode(b[:], []byte(textHash[:min(16, len(textHash))])); err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(b[:])
}

// Batch are segments of one base, ready to be written.
type Batch struct {
	base          string
	segments      int
	tokens, bytes int64
	chunks        [][]byte
}

// Build analyses texts of one base; it costs about 0.3 ms of CPU a text of 2 KB. A version's texts come in order of their indexes.
func Build(base string, texts []Text) *Batch {
	b := part.NewBuilder()
	heading, words := map[string][]part.Word{}, func(text string) []part.Word {
		tokens := analysis.Tokens(text)
		out := make([]part.Word, len(tokens))
		for i, t := range tokens {
			out[i] = part.Word{Term: t.Term, Position: t.Position, Loose: t.Term[0] == analysis.StemMark[0]}
		}
		return out
	}
	once := func(text string) []part.Word { // title and headings come again and again
		found, known := heading[text]
		if !known {
			found = words(text)
			heading[text] = found
		}
		return found
	}
	for _, t := range texts {
		b.Add(part.Segment{Version: t.Version, Index: t.Index, Hash: HashOf(t.TextHash)},
			[...][]part.Word{part.Text: words(t.Text), part.Heading: once(strings.Join(t.Heading, "\n")), part.Title: once(t.Title)})
	}
	out := &Batch{base: base, segments: b.Len(), tokens: b.Tokens()}
	size, _ := b.Write(func(chunk []byte) error { // which never fails
		out.chunks = append(out.chunks, chunk)
		return nil
	})
	out.bytes = size
	return out
}

// newID is the id of a part: a UUIDv7, which rises with time.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// Add writes batches in the transaction that writes their segments' rows.
func (x *Index) Add(ctx context.Context, tx taskstate.Tx, now time.Time, batches ...*Batch) error {
	var parts, chunks []any
	n := 0
	for _, b := range batches {
		id := newID()
		parts = append(parts, id, b.base, b.segments, b.tokens, b.bytes, now, now, b.chunks[0])
		for i, data := range b.chunks[1:] {
			chunks = append(chunks, id, i+1, data)
			n++
		}
	}
	if len(batches) == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, x.q.Rows("PartInsert", len(batches)), parts...); err != nil {
		return fmt.Errorf("write parts of the text index: %w", err)
	}
	if n > 0 {
		if _, err := tx.ExecContext(ctx, x.q.Rows("ChunkInsert", n), chunks...); err != nil {
			return fmt.Errorf("write chunks of the text index: %w", err)
		}
	}
	return nil
}

// info is the row of a part.
type info struct {
	id       string
	segments int
	tokens   int64
	bytes    int64
}

// partsOf reads the rows of a base's parts.
func (x *Index) partsOf(ctx context.Context, base string) ([]info, error) {
	return x.infos(ctx, x.q.Get("PartsOfBase"), base)
}

// infos reads rows of parts.
func (x *Index) infos(ctx context.Context, query string, args ...any) ([]info, error) {
	out, err := read(ctx, x, func(rows *sql.Rows) (i info, err error) {
		return i, rows.Scan(&i.id, &i.segments, &i.tokens, &i.bytes)
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("parts of the text index: %w", err)
	}
	return out, nil
}

// Search finds the n best segments of a base, best first; equal ones in order of their versions and indexes. They are of all
// versions, visible or not. allowed limits the versions; nil: all.
func (x *Index) Search(ctx context.Context, base, query string, n int, allowed func(version string) bool) (found Results, err error) {
	err = x.with(ctx, base, func(parts []*part.Part, fetch fetcher) error {
		found, err = rank(ctx, parts, fetch, query, n, allowed)
		return err
	})
	return found, err
}

// Stats are the segments that a base's index has, of all versions.
func (x *Index) Stats(ctx context.Context, base string) (segments int, bytes int64, err error) {
	parts, err := x.partsOf(ctx, base)
	for _, p := range parts {
		segments, bytes = segments+p.segments, bytes+p.bytes
	}
	return segments, bytes, err
}

// span is a range of the bytes of a part, which has a number.
type span struct {
	part int
	part.Span
}

// fetcher reads ranges that are needed next, with as few statements as it can.
type fetcher func(ctx context.Context, spans []span) error

// with calls f with the open parts of a base, again while parts are merged under it.
func (x *Index) with(ctx context.Context, base string, f func([]*part.Part, fetcher) error) error {
	for try := 1; ; try++ {
		infos, err := x.partsOf(ctx, base)
		if err != nil {
			return err
		}
		parts, err := x.open(ctx, infos)
		if err == nil {
			err = f(parts, func(ctx context.Context, spans []span) error { return x.fetch(ctx, infos, spans) })
		}
		if !errors.Is(err, errGone) || try == searchTries {
			return err
		}
	}
}

// open opens parts.
func (x *Index) open(ctx context.Context, infos []info) ([]*part.Part, error) {
	if err := x.fetchHeads(ctx, infos); err != nil {
		return nil, err
	}
	out := make([]*part.Part, len(infos))
	for i, one := range infos {
		if p, ok := x.cache.part(one.id); ok {
			out[i] = p
			continue
		}
		p, err := part.Open(ctx, &source{x: x, id: one.id, size: one.bytes}, one.bytes)
		if err != nil {
			return nil, fmt.Errorf("part %s of the text index: %w", one.id, err)
		}
		x.cache.putPart(one.id, p)
		out[i] = p
	}
	return out, nil
}

// fetchHeads reads the first chunks of parts that are not known yet: small parts are no more.
func (x *Index) fetchHeads(ctx context.Context, infos []info) error {
	var wanted []key
	for _, one := range infos {
		if _, known := x.cache.part(one.id); !known && !x.cache.has(key{one.id, 0}) {
			wanted = append(wanted, key{one.id, 0})
		}
	}
	_, err := x.load(ctx, wanted, true)
	return err
}

// fetch puts the chunks of ranges of parts into the cache, the first of them if they are very many.
func (x *Index) fetch(ctx context.Context, infos []info, spans []span) error {
	var wanted []key
	known := map[key]bool{}
	for _, s := range spans {
		one := infos[s.part]
		first, last, _ := chunksOf(one.bytes, s.Span)
		for seq := first; seq <= last && len(wanted) < fetchMost; seq++ {
			if k := (key{one.id, seq}); !known[k] {
				known[k] = true
				if !x.cache.has(k) {
					wanted = append(wanted, k)
				}
			}
		}
	}
	for some := range slices.Chunk(wanted, chunksRead) {
		if _, err := x.load(ctx, some, true); err != nil {
			return err
		}
	}
	return nil
}

// chunksOf are the first and the last chunk of a range of a part of that size; none if it is empty. false: the part has no
// such range.
func chunksOf(size int64, s part.Span) (first, last int, ok bool) {
	if s.Offset < 0 || s.Size < 0 || s.Offset+int64(s.Size) > size {
		return 0, -1, false
	}
	if s.Size == 0 {
		return 0, -1, true
	}
	return int(s.Offset / part.ChunkSize), int((s.Offset + int64(s.Size) - 1) / part.ChunkSize), true
}

// chunk is a row of a part's bytes.
type chunk struct {
	key
	data []byte
}

// load reads those of chunks that are there, many with one statement. keep: also into the cache.
func (x *Index) load(ctx context.Context, wanted []key, keep bool) (out []chunk, err error) {
	var heads []string
	var others []any
	for _, k := range wanted {
		if k.seq == 0 {
			heads = append(heads, k.part)
		} else {
			others = append(others, k.part, k.seq)
		}
	}
	for some := range slices.Chunk(heads, chunksRead) {
		if out, err = x.chunks(ctx, out, x.q.List("Heads", len(some)), sqldb.Args(some)...); err != nil {
			return nil, err
		}
	}
	for some := range slices.Chunk(others, 2*chunksRead) {
		if out, err = x.chunks(ctx, out, x.q.Any("Chunks", len(some)/2), some...); err != nil {
			return nil, err
		}
	}
	for i := 0; keep && i < len(out); i++ {
		x.cache.put(out[i].key, out[i].data)
	}
	return out, nil
}

// chunks appends the chunks of a statement.
func (x *Index) chunks(ctx context.Context, to []chunk, query string, args ...any) ([]chunk, error) {
	some, err := read(ctx, x, func(rows *sql.Rows) (c chunk, err error) {
		return c, rows.Scan(&c.part, &c.seq, &c.data)
	}, query, args...)
	if err != nil {
		return nil, fmt.Errorf("chunks of the text index: %w", err)
	}
	return append(to, some...), nil
}

// source reads a part's bytes out of its chunks.
type source struct {
	x    *Index
	id   string
	size int64
}

// ReadAt implements part.Source.
func (s *source) ReadAt(ctx context.Context, offset int64, n int) ([]byte, error) {
	first, last, ok := chunksOf(s.size, part.Span{Offset: offset, Size: n})
	if !ok {
		return nil, part.ErrCorrupt
	}
	if n == 0 {
		return nil, nil
	}
	chunks, missing := make([][]byte, last-first+1), []key(nil)
	for i := range chunks {
		k := key{s.id, first + i}
		if chunks[i] = s.x.cache.get(k); chunks[i] == nil {
			missing = append(missing, k)
		}
	}
	if len(missing) > 0 {
		got, err := s.x.load(ctx, missing, len(missing) <= keptTogether)
		if err != nil {
			return nil, err
		}
		if len(got) < len(missing) {
			return nil, errGone
		}
		for _, c := range got {
			chunks[c.seq-first] = c.data
		}
	}
	begin := int(offset % part.ChunkSize)
	if len(chunks) == 1 {
		if begin+n > len(chunks[0]) {
			return nil, part.ErrCorrupt
		}
		return chunks[0][begin : begin+n], nil
	}
	out := make([]byte, 0, n)
	for _, c := range chunks {
		out = append(out, c[min(begin, len(c)):min(len(c), begin+n-len(out))]...)
		begin = 0
	}
	if len(out) < n {
		return nil, part.ErrCorrupt
	}
	return out, nil
}
