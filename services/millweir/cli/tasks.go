package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/client"
)

// tasks follow and mend tasks.
func tasks(a *App) *cobra.Command {
	return Group("tasks", "follow and mend tasks",
		tasksList(a), tasksGet(a), tasksWatch(a), tasksRetry(a), tasksCancel(a), tasksExplain(a),
		tasksWait(a), tasksSuspend(a), tasksResume(a))
}

// listing are the flags of a verb that lists: filters by their names on the wire, and how many.
type listing struct {
	filters map[string]*string
	limit   int
	watch   bool
}

// newListing defines --limit.
func newListing(c *cobra.Command, limit int, what string) *listing {
	l := &listing{filters: map[string]*string{}}
	c.Flags().IntVar(&l.limit, "limit", limit, "most "+what)
	watchFlag(c, &l.watch)
	return l
}

// filter defines a flag that is sent under another name.
func (l *listing) filter(c *cobra.Command, flag, name, usage string) {
	l.filters[name] = c.Flags().String(flag, "", usage)
}

// given are the filters that were set.
func given(filters map[string]*string) url.Values {
	q := url.Values{}
	for name, v := range filters {
		if *v != "" {
			q.Set(name, *v)
		}
	}
	return q
}

// listed shows what the filters select, and at most --limit of it; q are more parameters, nil: none.
func listed[T any](ctx context.Context, a *App, path string, l *listing, q url.Values, header string, row func(T) []any) error {
	if l.limit < 1 {
		return Usage(fmt.Sprintf("--limit %d: at least 1", l.limit))
	}
	show := func() error {
		filters := given(l.filters)
		maps.Copy(filters, q)
		all, err := client.List[T](ctx, a.Gateway(), path, filters, l.limit)
		if err != nil {
			return err
		}
		return Table(a, all, header, row)
	}
	return a.shownAgain(ctx, l.watch, show)
}

// watchFlag defines --watch.
func watchFlag(c *cobra.Command, watch *bool) {
	c.Flags().BoolVar(watch, "watch", false, "show it again every 2 s, until Ctrl-C")
}

// shownAgain shows something once, or with --watch until ctx ends.
func (a *App) shownAgain(ctx context.Context, watch bool, show func() error) error {
	if !watch {
		return show()
	}
	if a.Output == "json" {
		return Usage("-o json has one end, --watch none: use -o jsonl")
	}
	return a.redrawn(ctx, show)
}

// redrawEach is the time between two drawings of what is watched.
const redrawEach = 2 * time.Second

// redrawn shows something again and again: on a terminal in the place of what was there, elsewhere below it. The screen changes when
// all is known, so it does not flicker, and an error of the server's ends nothing.
func (a *App) redrawn(ctx context.Context, show func() error) error {
	screen := a.Out
	defer func() { a.Out = screen }()
	for {
		var text bytes.Buffer
		a.Out = &text
		err := show()
		a.Out = screen
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && exitCode(ctx, err) != ExitServer && exitCode(ctx, err) != ExitRateLimited:
			return err
		case err != nil:
			_, _ = fmt.Fprintln(a.Err, Clean(err.Error()))
		default:
			clear := ""
			if a.Width > 0 {
				clear = "\x1b[H\x1b[2J"
			}
			if _, err := fmt.Fprintf(screen, "%s%s", clear, text.Bytes()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(redrawEach):
		}
	}
}

// shown reads one thing and shows it.
func shown[T any](ctx context.Context, a *App, path string, table func(fields, T)) error {
	var one T
	if err := a.Gateway().Get(ctx, path, &one); err != nil {
		return err
	}
	return One(a, one, func(w io.Writer) { table(fields{w}, one) })
}

// posted sends a wish and shows what came of it.
func posted[T any](ctx context.Context, a *App, path string, wish any, table func(fields, T)) error {
	var done T
	if err := a.Gateway().Post(ctx, path, wish, &done); err != nil {
		return err
	}
	return One(a, done, func(w io.Writer) { table(fields{w}, done) })
}

func tasksList(a *App) *cobra.Command {
	var l *listing
	c := Verb("list [--filter EXPR] [--status DEAD,RETRYING] [--kb NAME] [--limit N]", "list tasks, newest first", Needs(),
		func(ctx context.Context, _ []string) error {
			return listed(ctx, a, "/api/knowledge/tasks", l, nil, "TASK\tSTATUS\tSTAGE\tPROGRESS\tATTEMPTS\tUPDATED\tFILE\tERROR", func(t wire.Task) []any {
				return []any{
					Clean(t.TaskID), Clean(t.Status), Clean(t.Stage), fmt.Sprintf("%d%%", t.Progress), fmt.Sprintf("%d/%d", t.AttemptCount, t.MaxAttempts),
					t.UpdatedAt.Local().Format(time.DateTime), Long(t.FileName, 40), Long(t.LastError, 60),
				}
			})
		})
	l = newListing(c, 50, "tasks")
	l.filter(c, "filter", "filter", "expression, such as 'status:DEAD error~refused age>1h'")
	l.filter(c, "status", "status", "states, with commas")
	l.filter(c, "kb", "knowledgeBase", "knowledge base")
	l.filter(c, "q", "q", "text in id, file name or error")
	return c
}

func tasksGet(a *App) *cobra.Command {
	return Verb("get ID", "show a task", Needs("a task id"), func(ctx context.Context, args []string) error {
		return shown(ctx, a, client.TaskPath(args[0]), printTask)
	})
}

// printTask writes a task for people.
func printTask(f fields, t wire.Task) {
	f.line("task", t.TaskID)
	f.line("document", string(t.DocumentID))
	f.line("file", string(t.FileName))
	f.line("base", string(t.KnowledgeBase))
	f.line("status", string(t.Status))
	f.line("stage", string(t.Stage))
	f.line("progress", fmt.Sprintf("%d%%, %d of %d segments", t.Progress, t.ProcessedSegments, t.TotalSegments))
	f.line("attempts", fmt.Sprintf("%d of %d failed, %d crashes", t.AttemptCount, t.MaxAttempts, t.CrashCount))
	if !t.NextRetryAt.Missing() {
		f.line("next retry", t.NextRetryAt.Local().Format(time.RFC3339Nano))
	}
	f.line("last error", string(t.LastError))
	f.line("created", t.CreatedAt.Local().Format(time.RFC3339))
	f.line("updated", t.UpdatedAt.Local().Format(time.RFC3339))
}

// tasksWatch follows one task to its end; a DEAD or CANCELLED one is exit 1.
func tasksWatch(a *App) *cobra.Command {
	var timeout time.Duration
	c := Verb("watch ID", "follow a task to its end", Needs("a task id"), func(ctx context.Context, args []string) error {
		ctx, stop := WithTimeout(ctx, timeout)
		defer stop()
		t, err := a.Gateway().Watch(ctx, args[0], func(t wire.Task) {
			if a.Output == "json" {
				return // one document: the last state
			}
			_ = One(a, t, func(w io.Writer) {
				_, _ = fmt.Fprintf(w, "%s  %-10s %-8s %3d%%  %d/%d segments %s\n", t.UpdatedAt.Local().Format("15:04:05.000"),
					Clean(t.Status), Clean(t.Stage), t.Progress, t.ProcessedSegments, t.TotalSegments, Short(t.LastError, 100))
			})
		})
		if err == nil && a.Output == "json" {
			err = writeJSON(a.Out, t)
		}
		if err != nil {
			return err
		}
		return Verdict(t)
	})
	c.Flags().DurationVar(&timeout, "timeout", 0, "give up after this time; 0: never")
	return c
}

func tasksRetry(a *App) *cobra.Command {
	return Verb("retry ID…", "run tasks again now", NeedsSome("task id"), func(ctx context.Context, ids []string) error {
		return act(ctx, a, ids, "retry")
	})
}

func tasksCancel(a *App) *cobra.Command {
	return Verb("cancel ID… [--yes]", "withdraw tasks", NeedsSome("task id"), func(ctx context.Context, ids []string) error {
		if err := a.confirm(fmt.Sprintf("Cancel %d task(s)?", len(ids))); err != nil {
			return err
		}
		return act(ctx, a, ids, "cancel")
	})
}

// act posts a verb to each task and shows the tasks afterwards.
func act(ctx context.Context, a *App, ids []string, verb string) error {
	done, failed := postEach[wire.Task](ctx, a, ids, verb, func(id string) string { return client.TaskPath(id, verb) })
	return cmp.Or(failed, Table(a, done, "TASK\tSTATUS", taskRow))
}

// taskRow is a task after a step.
func taskRow(t wire.Task) []any { return []any{Clean(t.TaskID), Clean(t.Status)} }

// postEach posts to the path of each id and returns what came back; the first refusal ends it.
func postEach[T any](ctx context.Context, a *App, ids []string, verb string, path func(id string) string) ([]T, error) {
	return forEach(ids, verb, func(id string) (one T, err error) {
		err = a.Gateway().Post(ctx, path(id), nil, &one)
		return one, err
	})
}

// forEach takes a step for each id and returns what came of it; the first failure ends it.
func forEach[T any](ids []string, verb string, step func(id string) (T, error)) (done []T, err error) {
	for _, id := range ids {
		one, err := step(id)
		if err != nil {
			return done, fmt.Errorf("%s %s: %w", verb, id, err)
		}
		done = append(done, one)
	}
	return done, nil
}

func tasksExplain(a *App) *cobra.Command {
	return Verb("explain ID", "say where a task is and what happens next", Needs("a task id"), func(ctx context.Context, args []string) error {
		return shown(ctx, a, client.TaskPath(args[0], "explain"), func(f fields, e wire.Explanation) { _, _ = fmt.Fprintln(f, Clean(e.Text)) })
	})
}

// search finds segments; the words of the query may stand without quotes.
func search(a *App) *cobra.Command {
	var wish wire.SearchRequest
	var top int
	var grouped bool
	c := Verb("search QUERY [--kb NAME] [--top N] [--mode MODE]", "find segments", NeedsSome("word"), func(ctx context.Context, words []string) error {
		var found wire.SearchAnswer
		wish.Query, wish.TopK = strings.Join(words, " "), &top
		if grouped {
			wish.GroupBy = "document"
		}
		if err := a.Gateway().Post(ctx, "/api/knowledge/search", wish, &found); err != nil {
			return err
		}
		if a.Output == "jsonl" {
			return Table(a, hitsOf(found), "", nil)
		}
		return One(a, found, func(w io.Writer) { printHits(w, found) })
	})
	f := c.Flags()
	f.StringVar(&wish.KnowledgeBase, "kb", "", "knowledge base")
	f.StringVar(&wish.Mode, "mode", "", "auto, text, vector or hybrid; without it the base's")
	f.IntVar(&top, "top", 5, "most hits, 1..50")
	f.StringSliceVar(&wish.DocumentIDs, "document", nil, "in documents of these ids only")
	f.StringSliceVar(&wish.MediaTypes, "type", nil, "in documents of these media types only")
	f.Var((*MetadataFlag)(&wish.Metadata), "meta", "in documents with that in their metadata only, KEY=TEXT or KEY:=JSON; may be repeated")
	f.StringVar(&wish.CreatedAfter, "created-after", "", "in documents made after this time only")
	f.StringVar(&wish.CreatedBefore, "created-before", "", "in documents made before this time only")
	f.StringVar(&wish.UpdatedAfter, "updated-after", "", "in documents changed after this time only")
	f.StringVar(&wish.UpdatedBefore, "updated-before", "", "in documents changed before this time only")
	f.BoolVar(&grouped, "by-document", false, "the best hits of each document; --top counts documents")
	f.StringVar(&wish.Cursor, "cursor", "", "the next page, as the page before names it")
	return c
}

// hitsOf are the hits of a search, group by group if they are grouped.
func hitsOf(found wire.SearchAnswer) []wire.Hit {
	hits := found.Hits
	for _, g := range found.Groups {
		hits = append(hits, g.Hits...)
	}
	return hits
}

// printHits writes hits for people.
func printHits(w io.Writer, found wire.SearchAnswer) {
	hits := hitsOf(found)
	for i, h := range hits {
		place := ""
		if page := cmp.Or(h.Sentence.Page, h.Page); page > 0 {
			place = fmt.Sprintf(", page %d", page)
		}
		if len(h.HeadingPath) > 0 {
			place += ", " + Clean(strings.Join(h.HeadingPath, " > "))
		}
		score := h.Score
		if h.RerankScore != nil {
			score = *h.RerankScore // what they are ordered by
		}
		_, _ = fmt.Fprintf(w, "%d. %.3f  %s%s\n   %s\n", i+1, score, Clean(h.Title), place, Short(strings.Join(strings.Fields(cmp.Or(h.Sentence.Text, h.Text)), " "), 300))
	}
	if len(hits) == 0 {
		_, _ = fmt.Fprintln(w, "nothing found")
	}
	if found.Suggestion != "" {
		_, _ = fmt.Fprintf(w, "(looked for: %s)\n", Clean(string(found.Suggestion)))
	}
	if found.Reranked != nil && !*found.Reranked {
		_, _ = fmt.Fprintln(w, "(not reranked: the service failed)")
	}
	if found.HasMore {
		_, _ = fmt.Fprintf(w, "(more with --cursor %s)\n", Clean(string(found.NextCursor)))
	}
	if found.Partial {
		_, _ = fmt.Fprintln(w, "(there may be more)")
	}
}

// EndedError is a task that did not succeed.
type EndedError struct{ wire.Task }

// Error says what became of it.
func (e *EndedError) Error() string {
	return fmt.Sprintf("task %s is %s: %s", e.TaskID, e.Status, cmp.Or(e.ErrorMessage, e.LastError))
}

// Verdict is an error unless the task succeeded.
func Verdict(t wire.Task) error {
	if t.Status == taskstate.StatusSucceeded {
		return nil
	}
	return Failed(&EndedError{t})
}

// WithTimeout limits ctx when d is positive.
func WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
