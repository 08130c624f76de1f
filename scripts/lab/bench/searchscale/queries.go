package searchscale

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// kinds are the sorts of queries, and how many of ten are of each.
var kinds = []struct {
	name  string
	share int
	make  func(s *speaker, document int) string
}{
	{"words", 5, func(s *speaker, _ int) string {
		ranks := []int{s.r.IntN(len(s.small) + 200), 200 + s.r.IntN(5_000), 5_000 + s.r.IntN(60_000), s.r.IntN(2_000)}
		s.r.Shuffle(len(ranks), func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
		var words []string
		for _, rank := range ranks[:2+s.r.IntN(3)] {
			words = append(words, s.word(rank))
		}
		return strings.Join(words, " ")
	}},
	{"phrase", 1, func(s *speaker, document int) string {
		words := strings.Fields(s.piece(document))
		at := s.r.IntN(len(words) - 3)
		return `"` + strings.Join(words[at:at+2+s.r.IntN(2)], " ") + `"`
	}},
	{"prefix", 1, func(s *speaker, _ int) string {
		word := []rune(s.word(500 + s.r.IntN(20_000)))
		return s.word(200+s.r.IntN(5_000)) + " " + string(word[:min(len(word), 4)]) + "*"
	}},
	{"misspelt", 1, func(s *speaker, _ int) string {
		word := []rune(s.word(1_000 + s.r.IntN(30_000)))
		at := s.r.IntN(len(word) - 1)
		if word[at], word[at+1] = word[at+1], word[at]; word[at] == word[at+1] {
			word = slices.Delete(word, at, at+1)
		}
		return string(word) + " " + s.word(200+s.r.IntN(5_000))
	}},
	{"without spaces", 1, func(s *speaker, document int) string {
		text := []rune(s.piece(document))
		at := s.r.IntN(len(text) - 10)
		return strings.Trim(string(text[at:at+3+s.r.IntN(6)]), "。 ")
	}},
	{"code", 1, func(s *speaker, document int) string {
		words := strings.Fields(s.piece(document))
		at := slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, "INV-") })
		return words[max(0, at)]
	}},
}

// piece is the text of one of a document's segments.
func (s *speaker) piece(number int) string { return document(0, number)[3*s.r.IntN(3)].Text }

// queries makes n queries of a kind, or of all, for a base of so many documents.
func queries(kind string, n, documents int) []string {
	r := rand.New(rand.NewPCG(19, uint64(len(kind)))) //nolint:gosec // the same queries each time
	var out []string
	for len(out) < n {
		for _, k := range kinds {
			for i := 0; i < k.share && len(out) < n && (kind == "" || kind == k.name); i++ {
				number := r.IntN(documents)
				number -= number % len(tongues)
				number += r.IntN(4)
				if k.name == "without spaces" {
					number += (4 + r.IntN(2)) - number%len(tongues)
				}
				number = min(number, documents-1)
				out = append(out, k.make(newSpeaker(tongues[number%len(tongues)], r.Uint64()), number))
			}
		}
	}
	return out
}
