package part

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sort"
)

// Term is an entry of the dictionary.
type Term struct {
	Text      string
	Segments  int // that it stands in
	offset    int64
	docs      int // bytes of its segments
	positions int // bytes of its places, which follow
}

// Span is a range of a part's bytes.
type Span struct {
	Offset int64
	Size   int
}

// Span is what a Cursor reads of the term's postings at first.
func (t Term) Span() Span { return Span{t.offset, min(t.docs, ChunkSize)} }

// Span is what Term reads; its Size is 0 when the part does not have the term.
func (p *Part) Span(term string) Span {
	if i := p.holder(term); i >= 0 {
		return p.spanOf(i, i+1)
	}
	return Span{}
}

// PrefixSpan is what Prefix reads at first.
func (p *Part) PrefixSpan(prefix string) Span {
	i := max(0, p.block(prefix)-1)
	return p.spanOf(i, min(i+1, len(p.blocks)))
}

// spanOf is where the blocks from–to of the dictionary are.
func (p *Part) spanOf(from, to int) Span {
	if from == to {
		return Span{}
	}
	begin, end := p.blocks[from].offset, p.dict
	if to < len(p.blocks) {
		end = p.blocks[to].offset
	}
	return Span{begin, int(end - begin)}
}

// holder is the block of the dictionary that has a term if any has; -1: none has.
func (p *Part) holder(term string) int {
	i := sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].first > term }) - 1
	if i < 0 || !p.mayHave(i, term) {
		return -1
	}
	return i
}

// Term looks a term up. Segments is 0 when the part does not have it.
func (p *Part) Term(ctx context.Context, term string) (out Term, err error) {
	i := p.holder(term)
	if i < 0 {
		return Term{}, nil
	}
	err = p.scan(ctx, i, i+1, func(e *Entry) bool {
		order := bytes.Compare(e.Text, []byte(term))
		if order == 0 {
			out = e.Term()
		}
		return order < 0
	})
	return out, err
}

// Prefix returns the terms that begin with a text, at most so many, in byte order.
func (p *Part) Prefix(ctx context.Context, prefix string, most int) (out []Term, err error) {
	err = p.From(ctx, prefix, func(e *Entry) bool {
		if !bytes.HasPrefix(e.Text, []byte(prefix)) {
			return false
		}
		out = append(out, e.Term())
		return len(out) < most
	})
	return out, err
}

// From calls f with the terms of the dictionary from one on, in byte order, until it returns false.
func (p *Part) From(ctx context.Context, term string, f func(e *Entry) bool) error {
	return p.scan(ctx, max(0, p.block(term)-1), len(p.blocks), func(e *Entry) bool {
		return string(e.Text) < term || f(e)
	})
}

// block is the first block of the dictionary that begins with a term or a later one.
func (p *Part) block(term string) int {
	return sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i].first >= term })
}

// Between is about how many terms there are from one to another, at least one.
func (p *Part) Between(from, to string) int { return blockTerms * (1 + p.block(to) - p.block(from)) }

// Entry is an entry of the dictionary while it is gone through. Nobody keeps it or its text.
type Entry struct {
	Text            []byte
	segments        int
	offset          int64
	docs, positions int
}

// Term is the entry to keep.
func (e *Entry) Term() Term {
	return Term{Text: string(e.Text), Segments: e.segments, offset: e.offset, docs: e.docs, positions: e.positions}
}

// Scan calls f with every term of the dictionary, in byte order, until it returns false.
func (p *Part) Scan(ctx context.Context, f func(e *Entry) bool) error {
	return p.scan(ctx, 0, len(p.blocks), f)
}

// mayHave tells whether the filter of a block of the dictionary lets a text through.
func (p *Part) mayHave(block int, text string) bool {
	if len(p.blocks) < filtered {
		return true
	}
	var want filter
	want.add(text)
	return want.in(p.filters[block*filterSize:])
}

// Containing calls f with the terms of the dictionary that contain a text, in byte order.
func (p *Part) Containing(ctx context.Context, text string, f func(e *Entry)) error {
	var want filter
	want.add(text)
	within := func(e *Entry) bool {
		if bytes.Contains(e.Text, []byte(text)) {
			f(e)
		}
		return true
	}
	if len(p.blocks) < filtered {
		return p.scan(ctx, 0, len(p.blocks), within)
	}
	for i := range p.blocks {
		if !want.in(p.filters[i*filterSize:]) {
			continue
		}
		if err := p.scan(ctx, i, i+1, within); err != nil {
			return err
		}
	}
	return nil
}

// filterSize is how many bytes a filter has.
const filterSize = 128

// filter says which three bytes a text has that follow each other, and more of them that it has not.
type filter [filterSize]byte

// add adds a text.
func (f *filter) add(text string) {
	for i := 2; i < len(text); i++ {
		h := (uint32(text[i-2]) | uint32(text[i-1])<<8 | uint32(text[i])<<16) * 0x9E3779B1 >> 22
		f[h/8] |= 1 << (h % 8)
	}
}

// in tells whether another filter has all that this one has.
func (f *filter) in(other []byte) bool {
	for i := 0; i < filterSize; i += 8 {
		want := binary.LittleEndian.Uint64(f[i:])
		if want&^binary.LittleEndian.Uint64(other[i:]) != 0 {
			return false
		}
	}
	return true
}

// scanned is how many bytes of a dictionary, or of a whole part, are read at a time, at most.
const scanned = 1 << 20

// scan is Scan of the blocks from–to; one block is read alone, more some at a time.
func (p *Part) scan(ctx context.Context, from, to int, f func(e *Entry) bool) error {
	for size := int64(1); from < to; size = min(scanned, max(4<<10, 4*size)) {
		n := from + 1
		for ; n < to && p.blocks[n].offset-p.blocks[from].offset < size; n++ {
		}
		span := p.spanOf(from, n)
		raw, err := p.src.ReadAt(ctx, span.Offset, span.Size)
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
func scanBlocks(raw []byte, f func(e *Entry) bool) (more bool, err error) {
	r := reader{b: raw}
	e := Entry{Text: make([]byte, 0, 256)}
	for n := 0; len(r.b) > 0; n++ {
		if n%blockTerms == 0 {
			e.offset = int64(r.int())
			e.Text = e.Text[:0]
		}
		shared := r.int()
		suffix := r.bytes(r.int())
		if shared > len(e.Text) {
			return false, ErrCorrupt
		}
		e.Text = append(e.Text[:shared], suffix...)
		e.segments, e.docs, e.positions = r.int(), r.int(), r.int()
		if r.err != nil {
			return false, r.err
		}
		if !f(&e) {
			return false, nil
		}
		e.offset += int64(e.docs + e.positions)
	}
	return true, nil
}
