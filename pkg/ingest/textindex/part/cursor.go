package part

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sort"
)

// End is the ordinal of a Cursor behind the last segment.
const End = math.MaxInt

// readTogether is how many blocks of postings are read with one call when they are read one after the other.
const readTogether = 128

// Cursor goes through the segments that a term stands in, in order. It reads a block when it gets there.
type Cursor struct {
	// Ordinal is the segment's; End behind the last one.
	Ordinal int
	part    *Part
	term    Term
	blocks  []blockAt
	peaks   []byte // of all blocks, encoded
	docs    int64  // where the first block begins
	at      int    // the block
	index   int    // in it
	n       int    // of its segments
	raw     []byte // bytes that were read
	rawFrom int    // the first block in them, and
	rawTo   int    // the one behind
	left    []byte // what is left of the block's places
	passed  int    // segments of the block whose places were passed; -1: they are not read
	decoded
}

// blockAt says where a block of postings is.
type blockAt struct {
	last         int // ordinal
	docs, places int // where they begin, from the first block's on
	peaks        int // where in the encoded ones
}

// Cursor opens a term at its first segment.
func (p *Part) Cursor(ctx context.Context, t Term) (*Cursor, error) {
	c := &Cursor{part: p, term: t, docs: t.offset, rawFrom: -1}
	if t.Segments < 1 || t.Segments > p.segments {
		return nil, ErrCorrupt
	}
	if t.Segments > blockSize {
		if err := c.readTable(ctx); err != nil {
			return nil, err
		}
	} else {
		c.blocks = []blockAt{{last: -1}}
	}
	return c, c.open(ctx, 0)
}

// readTable reads where the blocks are.
func (c *Cursor) readTable(ctx context.Context) error {
	raw, err := c.part.src.ReadAt(ctx, c.term.offset, min(c.term.docs, binary.MaxVarintLen64))
	if err != nil {
		return fmt.Errorf("postings: %w", err)
	}
	r := reader{b: raw}
	size := r.int()
	begin := len(raw) - len(r.b)
	if r.err != nil || begin+size > c.term.docs {
		return ErrCorrupt
	}
	if raw, err = c.part.src.ReadAt(ctx, c.term.offset+int64(begin), size); err != nil {
		return fmt.Errorf("postings: %w", err)
	}
	c.docs += int64(begin + size)
	c.peaks = raw
	one, r := blockAt{last: -1}, reader{b: raw}
	n := (c.term.Segments + blockSize - 1) / blockSize
	if n > size {
		return ErrCorrupt
	}
	c.blocks = make([]blockAt, n)
	for i := range c.blocks {
		one.last += r.int()
		docs, places := r.int(), r.int()
		one.peaks = size - len(r.b)
		c.blocks[i] = one
		one.docs, one.places = one.docs+docs, one.places+places
		for range r.int() >> fieldBits {
			r.int()
			r.int()
			if r.err != nil {
				return r.err
			}
		}
	}
	if r.err != nil || one.docs != c.term.docs-begin-size || one.places != c.term.positions || one.last >= c.part.segments {
		return ErrCorrupt
	}
	return nil
}

// Bounds returns of each block the most that f makes of its peaks, with its title and heading bits as a value without a text;
// nil when there is one block only.
func (c *Cursor) Bounds(f func(value, length int) float64) []float32 {
	if c.peaks == nil {
		return nil
	}
	out := make([]float32, len(c.blocks))
	for i, b := range c.blocks {
		r := reader{b: c.peaks[b.peaks:]}
		n := r.int()
		bits, most := n&(1<<fieldBits-1), 0.0
		for range n >> fieldBits {
			times := r.int()
			most = max(most, f(times<<fieldBits|bits, r.int()))
		}
		out[i] = math.Nextafter32(float32(most), math.MaxFloat32)
	}
	return out
}

// Block is the number of the block that the cursor is in, or of the first behind it that has a segment from an ordinal on, and
// the block's last segment. Nothing is read. Behind the last block it is their number, and End.
func (c *Cursor) Block(ordinal int) (number, last int) {
	at := c.at
	if c.Ordinal == End {
		return len(c.blocks), End
	}
	if len(c.blocks) > 1 && c.blocks[at].last < ordinal {
		step := 1
		for at+step < len(c.blocks) && c.blocks[at+step].last < ordinal {
			at += step
			step *= 2
		}
		end := min(at+step, len(c.blocks))
		at++
		at += sort.Search(end-at, func(i int) bool { return c.blocks[at+i].last >= ordinal })
		if at == len(c.blocks) {
			return at, End
		}
	}
	return at, c.blocks[at].last
}

// Last is the last segment of a block.
func (c *Cursor) Last(block int) int { return c.blocks[block].last }

// Blocks are how many there are.
func (c *Cursor) Blocks() int { return len(c.blocks) }

// docsEnd is where a block ends.
func (c *Cursor) docsEnd(block int) int {
	if block+1 < len(c.blocks) {
		return c.blocks[block+1].docs
	}
	return c.term.docs - int(c.docs-c.term.offset)
}

// open goes to the first segment of a block.
func (c *Cursor) open(ctx context.Context, block int) error {
	if block >= len(c.blocks) {
		c.Ordinal = End
		return nil
	}
	if c.rawFrom < 0 || block < c.rawFrom || block >= c.rawTo {
		together := 1
		if c.rawFrom >= 0 && block == c.rawTo {
			together = min(readTogether, 2*(c.rawTo-c.rawFrom))
		}
		to := min(block+together, len(c.blocks))
		begin := c.blocks[block].docs
		raw, err := c.part.src.ReadAt(ctx, c.docs+int64(begin), c.docsEnd(to-1)-begin)
		if err != nil {
			return fmt.Errorf("postings: %w", err)
		}
		c.raw, c.rawFrom, c.rawTo = raw, block, to
	}
	after := -1
	if block > 0 {
		after = c.blocks[block-1].last
	}
	c.at, c.index, c.n, c.passed = block, 0, min(blockSize, c.term.Segments-block*blockSize), -1
	base := c.blocks[c.rawFrom].docs
	if err := c.decode(c.raw[c.blocks[block].docs-base:c.docsEnd(block)-base], after, c.n, c.part.segments); err != nil {
		return err
	}
	last := int(c.ordinals[c.n-1])
	if len(c.blocks) == 1 {
		c.blocks[0].last = last
	} else if c.blocks[block].last != last {
		return ErrCorrupt
	}
	c.Ordinal = int(c.ordinals[0])
	return nil
}

// Next goes to the next segment.
func (c *Cursor) Next(ctx context.Context) error {
	if c.index++; c.index == c.n {
		return c.open(ctx, c.at+1)
	}
	c.Ordinal = int(c.ordinals[c.index])
	return nil
}

// Seek goes to the first segment from an ordinal on; never back.
func (c *Cursor) Seek(ctx context.Context, ordinal int) error {
	if c.Ordinal >= ordinal {
		return nil
	}
	if block, _ := c.Block(ordinal); block != c.at {
		if err := c.open(ctx, block); err != nil || c.Ordinal >= ordinal {
			return err
		}
	}
	i := c.index + 1
	for i+8 < c.n && int(c.ordinals[i+8]) < ordinal {
		i += 8
	}
	for i < c.n && int(c.ordinals[i]) < ordinal {
		i++
	}
	if c.index = i; i == c.n {
		return c.open(ctx, c.at+1)
	}
	c.Ordinal = int(c.ordinals[i])
	return nil
}

// Rest are the segments of the block from the present one on, with their values.
func (c *Cursor) Rest() (ordinals, values []uint32) {
	return c.ordinals[c.index:c.n], c.values[c.index:c.n]
}

// Skip goes so many segments on, at most to the first of the next block.
func (c *Cursor) Skip(ctx context.Context, n int) error {
	c.index += n - 1
	return c.Next(ctx)
}

// Value says how often the term stands where in the segment.
func (c *Cursor) Value() int { return int(c.values[c.index]) }

// In reports how often a term of a value stands in the segment's text, or whether it stands in the heading or title (0 or 1).
func In(value int, f Field) int {
	switch f {
	case Title:
		return value & titleBit
	case Heading:
		return value & headingBit / headingBit
	default:
		return value >> fieldBits
	}
}

// places are the encoded places of the segment; they are asked for once for a segment, in order.
func (c *Cursor) places(ctx context.Context) ([]byte, error) {
	if c.term.positions == 0 {
		return nil, nil
	}
	if c.passed < 0 {
		begin, end := c.blocks[c.at].places, c.term.positions
		if c.at+1 < len(c.blocks) {
			end = c.blocks[c.at+1].places
		}
		raw, err := c.part.src.ReadAt(ctx, c.term.offset+int64(c.term.docs+begin), end-begin)
		if err != nil {
			return nil, fmt.Errorf("places: %w", err)
		}
		c.left, c.passed = raw, 0
	}
	for ; ; c.passed++ {
		size := placesSize(c.left, int(c.values[c.passed]))
		if size < 0 {
			return nil, ErrCorrupt
		}
		one := c.left[:size]
		c.left = c.left[size:]
		if c.passed == c.index {
			c.passed++
			return one, nil
		}
	}
}

// placesSize is how many bytes the places of a segment of a value have; -1 when they end before.
func placesSize(raw []byte, value int) int {
	at := pass(raw, 0, value>>fieldBits)
	for _, bit := range []int{headingBit, titleBit} {
		if value&bit == 0 || at < 0 {
			continue
		}
		r := reader{b: raw[at:]}
		n := r.int()
		if r.err != nil {
			return -1
		}
		at = pass(raw, len(raw)-len(r.b), n)
	}
	return at
}

// pass is where the n numbers from at on end; -1 when there are fewer.
func pass(raw []byte, at, n int) int {
	for n > 0 && at < len(raw) {
		if raw[at] < 0x80 {
			n--
		}
		at++
	}
	if n > 0 {
		return -1
	}
	return at
}

// Places appends where in the segment the term stands: places of other terms that differ by one are beside them. It is called
// once for a segment.
func (c *Cursor) Places(ctx context.Context, to []int) ([]int, error) {
	raw, err := c.places(ctx)
	if err != nil || raw == nil {
		return to, err
	}
	r, value, last := reader{b: raw}, c.Value(), 0
	take := func(n int) {
		for ; n > 0 && r.err == nil; n-- {
			last += r.int()
			to = append(to, last)
		}
	}
	take(value >> fieldBits)
	for _, bit := range []int{headingBit, titleBit} {
		if value&bit != 0 {
			take(r.int())
		}
	}
	return to, r.err
}
