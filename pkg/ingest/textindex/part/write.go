package part

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

// ChunkSize is how many bytes a writer gives at a time; the last ones are fewer.
const ChunkSize = 64 << 10

// Word is a term and its place among the words of its field; variants of a word share a place.
type Word struct {
	Term     string
	Position int
	Loose    bool // it is in no phrase: its place is not kept
}

// Builder collects segments for a part. It is not safe for concurrent use.
type Builder struct {
	segments []Segment
	lengths  []byte
	tokens   int64
	terms    map[string]*building
	order    []named     // of the terms, before it is sorted
	touched  []*building // by the segment in work
	fresh    []building  // not in use yet
}

// named is a term with what a part says of it.
type named struct {
	term  string
	begin uint64 // the term's first bytes: most terms are put in order by them
	*building
}

// beginOf are the first bytes of a term as a number of the same order.
func beginOf(term string) uint64 {
	var b [8]byte
	copy(b[:], term)
	return binary.BigEndian.Uint64(b[:])
}

// building is what a part says of one term, with its occurrences in the segment in work.
type building struct {
	list
	counts [fields]int
	last   int // place
	field  Field
	number int      // where the number of the field's places is
	room   [28]byte // of the first postings: most terms have few
}

// NewBuilder makes an empty Builder.
func NewBuilder() *Builder { return &Builder{terms: map[string]*building{}} }

// Len is how many segments were added.
func (b *Builder) Len() int { return len(b.segments) }

// Tokens are how many words were added.
func (b *Builder) Tokens() int64 { return b.tokens }

// Add adds a segment with the words of its fields, each in order of their places. A version's segments come in order.
func (b *Builder) Add(s Segment, words [fields][]Word) {
	ordinal := len(b.segments)
	b.segments = append(b.segments, s)
	from, length := 0, 0
	for field, all := range words {
		next := 0
		for i := range all {
			w := &all[i]
			t := b.terms[w.Term]
			if t == nil {
				t = b.building()
				b.terms[w.Term] = t
				b.order = append(b.order, named{w.Term, beginOf(w.Term), t})
			}
			if t.counts == [fields]int{} {
				t.last, t.field = 0, Text
				b.touched = append(b.touched, t)
			}
			if t.counts[field]++; !w.Loose {
				t.place(Field(field), from+w.Position)
			}
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
	for i, t := range b.touched {
		t.endField()
		value := t.counts[Text]<<fieldBits | min(1, t.counts[Heading])*headingBit | min(1, t.counts[Title])*titleBit
		t.add(ordinal, value, nil, b.lengths)
		t.counts = [fields]int{}
		b.touched[i] = nil
	}
	b.touched = b.touched[:0]
}

// building is a new one.
func (b *Builder) building() *building {
	if len(b.fresh) == 0 {
		b.fresh = make([]building, 64)
	}
	t := &b.fresh[0]
	b.fresh = b.fresh[1:]
	t.list = newList()
	t.docs, t.places = t.room[:0:8], t.room[8:8]
	return t
}

// place adds a place; of another field than the text's, their number comes before them.
func (t *building) place(f Field, place int) {
	if f != t.field {
		t.endField()
		t.field, t.number = f, len(t.places)
		t.places = append(t.places, 0)
	}
	t.places = binary.AppendUvarint(t.places, uint64(place-t.last)) //nolint:gosec // places grow
	t.last = place
}

// endField writes the number of the field's places.
func (t *building) endField() {
	if t.field == Text {
		return
	}
	if n := t.counts[t.field]; n < 0x80 {
		t.places[t.number] = byte(n)
	} else {
		t.places = slices.Replace(t.places, t.number, t.number+1, binary.AppendUvarint(nil, uint64(n))...) //nolint:gosec // a count
	}
	t.field = Text
}

// Write gives the part to sink in chunks of ChunkSize and returns its size.
func (b *Builder) Write(sink func(chunk []byte) error) (size int64, err error) {
	w := newWriter(sink)
	slices.SortFunc(b.order, func(a, b named) int {
		if a.begin != b.begin {
			return cmp.Compare(a.begin, b.begin)
		}
		return strings.Compare(a.term, b.term)
	})
	for _, t := range b.order {
		w.term(t.term, &t.list, b.lengths)
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
	filters []byte
	filter  filter // of the block
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
func (w *writer) term(term string, l *list, lengths []byte) {
	head := l.head(lengths)
	shared := 0
	if w.inBlock == 0 {
		w.closeBlock()
		w.index = appendText(w.index, term)
		w.index = binary.AppendUvarint(w.index, uint64(len(w.dict)))
		w.dict = binary.AppendUvarint(w.dict, uint64(w.offset)) //nolint:gosec // an offset
		w.blocks++
	} else {
		for shared < len(term) && shared < len(w.last) && term[shared] == w.last[shared] {
			shared++
		}
	}
	w.filter.add(term[max(0, shared-2):])
	w.dict = binary.AppendUvarint(w.dict, uint64(shared))
	w.dict = appendText(w.dict, term[shared:])
	for _, n := range []int{l.df, len(head) + len(l.docs), len(l.places)} {
		w.dict = binary.AppendUvarint(w.dict, uint64(n)) //nolint:gosec // a length
	}
	w.last, w.inBlock = term, (w.inBlock+1)%blockTerms
	w.write(head)
	w.write(l.docs)
	w.write(l.places)
}

// closeBlock ends a block of the dictionary, if there is one.
func (w *writer) closeBlock() {
	if w.blocks > 0 {
		w.filters = append(w.filters, w.filter[:]...)
		w.filter = filter{}
	}
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
	if w.closeBlock(); w.blocks >= filtered {
		w.index = append(w.index, w.filters...)
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
