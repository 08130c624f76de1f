package searchscale

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/millweir/millweir/pkg/ingest/textindex"
)

const (
	perDocument = 10 // segments
	vocabulary  = 150_000
	// Of Zipf's law: the word of rank n comes about 1 / (n + shift) ^ slope times as often as the first.
	slope, shift = 1.07, 2.7
	misspeltRank = 200_000
)

// tongue is how a language writes.
type tongue struct {
	small    []string // its most frequent words
	parts    []string // syllables of the others, or characters
	endings  []string
	sentence string
	words    int  // of a segment
	dense    bool // without spaces
}

// runes are the characters of a range, which stand for those of a script without spaces.
func runes(from rune, n int) (out []string) {
	for r := range n {
		out = append(out, string(from+rune(r)))
	}
	return out
}

var tongues = []tongue{
	{
		small:   strings.Fields("the of and to in is that it for was with as on be at by this had not are but from or have an they which you were all"),
		parts:   strings.Fields("ba con der el fin gra hol in jor ken lam mor nel or pre qui ras sta tur ul ven win ex yor zen tal mis ped cor sil"),
		endings: []string{"", "", "", "s", "ed", "ing"}, sentence: ". ", words: 235,
	},
	{
		small:   strings.Fields("der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass sie nach"),
		parts:   strings.Fields("ab berg dach ein feld gang haus kraft land mann not ober pf quell recht stell tag un ver wert zahl schrift führ größ lös"),
		endings: []string{"", "", "en", "e", "er"}, sentence: ". ", words: 205,
	},
	{
		small:   strings.Fields("и в не на я быть он с что а по это она этот к но они мы весь который из у то за свой"),
		parts:   strings.Fields("без вод город дел ель жиз зна ист край лес мир нов от про раз сто тру ук фор ход цен час шир эт юн"),
		endings: []string{"", "а", "ы", "ов", "ом"}, sentence: ". ", words: 215,
	},
	{
		small:   strings.Fields("في من على أن إلى عن مع هذا كان التي ما لا هو هذه بين كل بعد قد"),
		parts:   strings.Fields("با تم جر حس خل دو رس زم سل شر صن طب عل غر فك قر كت لم مد نه"),
		endings: []string{"", "", "ة", "ات"}, sentence: ". ", words: 240,
	},
	{small: strings.Fields("的 是 在 了 和 有 不 这 中 人"), parts: runes(0x4E10, 3000), sentence: "。", words: 260, dense: true},
	{small: strings.Fields("の は を に が と で た し も"), parts: append(runes(0x3042, 80), runes(0x5200, 2000)...), sentence: "。", words: 260, dense: true},
}

// word is the word of a rank; the same each time.
func (t tongue) word(rank int) string {
	if rank < len(t.small) {
		return t.small[rank]
	}
	var out strings.Builder
	n := uint64(rank) * 0x9E3779B97F4A7C15 //nolint:gosec // a rank
	if t.dense {                           // two characters of those that are frequent in frequent words
		few := uint64(min(len(t.parts), 60+rank/8)) //nolint:gosec // a count
		return t.parts[n>>11%few] + t.parts[n>>37%few]
	}
	for left := rank; ; left /= len(t.parts) {
		out.WriteString(t.parts[(left+int(n>>40))%len(t.parts)])
		n *= 0xD1342543DE82EF95
		if left < len(t.parts) {
			return out.String()
		}
	}
}

// speaker writes texts of a language; it is not safe for concurrent use.
type speaker struct {
	tongue
	r    *rand.Rand
	zipf *rand.Zipf
}

func newSpeaker(t tongue, seed uint64) *speaker {
	r := rand.New(rand.NewPCG(17, seed)) //nolint:gosec // the same texts each time
	return &speaker{tongue: t, r: r, zipf: rand.NewZipf(r, slope, shift, vocabulary)}
}

// write adds n words to a text.
func (s *speaker) write(out *strings.Builder, n int) {
	space, sentence := " ", 8+s.r.IntN(12)
	if s.dense {
		space = ""
	}
	for i := range n {
		rank := int(s.zipf.Uint64()) //nolint:gosec // bounded
		out.WriteString(s.word(rank))
		if len(s.endings) > 0 && rank >= len(s.small) {
			out.WriteString(s.endings[s.r.IntN(len(s.endings))])
		}
		if sentence--; sentence == 0 || i == n-1 {
			out.WriteString(s.sentence)
			sentence = 8 + s.r.IntN(12)
		} else {
			out.WriteString(space)
		}
	}
}

// some writes n words.
func (s *speaker) some(n int) string {
	var out strings.Builder
	s.write(&out, n)
	return strings.TrimRight(out.String(), s.sentence)
}

// document is the segments of the document of a number, for a base of so many segments.
func document(series, number int) []textindex.Text {
	s := newSpeaker(tongues[number%len(tongues)], uint64(number)) //nolint:gosec // a count
	title := s.some(4)
	var heading string
	out := make([]textindex.Text, perDocument)
	for i := range out {
		if i%3 == 0 {
			heading = s.some(3)
		}
		words := s.words
		if i == perDocument-1 { // the rest of the text
			words = 10 + s.r.IntN(words)
		}
		var text strings.Builder
		s.write(&text, words/2)
		if i%3 == 0 {
			fmt.Fprintf(&text, "INV-%d/%d ", 2000+number%25, number*perDocument+i)
		}
		s.write(&text, words-words/2)
		out[i] = textindex.Text{
			Version: idOf("version", series, number), Index: i, TextHash: fmt.Sprintf("%064x", uint64(number*perDocument+i+1)*0x9E3779B97F4A7C15), //nolint:gosec // a count
			Title: title, Heading: []string{heading}, Text: text.String(),
		}
	}
	return out
}

// idOf is the id of a row of the document of a number, for a base of so many segments.
func idOf(kind string, series, number int) string {
	kinds := map[string]int{"document": 1, "version": 2, "task": 3, "file": 4, "base": 5}
	return fmt.Sprintf("0190%04x-0000-7000%s%08d", kinds[kind], numbered(series/1000), number)
}

// numbered is the part of an id that tells bases, and copies in one, apart.
func numbered(series int) string { return fmt.Sprintf("-8000-%04x", series) }
