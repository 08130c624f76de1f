package outbox

import (
	"slices"
	"strings"
	"time"
)

// params are the lists of a statement and its @after.
type params struct {
	seqs   []int64  // events
	rows   []int64  // events with their leases in tokens
	tokens []string // the same token may stand for many rows
	after  time.Duration
}

// mark adds a mark.
func (p *params) mark(m Mark) {
	p.rows = append(p.rows, m.Seq)
	if !slices.Contains(p.tokens, m.Token) {
		p.tokens = append(p.tokens, m.Token)
	}
}

// bind writes the lists of a statement and puts all arguments into their order.
func (s *Store) bind(name string, p params, args ...any) (string, []any) {
	seqs, rows, tokens := padded(p.seqs, -1), padded(p.rows, -1), padded(p.tokens, noToken) // −1: no event has it
	text := s.q.Get(name)
	var b strings.Builder
	b.Grow(len(text) + 3*(len(seqs)+len(rows)+8*len(tokens)))
	all := make([]any, 0, len(seqs)+len(rows)+8*len(tokens)+len(args)+2)
	for {
		at := strings.IndexAny(text, "?@(")
		if at < 0 {
			b.WriteString(text)
			return b.String(), all
		}
		b.WriteString(text[:at])
		text = text[at:]
		switch {
		case text[0] == '?':
			b.WriteByte('?')
			all, args, text = append(all, args[0]), args[1:], text[1:]
		case cut(&text, "(@seqs)"):
			all = list(&b, all, seqs)
		case cut(&text, "(@rows)"):
			all = list(&b, all, rows)
		case cut(&text, "(@tokens)"):
			all = list(&b, all, tokens)
		case cut(&text, "@after"):
			b.WriteString(s.q.Get("After"))
			all = append(all, p.after.Microseconds())
		default:
			b.WriteByte(text[0])
			text = text[1:]
		}
	}
}

// cut takes a mark off the front of text.
func cut(text *string, mark string) bool {
	rest, ok := strings.CutPrefix(*text, mark)
	if ok {
		*text = rest
	}
	return ok
}

// list writes (?, ?, …).
func list[T any](b *strings.Builder, all []any, values []T) []any {
	for i, v := range values {
		if i == 0 {
			b.WriteString("(?")
		} else {
			b.WriteString(", ?")
		}
		all = append(all, v)
	}
	b.WriteByte(')')
	return all
}

// padded is values with the last one repeated up to a power of two, so that few different texts reach the server's and the
// driver's caches of statements; none stands for an empty list.
func padded[T any](values []T, none T) []T {
	if len(values) == 0 {
		return []T{none}
	}
	n := 1
	for n < len(values) {
		n *= 2
	}
	out := slices.Grow(slices.Clone(values), n-len(values))
	for len(out) < n {
		out = append(out, values[len(values)-1])
	}
	return out
}
