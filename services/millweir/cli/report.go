package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/wire"
)

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
