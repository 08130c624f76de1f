package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/client"
)

const (
	failuresPath = "/api/knowledge/failures"
	bulkPath     = "/api/knowledge/bulk"
	viewsPath    = "/api/knowledge/views"
	// mostWaited bounds the tasks that one command waits for.
	mostWaited = 10_000
	// runningShown is how many running tasks top shows at most.
	runningShown = 20
	// waitAtOnce is how many tasks are watched at a time: each takes a stream of events.
	waitAtOnce = 8
)

// groups lists failures by their cause.
func groups(a *App) *cobra.Command {
	var l *listing
	c := Verb("groups [--kb NAME] [--limit N]", "list failures by their cause, the last one first; their tasks: tasks list --filter group:ID", Needs(),
		func(ctx context.Context, _ []string) error {
			return listed(ctx, a, failuresPath, l, nil, "GROUP\tTASKS\tFAILURES\tLAST\tCODE\tCURE\tPATTERN", func(g wire.FailureGroup) []any {
				cure := "retry"
				if g.Permanent {
					cure = "none by retry"
				}
				return []any{Clean(g.GroupID), g.Tasks, g.Failures, g.LastAt.Local().Format(time.DateTime), word(g.ErrorCode), cure, Long(g.Pattern, 80)}
			})
		})
	l = newListing(c, 50, "groups")
	l.filter(c, "kb", "knowledgeBase", "knowledge base")
	return c
}

// needsAtMost refuses more than n arguments.
func needsAtMost(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > n {
			return Usage(fmt.Sprintf("unexpected argument %q", args[n]))
		}
		return nil
	}
}

// errorKind is an error code with what it means.
type errorKind struct {
	Code    string `json:"code"`
	Status  int    `json:"status"`
	Message string `json:"message"`
	Remedy  string `json:"remedy"`
}

// errorCodes shows what codes mean, as the server has them.
func errorCodes(a *App) *cobra.Command {
	return Verb("errors [CODE]", "list the error codes with what they mean and what to do", needsAtMost(1), func(ctx context.Context, args []string) error {
		var doc struct {
			Codes map[string]errorKind `json:"x-error-codes"`
		}
		if err := a.Gateway().Get(ctx, "/openapi.json", &doc); err != nil {
			return err
		}
		if len(doc.Codes) == 0 {
			return fmt.Errorf("%s/openapi.json has no error codes: it is no millweir gateway, or an older one", a.Server)
		}
		if len(args) == 1 {
			code := strings.ToUpper(args[0])
			kind, known := doc.Codes[code]
			if !known {
				return NotFound(fmt.Errorf("the server has no code %q; millweir errors lists all", args[0]))
			}
			kind.Code = code
			return One(a, kind, func(w io.Writer) {
				f := fields{w}
				f.line("code", kind.Code)
				f.line("status", strconv.Itoa(kind.Status))
				f.line("message", kind.Message)
				f.line("remedy", kind.Remedy)
			})
		}
		var all []errorKind
		for _, code := range slices.Sorted(maps.Keys(doc.Codes)) {
			kind := doc.Codes[code]
			kind.Code = code
			all = append(all, kind)
		}
		return Table(a, all, "CODE\tSTATUS\tMESSAGE\tREMEDY", func(k errorKind) []any {
			return []any{Clean(k.Code), k.Status, Long(k.Message, 80), Long(k.Remedy, 120)}
		})
	})
}

// tasksWait waits for the end of tasks; a DEAD one is exit 1.
func tasksWait(a *App) *cobra.Command {
	var filter string
	var timeout time.Duration
	c := Verb("wait ID… | wait --filter EXPR [--timeout T]", "wait until tasks have ended; exit 1 when one is DEAD", cobra.ArbitraryArgs, func(ctx context.Context, ids []string) error {
		if (len(ids) == 0) == (filter == "") {
			return Usage("needs either task ids or --filter")
		}
		ctx, stop := WithTimeout(ctx, timeout)
		defer stop()
		if filter != "" {
			found, err := client.List[wire.Task](ctx, a.Gateway(), "/api/knowledge/tasks", url.Values{"filter": {filter}}, mostWaited+1)
			if err != nil {
				return err
			}
			if len(found) > mostWaited {
				return BadInput(fmt.Errorf("the filter selects more than %d tasks: narrow it", mostWaited))
			}
			for _, t := range found {
				ids = append(ids, t.TaskID)
			}
		}
		ended, err := a.waitFor(ctx, ids)
		if err != nil {
			return err
		}
		if err := Table(a, ended, "TASK\tSTATUS\tERROR", func(t wire.Task) []any {
			return []any{Clean(t.TaskID), Clean(t.Status), Long(t.LastError, 80)}
		}); err != nil {
			return err
		}
		dead := 0
		for _, t := range ended {
			if t.Status == taskstate.StatusDead {
				dead++
			}
		}
		if dead > 0 {
			return Failed(fmt.Errorf("%d of %d tasks are DEAD: millweir groups says why", dead, len(ended)))
		}
		return nil
	})
	c.Flags().StringVar(&filter, "filter", "", "the tasks that this expression selects now")
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after this time, exit 124; 0: never")
	return c
}

// waitFor watches tasks to their end, some at a time. The first one that cannot be watched ends it.
func (a *App) waitFor(ctx context.Context, ids []string) ([]wire.Task, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make([]wire.Task, len(ids))
	var wg sync.WaitGroup
	slots := make(chan struct{}, waitAtOnce)
	for i, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			if ended[i], err = a.Gateway().Watch(ctx, id, func(wire.Task) {}); err != nil {
				stop(fmt.Errorf("%s: %w", id, err)) // the first one counts
			}
		})
	}
	wg.Wait()
	return ended, context.Cause(ctx)
}

func tasksSuspend(a *App) *cobra.Command {
	return Verb("suspend ID…", "hold tasks until they are resumed (operators)", NeedsSome("task id"), func(ctx context.Context, ids []string) error {
		done, failed := postEach[wire.Task](ctx, a, ids, "suspend", func(id string) string { return "/internal/tasks/" + url.PathEscape(id) + "/suspend" })
		return cmp.Or(failed, Table(a, done, "TASK\tSTATUS", taskRow))
	})
}

func tasksResume(a *App) *cobra.Command {
	return Verb("resume ID…", "let suspended tasks go on (operators)", NeedsSome("task id"), func(ctx context.Context, ids []string) error {
		done, failed := postEach[wire.TaskStep](ctx, a, ids, "resume", func(id string) string { return "/internal/tasks/" + url.PathEscape(id) + "/resume" })
		return cmp.Or(failed, Table(a, done, "TASK\tSTATUS", func(t wire.TaskStep) []any { return []any{Clean(t.TaskID), Clean(t.Status)} }))
	})
}

// operations takes one step of many tasks.
func operations(a *App) *cobra.Command {
	g := Group("bulk", "one step of many tasks", bulkRun(a), bulkList(a), bulkGet(a))
	for _, step := range [][2]string{{"pause", "hold an operation"}, {"resume", "let a paused operation go on"}, {"stop", "end an operation; what is done stays"}} {
		g.AddCommand(Verb(step[0]+" OPERATION", step[1], Needs("an operation id"), func(ctx context.Context, args []string) error {
			return posted(ctx, a, bulkPath+"/"+url.PathEscape(args[0])+"/"+step[0], nil, printOperation)
		}))
	}
	return g
}

func bulkRun(a *App) *cobra.Command {
	var wish wire.BulkRequest
	c := Verb("run ACTION --filter EXPR [--reason TEXT] [--rps N] [--dry-run] [--yes]",
		"retry, cancel, suspend, resume, delete, replay or reindex all tasks that a filter selects", Needs("an action"), func(ctx context.Context, args []string) error {
			if wish.Filter == "" {
				return Usage("needs --filter EXPR, such as 'status:DEAD code:EMBEDDING_REJECTED age<1d'")
			}
			wish.Action = args[0]
			if wish.DryRun {
				return posted(ctx, a, bulkPath, wish, printPreview)
			}
			if !a.Yes {
				if err := a.confirmBulk(ctx, wish); err != nil {
					return err
				}
			}
			return posted(ctx, a, bulkPath, wish, printOperation)
		})
	f := c.Flags()
	f.StringVar(&wish.Filter, "filter", "", "expression that selects the tasks")
	f.StringVar(&wish.Reason, "reason", "", "why, for the audit log")
	f.IntVar(&wish.RatePerSecond, "rps", 0, "tasks a second at most; 0: no limit")
	f.BoolVar(&wish.DryRun, "dry-run", false, "say what it would do, and do nothing")
	return c
}

// confirmBulk shows what an operation would do, and asks.
func (a *App) confirmBulk(ctx context.Context, wish wire.BulkRequest) error {
	wish.DryRun = true
	var would wire.BulkPreview
	if err := a.Gateway().Post(ctx, bulkPath, wish, &would); err != nil {
		return err
	}
	printPreview(fields{a.Err}, would)
	return a.confirm(fmt.Sprintf("%s %d task(s)?", Clean(wish.Action), would.Eligible))
}

// printPreview writes what an operation would do.
func printPreview(f fields, p wire.BulkPreview) {
	f.line("matched", strconv.FormatInt(p.Matched, 10))
	f.line("eligible", strconv.FormatInt(p.Eligible, 10))
	f.line("skipped", reasons(p.Skipped))
	f.line("refused", reasons(p.Refused))
	for _, t := range p.Sample {
		_, _ = fmt.Fprintf(f, "  %s  %s  %s\n", Clean(t.TaskID), Clean(t.Status), Short(t.LastError, 80))
	}
}

// reasons are counts by reason in one line.
func reasons[K ~string](counts map[K]int64) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], string(reason)))
	}
	return strings.Join(parts, ", ")
}

// printOperation writes an operation for people.
func printOperation(f fields, o wire.BulkOperation) {
	f.line("operation", o.OperationID)
	f.line("action", o.Action)
	f.line("filter", o.Filter)
	f.line("reason", o.Reason)
	f.line("status", operationStatus(o.Status))
	f.line("done", progressOf(o))
	f.line("failed", strconv.FormatInt(o.Failed, 10))
	f.line("skipped", reasons(o.Skipped))
	f.line("error", string(o.ErrorMessage))
}

// operationStatus is the status of an operation's task in the words of operations.
func operationStatus(s taskstate.Status) string {
	switch s { //nolint:exhaustive // the others are called the same
	case taskstate.StatusSuspended:
		return "paused"
	case taskstate.StatusCancelled:
		return "stopped"
	}
	return Clean(s)
}

// progressOf is how many tasks of how many are done.
func progressOf(o wire.BulkOperation) string {
	if o.Matched == nil {
		return strconv.FormatInt(o.Done, 10)
	}
	return fmt.Sprintf("%d of %d", o.Done, *o.Matched)
}

func bulkList(a *App) *cobra.Command {
	var l *listing
	c := Verb("list [--limit N]", "list operations, newest first", Needs(), func(ctx context.Context, _ []string) error {
		return listed(ctx, a, bulkPath, l, nil, "OPERATION\tACTION\tSTATUS\tDONE\tFAILED\tCREATED\tFILTER", func(o wire.BulkOperation) []any {
			return []any{
				Clean(o.OperationID), Clean(o.Action), operationStatus(o.Status), progressOf(o), o.Failed, o.CreatedAt.Local().Format(time.DateTime), Long(o.Filter, 60),
			}
		})
	})
	l = newListing(c, 50, "operations")
	return c
}

func bulkGet(a *App) *cobra.Command {
	return Verb("get OPERATION", "show how far an operation is", Needs("an operation id"), func(ctx context.Context, args []string) error {
		return shown(ctx, a, bulkPath+"/"+url.PathEscape(args[0]), printOperation)
	})
}

// savedViews keeps filter expressions by name.
func savedViews(a *App) *cobra.Command {
	return Group("views", "filter expressions with a name", viewsList(a), viewsSave(a), viewsDelete(a))
}

func viewsList(a *App) *cobra.Command {
	return Verb("list", "list saved views", Needs(), func(ctx context.Context, _ []string) error {
		var all wire.List[wire.View]
		if err := a.Gateway().Get(ctx, viewsPath, &all); err != nil {
			return err
		}
		return Table(a, all.Items, "VIEW\tNAME\tSHARED\tFILTER", viewRow)
	})
}

// viewRow is a view in a table.
func viewRow(v wire.View) []any {
	shared := "-"
	if v.Shared {
		shared = "yes"
	}
	return []any{Clean(v.ViewID), Clean(v.Name), shared, Long(v.Filter, 80)}
}

func viewsSave(a *App) *cobra.Command {
	var wish wire.ViewRequest
	c := Verb("save NAME EXPR [--shared]", "save a filter expression; one of the same name is replaced", Needs("a name", "an expression"),
		func(ctx context.Context, args []string) error {
			wish.Name, wish.Filter = args[0], args[1]
			return posted(ctx, a, viewsPath, wish, func(f fields, v wire.View) {
				f.line("view", v.ViewID)
				f.line("name", v.Name)
				f.line("filter", v.Filter)
			})
		})
	c.Flags().BoolVar(&wish.Shared, "shared", false, "everybody sees it (operators)")
	return c
}

func viewsDelete(a *App) *cobra.Command {
	return Verb("delete VIEW", "delete a saved view, by its id", Needs("a view id"), func(ctx context.Context, args []string) error {
		if err := a.Gateway().Delete(ctx, viewsPath+"/"+url.PathEscape(args[0])); err != nil {
			return err
		}
		return Table(a, []removed{{args[0], true}}, "ID\tDELETED", removedRow)
	})
}

// overviewOf is what top shows.
type overviewOf struct {
	At      time.Time         `json:"at"`
	Stats   *wire.Stats       `json:"stats"`  // null: only operators see it
	Outbox  *wire.OutboxStats `json:"outbox"` // null: only operators see it, and it is used with Kafka
	Running []wire.Task       `json:"running"`
	Oldest  *wire.Task        `json:"oldest"` // that waits; null: none does
}

// top shows work and queues, again and again.
func top(a *App) *cobra.Command {
	var once bool
	c := Verb("top [--once]", "show work and queues: counts, the oldest that waits, what runs; until Ctrl-C", Needs(), func(ctx context.Context, _ []string) error {
		if a.Output == "json" && !once {
			return Usage("-o json goes with --once; without it there is no end: use -o jsonl")
		}
		show := func() error {
			o, err := a.lookAround(ctx)
			if err != nil {
				return err
			}
			return One(a, o, func(w io.Writer) { a.printOverview(w, o) })
		}
		if once {
			return show()
		}
		return a.redrawn(ctx, show)
	})
	c.Flags().BoolVar(&once, "once", false, "show it once")
	return c
}

// lookAround asks for everything that top shows. What is for operators alone may be missing: a proxy may leave it out too.
func (a *App) lookAround(ctx context.Context) (o overviewOf, err error) {
	o.At = time.Now().UTC()
	for path, into := range map[string]any{"/internal/tasks/stats": &o.Stats, "/internal/outbox": &o.Outbox} {
		err := a.Gateway().Get(ctx, path, into)
		var refused *client.Error
		if errors.As(err, &refused) && (refused.Status == http.StatusNotFound || RefusalCode(refused) == ExitAuth) {
			continue
		}
		if err != nil {
			return o, err
		}
	}
	if o.Running, err = client.List[wire.Task](ctx, a.Gateway(), "/api/knowledge/tasks", url.Values{"status": {"RUNNING"}}, runningShown); err != nil {
		return o, err
	}
	waiting, err := client.List[wire.Task](ctx, a.Gateway(), "/api/knowledge/tasks", url.Values{"status": {"QUEUED,RETRYING"}, "sort": {"createdAt"}}, 1)
	if len(waiting) > 0 {
		o.Oldest = &waiting[0]
	}
	return o, err
}

// printOverview writes it for people.
func (a *App) printOverview(w io.Writer, o overviewOf) {
	_, _ = fmt.Fprintf(w, "%s  %s\n\n", o.At.Local().Format(time.DateTime), Clean(a.Server))
	if o.Stats != nil {
		var counts []string
		for _, s := range slices.Sorted(maps.Keys(o.Stats.Counts)) {
			if n, recent := o.Stats.Counts[s], o.Stats.Recent[s]; n != 0 || recent != 0 {
				counts = append(counts, fmt.Sprintf("%s %d (+%d/h)", Clean(s), n, recent))
			}
		}
		f := fields{w}
		f.line("tasks", cmp.Or(strings.Join(counts, "  "), "none"))
		f.line("stream", fmt.Sprintf("%d entries, %d retries, %d suspended", o.Stats.StreamLength, o.Stats.RetryLength, o.Stats.SuspendedLength))
	}
	if o.Outbox != nil {
		wait := fmt.Sprintf("%d events wait", o.Outbox.Backlog)
		if o.Outbox.Backlog > 0 {
			wait += fmt.Sprintf(", the oldest for %s", time.Duration(o.Outbox.OldestAgeSeconds*float64(time.Second)).Round(time.Second))
		}
		fields{w}.line("outbox", wait)
	}
	if t := o.Oldest; t != nil {
		fields{w}.line("oldest", fmt.Sprintf("%s %s waits since %s", t.TaskID, t.Status, t.CreatedAt.Local().Format(time.DateTime)))
	}
	_, _ = fmt.Fprintln(w)
	r := NewRows(a, "RUNNING\tSTAGE\tPROGRESS\tSEGMENTS\tATTEMPT\tSINCE", func(t wire.Task) []any {
		return []any{
			Clean(t.TaskID), Clean(t.Stage), fmt.Sprintf("%d%%", t.Progress), fmt.Sprintf("%d/%d", t.ProcessedSegments, t.TotalSegments), t.AttemptCount + 1,
			t.UpdatedAt.Local().Format(time.DateTime),
		}
	})
	r.W = w
	for _, t := range o.Running {
		_ = r.Add(t)
	}
	_ = r.End()
}
