package analysis

import (
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// spelled are characters whose folding Unicode's decompositions do not give.
// й, ї and ў are letters of their own, not accents.
var spelled = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'ł': "l", 'đ': "d", 'ð': "d", 'þ': "th",
	'ħ': "h", 'ı': "i", 'İ': "i",
	'й': "й", 'ї': "ї", 'ў': "ў", 'ς': "σ", 'ʼ': "'", '’': "'", '‐': "-", '‑': "-", '‒': "-", '–': "-",
	'ـ': "", 'ٱ': "ا", 'ة': "ه", 'ى': "ي", 'ی': "ي", 'ک': "ك", 'ہ': "ه",
}

// Fold returns a text as terms are spelled: NFKC, lower case, without accents and vowel marks.
// Marks that make other characters (of kana, of Indic and Thai script) stay.
func Fold(s string) string {
	plain, lower := true, true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] < utf8.RuneSelf
		lower = lower && (s[i] < 'A' || s[i] > 'Z')
	}
	if plain && lower {
		return s
	}
	if plain {
		return strings.ToLower(s)
	}
	if folded(s) {
		return s
	}
	if !norm.NFKC.IsNormalString(s) {
		s = norm.NFKC.String(s)
	}
	out := make([]byte, 0, len(s)+8)
	for _, r := range s {
		out = appendFolded(out, r)
	}
	if !norm.NFC.IsNormal(out) {
		out = norm.NFC.Bytes(out)
	}
	return string(out)
}

// folded tells of most texts that are their own folding that they are.
func folded(s string) bool {
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf && (r < 'A' || r > 'Z'):
		case r >= 'а' && r <= 'я':
		case r >= 'ب' && r <= 'و' && r != 'ة' && r != 'ـ':
		default:
			return false
		}
	}
	return true
}

func appendFolded(out []byte, r rune) []byte {
	switch {
	case r < utf8.RuneSelf:
		return append(out, byte(unicode.ToLower(r)))
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0xAC00 && r <= 0xD7A3, r >= 0x3041 && r <= 0x30FF:
		return utf8.AppendRune(out, r)
	case dropped(r):
		return out
	}
	if s, ok := spelled[r]; ok {
		return append(out, s...)
	}
	r = unicode.ToLower(r)
	if s, ok := spelled[r]; ok {
		return append(out, s...)
	}
	if d, ok := value(r); ok {
		return append(out, d)
	}
	var buf [utf8.UTFMax]byte
	parts := norm.NFD.Properties(utf8.AppendRune(buf[:0], r)).Decomposition()
	if !strings.ContainsFunc(string(parts), dropped) {
		return utf8.AppendRune(out, r)
	}
	for _, p := range string(parts) {
		out = appendFolded(out, p)
	}
	return out
}

// value is the digit of any script as ASCII.
func value(r rune) (byte, bool) {
	if !unicode.Is(unicode.Nd, r) {
		return 0, false
	}
	for _, t := range unicode.Nd.R16 {
		if uint32(r) >= uint32(t.Lo) && uint32(r) <= uint32(t.Hi) {
			return '0' + byte((uint32(r)-uint32(t.Lo))%10), true
		}
	}
	for _, t := range unicode.Nd.R32 {
		if uint32(r) >= t.Lo && uint32(r) <= t.Hi {
			return '0' + byte((uint32(r)-t.Lo)%10), true
		}
	}
	return 0, false
}

// dropped tells whether folding leaves a character out: accents, points and vowel marks of Hebrew and Arabic.
func dropped(r rune) bool {
	switch {
	case r < 0x300:
		return r == 0xAD
	case r <= 0x36F, r >= 0x483 && r <= 0x489, r >= 0x591 && r <= 0x5BD,
		r >= 0x610 && r <= 0x61A, r >= 0x64B && r <= 0x65F,
		r >= 0x6D6 && r <= 0x6ED && unicode.Is(unicode.Mn, r),
		r >= 0x1AB0 && r <= 0x1AFF, r >= 0x1DC0 && r <= 0x1DFF,
		r >= 0x20D0 && r <= 0x20FF, r >= 0xFE00 && r <= 0xFE0F, r >= 0xFE20 && r <= 0xFE2F:
		return true
	}
	switch r {
	case 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7, 0x670:
		return true
	}
	return ignorable(r)
}

// ignorable tells whether a character is nothing in a word: marks of direction, joiners, soft hyphens.
func ignorable(r rune) bool {
	return r == 0xAD || r == 0x61C || r == 0x180E || r >= 0x200C && r <= 0x200F || r >= 0x202A && r <= 0x202E ||
		r >= 0x2060 && r <= 0x2064 || r >= 0x2066 && r <= 0x2069 || r == 0xFEFF
}

// kept is how many bytes of a term that is too long stay as they are, before its hash.
const kept = 40

// term returns the term of a piece of text: folded, without spaces, at most MaxTerm bytes; maybe empty.
func term(s string) string {
	s = Fold(s)
	if strings.Contains(s, " ") {
		s = strings.ReplaceAll(s, " ", "")
	}
	if len(s) <= MaxTerm {
		return s
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return clip(s, kept) + strconv.FormatUint(h.Sum64(), 16)
}

// clip cuts a text at a rune, to at most n bytes.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
