package part

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
)

// ChunkSize is how many bytes a writer gives at a time; the last ones are fewer.
const ChunkSize = 64 << 10

// Word is a term and its place among the words of its field; variants of a word share a place.
type Word struct {
	Term     string
	Position int
}

// Builder collects segments for a part. It is not safe for concurrent use.
type Builder struct {
	segments []Segment
	lengths  []byte
	tokens   int64
	terms    map[string]*list
}

// list is what a part says of one term.
type list struct {
	df             int
	last           int // ordinal
	docs, position []byte
}

// NewBuilder makes an empty Builder.
func NewBuilder() *Builder { return &Builder{terms: map[string]*list{}} }

// Len is how many segments were added.
func (b *Builder) Len() int { return len(b.segments) }

// Tokens are how many words were added.
func (b *Builder) Tokens() int64 { return b.tokens }

// Add adds a segment with the words of its fields, each in order of their places. A version's segments come in order.
func (b *Builder) Add(s Segment, words [fields][]Word) {
	ordinal := len(b.segments)
	b.segments = append(b.segments, s)
	found := map[string]*occurrence{}
	from, length := 0, 0
	for field, all := range words {
		next := 0
		for _, w := range all {
			o := found[w.Term]
			if o == nil {
				o = &occurrence{}
				found[w.Term] = o
			}
			o.add(Field(field), from+w.Position)
			next = max(next, w.Position+1)
		}
		if Field(field) == Text {
			length = next
		}
		from += next + positionGap
	}
	length = min(length, maxLength)
	b.lengths = binary.LittleEndian.AppendUint16(b.lengths, uint16(length)) //nolint:gosec // it was just bounded
	b.tokens += int64(length)
	for term, o := range found {
		l := b.terms[term]
		if l == nil {
			l = &list{last: -1}
			b.terms[term] = l
		}
		l.add(ordinal, o.value(), o.places)
	}
}

// occurrence is where a term stands in one segment.
type occurrence struct {
	text, bits, count, last int
	places                  []byte
}

func (o *occurrence) add(f Field, place int) {
	switch f {
	case Title:
		o.bits |= titleBit
	case Heading:
		o.bits |= headingBit
	default:
		o.text++
	}
	o.places = binary.AppendUvarint(o.places, uint64(place-o.last)) //nolint:gosec // places grow
	o.last = place
	o.count++
}

// value is how often the term stands in the text, and in which other fields it does.
func (o *occurrence) value() int { return o.text<<fieldBits | o.bits }

// add adds a segment; places are uvarints of the distances between them.
func (l *list) add(ordinal, value int, places []byte) {
	l.df++
	l.docs = binary.AppendUvarint(l.docs, uint64(ordinal-l.last)) //nolint:gosec // ordinals grow
	l.docs = binary.AppendUvarint(l.docs, uint64(value))          //nolint:gosec // a count
	l.position = appendText(l.position, string(places))
	l.last = ordinal
}

// Write gives the part to sink in chunks of ChunkSize and returns its size.
func (b *Builder) Write(sink func(chunk []byte) error) (size int64, err error) {
	w := newWriter(sink)
	for _, term := range slices.Sorted(maps.Keys(b.terms)) {
		l := b.terms[term]
		w.term(term, l.df, l.docs, l.position)
	}
	return w.close(b.segments, b.lengths, b.tokens)
}

// writer writes a part from front to back.
type writer struct {
	sink    func([]byte) error
	buf     []byte
	offset  int64
	sum     uint32 // of the bytes before offset
	err     error
	dict    []byte // the dictionary so far
	index   []byte
	blocks  int
	inBlock int
	last    string
}

func newWriter(sink func([]byte) error) *writer { return &writer{sink: sink} }

// write adds bytes.
func (w *writer) write(b []byte) {
	w.offset += int64(len(b))
	w.sum = crc32.Update(w.sum, polynomial, b)
	w.buf = append(w.buf, b...)
	for len(w.buf) >= ChunkSize && w.err == nil {
		w.err = w.sink(w.buf[:ChunkSize:ChunkSize])
		w.buf = slices.Clone(w.buf[ChunkSize:])
	}
}

// term adds a term, which comes after all before it.
func (w *writer) term(term string, df int, docs, positions []byte) {
	shared := 0
	if w.inBlock == 0 {
		w.index = appendText(w.index, term)
		w.index = binary.AppendUvarint(w.index, uint64(len(w.dict)))
		w.dict = binary.AppendUvarint(w.dict, uint64(w.offset)) //nolint:gosec // an offset
		w.blocks++
	} else {
		for shared < len(term) && shared < len(w.last) && term[shared] == w.last[shared] {
			shared++
		}
	}
	w.dict = binary.AppendUvarint(w.dict, uint64(shared))
	w.dict = appendText(w.dict, term[shared:])
	for _, n := range []int{df, len(docs), len(positions)} {
		w.dict = binary.AppendUvarint(w.dict, uint64(n)) //nolint:gosec // a length
	}
	w.last, w.inBlock = term, (w.inBlock+1)%blockTerms
	w.write(docs)
	w.write(positions)
}

// close writes all that comes after the postings.
func (w *writer) close(segments []Segment, lengths []byte, tokens int64) (int64, error) {
	foot := binary.LittleEndian.AppendUint32(nil, magic)
	foot = binary.LittleEndian.AppendUint32(foot, uint32(len(segments))) //nolint:gosec // a part has fewer than 2^32
	foot = binary.LittleEndian.AppendUint64(foot, uint64(tokens))        //nolint:gosec // a count
	hashes := make([]byte, 0, 8*len(segments))
	for _, s := range segments {
		hashes = binary.LittleEndian.AppendUint64(hashes, s.Hash)
	}
	for _, section := range [][]byte{
		w.dict, append(binary.AppendUvarint(nil, uint64(w.blocks)), w.index...), runsOf(segments), lengths, hashes, //nolint:gosec // a count
	} {
		foot = binary.LittleEndian.AppendUint64(foot, uint64(w.offset)) //nolint:gosec // an offset
		w.write(section)
	}
	w.write(foot)
	w.write(binary.LittleEndian.AppendUint32(nil, w.sum))
	if len(w.buf) > 0 && w.err == nil {
		w.err = w.sink(w.buf)
	}
	if w.err != nil {
		return 0, fmt.Errorf("write a part: %w", w.err)
	}
	return w.offset, nil
}

// runsOf encodes which versions the segments belong to.
func runsOf(segments []Segment) []byte {
	var out []byte
	n := 0
	for from := 0; from < len(segments); n++ {
		to := from + 1
		for to < len(segments) && segments[to].Version == segments[from].Version && segments[to].Index == segments[to-1].Index+1 {
			to++
		}
		out = appendText(out, segments[from].Version)
		out = binary.AppendUvarint(out, uint64(segments[from].Index)) //nolint:gosec // not negative
		out = binary.AppendUvarint(out, uint64(to-from))              //nolint:gosec // not negative
		from = to
	}
	return append(binary.AppendUvarint(nil, uint64(n)), out...) //nolint:gosec // a count
}
