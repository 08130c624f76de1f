package split

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/split/sentence"
)

// units cuts a block into pieces of which none is larger than a segment.
func (r *run) units(b ingest.Block) []unit {
	var pieces []string
	head := ""
	limit := r.cfg.Size - joinCost
	switch b.Kind {
	case ingest.BlockCode, ingest.BlockTable:
		pieces = strings.SplitAfter(b.Text, "\n")
		if b.Kind == ingest.BlockTable {
			head = r.tableHead(pieces)
		}
		if head != "" {
			limit -= r.count(head) + joinCost
		}
	case ingest.BlockHeading:
		pieces = []string{b.Text}
	default:
		pieces = sentence.Cut(b.Text)
	}
	out := make([]unit, 0, len(pieces))
	at, parted := r.offset, false
	for i, p := range pieces {
		for _, part := range r.bounded(p, limit) {
			u := unit{text: part.text, start: at, cost: part.cost, page: b.Page, kind: b.Kind, block: r.blocks, parted: parted}
			at += int64(len(part.text))
			if i > 0 {
				u.head = head
			}
			u.heads = i == 0 && head != ""
			if strings.TrimSpace(part.text) != "" {
				out, parted = append(out, u), false
				continue
			}
			// White space belongs to the unit before it, or, when it is larger than a segment, to none.
			if n := len(out); n > 0 && !parted && out[n-1].cost+u.cost <= limit {
				out[n-1].text += u.text
				out[n-1].cost += u.cost
			} else {
				parted = true
			}
		}
	}
	return out
}

// tableHead is the header row that every piece of a table repeats; a row that would take a third of a segment is not.
func (r *run) tableHead(rows []string) string {
	if len(rows) < 2 {
		return ""
	}
	head := strings.TrimRight(rows[0], "\n")
	if len(head) > 8*r.cfg.Size || r.count(head) > r.cfg.Size/3 {
		return ""
	}
	return head
}

// part is a piece with its size.
type part struct {
	text string
	cost int
}

// bounded returns the piece itself when it fits, else parts that do.
func (r *run) bounded(piece string, limit int) []part {
	if len(piece) <= 16*limit {
		if cost := r.count(piece); cost <= limit {
			return []part{{piece, cost}}
		}
	}
	return r.cut(piece, limit)
}

// The ranks of places where a sentence that is too long may be cut, best last.
const (
	rankRune = iota
	rankWord
	rankClause
	rankLine
	ranks
)

// anchorWords are what an anchor between words is told by: one word alone is too common.
const anchorWords = 4

// cut fills parts word by word and ends each at the best place in its second half: of equal ones at the last anchor (which may lie
// before that half), or at the last.
func (r *run) cut(piece string, limit int) []part {
	var out []part
	words := wordsOf(piece)
	costs, since := make([]int, len(words)), make([]int, len(words)) // of each word, and of all since the last place as good as that behind it
	var last [ranks]int
	sum := 0
	for i, w := range words {
		costs[i] = max(r.count(w.text), 1)
		sum += costs[i]
		since[i] = sum - last[w.rank]
		for rank := range w.rank + 1 {
			last[rank] = sum
		}
	}
	for start := 0; start < len(words); {
		end, cost := start, 0
		var best, anchor [ranks]int
		for end < len(words) && (cost+costs[end] <= limit || end == start) {
			cost += costs[end]
			end++
			rank := words[end-1].rank
			if 2*cost >= limit {
				best[rank] = end
			}
			if anchored*cost >= limit && anchors(joined(words[max(0, end-anchorWords):end]), since[end-1], limit) {
				anchor[rank] = end
			}
		}
		if end < len(words) {
			for rank := ranks - 1; rank >= 0; rank-- {
				if best[rank] > start {
					end = cmp.Or(anchor[rank], best[rank])
					break
				}
			}
		}
		cost = 0
		for _, c := range costs[start:end] {
			cost += c
		}
		out = append(out, part{joined(words[start:end]), min(cost, limit)})
		start = end
	}
	return out
}

// word is a run of text and the rank of the place behind it.
type word struct {
	text string
	rank int
}

// joined is the text of words.
func joined(words []word) string {
	var text strings.Builder
	for _, w := range words {
		text.WriteString(w.text)
	}
	return text.String()
}

// wordRunes bounds a word: a blob without spaces is cut here.
const wordRunes = 16

// wordsOf cuts text behind white space, behind every East Asian character and inside long runs.
func wordsOf(text string) []word {
	var out []word
	start, runes := 0, 0
	last := rune(0)
	flush := func(end, rank int) {
		if end > start {
			out = append(out, word{text[start:end], rank})
		}
		start, runes = end, 0
	}
	for i, c := range text {
		if unicode.IsSpace(last) && !unicode.IsSpace(c) {
			flush(i, rankOf(text[start:i]))
		} else if runes >= wordRunes && !unicode.IsSpace(c) && !unicode.Is(unicode.M, c) {
			flush(i, rankRune)
		} else if (ideograph(last) || ideograph(c)) && !unicode.IsSpace(c) && !sentence.Closing(c) && i > start {
			flush(i, rankOf(text[start:i]))
		}
		runes++
		last = c
	}
	flush(len(text), rankOf(text[start:]))
	return out
}

// rankOf judges the place behind a word.
func rankOf(w string) int {
	if strings.Contains(w, "\n") {
		return rankLine
	}
	trimmed := strings.TrimRightFunc(w, unicode.IsSpace)
	c, _ := utf8.DecodeLastRuneInString(trimmed)
	switch {
	case strings.ContainsRune("，、；：。！？…", c):
		return rankClause
	case len(trimmed) < len(w) && strings.ContainsRune(",;:.!?)", c):
		return rankClause
	case len(trimmed) < len(w), ideograph(c):
		return rankWord
	}
	return rankRune
}

func ideograph(c rune) bool {
	return unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana) || (c >= 0x3000 && c <= 0x303F) || (c >= 0xFF00 && c <= 0xFFEF)
}
