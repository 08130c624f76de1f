package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/wire"
)

// clean makes control characters visible, so that a server's text cannot drive the terminal.
func clean[S ~string](s S) string {
	text := string(s)
	if strings.IndexFunc(text, unicode.IsControl) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// short cuts text to n characters.
func short[S ~string](s S, n int) string {
	r := []rune(clean(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// word is a text of a table that may be missing.
func word(s wire.NullText) string {
	if s == "" {
		return "-"
	}
	return clean(s)
}

// day is a time of a table that may be missing.
func day(t wire.NullTime) string {
	if t.Missing() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// blob is a foreign value on one line of at most n characters.
func blob(b wire.Blob, n int) string {
	text := short(b.Value, n)
	if b.Encoding != "utf-8" {
		text = clean(b.Encoding) + ":" + text
	}
	if b.Clipped {
		text += fmt.Sprintf(" (%d bytes)", b.Bytes)
	}
	return text
}

// stdout remembers that output was lost, so that no command ends well after it.
type stdout struct {
	io.Writer
	err error
}

// Write implements io.Writer.
func (o *stdout) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// fields writes names and values for people; lines without a value are left out.
type fields struct{ io.Writer }

func (f fields) line(name, value string) {
	if value != "" && value != "-" {
		_, _ = fmt.Fprintf(f, "%-12s %s\n", name, clean(value))
	}
}

// Table writes items as -o says: JSON of all, JSON lines, or a table with a header and a row of each.
func Table[T any](a *App, items []T, header string, row func(T) []any) error {
	switch a.output {
	case "json":
		if items == nil {
			items = []T{}
		}
		return writeJSON(a.Out, items)
	case "jsonl":
		for _, it := range items {
			if err := json.NewEncoder(a.Out).Encode(it); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	for _, it := range items {
		cells := row(it)
		_, _ = fmt.Fprintf(w, strings.Repeat("%v\t", len(cells)-1)+"%v\n", cells...)
	}
	return w.Flush()
}

// One writes one item as -o says; its table form is given.
func One(a *App, item any, table func(io.Writer)) error {
	switch a.output {
	case "json":
		return writeJSON(a.Out, item)
	case "jsonl":
		return json.NewEncoder(a.Out).Encode(item)
	}
	table(a.Out)
	return nil
}

// writeJSON writes indented JSON.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// confirm asks on a terminal; elsewhere --yes is needed.
func (a *App) confirm(question string) error {
	if a.Yes {
		return nil
	}
	if !a.Terminal {
		return Unconfirmed(errors.New(question + " Say --yes"))
	}
	_, _ = fmt.Fprint(a.Err, question+" [y/N] ")
	answer, _ := bufio.NewReader(a.In).ReadString('\n') // no answer is no
	if said := strings.ToLower(strings.TrimSpace(answer)); said == "y" || said == "yes" {
		return nil
	}
	return Unconfirmed(errors.New("not confirmed"))
}

// Counts asks the gateway for the number of tasks by status (operators).
func (a *App) Counts(ctx context.Context) (map[taskstate.Status]int64, error) {
	var stats wire.Stats
	err := a.gateway().Get(ctx, "/internal/tasks/stats", &stats)
	return stats.Counts, err
}

// WriteReport writes what each rule said; in a table the violations follow with their histories.
func (a *App) WriteReport(r history.Report) error {
	err := Table(a, r, "RULE\tJUDGED\tVIOLATIONS\tSENTENCE", func(one history.Result) []any {
		judged := fmt.Sprint(one.Judged)
		if one.Judged == 0 && one.NotJudged != "" {
			judged = "not: " + one.NotJudged
		}
		return []any{one.Rule, judged, one.Violations, one.Sentence}
	})
	if err != nil || a.output != "table" {
		return err
	}
	for _, one := range r {
		for _, e := range one.Examples {
			writeExample(a.Out, one.Rule, e)
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
