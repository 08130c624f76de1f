package report

import (
	"fmt"
	"strings"
)

// The tables stand between these lines of a page.
const (
	begin = "<!-- peers: begin (written by peers -doc; do not edit) -->"
	end   = "<!-- peers: end -->"
)

// IntoPage puts the tables into a page between its two marks.
func (r *Report) IntoPage(page string) (string, error) {
	head, rest, ok1 := strings.Cut(page, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return "", fmt.Errorf("the page has no place for the tables: a line %q and a line %q", begin, end)
	}
	return head + begin + "\n\n" + r.Markdown() + "\n" + end + tail, nil
}
