package part

import (
	"container/heap"
	"context"
	"fmt"
)

// Merge writes one part with the segments of several, without those of versions that keep does not want, and without a segment
// that an earlier part has. It returns the part's size, segments and words.
func Merge(ctx context.Context, parts []*Part, keep func(version string) bool, sink func(chunk []byte) error) (size int64, segments int, tokens int64, err error) {
	m := merger{ordinals: make([][]int, len(parts))}
	seen, several := map[Segment]bool{}, inSeveral(parts)
	for i, p := range parts {
		all := p.All()
		m.ordinals[i] = make([]int, len(all))
		for old, s := range all {
			if m.ordinals[i][old] = -1; seen[s] || !keep(s.Version) {
				continue
			}
			if several[s.Version] {
				seen[s] = true
			}
			m.ordinals[i][old] = len(m.segments)
			m.segments = append(m.segments, s)
			m.lengths = append(m.lengths, p.lengths[2*old], p.lengths[2*old+1])
			m.tokens += int64(p.Length(old))
		}
	}
	w := newWriter(sink)
	if err := m.terms(ctx, parts, w); err != nil {
		return 0, 0, 0, err
	}
	size, err = w.close(m.segments, m.lengths, m.tokens)
	return size, len(m.segments), m.tokens, err
}

// inSeveral are the versions that more than one part has segments of.
func inSeveral(parts []*Part) map[string]bool {
	out, first := map[string]bool{}, map[string]int{}
	for i, p := range parts {
		for _, v := range p.Versions() {
			if at, known := first[v]; known && at != i {
				out[v] = true
			}
			first[v] = i
		}
	}
	return out
}

// merger is a merge in work.
type merger struct {
	ordinals [][]int // new ordinals by part and old ordinal; -1: left out
	segments []Segment
	lengths  []byte
	tokens   int64
}

// terms writes all terms.
func (m *merger) terms(ctx context.Context, parts []*Part, w *writer) error {
	var heads heads
	for i, p := range parts {
		h := &head{part: p, number: i}
		if more, err := h.next(ctx); err != nil {
			return err
		} else if more {
			heads = append(heads, h)
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 && w.err == nil {
		term := heads[0].term().Text
		l := newList()
		for len(heads) > 0 && heads[0].term().Text == term {
			h := heads[0]
			if err := m.copy(ctx, &l, h); err != nil {
				return err
			}
			more, err := h.next(ctx)
			if err != nil {
				return err
			}
			if more {
				heap.Fix(&heads, 0)
			} else {
				heap.Pop(&heads)
			}
		}
		if l.df > 0 {
			w.term(term, &l, m.lengths)
		}
	}
	return w.err
}

// copy adds what a part says of its current term.
func (m *merger) copy(ctx context.Context, l *list, h *head) error {
	c, err := h.part.Cursor(ctx, h.term())
	for err == nil && c.Ordinal != End {
		if ordinal := m.ordinals[h.number][c.Ordinal]; ordinal >= 0 {
			var places []byte
			if places, err = c.places(ctx); err != nil {
				break
			}
			l.add(ordinal, c.Value(), places, m.lengths)
		}
		err = c.Next(ctx)
	}
	if err != nil {
		return fmt.Errorf("term %q: %w", h.term().Text, err)
	}
	return nil
}

// head is a part's place in the merge: a few blocks of its dictionary.
type head struct {
	part   *Part
	number int
	block  int
	terms  []Term
	at     int
}

// term is the current term.
func (h *head) term() Term { return h.terms[h.at] }

// next goes to the next term.
func (h *head) next(ctx context.Context) (bool, error) {
	if h.at++; h.at < len(h.terms) {
		return true, nil
	}
	h.at, h.terms = 0, h.terms[:0]
	if h.block == len(h.part.blocks) {
		return false, nil
	}
	h.block++
	err := h.part.scan(ctx, h.block-1, h.block, func(e *Entry) bool {
		h.terms = append(h.terms, e.Term())
		return true
	})
	return len(h.terms) > 0, err
}

// heads is a heap: the least term first, of equal ones that of the first part.
type heads []*head

func (h heads) Len() int { return len(h) }
func (h heads) Less(i, j int) bool {
	if a, b := h[i].term().Text, h[j].term().Text; a != b {
		return a < b
	}
	return h[i].number < h[j].number
}
func (h heads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)   { *h = append(*h, x.(*head)) } //nolint:errcheck // nothing else is pushed
func (h *heads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
