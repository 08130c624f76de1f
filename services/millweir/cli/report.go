package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
)

// Flags are a command's flags with the common ones, for verbs of other packages.
type Flags struct{ *common }

// NewFlags makes them.
func NewFlags(std IO, name string) Flags { return Flags{newFlags(std, name)} }

// Emit writes items as -o says: JSON of all, JSON lines, or a table with a header and a row of each.
func Emit[T any](f Flags, items []T, header string, row func(T) string) error {
	return emit(f.common, items, header, row)
}

// EmitOne writes one item as -o says; its table form is given.
func EmitOne(f Flags, item any, table func(io.Writer)) error { return emitOne(f.common, item, table) }

// ParseAll reads flags that may stand before, between and after the arguments.
func (f Flags) ParseAll(args []string) ([]string, error) { return f.parse(args) }

// Yes reports whether --yes was said.
func (f Flags) Yes() bool { return f.yes }

// Said reports whether a flag was given.
func (f Flags) Said(name string) (said bool) {
	f.Visit(func(one *flag.Flag) { said = said || one.Name == name })
	return said
}

// Counts asks the gateway for the number of tasks by status (operators).
func (f Flags) Counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	var stats struct {
		Counts map[taskstate.Status]int64 `json:"counts"`
	}
	err := f.client().do(ctx, http.MethodGet, "/internal/tasks/stats", "", nil, &stats)
	return stats.Counts, err
}

// WriteReport writes what each rule said; in a table the violations follow with their histories.
func (f Flags) WriteReport(r history.Report) error {
	if f.output != "table" {
		return emit(f.common, r, "", nil)
	}
	w := tabwriter.NewWriter(f.std.Out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RULE\tJUDGED\tVIOLATIONS\tSENTENCE")
	for _, one := range r {
		judged := fmt.Sprint(one.Judged)
		if one.Judged == 0 && one.NotJudged != "" {
			judged = "not: " + one.NotJudged
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", one.Rule, judged, one.Violations, one.Sentence)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	for _, one := range r {
		for _, e := range one.Examples {
			writeExample(f.std.Out, one.Rule, e)
		}
	}
	return nil
}

// writeExample shows one violation; its texts come from rows that users wrote to.
func writeExample(w io.Writer, rule string, e history.Example) {
	_, _ = fmt.Fprintf(w, "\n%s %s: %s\n", rule, clean(e.Task), clean(e.Problem))
	for line := range strings.SplitSeq(strings.TrimSpace(e.History), "\n") {
		if line != "" {
			_, _ = fmt.Fprintf(w, "  %s\n", clean(line))
		}
	}
}
