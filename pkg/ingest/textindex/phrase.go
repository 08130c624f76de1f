package textindex

import (
	"context"
	"slices"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// lookUpPhrase finds the segments in which the words follow each other.
func (r *ranking) lookUpPhrase(ctx context.Context, c *clause) error {
	words := make([][][]part.Term, len(r.parts)) // by part: the variants of each word
	terms := make([][]part.Term, len(r.parts))
	for i, p := range r.parts {
		words[i] = make([][]part.Term, len(c.Words))
		for w, variants := range c.Words {
			for _, v := range variants {
				t, err := p.Term(ctx, v.Term)
				if err != nil {
					return err
				}
				if t.Segments > 0 {
					words[i][w] = append(words[i][w], t)
				}
			}
		}
		if !slices.ContainsFunc(words[i], func(w []part.Term) bool { return len(w) == 0 }) {
			terms[i] = slices.Concat(words[i]...)
		}
	}
	if err := r.fetchPostings(ctx, terms); err != nil {
		return err
	}
	c.found = make([][]match, len(r.parts))
	total := 0
	for i, p := range r.parts {
		if len(terms[i]) == 0 {
			continue
		}
		var err error
		if c.found[i], err = follow(ctx, p, words[i]); err != nil {
			return err
		}
		total += len(c.found[i])
	}
	c.idf = phraseBonus * r.rarity(total)
	return nil
}

// phraseWord is a word of a phrase: cursors of its variants.
type phraseWord struct {
	cursors  []*part.Cursor
	segments int // at most
	place    int // in the phrase
	places   []int
}

// follow finds the segments of a part in which words follow each other; of each it has the variants.
func follow(ctx context.Context, p *part.Part, phrase [][]part.Term) (out []match, err error) {
	words := make([]*phraseWord, len(phrase))
	for i, variants := range phrase {
		words[i] = &phraseWord{place: i}
		for _, t := range variants {
			c, err := p.Cursor(ctx, t)
			if err != nil {
				return nil, err
			}
			words[i].cursors = append(words[i].cursors, c)
			words[i].segments += t.Segments
		}
	}
	slices.SortStableFunc(words, func(a, b *phraseWord) int { return a.segments - b.segments })
	for ordinal := words[0].ordinal(); ordinal != part.End; {
		next, err := together(ctx, words, ordinal)
		if err != nil {
			return nil, err
		}
		if next == ordinal {
			n, err := begins(ctx, words)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				out = append(out, match{ordinal, float64(n)})
			}
			next++
		}
		if ordinal, err = words[0].seek(ctx, next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ordinal is the first segment that the word stands in from where its cursors are.
func (w *phraseWord) ordinal() int {
	least := part.End
	for _, c := range w.cursors {
		least = min(least, c.Ordinal)
	}
	return least
}

// seek is the first segment that the word stands in from an ordinal on.
func (w *phraseWord) seek(ctx context.Context, ordinal int) (int, error) {
	for _, c := range w.cursors {
		if err := c.Seek(ctx, ordinal); err != nil {
			return 0, err
		}
	}
	return w.ordinal(), nil
}

// together is the segment if all words stand in it, else a later one before which they do not.
func together(ctx context.Context, words []*phraseWord, ordinal int) (int, error) {
	for _, w := range words {
		if at, err := w.seek(ctx, ordinal); err != nil || at != ordinal {
			return at, err
		}
	}
	return ordinal, nil
}

// begins counts the places of the segment at which the phrase begins. All words stand in it.
func begins(ctx context.Context, words []*phraseWord) (int, error) {
	ordinal := words[0].ordinal()
	var starts []int
	for i, w := range words {
		w.places = w.places[:0]
		for _, c := range w.cursors {
			if c.Ordinal != ordinal {
				continue
			}
			var err error
			if w.places, err = c.Places(ctx, w.places); err != nil {
				return 0, err
			}
		}
		if len(w.cursors) > 1 {
			slices.Sort(w.places)
			w.places = slices.Compact(w.places)
		}
		if i == 0 {
			starts = w.places
			for n := range starts {
				starts[n] -= w.place
			}
			continue
		}
		at := 0
		starts = slices.DeleteFunc(starts, func(start int) bool {
			for at < len(w.places) && w.places[at] < start+w.place {
				at++
			}
			return at == len(w.places) || w.places[at] != start+w.place
		})
		if len(starts) == 0 {
			break
		}
	}
	return len(starts), nil
}
