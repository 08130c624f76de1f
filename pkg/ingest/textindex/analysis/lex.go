package analysis

import (
	"unicode"
	"unicode/utf8"
)

// class is what a character is to the cut.
type class uint8

const (
	separator class = iota
	joiner          // joins the parts of a code if it stands between them
	skipped         // nothing at all: marks of direction, soft hyphens
	mark            // belongs to the character before it
	digit
	letter // of a script that writes spaces
	hangul
	dense   // Han and kana: no spaces
	densest // Thai, Lao, Khmer, Burmese: no spaces, and marks
	number  // of a unit only: 1,234.56
	code    // of a unit only: words joined by signs, or in camel case
)

// word tells whether a word may begin with such a character.
func (k class) word() bool { return k >= digit }

var ascii = func() (t [utf8.RuneSelf]class) {
	for c := range t {
		switch r := rune(c); {
		case unicode.IsLetter(r):
			t[c] = letter
		case unicode.IsDigit(r):
			t[c] = digit
		}
	}
	for _, c := range `-_/.@:+#\'&` {
		t[c] = joiner
	}
	return t
}()

func classOf(r rune) class {
	switch {
	case r < utf8.RuneSelf:
		return ascii[r]
	case r >= 0x4E00 && r <= 0x9FFF, r >= 0x3041 && r <= 0x3096, r >= 0x30A1 && r <= 0x30FF && r != '・':
		return dense
	case r >= 0xAC00 && r <= 0xD7A3:
		return hangul
	case r >= 0xC0 && r <= 0x24F && r != '×' && r != '÷', r >= 0x400 && r <= 0x481, r >= 0x48A && r <= 0x52F, r >= 0x621 && r <= 0x64A:
		return letter
	}
	return rareClass(r)
}

func rareClass(r rune) class {
	switch r {
	case utf8.RuneError:
		return separator
	case '’', '‐', '‑', '‒', '–', '＃', '＆', '＇', '＋', '－', '．', '／', '＠', '＼', '＿':
		return joiner
	case 'ｰ', '々', '〆', '〻':
		return dense
	case 0xFF9E, 0xFF9F: // voicing marks of half-width kana
		return mark
	}
	switch {
	case ignorable(r):
		return skipped
	case unicode.IsMark(r):
		return mark
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
		return dense
	case unicode.IsLetter(r):
		switch {
		case unicode.Is(unicode.Hangul, r):
			return hangul
		case unicode.In(r, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar):
			return densest
		}
		return letter
	case unicode.IsNumber(r):
		return digit
	}
	return separator
}

// piece is a word of a unit.
type piece struct {
	start, end int
	hangul     bool
	over       bool // it stands over the pieces behind it, which are its parts, and has their first position
}

// unit is what is analysed as one: a word, a code of several, a number, a run of a script without spaces.
type unit struct {
	start, end int
	kind       class   // letter, hangul, code, number, dense or densest
	pieces     []piece // of a word or code; valid until the next unit
}

// scanner cuts a text into units.
type scanner struct {
	text   string
	at     int
	pieces []piece
}

// peek is the class and size of the character at a place; at the end a separator of size 0.
func (s *scanner) peek(at int) (class, int) {
	if at >= len(s.text) {
		return separator, 0
	}
	if c := s.text[at]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	r, size := utf8.DecodeRuneInString(s.text[at:])
	return classOf(r), size
}

// next returns the next unit, and false at the end.
func (s *scanner) next() (unit, bool) {
	for s.at < len(s.text) {
		k, size := s.peek(s.at)
		switch {
		case !k.word():
			s.at += size
		case k == dense || k == densest:
			return s.run(k), true
		default:
			if end := s.number(s.at); end > 0 {
				u := unit{start: s.at, end: end, kind: number}
				s.at = end
				return u, true
			}
			return s.word(), true
		}
	}
	return unit{}, false
}

// run takes characters of a script without spaces.
func (s *scanner) run(kind class) unit {
	u := unit{start: s.at, kind: kind}
	for {
		k, size := s.peek(s.at)
		if k != kind && k != mark && k != skipped {
			return u
		}
		s.at += size
		if k != skipped {
			u.end = s.at
		}
	}
}

// word takes a word, and those that signs join to it. Hangul next to other letters is a word of its own:
// particles follow foreign words.
func (s *scanner) word() unit {
	s.pieces = s.pieces[:0]
	u := unit{start: s.at, kind: letter}
	k, _ := s.peek(s.at)
	p := piece{start: s.at, end: s.at, hangul: k == hangul}
	upper := false
	for going := true; going; {
		if end := s.plain(s.at); end > s.at && !p.hangul {
			s.at, p.end = end, end
		}
		k, size := s.peek(s.at)
		switch {
		case k == mark:
			s.at += size
			p.end = s.at
		case k == skipped:
			s.at += size
		case (k == letter || k == digit) && !p.hangul, (k == hangul || k == digit) && p.hangul:
			if s.at > p.start && k == letter {
				upper = upper || s.text[s.at] >= utf8.RuneSelf || s.text[s.at] <= 'Z'
			}
			s.at += size
			p.end = s.at
		case k == joiner:
			next := s.joined(s.at)
			if next == 0 {
				going = false
				break
			}
			s.close(p, upper)
			k, _ := s.peek(next)
			p, upper = piece{start: next, end: next, hangul: k == hangul}, false
			s.at = next
		default:
			going = false
		}
	}
	s.close(p, upper)
	s.at, u.end = p.end, p.end
	if n := s.suffix(u); len(s.pieces) == 1 && n > 0 {
		s.at += n
		u.end = s.at
		u.kind = code
	}
	if len(s.pieces) > 1 {
		u.kind = code
	} else if p.hangul {
		u.kind = hangul
	}
	u.pieces = s.pieces
	return u
}

// plain is the end of the letters at a place that most words are of: without a mark, and not upper case.
func (s *scanner) plain(at int) int {
	for at < len(s.text) {
		c := s.text[at]
		if c >= 'a' && c <= 'z' {
			at++
			continue
		}
		if c < 0xD0 || c > 0xD9 || at+1 == len(s.text) {
			return at
		}
		r := rune(c&0x1F)<<6 | rune(s.text[at+1]&0x3F)
		if s.text[at+1]&0xC0 != 0x80 || (r < 'а' || r > 'я') && (r < 'ء' || r > 'ي') {
			return at
		}
		at += 2
	}
	return at
}

// joined returns where the next part begins behind signs that join (as :// does), or 0: -- and .. separate.
func (s *scanner) joined(at int) int {
	for n := 0; n < 4; n++ {
		k, size := s.peek(at)
		if k == digit || k == letter || k == hangul {
			return at
		}
		if k != joiner || n > 0 && s.text[at] == s.text[at-1] && (s.text[at] == '-' || s.text[at] == '.') {
			return 0
		}
		at += size
	}
	return 0
}

// suffix is the length of what makes C++, C# and their like names.
func (s *scanner) suffix(u unit) int {
	if u.end-u.start > 2 || s.text[u.start] >= utf8.RuneSelf || ascii[s.text[u.end-1]] != letter {
		return 0
	}
	n := 0
	switch rest := s.text[u.end:]; {
	case len(rest) >= 2 && rest[:2] == "++":
		n = 2
	case len(rest) >= 1 && rest[0] == '#':
		n = 1
	}
	if k, _ := s.peek(u.end + n); k.word() {
		return 0
	}
	return n
}

// close adds a piece, and its parts if it is in camel case.
func (s *scanner) close(p piece, upper bool) {
	at := len(s.pieces)
	s.pieces = append(s.pieces, p)
	if !upper || p.hangul {
		return
	}
	from := p.start
	var last rune
	for i, r := range s.text[p.start:p.end] {
		i += p.start
		if i > from && unicode.IsUpper(r) && s.hump(last, i+utf8.RuneLen(r), p.end) {
			s.pieces = append(s.pieces, piece{start: from, end: i})
			from = i
		}
		last = r
	}
	if from > p.start {
		s.pieces[at].over = true
		s.pieces = append(s.pieces, piece{start: from, end: p.end})
	}
}

// hump tells whether a capital begins a part: fooBar, HTTPServer, utf8Decode, but not PDFs and B2B.
func (s *scanner) hump(last rune, behind, end int) bool {
	if unicode.IsLower(last) {
		return true
	}
	lower := 0
	for _, r := range s.text[behind:end] {
		if lower == 2 || !unicode.IsLower(r) {
			break
		}
		lower++
	}
	return lower == 2
}

// number returns the end of a number with separators (1,234.56, 1.234,5, 1'000), or 0.
func (s *scanner) number(at int) int {
	digits := func(i int) int {
		for i < len(s.text) && s.text[i] >= '0' && s.text[i] <= '9' {
			i++
		}
		return i
	}
	end := digits(at)
	if end == at || end-at > 20 || at > 1 && s.text[at-1] == ',' && ascii[s.text[at-2]&0x7F] == digit {
		return 0
	}
	var sep byte
	for end-at < 32 && end < len(s.text) && (s.text[end] == ',' || s.text[end] == '.' || s.text[end] == '\'') {
		if sep != 0 && s.text[end] != sep || sep == 0 && end-at > 3 || digits(end+1) != end+4 {
			break
		}
		sep = s.text[end]
		end += 4
	}
	whole := end
	if end < len(s.text) && (s.text[end] == ',' || s.text[end] == '.') && s.text[end] != sep {
		if e := digits(end + 1); e > end+1 && e-at <= 40 {
			end = e
		}
	}
	if sep == 0 && end == whole {
		return 0
	}
	k, size := s.peek(end)
	if k == letter || k == digit || k == mark {
		return 0
	}
	if k == joiner || size > 0 && s.text[end] == ',' {
		if k, _ := s.peek(end + size); k == digit || k == letter {
			return 0
		}
	}
	return end
}
