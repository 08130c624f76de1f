package local

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Kinds of feature; the kind is hashed in front, so that the word "ab" and the pair "ab" differ.
const (
	kindWord    = 'w'
	kindTrigram = 't'
	kindPair    = 'p'
	kindTriple  = 'k'
	kindPhrase  = 'b'
	kindSingle  = 's'
	kindRaw     = 'r'
)

// Weights, found by trying on the quality test's paragraphs: words and pairs of words count most, the trigrams of a
// word together about as much, a lone CJK character little because it is in many words.
const (
	trigramWeight  = 0.12
	singleWeight   = 0.15
	functionWeight = 0.1
	phraseWeight   = 1.0
	tripleWeight   = 1.0
	bridgeWeight   = 0.8
	// maxWord is the most characters of a run that are one word; longer runs (base64, hashes) are cut there.
	maxWord = 40
	// minTrigramWord is the least length of a word whose trigrams are worth having.
	minTrigramWord = 4
)

// functionWords are in every English text and tell nothing apart.
var functionWords = setOf("the", "of", "and", "to", "in", "a", "is", "that", "it", "for", "was", "on", "are", "as", "with",
	"be", "by", "at", "this", "from", "or", "an", "not", "have", "has", "had", "but", "they", "you", "which", "were", "their",
	"its", "his", "her", "she", "he", "we", "all", "can", "will", "if", "do", "does", "what", "when", "who", "how", "there",
	"been", "would", "than", "then", "so", "no", "any", "into", "each", "i", "my", "me", "our", "your", "these", "those")

// functionRunes are the same for Chinese and Japanese.
var functionRunes = setOf([]rune("的了是在和不有也就都而及与或之其这那为以于我他她它们你会对到说要着被把从让吗呢吧のはがをにへとでもやかな")...)

type count struct {
	n      int
	weight float64
}

// features counts in order of first sight: sums of floats depend on their order, and vectors must not.
type features struct {
	seen  map[uint64]count
	order []uint64
	last  []rune // the content word before this one, for phrases
}

func (f *features) add(kind rune, runes []rune, weight float64) {
	h := uint64(14695981039346656037) // FNV-1a, 64 bits
	h = (h ^ uint64(kind)) * 1099511628211
	for _, r := range runes {
		h = (h ^ uint64(r)) * 1099511628211
	}
	c, known := f.seen[h]
	if !known {
		f.order = append(f.order, h)
	}
	c.n++
	c.weight = weight
	f.seen[h] = c
}

// featuresOf cuts a text into features; it never returns none.
func featuresOf(text string) *features {
	f := &features{seen: make(map[uint64]count, len(text)/2+1)}
	runes := fold(text)
	for start := 0; start < len(runes); {
		class := classOf(runes[start])
		end := start + 1
		for end < len(runes) && classOf(runes[end]) == class {
			end++
		}
		switch class {
		case classWord:
			f.addRun(runes[start:end])
		case classCJK:
			f.addCJK(runes[start:end])
		case classOther: // stands between words and tells nothing
		}
		start = end
	}
	if len(f.order) == 0 {
		// Signs and pictures only: the characters themselves are all there is.
		for _, r := range text {
			f.add(kindRaw, []rune{r}, 1)
		}
	}
	if len(f.order) == 0 {
		f.add(kindRaw, nil, 1)
	}
	return f
}

func (f *features) addRun(run []rune) {
	for len(run) > maxWord {
		f.addWord(run[:maxWord])
		run = run[maxWord:]
	}
	f.addWord(run)
}

func (f *features) addWord(word []rune) {
	f.add(kindWord, word, wordWeight(word))
	if !functionWords[string(word)] {
		if f.last != nil {
			f.add(kindPhrase, slices.Concat(f.last, []rune{' '}, word), phraseWeight)
		}
		f.last = word
	}
	if len(word) < minTrigramWord {
		return
	}
	padded := make([]rune, 0, len(word)+2)
	padded = append(append(append(padded, '^'), word...), '$')
	for i := 0; i+3 <= len(padded); i++ {
		f.add(kindTrigram, padded[i:i+3], trigramWeight)
	}
}

// wordWeight stands in for the rarity that a corpus would tell: short words are common ones.
func wordWeight(word []rune) float64 {
	if functionWords[string(word)] {
		return functionWeight
	}
	switch len(word) {
	case 1:
		return 0.3
	case 2:
		return 0.5
	case 3:
		return 0.8
	}
	return 1
}

func (f *features) addCJK(run []rune) {
	last := -1 // the content character before this one
	for i, r := range run {
		if !functionRunes[r] {
			f.add(kindSingle, run[i:i+1], singleWeight)
			if last >= 0 && last < i-1 {
				// Across function characters, as "文档的知识" says what "文档知识" says.
				f.add(kindPair, []rune{run[last], r}, bridgeWeight)
			}
			last = i
		}
		if i+2 > len(run) {
			continue
		}
		weight := 1.0
		if functionRunes[r] || functionRunes[run[i+1]] {
			weight = functionWeight
		}
		f.add(kindPair, run[i:i+2], weight)
		if i+3 <= len(run) {
			f.add(kindTriple, run[i:i+3], tripleWeight*weight)
		}
	}
}

type class int

const (
	classOther class = iota
	classWord
	classCJK
)

func classOf(r rune) class {
	switch {
	case r < 0x80:
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return classWord
		}
		return classOther
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) || r == 'ー':
		return classCJK
	case unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.Is(unicode.Mc, r):
		return classWord
	}
	return classOther
}

// fold takes case, width and diacritics away: "Ａ", "Á" and "a" become "a".
func fold(text string) []rune {
	decomposed := norm.NFKD.String(text)
	folded := cases.Fold().String(decomposed)
	plain := strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, folded)
	// Hangul syllables were taken apart into letters; put them together again.
	return []rune(norm.NFC.String(plain))
}

func setOf[T comparable](members ...T) map[T]bool {
	set := make(map[T]bool, len(members))
	for _, m := range members {
		set[m] = true
	}
	return set
}
