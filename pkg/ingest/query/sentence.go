package query

import (
	"database/sql"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/split/sentence"
	"github.com/millweir/millweir/pkg/ingest/textindex"
)

// maxSentence is the longest sentence in bytes that has line ends: a longer one is a table or code, whose lines stand for sentences.
const maxSentence = 500

// pageBreaks reads a page_breaks column; nil: not known.
func pageBreaks(text sql.NullString) (breaks [][2]int) {
	if json.Unmarshal([]byte(text.String), &breaks) != nil {
		return nil
	}
	return breaks
}

// explain fills in what a hit says of itself: its pages, where the query's words stand, and its best sentence.
func explain(h *ingest.SearchHit, mark *textindex.Highlighter) {
	h.PageTo = ingest.LastPage(h.Page, h.PageBreaks)
	ends := sentenceEnds(h.Text)
	ranges, best := mark.Mark(h.Text, ends)
	h.Highlights = within(h.Text, ranges, 0, len(h.Text))
	if len(ends) == 0 {
		return
	}
	from, to := 0, ends[best]
	if best > 0 {
		from = ends[best-1]
	}
	text := strings.TrimLeft(h.Text[from:to], white)
	from = to - len(text)
	text = strings.TrimRight(text, white)
	h.Sentence = ingest.Sentence{
		Text: text, Start: utf8.RuneCountInString(h.Text[:from]), Page: pageAt(h, from), Highlights: within(h.Text, ranges, from, from+len(text)),
	}
}

// white is what stands between sentences.
const white = " \t\r\n\u00a0\u3000"

// sentenceEnds are the bytes at which the sentences of a text end.
func sentenceEnds(text string) (ends []int) {
	at := 0
	add := func(piece string) {
		at += len(piece)
		if n := len(ends); n > 0 && strings.Trim(piece, white) == "" {
			ends[n-1] = at
		} else {
			ends = append(ends, at)
		}
	}
	for _, s := range sentence.Cut(text) {
		if len(s) <= maxSentence {
			add(s)
			continue
		}
		for line := range strings.SplitAfterSeq(s, "\n") {
			add(line)
		}
	}
	return ends
}

// within are those of a text's ranges that lie in a part of it, in characters of the part.
func within(text string, ranges [][2]int, from, to int) [][2]int {
	out := [][2]int{}
	at, chars := from, 0 // bytes that were counted, and their characters
	count := func(n int) int {
		chars += utf8.RuneCountInString(text[at:n])
		at = n
		return chars
	}
	for _, r := range ranges {
		if begin, end := max(r[0], from), min(r[1], to); begin < end {
			out = append(out, [2]int{count(begin), count(end)})
		}
	}
	return out
}

// pageAt is the page of a byte of the hit's text; 0: none, or not known.
func pageAt(h *ingest.SearchHit, at int) int {
	if h.PageBreaks == nil && at > 0 {
		return 0
	}
	page := h.Page
	for _, b := range h.PageBreaks {
		if b[0] <= at {
			page = b[1]
		}
	}
	return page
}
