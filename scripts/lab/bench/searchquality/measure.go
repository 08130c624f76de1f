package searchquality

import (
	"math"
	"slices"
	"strings"
)

// depth is how many hits of a search are judged.
const depth = 10

// Measures say how well questions were answered; each is a mean over them.
type Measures struct {
	Questions                  int
	Recall1, Recall5, Recall   float64 // share of the questions whose answer is the first, among the first 5, the first 10
	ReciprocalRank, Discounted float64 // MRR@10 and nDCG@10
}

// add counts a question whose answer has a rank, from 1; 0: it is not among the first ten.
func (m *Measures) add(rank int) {
	m.Questions++
	if rank == 0 {
		return
	}
	m.Recall++
	if rank == 1 {
		m.Recall1++
	}
	if rank <= 5 {
		m.Recall5++
	}
	m.ReciprocalRank += 1 / float64(rank)
	m.Discounted += 1 / math.Log2(float64(rank)+1) // one segment is relevant: the ideal is 1
}

// mean divides the sums.
func (m *Measures) mean() {
	if n := float64(m.Questions); n > 0 {
		m.Recall1, m.Recall5, m.Recall, m.ReciprocalRank, m.Discounted = m.Recall1/n, m.Recall5/n, m.Recall/n, m.ReciprocalRank/n, m.Discounted/n
	}
}

// rank is the place of the first text with the answer, from 1; 0: none of the first ten has it.
func (q Question) rank(found []string) int {
	found = found[:min(len(found), depth)]
	answer := squeeze(q.Answer)
	return 1 + slices.IndexFunc(found, func(text string) bool { return strings.Contains(squeeze(text), answer) })
}

// squeeze is a text without spaces: a splitter may put others in their place.
func squeeze(text string) string { return strings.Join(strings.Fields(text), "") }

// Searcher returns the texts of the segments that a query finds, best first.
type Searcher func(query string) ([]string, error)

// Ask asks all questions and returns for each the rank of its answer.
func (s Set) Ask(search Searcher) ([]int, error) {
	ranks := make([]int, len(s.Questions))
	for i, q := range s.Questions {
		found, err := search(q.Query)
		if err != nil {
			return nil, err
		}
		ranks[i] = q.rank(found)
	}
	return ranks, nil
}

// Measure sums the ranks of those questions up that are chosen.
func (s Set) Measure(ranks []int, chosen func(Question) bool) (m Measures) {
	for i, q := range s.Questions {
		if chosen(q) {
			m.add(ranks[i])
		}
	}
	m.mean()
	return m
}
