package pipeline

import (
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
)

// maxRanges bounds the ranges of pages that a result names.
const maxRanges = 100

// pageRanges writes ascending page numbers as a reader would: "3, 7-9".
func pageRanges(pages []int) string {
	var out []string
	for i := 0; i < len(pages); {
		first, last := pages[i], pages[i]
		for i++; i < len(pages) && pages[i] == last+1; i++ {
			last++
		}
		if len(out) == maxRanges {
			return strings.Join(append(out, "…"), ", ")
		}
		out = append(out, strconv.Itoa(first))
		if last > first {
			out[len(out)-1] += "-" + strconv.Itoa(last)
		}
	}
	if len(pages) >= ingest.MaxUnread {
		out = append(out, "…") // there may be more
	}
	return strings.Join(out, ", ")
}
