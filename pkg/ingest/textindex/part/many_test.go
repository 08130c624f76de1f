//go:build !race

// The tests of this file compute, each in one goroutine: under the race detector that takes fifty times as long and finds
// nothing.

package part_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// many are segments enough for several windows and for lists of many blocks, in three parts of which two are merged.
func many(t *testing.T, segments int) (docs []doc, parts []*part.Part) {
	t.Helper()
	r := rand.New(rand.NewPCG(17, 3)) //nolint:gosec // the same texts each time
	words := func(n int) (out []string) {
		for range n {
			out = append(out, fmt.Sprintf("w%dx", r.IntN(1+r.IntN(1+r.IntN(1+r.IntN(4000))))))
		}
		return out
	}
	for i := range segments {
		d := doc{version: fmt.Sprintf("version-%06d", i/20), index: i % 20, text: words(2 + r.IntN(20)), heading: words(r.IntN(2))}
		if i%20 == 0 {
			d.title = words(2)
		}
		if i/200%7 == 0 { // others in places: a bound may pass a window over
			d.text = append(d.text, fmt.Sprintf("p%dx", i/200), fmt.Sprintf("p%dx", i/200))
		}
		docs = append(docs, d)
	}
	cut, again := segments/2/20*20, segments/4*3/20*20
	all := func(string) bool { return true }
	return docs, []*part.Part{
		merged(t, []*part.Part{built(t, docs[:cut]), built(t, docs[cut:again])}, all), built(t, docs[again:]),
	}
}

// has tells whether a segment has a word.
func (d doc) has(word string) bool {
	return slices.Contains(d.text, word) || slices.Contains(d.heading, word) || slices.Contains(d.title, word)
}

// The ten best of many segments, most of which are passed over, are those of the plain formula; with words that must be there or
// must not too.
func TestTheBestOfManyAreThoseOfPlainBM25(t *testing.T) {
	t.Parallel()
	const best = 10
	docs, parts := many(t, 14_000)
	r := rand.New(rand.NewPCG(17, 4)) //nolint:gosec // the same queries each time
	some := func() string {
		d := docs[r.IntN(len(docs))]
		return d.text[r.IntN(len(d.text))]
	}
	for range 80 {
		var words, query []string
		must, never := "", ""
		for range 1 + r.IntN(4) {
			words = append(words, some())
		}
		slices.Sort(words)
		words = slices.Compact(words)
		query = slices.Clone(words)
		if r.IntN(3) == 0 {
			must = words[0]
			query[0] = "+" + must
		}
		if r.IntN(3) == 0 {
			if never = some(); slices.Contains(words, never) {
				never = ""
			} else {
				query = append(query, "-"+never)
			}
		}
		scores := naive(docs, words)
		var want []string
		for _, d := range docs {
			if k := key(d.version, d.index); scores[k] > 0 && (must == "" || d.has(must)) && (never == "" || !d.has(never)) {
				want = append(want, k)
			}
		}
		slices.SortFunc(want, func(a, b string) int { return cmp.Or(-cmp.Compare(scores[a], scores[b]), cmp.Compare(a, b)) })
		got, err := textindex.SearchParts(context.Background(), parts, strings.Join(query, " "), best, nil)
		require.NoError(t, err)
		require.Len(t, got.Found, min(best, len(want)), query)
		for i, f := range got.Found {
			require.InDelta(t, scores[want[i]], f.Score, 1e-4, "place %d of %v", i, query)
			require.InDelta(t, scores[key(f.Version, f.Index)], f.Score, 1e-4, "place %d of %v", i, query)
		}
	}
}

// A phrase is found exactly where its words follow each other, however many segments have them all.
func TestAPhraseIsFoundWhereItStands(t *testing.T) {
	t.Parallel()
	docs, parts := many(t, 3000)
	r := rand.New(rand.NewPCG(17, 5)) //nolint:gosec // the same queries each time
	for range 60 {
		text := docs[r.IntN(len(docs))].text
		at := r.IntN(len(text) - 1)
		phrase := text[at:min(len(text), at+2+r.IntN(2))]
		follows := func(words []string) bool {
			for i := 0; i+len(phrase) <= len(words); i++ {
				if slices.Equal(words[i:i+len(phrase)], phrase) {
					return true
				}
			}
			return false
		}
		want := 0
		for _, d := range docs {
			if follows(d.text) || follows(d.heading) || follows(d.title) {
				want++
			}
		}
		got, err := textindex.SearchParts(context.Background(), parts, `"`+strings.Join(phrase, " ")+`"`, len(docs), nil)
		require.NoError(t, err)
		require.Len(t, got.Found, want, phrase)
	}
}

// letters are what words of the tests of corrections are made of; the first eight, of languages without stems.
var letters = []rune("აბგδεζθב語한")

// spelt is a part with many words, and how many segments have which.
func spelt(t *testing.T, words int) (p *part.Part, segments map[string]int) {
	t.Helper()
	r := rand.New(rand.NewPCG(17, 6)) //nolint:gosec // the same words each time
	segments = map[string]int{}
	var texts [][]string
	for i := range words {
		var word []rune
		for range 4 + r.IntN(3) {
			word = append(word, letters[r.IntN(8)])
		}
		if i%50 == 0 {
			texts = append(texts, nil)
		}
		texts[len(texts)-1] = append(texts[len(texts)-1], string(word))
	}
	var docs []doc
	for i, text := range texts {
		docs = append(docs, doc{version: "version", index: i, text: text})
		slices.Sort(text)
		for _, w := range slices.Compact(slices.Clone(text)) {
			segments[w]++
		}
	}
	return built(t, docs), segments
}

// edits are all words that are one edit away.
func edits(word string) map[string]bool {
	out, w := map[string]bool{}, []rune(word)
	for i := range len(w) + 1 {
		before := string(w[:i])
		for _, c := range letters {
			out[before+string(c)+string(w[i:])] = true
			if i < len(w) {
				out[before+string(c)+string(w[i+1:])] = true
			}
		}
		if i < len(w) {
			out[before+string(w[i+1:])] = true
		}
		if i+1 < len(w) {
			out[before+string(w[i+1])+string(w[i])+string(w[i+2:])] = true
		}
	}
	delete(out, word)
	return out
}

// A word that no segment has is corrected by the most frequent of all words that are one edit away, wherever the edit is.
func TestTheNearestWordStandsIn(t *testing.T) {
	t.Parallel()
	p, segments := spelt(t, 9000)
	r := rand.New(rand.NewPCG(17, 7)) //nolint:gosec // the same queries each time
	known := 0
	for range 400 {
		var word []rune
		for range 4 + r.IntN(4) {
			word = append(word, letters[r.IntN(8)])
		}
		if segments[string(word)] > 0 {
			continue
		}
		most := 0
		near := edits(string(word))
		for w := range near {
			most = max(most, segments[w])
		}
		got, err := textindex.SearchParts(context.Background(), []*part.Part{p}, string(word), 3, nil)
		require.NoError(t, err)
		if most == 0 {
			require.Empty(t, got.Suggestion, string(word))
			continue
		}
		known++
		require.True(t, near[got.Suggestion], "%s is not near %s", got.Suggestion, string(word))
		require.Equal(t, most, segments[got.Suggestion], "%s for %s", got.Suggestion, string(word))
	}
	require.Greater(t, known, 50)
}

// The terms that contain a text are found without going through a large dictionary, and none is missed.
func TestTermsThatContainAText(t *testing.T) {
	t.Parallel()
	p, segments := spelt(t, 60_000)
	r := rand.New(rand.NewPCG(17, 8)) //nolint:gosec // the same queries each time
	for range 100 {
		var text []rune
		for range 2 + r.IntN(3) {
			text = append(text, letters[r.IntN(8)])
		}
		want, got := 0, 0
		for w := range segments {
			if strings.Contains(w, string(text)) {
				want++
			}
		}
		require.NoError(t, p.Containing(context.Background(), string(text), func(e *part.Entry) {
			require.Contains(t, string(e.Text), string(text))
			got++
		}))
		require.Equal(t, want, got, string(text))
	}
}

// Every few bytes of a part, and each of its footer, damaged: never a panic. (FuzzOpen goes further.)
func TestDamagedPartsNeverPanic(t *testing.T) {
	t.Parallel()
	raw := sample(t)
	const step, tail = 7, 64
	for at := 0; at < len(raw); at++ {
		_ = use(damaged(raw, at, []byte{0x01, 0x80, 0xff}[at%3]))
		if at < len(raw)-tail {
			at += step - 1
		}
	}
}
