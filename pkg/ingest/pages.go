package ingest

import (
	"strconv"
	"strings"
)

// PageRanges writes ascending page numbers as a reader would, "3, 7-9", with "…" for what is left out: what follows most ranges, and
// what may follow MaxUnread pages.
func PageRanges(pages []int, most int) string {
	var out []string
	for i := 0; i < len(pages); {
		first, last := pages[i], pages[i]
		for i++; i < len(pages) && pages[i] == last+1; i++ {
			last++
		}
		if len(out) == most {
			return strings.Join(append(out, "…"), ", ")
		}
		out = append(out, strconv.Itoa(first))
		if last > first {
			out[len(out)-1] += "-" + strconv.Itoa(last)
		}
	}
	if len(pages) >= MaxUnread {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}
