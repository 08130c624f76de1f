package part_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
)

// Constants of BM25 and weights of fields, written down again: the reference shares nothing with what it judges.
const (
	k1, b                = 1.2, 0.75
	titleIs, headingIs   = 1.5, 1.0
	versionsOf, longText = 5, 30
)

// doc is a segment of the reference: its words by field.
type doc struct {
	version              string
	index                int
	text, heading, title []string
}

// naive scores all segments for the words of a query by plain loops over their tokens.
func naive(docs []doc, query []string) map[string]float64 {
	total := 0
	for _, d := range docs {
		total += len(d.text)
	}
	average := max(1, float64(total)/float64(len(docs)))
	count := func(words []string, word string) (n float64) {
		for _, w := range words {
			if w == word {
				n++
			}
		}
		return n
	}
	times := func(d doc, word string) float64 {
		return count(d.text, word) + headingIs*min(1, count(d.heading, word)) + titleIs*min(1, count(d.title, word))
	}
	scores := map[string]float64{}
	slices.Sort(query)
	for _, word := range slices.Compact(query) {
		n := 0.0
		for _, d := range docs {
			if times(d, word) > 0 {
				n++
			}
		}
		idf := math.Log(1 + (float64(len(docs))-n+0.5)/(n+0.5))
		for _, d := range docs {
			if tf := times(d, word); tf > 0 {
				norm := k1 * (1 - b + b*float64(len(d.text))/average)
				scores[key(d.version, d.index)] += idf * tf * (k1 + 1) / (tf + norm)
			}
		}
	}
	return scores
}

// key names a segment.
func key(version string, index int) string { return fmt.Sprintf("%s/%03d", version, index) }

// word draws one of a few words that have no stems; the first ones come most often.
func word() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("w%dx", rapid.IntRange(0, rapid.IntRange(1, 40).Draw(t, "most")).Draw(t, "word"))
	})
}

// corpus draws the segments of some versions.
func corpus(t *rapid.T) (docs []doc) {
	for v := range rapid.IntRange(1, versionsOf).Draw(t, "versions") {
		for i := range rapid.IntRange(1, 6).Draw(t, "segments") {
			docs = append(docs, doc{
				version: fmt.Sprintf("version-%d", v), index: i,
				text:    rapid.SliceOfN(word(), 0, longText).Draw(t, "text"),
				heading: rapid.SliceOfN(word(), 0, 3).Draw(t, "heading"),
				title:   rapid.SliceOfN(word(), 0, 3).Draw(t, "title"),
			})
		}
	}
	return docs
}

// built is a part of segments.
func built(t require.TestingT, docs []doc) *part.Part {
	var texts []textindex.Text
	for i, d := range docs {
		texts = append(texts, textindex.Text{
			Version: d.version, Index: d.index, TextHash: fmt.Sprintf("%064x", i), Title: strings.Join(d.title, " "),
			Heading: d.heading, Text: strings.Join(d.text, " "),
		})
	}
	return opened(t, textindex.Build("base", texts).Bytes())
}

func opened(t require.TestingT, raw part.Bytes) *part.Part {
	p, err := part.Open(context.Background(), raw, int64(len(raw)))
	require.NoError(t, err)
	return p
}

// merged is one part of several.
func merged(t require.TestingT, parts []*part.Part, keep func(string) bool) *part.Part {
	var raw part.Bytes
	size, segments, tokens, err := part.Merge(context.Background(), parts, keep, func(chunk []byte) error {
		raw = append(raw, chunk...)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, raw, int(size))
	p := opened(t, raw)
	require.Equal(t, segments, p.Segments())
	require.Equal(t, tokens, p.Tokens())
	require.NoError(t, p.Verify(context.Background()))
	return p
}

// check compares what parts find with what the reference says.
func check(t require.TestingT, parts []*part.Part, docs []doc, query []string) {
	got, err := textindex.SearchParts(context.Background(), parts, strings.Join(query, " "), len(docs)+1, nil)
	require.NoError(t, err)
	want := naive(docs, query)
	if len(want) == 0 {
		return // no word is known: near ones stand in for them
	}
	order := make([]string, 0, len(want))
	for k := range want {
		order = append(order, k)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Or(-cmp.Compare(want[a], want[b]), cmp.Compare(a, b)) })
	require.Len(t, got.Found, len(order))
	for i, f := range got.Found {
		k := key(f.Version, f.Index)
		require.InDelta(t, want[k], f.Score, 1e-4, "%s of %v", k, query)
		require.InDelta(t, want[order[i]], f.Score, 1e-4, "place %d: %s instead of %s", i, k, order[i])
	}
}

// However segments lie in parts, and however often parts were merged, ranks are those of the plain formula.
func TestRanksAreThoseOfPlainBM25(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		docs := corpus(t)
		cut := rapid.IntRange(0, len(docs)).Draw(t, "cut")
		again := rapid.IntRange(cut, len(docs)).Draw(t, "again")
		var parts []*part.Part
		for _, some := range [][]doc{docs[:cut], docs[cut:again], docs[again:]} {
			parts = append(parts, built(t, some))
		}
		known := map[string]bool{}
		for _, d := range docs {
			for _, w := range slices.Concat(d.text, d.heading, d.title) {
				known[w] = true
			}
		}
		query := slices.DeleteFunc(rapid.SliceOfN(word(), 1, 5).Draw(t, "query"), func(w string) bool { return !known[w] })
		if len(query) == 0 {
			return
		}
		all := func(string) bool { return true }
		check(t, parts, docs, slices.Clone(query))
		two := []*part.Part{merged(t, parts[:2], all), parts[2]}
		check(t, two, docs, slices.Clone(query))
		check(t, []*part.Part{merged(t, two, all)}, docs, slices.Clone(query))
		// What is there twice counts once.
		check(t, []*part.Part{merged(t, append(two, parts...), all)}, docs, slices.Clone(query))

		gone := docs[0].version
		left := slices.DeleteFunc(slices.Clone(docs), func(d doc) bool { return d.version == gone })
		one := merged(t, parts, func(version string) bool { return version != gone })
		require.Equal(t, len(left), one.Segments())
		if len(left) > 0 && len(naive(left, slices.Clone(query))) > 0 && allIn(left, query) {
			check(t, []*part.Part{one}, left, slices.Clone(query))
		}
	})
}

// allIn tells whether each word stands in some segment: no near one stands in for it.
func allIn(docs []doc, query []string) bool {
	return !slices.ContainsFunc(query, func(w string) bool {
		return !slices.ContainsFunc(docs, func(d doc) bool {
			return slices.Contains(slices.Concat(d.text, d.heading, d.title), w)
		})
	})
}

// sample is a part with several versions, scripts, fields and blocks of its dictionary.
func sample(t require.TestingT) part.Bytes {
	var texts []textindex.Text
	for i := range 30 {
		texts = append(texts, textindex.Text{
			Version: fmt.Sprintf("version-%d", i/7), Index: i % 7, TextHash: fmt.Sprintf("%064x", i*i), Title: "A title of 2024",
			Heading: []string{"Heading", "第二章"},
			Text:    fmt.Sprintf("The otter number%d swims past INV-2024/%d. 任务失败之后会再次执行。Новый отчёт %d", i, i, i*i),
		})
	}
	raw := textindex.Build("base", texts).Bytes()
	require.Greater(t, len(raw), 1000)
	return raw
}

// use reads all that a part has; a damaged one gives an error or another answer.
func use(raw part.Bytes) error {
	ctx := context.Background()
	p, err := part.Open(ctx, raw, int64(len(raw)))
	if err != nil {
		return err
	}
	for _, query := range []string{
		"otter", "number7 2024", `"the otter" INV-2024/9`, "num* -отчет", "任务失败之后会再次", "ottre +title:title",
	} {
		if _, err = textindex.SearchParts(ctx, []*part.Part{p}, query, 10, nil); err != nil {
			return err
		}
	}
	if _, err = p.Prefix(ctx, "o", 10); err != nil {
		return err
	}
	var terms []part.Term
	if err = p.Scan(ctx, func(e *part.Entry) bool {
		terms = append(terms, e.Term())
		return true
	}); err != nil {
		return err
	}
	for _, t := range terms {
		c, err := p.Cursor(ctx, t)
		for err == nil && c.Ordinal != part.End {
			if _, err = c.Places(ctx, nil); err == nil {
				err = c.Next(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	keep := func(version string) bool { return version != "version-1" }
	_, _, _, err = part.Merge(ctx, []*part.Part{p, p}, keep, func([]byte) error { return nil })
	return err
}

// A part that was cut, at whatever place, is no part.
func TestCutPartsAreRefused(t *testing.T) {
	t.Parallel()
	raw := sample(t)
	require.NoError(t, use(raw))
	for n := range raw {
		require.ErrorIs(t, use(raw[:n]), part.ErrCorrupt, "the first %d bytes", n)
	}
}

// A changed byte, wherever it is, is seen by the checksum, also where the part can still be searched.
func TestAChangedByteIsSeen(t *testing.T) {
	t.Parallel()
	raw := sample(t)
	verify := func(raw part.Bytes) error {
		p, err := part.Open(t.Context(), raw, int64(len(raw)))
		if err != nil {
			return err
		}
		return p.Verify(t.Context())
	}
	require.NoError(t, verify(raw))
	for at := range raw {
		require.ErrorIs(t, verify(damaged(raw, at, 0x01)), part.ErrCorrupt, "byte %d", at)
	}
}

// FuzzOpen opens and searches damaged parts: an error, or another answer, and nothing else.
func FuzzOpen(f *testing.F) {
	raw := sample(f)
	f.Add([]byte(raw))
	f.Add([]byte{})
	for i := 0; i < len(raw); i += 97 { // a damaged byte all along
		f.Add(damaged(raw, i, 0xff))
	}
	for i := 1; i <= 60; i++ { // and each of the footer's
		f.Add(damaged(raw, len(raw)-i, 0x81))
	}
	f.Fuzz(func(_ *testing.T, raw []byte) { _ = use(raw) })
}

// damaged is a copy with bits of one byte turned over.
func damaged(raw part.Bytes, at int, bits byte) []byte {
	out := slices.Clone([]byte(raw))
	out[at] ^= bits
	return out
}
