package part

import (
	"encoding/binary"
	"slices"
)

// onceInText is the value of a segment in whose text a term stands once, and nowhere else.
const onceInText = 1 << fieldBits

// list is what a part says of one term, as it is written.
type list struct {
	df           int
	last         int // ordinal
	docs, places []byte
	table        []byte // of the blocks that are full
	begin        ends   // where the block in work begins
}

// ends are where a block ends: its last segment, its bytes.
type ends struct{ ordinal, docs, places int }

func newList() list { return list{last: -1, begin: ends{ordinal: -1}} }

// add adds a segment with its encoded places, if they are not there yet. lengths are those of all segments so far.
func (l *list) add(ordinal, value int, places, lengths []byte) {
	l.df++
	step := uint64(ordinal-l.last) << 1 //nolint:gosec // ordinals grow
	if value == onceInText {
		l.docs = binary.AppendUvarint(l.docs, step|1)
	} else {
		l.docs = binary.AppendUvarint(l.docs, step)
		l.docs = binary.AppendUvarint(l.docs, uint64(value)) //nolint:gosec // a count
	}
	l.places = append(l.places, places...)
	l.last = ordinal
	if l.df%blockSize == 0 {
		l.closeBlock(lengths)
	}
}

// closeBlock adds a row to the table.
func (l *list) closeBlock(lengths []byte) {
	var b decoded
	n := (l.df-1)%blockSize + 1
	_ = b.decode(l.docs[l.begin.docs:], l.begin.ordinal, n, len(lengths)/2) // it was just encoded
	for _, n := range []int{l.last - l.begin.ordinal, len(l.docs) - l.begin.docs, len(l.places) - l.begin.places} {
		l.table = binary.AppendUvarint(l.table, uint64(n)) //nolint:gosec // a length
	}
	l.table = appendPeaks(l.table, b.values[:n], func(i int) int {
		return int(binary.LittleEndian.Uint16(lengths[2*b.ordinals[i]:]))
	})
	l.begin = ends{l.last, len(l.docs), len(l.places)}
}

// head is what comes before the segments: the table, if there is more than one block.
func (l *list) head(lengths []byte) []byte {
	if l.df <= blockSize {
		return nil
	}
	if l.df%blockSize > 0 {
		l.closeBlock(lengths)
	}
	return append(binary.AppendUvarint(nil, uint64(len(l.table))), l.table...) //nolint:gosec // a length
}

// Peak bounds segments: the term stands in the text of none more often, and none is shorter.
type Peak struct{ Times, Length int }

// appendPeaks adds the peaks of a block.
func appendPeaks(to []byte, values []uint32, length func(i int) int) []byte {
	all := make([]Peak, len(values))
	bits := 0
	for i, v := range values {
		all[i] = Peak{int(v >> fieldBits), length(i)}
		bits |= int(v & (1<<fieldBits - 1))
	}
	slices.SortFunc(all, func(a, b Peak) int {
		if a.Times != b.Times {
			return b.Times - a.Times
		}
		return a.Length - b.Length
	})
	peaks := all[:1]
	for _, p := range all[1:] {
		if p.Length < peaks[len(peaks)-1].Length {
			peaks = append(peaks, p)
		}
	}
	for len(peaks) > mostPeaks { // the two that lose least by becoming one
		best, loss := 0, 1<<30
		for i := range len(peaks) - 1 {
			if n := (peaks[i].Times - peaks[i+1].Times + 1) * (peaks[i].Length - peaks[i+1].Length); n < loss {
				best, loss = i, n
			}
		}
		peaks[best].Length = peaks[best+1].Length
		peaks = slices.Delete(peaks, best+1, best+2)
	}
	to = binary.AppendUvarint(to, uint64(len(peaks)<<fieldBits|bits)) //nolint:gosec // a count
	for _, p := range peaks {
		to = binary.AppendUvarint(to, uint64(p.Times))  //nolint:gosec // a count
		to = binary.AppendUvarint(to, uint64(p.Length)) //nolint:gosec // a count
	}
	return to
}

// decoded are the segments of a block.
type decoded struct {
	ordinals, values [blockSize]uint32
}

// decode reads n segments that come after another. There are so many segments in the part: whoever reads on may trust the ordinals.
func (d *decoded) decode(raw []byte, after, n, segments int) error {
	at, ordinal := 0, after
	for i := range n {
		if at+1 < len(raw) {
			x, y := int(raw[at]), int(raw[at+1])
			once := -(x & 1) // all bits set, or none
			if (x|y&^once)&0x80 == 0 && x > 1 {
				ordinal += x >> 1
				d.ordinals[i] = uint32(ordinal)                 //nolint:gosec // checked below
				d.values[i] = uint32(onceInText&once | y&^once) //nolint:gosec // a byte
				at += 2 + once
				continue
			}
		}
		r := reader{b: raw[min(at, len(raw)):]}
		x, value := r.int(), onceInText
		if x&1 == 0 {
			value = r.int()
		}
		if r.err != nil || x < 2 || x>>1 >= segments-ordinal || value > 1<<30 {
			return ErrCorrupt
		}
		ordinal += x >> 1
		d.ordinals[i], d.values[i] = uint32(ordinal), uint32(value) //nolint:gosec // checked
		at = len(raw) - len(r.b)
	}
	if ordinal >= segments {
		return ErrCorrupt
	}
	return nil
}
