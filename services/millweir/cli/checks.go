package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/pkg/wire"
)

const checksPath = "/internal/fsck"

// checks asks the gateway for checks of the installation, which workers run; fsck (package admin) checks from where the settings are.
func checks(a *App) *cobra.Command {
	return Group("checks", "checks of the installation by its own workers", checksRun(a), checksList(a), checksGet(a))
}

func checksRun(a *App) *cobra.Command {
	var wish wire.CheckRequest
	var dryRun, wait bool
	var timeout time.Duration
	c := Verb("run [--deep] [--history] [--repair (--dry-run | --reason TEXT)] [--wait [--timeout T]] [--yes]",
		"ask for a check of the installation, which a worker runs; its report: checks get", Needs(), func(ctx context.Context, _ []string) error {
			switch {
			case timeout != 0 && !wait:
				return Usage("--timeout goes with --wait")
			case !wish.Repair && (dryRun || wish.Reason != ""):
				return Usage("--dry-run and --reason go with --repair")
			case wish.Repair && dryRun == (wish.Reason != ""):
				return Usage("--repair needs --reason TEXT, or --dry-run")
			case wish.Repair && !dryRun:
				if err := a.confirm("Mend what can be mended: vectors, the full-text index, rows and files?"); err != nil {
					return err
				}
			}
			if wish.Repair {
				wish.DryRun = &dryRun
			}
			if wait {
				return a.waitForCheck(ctx, wish, timeout)
			}
			return posted(ctx, a, checksPath, wish, func(f fields, r wire.CheckReport) {
				printCheck(f, r.Check)
				f.line("report", "millweir checks get "+r.CheckID)
			})
		})
	f := c.Flags()
	f.BoolVar(&wish.Deep, "deep", false, "compare the values of all visible vectors with the embedding cache; reads every vector")
	f.BoolVar(&wish.History, "history", false, "judge the log of tasks by all rules, not the content alone")
	f.BoolVar(&wish.Repair, "repair", false, "mend what can be mended, after the check")
	f.BoolVar(&dryRun, "dry-run", false, "with --repair: only list what would be mended")
	f.StringVar(&wish.Reason, "reason", "", "with --repair: why, for the audit log")
	f.BoolVar(&wait, "wait", false, "wait for its end and show the report, as checks get does")
	f.DurationVar(&timeout, "timeout", 0, "with --wait: give up after this time, exit 124; 0: never. The check goes on")
	return c
}

// waitForCheck asks for a check, follows its task to the end and shows the report.
func (a *App) waitForCheck(ctx context.Context, wish wire.CheckRequest, timeout time.Duration) error {
	ctx, stop := WithTimeout(ctx, timeout)
	defer stop()
	var asked wire.CheckReport
	if err := a.Gateway().Post(ctx, checksPath, wish, &asked); err != nil {
		return err
	}
	if _, err := a.waitFor(ctx, []string{asked.CheckID}); err != nil {
		return err
	}
	return a.showCheck(ctx, asked.CheckID)
}

func checksList(a *App) *cobra.Command {
	var l *listing
	c := Verb("list [--limit N]", "list checks of the installation, newest first", Needs(), func(ctx context.Context, _ []string) error {
		return listed(ctx, a, checksPath, l, nil, "CHECK\tSTATUS\tVIOLATIONS\tLEFT\tCREATED\tUSER\tWHAT", func(c wire.Check) []any {
			return []any{
				Clean(c.CheckID), Clean(c.Status), figure(c.Violations), figure(c.Left), c.CreatedAt.Local().Format(time.DateTime), Clean(c.UserID), whatOf(c),
			}
		})
	})
	l = newListing(c, 50, "checks")
	return c
}

// checksGet shows a report; its exit codes are those of fsck.
func checksGet(a *App) *cobra.Command {
	return Verb("get CHECK", "show a check of the installation, rule by rule; exit code 1 on violations, or when it failed", Needs("a check id"),
		func(ctx context.Context, args []string) error { return a.showCheck(ctx, args[0]) })
}

// showCheck shows a check's report; its error is what the check found.
func (a *App) showCheck(ctx context.Context, id string) error {
	var r wire.CheckReport
	if err := a.Gateway().Get(ctx, checksPath+"/"+url.PathEscape(id), &r); err != nil {
		return err
	}
	var failed error
	if err := One(a, r, func(io.Writer) { failed = a.writeCheck(r) }); err != nil || failed != nil {
		return cmp.Or(err, failed)
	}
	return checkVerdict(r.Check)
}

// checkVerdict is an error when a check found what is not mended, or came to no end. One that is under way has none yet.
func checkVerdict(c wire.Check) error {
	left := c.Violations
	if c.Left != nil {
		left = c.Left
	}
	switch {
	case left != nil && *left > 0:
		return Failed(fmt.Errorf("%d violations", *left))
	case c.Status == taskstate.StatusDead || c.Status == taskstate.StatusCancelled:
		return Failed(fmt.Errorf("the check is %s, and has no report", c.Status))
	}
	return nil
}

// figure is a number that may not be known yet.
func figure(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// whatOf says what a check looks at, and what it changes.
func whatOf(c wire.Check) string {
	text := "content"
	if c.History {
		text += ", history"
	}
	if c.Deep {
		text += ", values of vectors"
	}
	switch {
	case c.Repair && c.DryRun:
		text += "; dry run of a repair"
	case c.Repair:
		text += "; repair"
	}
	return text
}

// printCheck writes a check without its report.
func printCheck(f fields, c wire.Check) {
	f.line("check", c.CheckID)
	f.line("what", whatOf(c))
	f.line("user", c.UserID)
	f.line("reason", c.Reason)
	f.line("created", c.CreatedAt.Local().Format(time.RFC3339))
	f.line("status", Clean(c.Status))
	if !c.Status.Terminal() && c.Steps > 0 {
		f.line("steps", fmt.Sprintf("%d of %d", c.StepsDone, c.Steps))
	}
	f.line("violations", figure(c.Violations))
	f.line("left", figure(c.Left))
	if c.Seconds != nil {
		f.line("took", seconds(*c.Seconds))
	}
	f.line("error", string(c.ErrorMessage))
}

// writeCheck writes a check with its report: the rules as fsck writes them, and what a repair did or would do.
func (a *App) writeCheck(r wire.CheckReport) error {
	f := fields{a.Out}
	printCheck(f, r.Check)
	if len(r.Rules) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(f)
	report := make(history.Report, len(r.Rules))
	for i, rule := range r.Rules {
		report[i] = history.Result{
			Rule: Clean(rule.Rule), Sentence: Clean(rule.Sentence), Judged: rule.Judged, Violations: rule.Violations, NotJudged: Clean(rule.NotJudged),
		}
		for _, e := range rule.Examples {
			report[i].Examples = append(report[i].Examples, history.Example{Task: e.About, Problem: e.Problem, History: e.History})
		}
	}
	if err := a.WriteReport(report); err != nil {
		return err
	}
	if r.Young > 0 {
		_, _ = fmt.Fprintf(f, "\n%d files without a row are younger than a day: an upload may be under way.\n", r.Young)
	}
	if r.Uncompared > 0 {
		_, _ = fmt.Fprintf(f, "\n%d vectors were not compared: the embedding cache does not have them.\n", r.Uncompared)
	}
	if r.Shortened {
		_, _ = fmt.Fprintln(f, "\nEvidence was left out, so that the report can be kept.")
	}
	if r.RepairReport == nil {
		return nil
	}
	return a.writeRepair(*r.RepairReport)
}

// writeRepair writes what a repair did, or would do.
func (a *App) writeRepair(r wire.CheckRepair) error {
	header := "\nMENDED\tRULE\tCOUNT"
	if r.DryRun {
		header = "\nWOULD MEND\tRULE\tCOUNT"
	}
	err := Table(a, r.Mends, header, func(m wire.CheckMend) []any { return []any{Clean(m.What), word(wire.NullText(m.Rule)), m.Count} })
	for _, m := range r.Mends {
		for _, item := range m.Items {
			_, _ = fmt.Fprintf(a.Out, "  %s %s\n", Clean(m.What), Clean(item))
		}
	}
	for _, left := range r.Left {
		_, _ = fmt.Fprintf(a.Out, "not mended: %s\n", Clean(left))
	}
	if more := r.LeftCount - len(r.Left); more > 0 {
		_, _ = fmt.Fprintf(a.Out, "not mended: %d more\n", more)
	}
	return err
}
