// Package part is the format of one part of a full-text index: an immutable run of bytes that says which terms stand in
// which segments, how often and where. A base's index is any number of parts; small ones are merged into larger ones.
//
// A part begins with its postings, term by term in byte order; then come the dictionary, the index of the dictionary, the
// versions, the lengths and the hashes of its segments, and a footer of fixed size that says where each of these begins. Its
// last bytes are a checksum of all others.
// It is written from front to back, and read by ranges, so that neither needs it whole in memory.
//
// All numbers are uvarints where nothing else is said. The postings of a term are its segments and then its places:
//
//   - A segment is the distance from the one before, doubled, plus 1 if the term stands in its text once and nowhere else.
//     Without the 1 the value follows: how often it stands in the text, times 4, plus 1 for the title and 2 for the heading.
//   - The segments of more than 128 are in blocks of 128. The size of a table comes first, and the table: of each block the
//     distance of its last segment from that of the block before, the bytes of its segments and of its places, and its peaks.
//   - The peaks of a block bound what the term can count there: a number that is 4 times their count plus the title and heading
//     bits of all values, and that many pairs of how often and a length. For each segment there is a pair that stands in the
//     text no less often and is no longer.
//   - The places of a segment are their distances: those in the text, whose number the value says, then those in the heading
//     and in the title, each with its number before it. A term that is in no phrase has no places at all.
//
// The index of the dictionary has the first term and the offset of each block. Of a large dictionary it has a filter of 128 bytes
// for each block too: the bits of the hashes of all three bytes that follow each other in a term.
package part

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCorrupt says that bytes are not those of a part.
var ErrCorrupt = errors.New("the bytes are no part of a text index")

const (
	magic      = 0x32504954 // "TIP2": the format and its version
	footerSize = 4 + 4 + 8 + 5*8 + sumSize
	sumSize    = 4
	blockTerms = 64  // terms of a block of the dictionary: what a look-up reads through
	blockSize  = 128 // segments of a block of postings
	mostPeaks  = 4   // of a block
	// filtered is how many blocks a dictionary with filters has at least.
	filtered    = 32
	maxLength   = 1<<16 - 1
	fieldBits   = 2
	titleBit    = 1
	headingBit  = 2
	positionGap = 100 // between the fields of a segment, so that no phrase reaches over
)

// polynomial is that of the checksum, a CRC-32C.
var polynomial = crc32.MakeTable(crc32.Castagnoli)

// Field is where in a segment a word stands.
type Field int

// The fields.
const (
	Text Field = iota
	Heading
	Title
	fields
)

// Source reads a part's bytes; ErrCorrupt when the part has fewer.
type Source interface {
	// ReadAt returns n bytes from an offset; the caller does not change them.
	ReadAt(ctx context.Context, offset int64, n int) ([]byte, error)
}

// Bytes is a part in memory.
type Bytes []byte

// ReadAt implements Source.
func (b Bytes) ReadAt(_ context.Context, offset int64, n int) ([]byte, error) {
	if offset < 0 || n < 0 || offset+int64(n) > int64(len(b)) {
		return nil, ErrCorrupt
	}
	return b[offset : offset+int64(n)], nil
}

// Segment names a segment of a part.
type Segment struct {
	Version string
	Index   int
	Hash    uint64 // the first bytes of the text's hash: tells a text that was replaced under the same index
}

// run is a row of segments of one version whose indexes follow each other.
type run struct {
	version     string
	first       int // index of its first segment
	begin, size int // its first ordinal, its segments
}

// block is one block of the dictionary.
type block struct {
	first  string // its first term
	offset int64  // in the part
}

// Part is an open part. It is safe for concurrent use.
type Part struct {
	src      Source
	segments int
	tokens   int64
	postings int64 // their end, where the dictionary begins
	dict     int64 // its end
	blocks   []block
	filters  []byte // of the blocks; none: the dictionary is small
	runs     []run
	lengths  []byte // two bytes a segment
	size     int64
	sum      uint32 // of all bytes before it
	hashes   []byte // eight bytes a segment
}

// Segments are how many segments the part has.
func (p *Part) Segments() int { return p.segments }

// Tokens are how many words its segments have.
func (p *Part) Tokens() int64 { return p.tokens }

// Memory is about how many bytes an open part keeps.
func (p *Part) Memory() int {
	return len(p.lengths) + len(p.hashes) + len(p.filters) + 80*len(p.runs) + 48*len(p.blocks) + 200
}

// Length is how many words a segment's text has.
func (p *Part) Length(ordinal int) int {
	return int(binary.LittleEndian.Uint16(p.lengths[2*ordinal:]))
}

// Open reads what every search of a part of that many bytes needs.
func Open(ctx context.Context, src Source, size int64) (*Part, error) {
	foot, err := src.ReadAt(ctx, size-footerSize, footerSize)
	if err != nil {
		return nil, err
	}
	if binary.LittleEndian.Uint32(foot) != magic {
		return nil, ErrCorrupt
	}
	p := &Part{
		src: src, segments: int(binary.LittleEndian.Uint32(foot[4:])), tokens: int64(binary.LittleEndian.Uint64(foot[8:])),
		size: size, sum: binary.LittleEndian.Uint32(foot[footerSize-sumSize:]),
	}
	var at [5]int64
	last := int64(0)
	for i := range at {
		at[i] = int64(binary.LittleEndian.Uint64(foot[16+8*i:]))
		if at[i] < last || at[i] > size-footerSize {
			return nil, ErrCorrupt
		}
		last = at[i]
	}
	p.postings, p.dict = at[0], at[1]
	if at[4]-at[3] != 2*int64(p.segments) || size-footerSize-at[4] != 8*int64(p.segments) {
		return nil, ErrCorrupt
	}
	raw, err := src.ReadAt(ctx, at[1], int(size-footerSize-at[1]))
	if err != nil {
		return nil, err
	}
	r := reader{b: raw[:at[2]-at[1]]}
	n := r.int()
	p.blocks = make([]block, 0, min(n, len(r.b)/2)) // each has two bytes at least
	for len(p.blocks) < n && r.err == nil {
		p.blocks = append(p.blocks, block{first: r.text(), offset: p.postings + int64(r.int())})
	}
	if p.filters = r.b; len(p.blocks) >= filtered && len(p.filters) != filterSize*len(p.blocks) {
		return nil, ErrCorrupt
	}
	v := reader{b: raw[at[2]-at[1] : at[3]-at[1]]}
	begin := 0
	n = v.int()
	p.runs = make([]run, 0, min(n, len(v.b)/3))
	for len(p.runs) < n && v.err == nil {
		one := run{version: v.text(), first: v.int(), size: v.int(), begin: begin}
		p.runs = append(p.runs, one)
		begin += one.size
	}
	p.lengths, p.hashes = raw[at[3]-at[1]:at[4]-at[1]], raw[at[4]-at[1]:]
	if r.err != nil || v.err != nil || begin != p.segments {
		return nil, ErrCorrupt
	}
	return p, nil
}

// Verify reads the whole part and compares it with its checksum. ErrCorrupt when a byte was changed.
func (p *Part) Verify(ctx context.Context) error {
	sum := uint32(0)
	for at, end := int64(0), p.size-sumSize; at < end; {
		raw, err := p.src.ReadAt(ctx, at, int(min(scanned, end-at)))
		if err != nil {
			return fmt.Errorf("compare with the checksum: %w", err)
		}
		sum = crc32.Update(sum, polynomial, raw)
		at += int64(len(raw))
	}
	if sum != p.sum {
		return ErrCorrupt
	}
	return nil
}

// Segment names the segment with an ordinal.
func (p *Part) Segment(ordinal int) Segment {
	at, end := 0, len(p.runs) // the last run that begins at or before it
	for end-at > 1 {
		if middle := (at + end) / 2; p.runs[middle].begin <= ordinal {
			at = middle
		} else {
			end = middle
		}
	}
	r := p.runs[at]
	return Segment{Version: r.version, Index: r.first + ordinal - r.begin, Hash: p.hash(ordinal)}
}

func (p *Part) hash(ordinal int) uint64 { return binary.LittleEndian.Uint64(p.hashes[8*ordinal:]) }

// Versions are the versions that the part has segments of, each once a run, with how many.
func (p *Part) Versions() []string {
	out := make([]string, 0, len(p.runs))
	for _, r := range p.runs {
		out = append(out, r.version)
	}
	return out
}

// All names all segments.
func (p *Part) All() []Segment {
	out := make([]Segment, 0, p.segments)
	for _, r := range p.runs {
		for i := range r.size {
			out = append(out, Segment{Version: r.version, Index: r.first + i, Hash: p.hash(r.begin + i)})
		}
	}
	return out
}

// reader reads numbers and texts; after an error it returns zeros.
type reader struct {
	b   []byte
	err error
}

// int reads a number.
func (r *reader) int() int {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		n := r.b[0]
		r.b = r.b[1:]
		return int(n)
	}
	return r.long()
}

// long reads a number of several bytes.
func (r *reader) long() int {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<40 {
		r.b, r.err = nil, ErrCorrupt
		return 0
	}
	r.b = r.b[size:]
	return int(n)
}

// bytes reads n bytes.
func (r *reader) bytes(n int) []byte {
	if n > len(r.b) {
		r.b, r.err = nil, ErrCorrupt
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// text reads a text with its length before it.
func (r *reader) text() string { return string(r.bytes(r.int())) }

// appendText is what text reads.
func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
