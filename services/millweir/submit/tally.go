package submit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/millweir/millweir/services/millweir/cli"
	"github.com/millweir/millweir/services/millweir/client"
)

// mostCauses bounds the causes of a summary: a stranger between may invent codes.
const mostCauses = 50

// tally counts what became of the files of a run.
type tally struct {
	accepted, there, before, failed, interrupted int

	first  error // of the first file that failed
	cut    error // of the first one that the end of the run cut off
	causes map[string]*cause
}

// cause is why files failed.
type cause struct {
	code, remedy, file string // file: the first one
	count              int
}

// files is how many have a result.
func (t *tally) files() int { return t.accepted + t.before + t.failed }

// add counts one file; cut: the end of the run cut it off.
func (t *tally) add(r submitted, cut bool) {
	switch {
	case cut:
		t.interrupted++
		t.cut = cmp.Or(t.cut, fmt.Errorf("%s: %w", r.File, r.err))
		return
	case r.err == nil && r.Task == nil:
		t.before++
		return
	case r.err == nil:
		t.accepted++
		if r.Task.Duplicate {
			t.there++
		}
		return
	}
	t.failed++
	if t.first == nil {
		t.first = fmt.Errorf("%s: %w", r.File, r.err)
	}
	code, remedy := causeOf(r.err)
	if t.causes == nil {
		t.causes = map[string]*cause{}
	}
	if t.causes[code] == nil && len(t.causes) >= mostCauses {
		code, remedy = "others", "See the table."
	}
	c := t.causes[code]
	if c == nil {
		c = &cause{code: code, remedy: remedy, file: r.File}
		t.causes[code] = c
	}
	c.count++
}

// causeOf is the code of a failure and what to do about it.
func causeOf(err error) (code, remedy string) {
	var refused *client.Error
	var ended *cli.EndedError
	switch {
	case errors.As(err, &refused):
		return refused.Code, refused.Remedy
	case errors.As(err, &ended):
		return cmp.Or(string(ended.ErrorCode), string(ended.Status)), "millweir tasks explain " + ended.TaskID
	}
	return fileProblem(err)
}

// write says what became of all files, and why some failed.
func (t *tally) write(w io.Writer, skips map[string]int) {
	parts := []string{fmt.Sprintf("%d accepted", t.accepted)}
	if t.there > 0 {
		parts[0] += fmt.Sprintf(" (%d were there)", t.there)
	}
	for _, p := range []struct {
		n    int
		what string
	}{{t.before, "accepted before"}, {t.failed, "failed"}, {t.interrupted, "interrupted"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	left := 0
	var why []string
	for _, reason := range slices.Sorted(maps.Keys(skips)) {
		left += skips[reason]
		why = append(why, fmt.Sprintf("%d %s", skips[reason], reason))
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("%d left out (%s)", left, strings.Join(why, ", ")))
	}
	_, _ = fmt.Fprintf(w, "%d files: %s\n", t.files()+t.interrupted, strings.Join(parts, ", "))
	if len(t.causes) == 0 {
		return
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CAUSE\tFILES\tFIRST\tDO")
	for _, c := range slices.SortedFunc(maps.Values(t.causes), func(a, b *cause) int {
		return cmp.Or(b.count-a.count, strings.Compare(a.code, b.code))
	}) {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", cli.Clean(c.code), c.count, cli.Clean(c.file), cmp.Or(cli.Clean(c.remedy), "-"))
	}
	_ = table.Flush()
}
