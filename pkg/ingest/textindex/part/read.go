package part

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
)

// Term is an entry of the dictionary.
type Term struct {
	Text      string
	Segments  int // that it stands in
	offset    int64
	docs      int // bytes of its segments
	positions int // bytes of its places, which follow
}

// Term looks a term up. Segments is 0 when the part does not have it.
func (p *Part) Term(ctx context.Context, term string) (out Term, err error) {
	i := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].first > term }) - 1
	if i < 0 {
		return Term{}, nil
	}
	err = p.scan(ctx, i, i+1, func(text []byte, t func() Term) bool {
		order := bytes.Compare(text, []byte(term))
		if order == 0 {
			out = t()
		}
		return order < 0
	})
	return out, err
}

// Prefix returns the terms that begin with a text, at most so many, in byte order.
func (p *Part) Prefix(ctx context.Context, prefix string, most int) (out []Term, err error) {
	from := max(0, sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].first >= prefix })-1)
	err = p.scan(ctx, from, len(p.blocks), func(text []byte, t func() Term) bool {
		switch {
		case strings.HasPrefix(string(text), prefix):
			out = append(out, t())
			return len(out) < most
		default:
			return string(text) < prefix
		}
	})
	return out, err
}

// Scan calls f with every term of the dictionary, in byte order, until it returns false. f does not keep text.
func (p *Part) Scan(ctx context.Context, f func(text []byte, t func() Term) bool) error {
	return p.scan(ctx, 0, len(p.blocks), f)
}

// scanned is how many bytes of a dictionary, or of a whole part, are read at a time.
const scanned = 1 << 20

// scan is Scan of the blocks from–to.
func (p *Part) scan(ctx context.Context, from, to int, f func(text []byte, t func() Term) bool) error {
	for from < to {
		end, n := p.dict, from+1
		for ; n < to && p.blocks[n].offset-p.blocks[from].offset < scanned; n++ {
		}
		if n < len(p.blocks) {
			end = p.blocks[n].offset
		}
		raw, err := p.src.ReadAt(ctx, p.blocks[from].offset, int(end-p.blocks[from].offset))
		if err != nil {
			return fmt.Errorf("dictionary: %w", err)
		}
		if more, err := scanBlocks(raw, f); err != nil || !more {
			return err
		}
		from = n
	}
	return nil
}

// scanBlocks goes through whole blocks.
func scanBlocks(raw []byte, f func(text []byte, t func() Term) bool) (more bool, err error) {
	r := reader{b: raw}
	var text []byte
	var offset int64
	for n := 0; len(r.b) > 0; n++ {
		if n%blockTerms == 0 {
			offset = int64(r.int())
			text = text[:0]
		}
		shared := r.int()
		suffix := r.bytes(r.int())
		if shared > len(text) {
			return false, ErrCorrupt
		}
		text = append(text[:shared], suffix...)
		df, docs, positions := r.int(), r.int(), r.int()
		if r.err != nil {
			return false, r.err
		}
		if !f(text, func() Term {
			return Term{Text: string(text), Segments: df, offset: offset, docs: docs, positions: positions}
		}) {
			return false, nil
		}
		offset += int64(docs + positions)
	}
	return true, nil
}

// Cursor goes through the segments that a term stands in.
type Cursor struct {
	docs, positions reader
	left, segments  int
	Ordinal         int // of the segment; Next sets it
	value           int
}

// Cursor opens a term; places says whether Places is called too.
func (p *Part) Cursor(ctx context.Context, t Term, places bool) (*Cursor, error) {
	n := t.docs
	if places {
		n += t.positions
	}
	raw, err := p.src.ReadAt(ctx, t.offset, n)
	if err != nil {
		return nil, fmt.Errorf("postings: %w", err)
	}
	return &Cursor{docs: reader{b: raw[:t.docs]}, positions: reader{b: raw[t.docs:]}, left: t.Segments, segments: p.segments, Ordinal: -1}, nil
}

// Next goes to the next segment; false after the last one, or when the bytes end.
func (c *Cursor) Next() bool {
	if c.left == 0 || c.docs.err != nil {
		return false
	}
	c.left--
	step := c.docs.int()
	c.value = c.docs.int()
	if c.docs.err == nil && (step < 1 || step >= c.segments-c.Ordinal) { // whoever reads on may trust the ordinal
		c.docs.err = ErrCorrupt
	}
	if c.docs.err != nil {
		return false
	}
	c.Ordinal += step
	return true
}

// Err is what was wrong with the bytes.
func (c *Cursor) Err() error {
	if c.docs.err != nil {
		return c.docs.err
	}
	return c.positions.err
}

// In reports how often the term stands in the segment's text, or whether it stands in the heading or title (0 or 1).
func (c *Cursor) In(f Field) int {
	switch f {
	case Title:
		return c.value & titleBit
	case Heading:
		return c.value & headingBit / headingBit
	default:
		return c.value >> fieldBits
	}
}

// places are the encoded places of the segment; it is called once for each segment, in their order.
func (c *Cursor) places() []byte { return c.positions.bytes(c.positions.int()) }

// Places are where in the segment the term stands: places of other terms that differ by one are beside them. It is called
// once for each segment.
func (c *Cursor) Places() (out []int) {
	r, last := reader{b: c.places()}, 0
	for len(r.b) > 0 && r.err == nil {
		last += r.int()
		out = append(out, last)
	}
	return out
}
