package analysis

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/arabic"
	"github.com/blevesearch/snowballstem/danish"
	"github.com/blevesearch/snowballstem/dutch"
	"github.com/blevesearch/snowballstem/english"
	"github.com/blevesearch/snowballstem/finnish"
	"github.com/blevesearch/snowballstem/french"
	"github.com/blevesearch/snowballstem/german"
	"github.com/blevesearch/snowballstem/italian"
	"github.com/blevesearch/snowballstem/norwegian"
	"github.com/blevesearch/snowballstem/portuguese"
	"github.com/blevesearch/snowballstem/russian"
	"github.com/blevesearch/snowballstem/spanish"
	"github.com/blevesearch/snowballstem/swedish"
	"golang.org/x/text/unicode/norm"
)

// language of a text, as far as stems need it. Those without a stemmer are there so as not to be taken for others.
type language uint8

const (
	unknown language = iota
	en
	de
	fr
	es
	it
	pt
	nl
	sv
	da
	no
	fi
	pl
	cs
	tr
	ru
	uk
	bg
	sr
	ar
	fa
	languages
)

var stemmers = [languages]func(*snowballstem.Env) bool{
	en: english.Stem, de: german.Stem, fr: french.Stem, es: spanish.Stem, it: italian.Stem, pt: portuguese.Stem,
	nl: dutch.Stem, sv: swedish.Stem, da: danish.Stem, no: norwegian.Stem, fi: finnish.Stem, ru: russian.Stem, ar: arabic.Stem,
}

// shortWords are the most frequent ones of each language.
var shortWords = [languages]string{
	en: "the of and to in is that it for was with as his on " +
		"be at by this had not are but from or have an which you were",
	de: "der die und in den von zu das mit sich des auf für ist im dem " +
		"nicht ein eine als auch es an werden aus er hat daß dass sie nach wird bei",
	fr: "de la le et les des en un du une que est dans qui par " +
		"pour au il sur pas plus ne se ce avec sont d l ou aux",
	es: "de la que el en y a los del se las por un para " +
		"con no una su al lo como más pero sus le es fue este ha",
	it: "di e che la il un a per in è una sono non del con " +
		"si da i le dei nel alla della come gli ha anche più lo delle",
	pt: "de a o que e do da em um para com não uma os no " +
		"se na por mais as dos como mas ao ele das à seu foi são",
	nl: "de van een het en in is dat op te zijn met voor " +
		"niet aan er die om ook als dan maar bij uit naar wordt",
	sv: "och i att det som en på är av för med den till " +
		"inte om ett han men var jag sig från vi så kan när",
	da: "og i at det en den til er som på de med han " +
		"af for ikke der var mig sig men et har om vi jeg blev",
	no: "og i det som en på er av til at for med den å ikke har de et om han var jeg fra seg men ble hun",
	fi: "ja on ei se että oli hän en ovat mutta kun niin myös joka tai sen ole jos kuin mitä",
	pl: "i w na z się nie do to że jest o jak po od za są przez dla ale czy oraz",
	cs: "a se v na je že to s z do o i ve jako za by ale si po jsou pro od který",
	tr: "ve bir bu da de için ile olarak çok daha gibi olan var ne kadar sonra en ama",
	ru: "и в не на что он с как это по но из у за от так для же все к бы было или его только был",
	uk: "і в на що не з до та як за це від він для але про є й або у із",
	bg: "и на да се в от за е с че по са не като това до при ще си беше",
	sr: "и је у да на се за са од су не као или који што то ће",
}

// letters are those that only some languages have.
var letters = map[rune][]language{
	'ß': {de}, 'ñ': {es}, 'ã': {pt}, 'õ': {pt}, 'å': {sv, da, no}, 'ä': {de, sv, fi}, 'ö': {de, sv, fi, tr},
	'ü': {de, tr}, 'ø': {da, no}, 'æ': {da, no},
	'œ': {fr}, 'ê': {fr, pt}, 'è': {fr, it}, 'ł': {pl}, 'ą': {pl}, 'ę': {pl}, 'ś': {pl},
	'ż': {pl}, 'ř': {cs}, 'ě': {cs}, 'ů': {cs}, 'ğ': {tr}, 'ş': {tr}, 'ı': {tr},
	'ы': {ru}, 'э': {ru}, 'ё': {ru}, 'і': {uk}, 'ї': {uk}, 'є': {uk}, 'ґ': {uk},
	'ў': {uk}, 'ј': {sr}, 'љ': {sr}, 'њ': {sr}, 'ћ': {sr}, 'ђ': {sr},
	'پ': {fa}, 'چ': {fa}, 'ژ': {fa}, 'گ': {fa}, 'ی': {fa}, 'ک': {fa}, 'ے': {fa},
}

// letterTable gives the languages of each of them, a bit for each.
var letterTable = sync.OnceValue(func() *[0x700]uint32 {
	t := &[0x700]uint32{}
	for r, all := range letters {
		for _, l := range all {
			t[r] |= 1 << l
		}
	}
	return t
})

// wordTable gives the languages of each short word, a bit for each.
var wordTable = sync.OnceValue(func() map[string]uint32 {
	t := map[string]uint32{}
	for l, words := range shortWords {
		for _, w := range strings.Fields(words) {
			t[w] |= 1 << l
		}
	}
	return t
})

// spoken are the languages of a text, one for each script.
type spoken struct{ latin, cyrillic, arabic language }

// of returns the language of a word.
func (s spoken) of(word string) language {
	r, _ := utf8.DecodeRuneInString(word)
	switch {
	case r < 0x250, r >= 0x1E00 && r <= 0x1EFF:
		return s.latin
	case r >= 0x400 && r <= 0x52F:
		return s.cyrillic
	case r >= 0x600 && r <= 0x6FF:
		return s.arabic
	}
	return unknown
}

// seen is how much of a text tells its language, in bytes.
const seen = 4096

// listen tells the languages of a text by its frequent short words and its rarer letters.
func listen(text string) spoken {
	words, rare := wordTable(), letterTable()
	var score [languages]int
	count := func(in uint32, points int) {
		for ; in != 0; in &= in - 1 {
			score[bits.TrailingZeros32(in)] += points
		}
	}
	var buf [16]byte
	n := 0
	end := func() {
		if n > 0 && n <= len(buf)-utf8.UTFMax {
			if in := words[string(buf[:n])]; in&(in-1) == 0 {
				count(in, 2)
			} else {
				count(in, 1)
			}
		}
		n = 0
	}
	add := func(r rune) {
		if n <= len(buf)-utf8.UTFMax {
			n += utf8.EncodeRune(buf[n:], r)
		}
	}
	for _, r := range clip(text, seen) {
		switch {
		case r >= 'a' && r <= 'z':
			add(r)
		case r >= 'A' && r <= 'Z':
			add(r + 'a' - 'A')
		case r < 0xC0 || r >= 0x2000:
			end()
		default:
			if r < 'а' || r > 'я' { // else it is a letter in lower case
				if !unicode.IsLetter(r) {
					end()
					continue
				}
				r = unicode.ToLower(r)
			}
			add(r)
			if int(r) < len(rare) {
				count(rare[r], 1)
			}
		}
	}
	end()
	s := spoken{latin: best(score, en, tr), cyrillic: best(score, ru, sr), arabic: ar}
	if s.cyrillic == unknown && score[ru] >= max(score[uk], score[bg], score[sr]) {
		s.cyrillic = ru
	}
	if score[fa] > 0 {
		s.arabic = fa
	}
	return s
}

// best is the language with the most points, at least two and more than every other; else unknown.
func best(score [languages]int, from, to language) language {
	out, points := unknown, 1
	for l := from; l <= to; l++ {
		switch {
		case score[l] > points:
			out, points = l, score[l]
		case score[l] == points:
			out = unknown
		}
	}
	return out
}

// entry is a word as terms.
type entry struct {
	language language
	word     string // as it stands in the text
	exact    string
	stem     string // with StemMark; empty if it is the exact one or the language has none
}

// entries remembers words: stemmers are slow. A word takes another one's place, so there are never more.
var (
	entries [1 << 15]atomic.Pointer[entry]
	seed    = maphash.MakeSeed()
)

// look returns the terms of a word.
func look(l language, word string) entry {
	if stemmers[l] == nil {
		l = unknown
	}
	if l == unknown && simple(word) {
		return entry{word: word, exact: word}
	}
	if len(word) > MaxTerm {
		return entry{word: word, exact: term(word)}
	}
	at := &entries[(maphash.String(seed, word)+uint64(l)*0x9E3779B97F4A7C15)%uint64(len(entries))]
	if e := at.Load(); e != nil && e.language == l && e.word == word {
		return *e
	}
	e := &entry{language: l, word: strings.Clone(word), exact: strings.Clone(term(word))}
	if l != unknown && stemmable(e.exact) && wordTable()[strings.ToLower(word)]&(1<<l) == 0 {
		if s := stem(l, word); s != "" && s != e.exact {
			e.stem = StemMark + s
		}
	}
	at.Store(e)
	return *e
}

// simple tells whether a word is its own term.
func simple(word string) bool {
	for i := 0; i < len(word); i++ {
		if c := word[i]; c >= utf8.RuneSelf || c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return len(word) <= MaxTerm
}

// stemmable tells whether a word has a stem: at least three letters, and nothing else.
func stemmable(exact string) bool {
	n := 0
	for _, r := range exact {
		if !unicode.IsLetter(r) {
			return false
		}
		n++
	}
	return n >= 3 && len(exact) <= MaxTerm
}

// stem returns a word's stem, folded; empty if nothing is left. Stemmers want the accents.
func stem(l language, word string) string {
	if !folded(word) {
		word = strings.Map(func(r rune) rune {
			if ignorable(r) {
				return -1
			}
			return unicode.ToLower(r)
		}, norm.NFKC.String(word))
	}
	env := snowballstem.NewEnv(word)
	stemmers[l](env)
	s := term(env.Current())
	if len(s)+len(StemMark) > MaxTerm || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// order is the order in which stems are tried: the languages that the query seems to be in first.
func order(s spoken) []language {
	out := []language{s.latin, s.cyrillic, s.arabic}
	for l := en; l < languages; l++ {
		if !slices.Contains(out, l) {
			out = append(out, l)
		}
	}
	return slices.DeleteFunc(out, func(l language) bool { return stemmers[l] == nil })
}

// variants returns a word and its stems in all languages of its script. A text's word that is its own stem has no
// marked term, and the word typed may be the stem of the text's, so each is looked for with the mark and without.
func variants(order []language, text string, part piece, weight float64) []Variant {
	word := text[part.start:part.end]
	exact := term(word)
	if exact == "" {
		return nil
	}
	out := []Variant{{exact, weight}}
	add := func(term string, w float64) {
		if len(out) < maxVariants && !slices.ContainsFunc(out, func(v Variant) bool { return v.Term == term }) {
			out = append(out, Variant{term, w})
		}
	}
	if part.hangul {
		for _, g := range syllables(exact) {
			add(g, weight*gramWeight)
		}
		return out
	}
	if !stemmable(exact) || len(word) > MaxTerm {
		return out
	}
	for _, l := range order {
		s := spoken{}
		switch {
		case l <= tr:
			s.latin = l
		case l <= sr:
			s.cyrillic = l
		default:
			s.arabic = l
		}
		if s.of(word) != l {
			continue
		}
		marked := look(l, word).stem
		if marked == "" {
			marked = StemMark + exact
		}
		if len(marked) <= MaxTerm {
			add(marked, weight*stemWeight)
			add(marked[len(StemMark):], weight*stemWeight)
		}
	}
	return out
}
