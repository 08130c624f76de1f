package textindex

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"sync"

	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// The traversal looks at a part window by window. In each it knows the most that every clause can add there; clauses that even
// together cannot reach the worst of the best segments so far find no segment of their own (MaxScore: Turtle, Flood 1995), and
// are looked at only where the others find one that may still reach it. The best segments and their scores are those of
// adding up everything.

const (
	// window is how many segments are looked at together.
	window = 4096
	// slack is how much less than the worst of the best a bound must be to count: sums are rounded.
	slack = 1 - 1e-5
)

// windowScores are what a clause adds in a window; zeros while it is not in use.
type windowScores [window]float32

var scorePool = sync.Pool{New: func() any { return new(windowScores) }}

// traversal is the look at one part.
type traversal struct {
	*ranking
	part       *part.Part
	clauses    []*scorer // in the query's order
	wanted     []*scorer // those that are not excluded, by what they can add in the window
	rest       []float64 // what wanted[:i] can add together
	finders    int       // wanted[finders:] find segments
	n          int
	allowed    func(string) bool
	best       *found
	candidates [window / 64]uint64
}

// scorer is a clause in a part.
type scorer struct {
	*clause
	lists    []*scorerList
	matches  []match // of a phrase, from the present place on
	segments int     // at most
	most     float64 // what it can add in the window
	scores   *windowScores
	now      float32 // what it adds to the segment in question
}

// scorerList is one term of a clause.
type scorerList struct {
	weighted
	cursor *part.Cursor
	bounds []float32 // of blocks; nil: there is one
	bound  float32   // of the one
	block  int       // no block before has a segment that is still to come
}

// traverse puts the best segments of all parts into best.
func (r *ranking) traverse(ctx context.Context, n int, allowed func(string) bool, best *found) error {
	order := make([]int, len(r.parts))
	for i := range order {
		order[i] = i
	}
	terms := make([][]part.Term, len(r.parts))
	for _, c := range r.clauses {
		for value := range c.known {
			c.known[value] = c.times(value)
		}
		for i, list := range c.lists {
			for _, t := range list {
				terms[i] = append(terms[i], t.Term)
			}
		}
	}
	if err := r.fetchPostings(ctx, terms); err != nil {
		return err
	}
	slices.SortStableFunc(order, func(a, b int) int { return r.parts[b].Segments() - r.parts[a].Segments() })
	for _, i := range order {
		t := &traversal{ranking: r, part: r.parts[i], n: n, allowed: allowed, best: best}
		if err := t.open(ctx, i); err != nil {
			return err
		}
		if err := t.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open makes the scorers.
func (t *traversal) open(ctx context.Context, number int) error {
	for _, c := range t.ranking.clauses {
		s := &scorer{clause: c}
		if c.found != nil {
			s.matches = c.found[number]
			s.segments = len(s.matches)
		} else {
			for _, term := range c.lists[number] {
				l, err := t.list(ctx, c, term)
				if err != nil {
					return err
				}
				s.lists = append(s.lists, l)
				s.segments += term.Segments
			}
		}
		t.clauses = append(t.clauses, s)
		if !c.Exclude {
			t.wanted = append(t.wanted, s)
		}
	}
	t.rest = make([]float64, len(t.wanted)+1)
	return nil
}

// list opens a term.
func (t *traversal) list(ctx context.Context, c *clause, term weighted) (*scorerList, error) {
	cursor, err := t.part.Cursor(ctx, term.Term)
	if err != nil {
		return nil, err
	}
	l := &scorerList{weighted: term, cursor: cursor}
	score := func(value, length int) float64 {
		if times := l.weight * c.timesOf(value); times > 0 {
			return t.bm25(l.idf, times, length)
		}
		return 0
	}
	if l.bounds = cursor.Bounds(score); l.bounds == nil {
		ordinals, values := cursor.Rest()
		for i, ordinal := range ordinals {
			l.bound = max(l.bound, float32(score(int(values[i]), t.part.Length(int(ordinal)))))
		}
	}
	return l, nil
}

// timesOf is times out of a table.
func (c *clause) timesOf(value int) float64 {
	if value < len(c.known) {
		return c.known[value]
	}
	return c.times(value)
}

// run looks at all windows.
func (t *traversal) run(ctx context.Context) error {
	for from := t.first(0); from < t.part.Segments(); {
		to := min(from+window, t.part.Segments())
		if err := ctx.Err(); err != nil {
			return err
		}
		if t.bound(from, to) {
			if err := t.look(ctx, from, to); err != nil {
				return err
			}
		}
		from = t.first(to)
	}
	return nil
}

// first is the first segment from an ordinal on in which a clause may match.
func (t *traversal) first(from int) int {
	least := part.End
	for _, s := range t.wanted {
		for len(s.matches) > 0 && s.matches[0].ordinal < from {
			s.matches = s.matches[1:]
		}
		if len(s.matches) > 0 {
			least = min(least, s.matches[0].ordinal)
		}
		for _, l := range s.lists {
			least = min(least, l.cursor.Ordinal)
		}
	}
	return max(from, least)
}

// worst is the score below which no segment is wanted.
func (t *traversal) worst() float64 {
	if len(*t.best) < t.n {
		return 0
	}
	return (*t.best)[0].Score
}

// bound finds what the clauses can add in a window, and decides which of them find segments there. false: none can be wanted.
func (t *traversal) bound(from, to int) bool {
	var must *scorer
	for _, s := range t.wanted {
		if s.bound(t.ranking, t.part, from, to); !s.Must {
			continue
		}
		if s.most == 0 {
			return false
		}
		if must == nil || s.segments < must.segments {
			must = s
		}
	}
	slices.SortStableFunc(t.wanted, func(a, b *scorer) int { return cmp.Compare(a.most, b.most) })
	if must != nil { // it alone finds segments
		at := slices.Index(t.wanted, must)
		t.wanted = append(slices.Delete(t.wanted, at, at+1), must)
	}
	worst := t.worst() * slack
	t.finders = 0
	for i, s := range t.wanted {
		t.rest[i+1] = t.rest[i] + s.most
		if t.rest[i+1] < worst || t.rest[i+1] == 0 {
			t.finders = i + 1
		}
	}
	last := len(t.wanted) - 1
	if t.finders > last {
		return false
	}
	if must != nil {
		t.finders = last
	}
	return true
}

// bound finds the most that a clause can add in a window.
func (s *scorer) bound(r *ranking, p *part.Part, from, to int) {
	s.most = 0
	for _, m := range s.matches {
		if m.ordinal >= to {
			break
		}
		s.most = max(s.most, r.bm25(s.idf, m.times, p.Length(m.ordinal)))
	}
	for _, l := range s.lists {
		s.most = max(s.most, float64(l.boundIn(from, to)))
	}
}

// boundIn is the most that a term can count in a window.
func (l *scorerList) boundIn(from, to int) (most float32) {
	switch c := l.cursor; {
	case c.Ordinal >= to:
		return 0
	case l.bounds == nil:
		if c.Last(0) < from {
			return 0
		}
		return l.bound
	default:
		at := l.block
		for at < len(l.bounds) && c.Last(at) < from {
			at++
		}
		l.block = at
		for ; at < len(l.bounds); at++ {
			most = max(most, l.bounds[at])
			if c.Last(at) >= to-1 {
				break
			}
		}
		return most
	}
}

// look offers the segments of a window.
func (t *traversal) look(ctx context.Context, from, to int) error {
	t.candidates = [window / 64]uint64{}
	finders := t.wanted[t.finders:]
	for _, s := range finders {
		s.scores = scorePool.Get().(*windowScores) //nolint:errcheck // nothing else is put
		if err := t.fill(ctx, s, from, to); err != nil {
			return err
		}
	}
	for i, word := range t.candidates {
		for ; word != 0; word &= word - 1 {
			at := i*64 + bits.TrailingZeros64(word)
			for _, s := range finders {
				s.now = s.scores[at]
				s.scores[at] = 0
			}
			if err := t.consider(ctx, from+at); err != nil {
				return err
			}
		}
	}
	for _, s := range finders {
		scorePool.Put(s.scores)
		s.scores = nil
	}
	return nil
}

// fill adds up a clause's part of the window.
func (t *traversal) fill(ctx context.Context, s *scorer, from, to int) error {
	for ; len(s.matches) > 0 && s.matches[0].ordinal < to; s.matches = s.matches[1:] {
		m := s.matches[0]
		t.found(s.scores, m.ordinal-from, t.bm25(s.idf, m.times, t.part.Length(m.ordinal)))
	}
	for _, l := range s.lists {
		c := l.cursor
		if err := c.Seek(ctx, from); err != nil {
			return err
		}
		for c.Ordinal < to {
			ordinals, values := c.Rest()
			n := 0
			for ; n < len(ordinals) && int(ordinals[n]) < to; n++ {
				if times := l.weight * s.timesOf(int(values[n])); times > 0 {
					ordinal := int(ordinals[n])
					t.found(s.scores, ordinal-from, t.bm25(l.idf, times, t.part.Length(ordinal)))
				}
			}
			if err := c.Skip(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// found notes what a clause adds at a place of the window; variants of one word are one word.
func (t *traversal) found(scores *windowScores, at int, score float64) {
	scores[at] = max(scores[at], float32(score))
	t.candidates[at/64] |= 1 << (at % 64)
}

// consider completes the score of a segment that the finders have found, as long as it may be wanted, and offers it.
func (t *traversal) consider(ctx context.Context, ordinal int) error {
	worst, sum := t.worst()*slack, 0.0
	for _, s := range t.wanted[t.finders:] {
		sum += float64(s.now)
	}
	for i := t.finders - 1; i >= 0; i-- {
		if sum+t.rest[i+1] < worst {
			return nil
		}
		s := t.wanted[i]
		if err := t.score(ctx, s, ordinal); err != nil {
			return err
		}
		if s.now == 0 && s.Must {
			return nil
		}
		sum += float64(s.now)
	}
	if sum < worst {
		return nil
	}
	var score float32
	for _, s := range t.clauses {
		if !s.Exclude {
			score += s.now
			continue
		}
		if err := t.score(ctx, s, ordinal); err != nil || s.now > 0 {
			return err
		}
	}
	if float64(score) < t.worst() {
		return nil
	}
	if segment := t.part.Segment(ordinal); t.allowed == nil || t.allowed(segment.Version) {
		t.best.offer(Found{Segment: segment, Score: float64(score)}, t.n)
	}
	return nil
}

// score finds what a clause that has not found the segment itself adds to it.
func (t *traversal) score(ctx context.Context, s *scorer, ordinal int) error {
	s.now = 0
	for len(s.matches) > 0 && s.matches[0].ordinal < ordinal {
		s.matches = s.matches[1:]
	}
	if len(s.matches) > 0 && s.matches[0].ordinal == ordinal {
		s.now = float32(t.bm25(s.idf, s.matches[0].times, t.part.Length(ordinal)))
	}
	for _, l := range s.lists {
		if err := l.cursor.Seek(ctx, ordinal); err != nil {
			return err
		}
		if l.cursor.Ordinal != ordinal {
			continue
		}
		if times := l.weight * s.timesOf(l.cursor.Value()); times > 0 {
			s.now = max(s.now, float32(t.bm25(l.idf, times, t.part.Length(ordinal))))
		}
	}
	return nil
}
