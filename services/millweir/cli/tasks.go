package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// tasksList lists tasks.
func tasksList(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "tasks list")
	status := f.String("status", "", "states, with commas")
	kb := f.String("kb", "", "knowledge base")
	text := f.String("q", "", "text in id, file name or error")
	limit := f.Int("limit", 50, "most tasks")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return &usageError{fmt.Sprintf("unexpected argument %q", rest[0])}
	}
	filters := given(map[string]*string{"status": status, "knowledgeBase": kb, "q": text})
	all, err := listAll[task](ctx, f, "/api/knowledge/tasks", filters, *limit)
	if err != nil {
		return err
	}
	return emit(f, all, "TASK\tSTATUS\tSTAGE\tPROGRESS\tATTEMPTS\tUPDATED\tERROR", func(t task) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d%%\t%d/%d\t%s\t%s", clean(t.TaskID), clean(t.Status), clean(t.Stage), t.Progress,
			t.AttemptCount, t.MaxAttempts, t.UpdatedAt.Local().Format(time.DateTime), short(t.LastError, 60))
	})
}

// tasksGet shows one task.
func tasksGet(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "tasks get")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	id, err := one(rest, "task id")
	if err != nil {
		return err
	}
	t, err := f.client().getTask(ctx, id)
	if err != nil {
		return err
	}
	return emitOne(f, t, func(w io.Writer) { printTask(w, t) })
}

// printTask writes a task for people.
func printTask(w io.Writer, t task) {
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(w, "%-12s %s\n", name, clean(value))
		}
	}
	line("task", t.TaskID)
	line("document", t.DocumentID)
	line("status", t.Status)
	line("stage", t.Stage)
	line("progress", fmt.Sprintf("%d%%, %d of %d segments", t.Progress, t.ProcessedSegments, t.TotalSegments))
	line("attempts", fmt.Sprintf("%d of %d failed, %d crashes", t.AttemptCount, t.MaxAttempts, t.CrashCount))
	if t.NextRetryAt != nil {
		line("next retry", t.NextRetryAt.Local().Format(time.RFC3339Nano))
	}
	line("last error", t.LastError)
	line("created", t.CreatedAt.Local().Format(time.RFC3339))
	line("updated", t.UpdatedAt.Local().Format(time.RFC3339))
}

// tasksWatch follows one task to its end; a DEAD or CANCELLED one is exit 1.
func tasksWatch(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "tasks watch")
	timeout := f.Duration("timeout", 0, "give up after this time; 0: never")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	id, err := one(rest, "task id")
	if err != nil {
		return err
	}
	ctx, stop := withTimeout(ctx, *timeout)
	defer stop()
	t, err := f.client().watch(ctx, id, func(t task) {
		if f.output == "json" {
			return // one document: the last state
		}
		_ = emitOne(f, t, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s  %-10s %-8s %3d%%  %d/%d segments %s\n", t.UpdatedAt.Local().Format("15:04:05.000"),
				clean(t.Status), clean(t.Stage), t.Progress, t.ProcessedSegments, t.TotalSegments, short(t.LastError, 100))
		})
	})
	if err != nil {
		return err
	}
	if f.output == "json" {
		if err := writeJSON(std.Out, t); err != nil {
			return err
		}
	}
	return verdict(t)
}

// verdict is an error unless the task succeeded.
func verdict(t task) error {
	if t.Status == "SUCCEEDED" {
		return nil
	}
	why := t.ErrorMessage
	if why == "" {
		why = t.LastError
	}
	return &codedError{ExitFailed, fmt.Errorf("task %s is %s: %s", t.TaskID, t.Status, why)}
}

// withTimeout limits ctx when d is positive.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// tasksRetry runs tasks again.
func tasksRetry(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "tasks retry")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	return act(ctx, f, rest, "retry")
}

// tasksCancel withdraws tasks after a question.
func tasksCancel(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "tasks cancel")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	if err := confirm(f, fmt.Sprintf("Cancel %d task(s)?", len(rest))); err != nil {
		return err
	}
	return act(ctx, f, rest, "cancel")
}

// act posts a verb to each task; the first refusal ends it.
func act(ctx context.Context, f *common, ids []string, verb string) error {
	if len(ids) == 0 {
		return &usageError{"needs at least one task id"}
	}
	var done []task
	var failed error
	for _, id := range ids {
		var t task
		if failed = f.client().do(ctx, http.MethodPost, "/api/knowledge/tasks/"+url.PathEscape(id)+"/"+verb, "", nil, &t); failed != nil {
			failed = fmt.Errorf("%s %s: %w", verb, id, failed)
			break
		}
		done = append(done, t)
	}
	if err := emit(f, done, "TASK\tSTATUS", func(t task) string { return clean(t.TaskID) + "\t" + clean(t.Status) }); err != nil {
		return err
	}
	return failed
}

// confirm asks on a terminal; elsewhere --yes is needed.
func confirm(f *common, question string) error {
	if f.yes {
		return nil
	}
	if !f.std.Terminal {
		return &codedError{ExitConfirm, fmt.Errorf("%s Say --yes", question)}
	}
	_, _ = fmt.Fprint(f.std.Err, question+" [y/N] ")
	answer, _ := bufio.NewReader(f.std.In).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a == "y" || a == "yes" {
		return nil
	}
	return &codedError{ExitConfirm, fmt.Errorf("not confirmed")}
}

// tasksExplain says in words where a task is.
func tasksExplain(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "tasks explain")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	id, err := one(rest, "task id")
	if err != nil {
		return err
	}
	var raw map[string]any
	if err := f.client().do(ctx, http.MethodGet, "/api/knowledge/tasks/"+url.PathEscape(id)+"/explain", "", nil, &raw); err != nil {
		return err
	}
	return emitOne(f, raw, func(w io.Writer) {
		words, _ := raw["text"].(string)
		_, _ = fmt.Fprintln(w, clean(words))
	})
}
