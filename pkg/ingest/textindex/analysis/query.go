package analysis

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a query. The rest is ignored.
const (
	maxQuery    = 4096 // bytes
	maxClauses  = 64
	maxPhrase   = 64 // positions
	maxVariants = 8
)

// Weights of variants that are not exact.
const (
	stemWeight   = 0.8
	bareWeight   = 0.9 // a number without its separators
	partWeight   = 0.6 // a part of a code
	letterWeight = 0.2 // a part of a code that is one character
	gramWeight   = 0.4 // a bigram of a word in Hangul
)

// Query is what somebody asked for, as terms.
type Query struct{ Clauses []Clause }

// Clause is one word, phrase or prefix of a query.
type Clause struct {
	Text    string      // as typed, without operators
	Words   [][]Variant // one per position: alternatives that may stand there; one position unless Phrase
	Phrase  bool        // the words stand in this order, next to each other
	Prefix  bool        // the (single) word's terms are beginnings of terms
	Exclude bool        // segments with it are left out
	Must    bool        // typed with a +
	Field   Field       // AnyField, or Title, Heading, Text if typed as title:word, heading:word, text:word
}

// Field is the part of a document that a clause looks at.
type Field uint8

// The fields.
const (
	AnyField Field = iota
	Title
	Heading
	Text
)

var fields = []struct {
	name  string
	field Field
}{{"title:", Title}, {"heading:", Heading}, {"text:", Text}}

// Variant is a term that may stand at a position, and what it counts.
type Variant struct {
	Term   string
	Weight float64 // 1 exact, less for a stem or a part of a code
}

// Parse reads what somebody typed. It never fails: what is no operator in its place is text or nothing.
//
// "a phrase" stands as it is, without stems; word* begins a word; -x and NOT x leave out, by the exact word;
// +x must be there; title:x looks in one field. A code is a clause of its own, and each of its parts is one that counts less;
// with a sign or in quotation marks its parts are a phrase. At most 64 clauses of the first 4096 bytes.
func Parse(query string) Query {
	query = clip(query, maxQuery)
	p := parser{order: order(listen(query))}
	items := split(query)
	not := false
	for i, it := range items {
		if it.operator() && i < len(items)-1 {
			if it.text == "NOT" {
				not = true
				continue
			}
			if i > 0 {
				continue
			}
		}
		it.exclude = it.exclude || not
		not = false
		p.item(it)
	}
	return Query{p.clauses}
}

// Empty tells that there is nothing to look for: only punctuation, or only exclusions.
func (q Query) Empty() bool {
	return !slices.ContainsFunc(q.Clauses, func(c Clause) bool { return !c.Exclude })
}

// item is what stands between spaces, or in quotation marks.
type item struct {
	text          string
	quoted, bare  bool
	exclude, must bool
	field         Field
}

func (it item) operator() bool {
	return it.bare && (it.text == "AND" || it.text == "OR" || it.text == "NOT")
}

// split cuts a query into its items; those without a word are left out.
func split(query string) []item {
	var out []item
	s := scanner{text: query}
	for at := 0; at < len(query); {
		k, size := s.peek(at)
		if r, _ := utf8.DecodeRuneInString(query[at:]); space(r) || k == skipped || strings.ContainsRune("([{", r) {
			at += size
			continue
		}
		var it item
		starts := func(at int) bool {
			k, _ := s.peek(at)
			return k.word() || quote(query, at) > 0
		}
		if c := query[at]; (c == '-' || c == '+') && starts(at+1) {
			it.exclude, it.must = c == '-', c == '+'
			at++
		}
		for _, f := range fields {
			n := len(f.name)
			if it.field == AnyField && len(query)-at > n && strings.EqualFold(query[at:at+n], f.name) && starts(at+n) {
				it.field = f.field
				at += n
			}
		}
		if n := quote(query, at); n > 0 {
			at += n
			end := at
			for end < len(query) && quote(query, end) == 0 {
				end++
			}
			if end < len(query) {
				it.text, it.quoted = query[at:end], true
				at = end + quote(query, end)
				if words(it.text) {
					out = append(out, it)
				}
				continue
			}
		}
		start := at
		for at < len(query) {
			k, size := s.peek(at)
			r, _ := utf8.DecodeRuneInString(query[at:])
			if space(r) || k == separator && quote(query, at) > 0 && !wordBefore(query[start:at]) {
				break
			}
			at += size
		}
		it.text = strings.TrimRight(query[start:at], ")]}.,;!?\"")
		it.bare = !it.exclude && !it.must && it.field == AnyField
		if words(it.text) {
			out = append(out, it)
		}
	}
	return out
}

// space tells what separates items.
func space(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == utf8.RuneError }

// quote is the size of the quotation mark at a place, 0 if there is none.
func quote(s string, at int) int {
	if at >= len(s) || !utf8.RuneStart(s[at]) {
		return 0
	}
	switch r, size := utf8.DecodeRuneInString(s[at:]); r {
	case '"', '“', '”', '„', '«', '»', '＂':
		return size
	}
	return 0
}

// wordBefore tells whether a text ends with a character of a word: a mark behind it opens no phrase (5" of rain).
func wordBefore(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && (classOf(r).word() || classOf(r) == mark)
}

// words tells whether a text has a term.
func words(text string) bool {
	s := scanner{text: text}
	for u, ok := s.next(); ok; u, ok = s.next() {
		if len(positions(text, u, nil)) > 0 {
			return true
		}
	}
	return false
}

type parser struct {
	order   []language
	clauses []Clause
}

// add adds a clause with what holds for its item, unless it is empty, there already, or one too many.
func (p *parser) add(it item, c Clause) {
	c.Exclude, c.Must, c.Field = it.exclude, it.must, it.field
	if c.Phrase && len(c.Words) > maxPhrase {
		c.Words = c.Words[:maxPhrase]
	}
	if len(c.Words) == 0 || len(p.clauses) >= maxClauses || slices.ContainsFunc(p.clauses, c.same) {
		return
	}
	p.clauses = append(p.clauses, c)
}

func (c Clause) same(d Clause) bool {
	return c.Phrase == d.Phrase && c.Prefix == d.Prefix && c.Exclude == d.Exclude && c.Must == d.Must &&
		c.Field == d.Field && slices.EqualFunc(c.Words, d.Words, slices.Equal)
}

func (p *parser) item(it item) {
	text := strings.TrimRight(it.text, "*")
	s := scanner{text: text}
	if it.quoted {
		p.phrase(it)
		return
	}
	for u, ok := s.next(); ok && len(p.clauses) < maxClauses; u, ok = s.next() {
		raw := text[u.start:u.end]
		switch {
		case len(text) < len(it.text) && u.end == len(text) && u.kind != dense && u.kind != densest,
			u.kind == hangul && utf8.RuneCountInString(Fold(raw)) == 1:
			p.add(it, Clause{Text: raw, Words: one(prefix(raw), 1), Prefix: true})
		case u.kind == dense || u.kind == densest:
			p.run(it, raw, positions(text, u, nil))
		case u.kind == code && (it.exclude || it.must):
			words := positions(text, u, nil)
			p.add(it, Clause{Text: raw, Words: words, Phrase: len(words) > 1})
		case u.kind == code:
			p.add(it, Clause{Text: raw, Words: one(whole(raw), 1)})
			for _, part := range u.pieces {
				if part.start == u.start && part.end == u.end {
					continue
				}
				weight := partWeight
				if word := text[part.start:part.end]; utf8.RuneCountInString(word) == 1 {
					weight = letterWeight
				}
				p.add(it, Clause{Text: text[part.start:part.end], Words: atOne(variants(p.order, text, part, weight))})
			}
		case u.kind == number || it.exclude:
			p.add(it, Clause{Text: raw, Words: positions(text, u, nil)})
		default:
			p.add(it, Clause{Text: raw, Words: atOne(variants(p.order, text, u.pieces[0], 1))})
		}
	}
}

// prefix is what a word's terms begin with, short enough to be in those that were cut.
func prefix(raw string) string { return clip(strings.ReplaceAll(Fold(raw), " ", ""), kept) }

// run adds a run of a script without spaces; words are its bigrams and its last character.
func (p *parser) run(it item, raw string, words [][]Variant) {
	n := len(words)
	switch {
	case n <= 1:
		p.add(it, Clause{Text: raw, Words: words, Prefix: true})
	case n <= 4 || it.exclude || it.must:
		p.add(it, Clause{Text: raw, Words: words[:n-1], Phrase: true})
	default:
		for _, w := range words[:n-1] {
			p.add(it, Clause{Text: w[0].Term, Words: [][]Variant{w}})
		}
	}
}

// phrase adds what stands in quotation marks.
func (p *parser) phrase(it item) {
	var all [][]Variant
	var last unit
	units, length := 0, 0
	s := scanner{text: it.text}
	for u, ok := s.next(); ok; u, ok = s.next() {
		words := positions(it.text, u, nil)
		all = append(all, words...)
		last, length = u, len(words)
		units++
	}
	raw := strings.TrimSpace(it.text)
	spaceless := last.kind == dense || last.kind == densest
	switch {
	case units == 1 && last.kind == code && last.pieces[0].over && last.pieces[0].end == last.end:
		all = one(whole(it.text[last.start:last.end]), 1)
	case spaceless && length > 1:
		all = all[:len(all)-1] // the next character is not known, and the bigram before has the last one
	case spaceless && len(all) == 1:
		p.add(it, Clause{Text: raw, Words: all, Prefix: true})
		return
	case spaceless && !it.exclude:
		p.add(it, Clause{Text: raw, Words: all[:len(all)-1], Phrase: true})
		p.add(it, Clause{Text: it.text[last.start:last.end], Words: all[len(all)-1:], Prefix: true})
		return
	}
	p.add(it, Clause{Text: raw, Words: all, Phrase: true})
}

// positions returns the terms of a unit as they stand in a text one behind the other.
func positions(text string, u unit, out [][]Variant) [][]Variant {
	raw := text[u.start:u.end]
	switch u.kind {
	case dense, densest:
		grams(raw, func(term string, _, _ int) {
			out = append(out, one(term, 1)...)
		})
	case number:
		exact, bare := numberTerms(raw)
		out = append(out, []Variant{{exact, 1}, {bare, bareWeight}})
	case code:
		if len(u.pieces) == 1 {
			return append(out, one(whole(raw), 1)...)
		}
		for _, part := range u.pieces {
			if !part.over {
				out = append(out, one(term(text[part.start:part.end]), 1)...)
			}
		}
	default:
		out = append(out, one(term(raw), 1)...)
	}
	return out
}

// one is the words of a clause that looks for one term; none if it is empty.
func one(term string, weight float64) [][]Variant {
	if term == "" {
		return nil
	}
	return [][]Variant{{{term, weight}}}
}

// atOne is the words of a clause with one position.
func atOne(v []Variant) [][]Variant {
	if len(v) == 0 {
		return nil
	}
	return [][]Variant{v}
}
