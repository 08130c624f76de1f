package cli

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// submitAtOnce is how many files are sent and watched at a time.
const submitAtOnce = 4

// submitted is one file with what became of it.
type submitted struct {
	File  string             `json:"file"`
	Task  *wire.AcceptedTask `json:"task,omitempty"`
	Error string             `json:"error,omitempty"`
	err   error
}

// submit sends files; with --wait it follows them to their end. Exit 1 when one failed.
func submit(a *App) *cobra.Command {
	var kb, title string
	var wait, force bool
	var timeout time.Duration
	c := Verb("submit FILE… [--kb NAME] [--title TEXT] [--wait] [--force]", "take documents in", NeedsSome("file"),
		func(ctx context.Context, files []string) error {
			if title != "" && len(files) > 1 {
				return Usage("--title goes with one file")
			}
			ctx, stop := withTimeout(ctx, timeout)
			defer stop()
			form := map[string]string{"knowledgeBase": kb, "title": title}
			if force {
				form["force"] = "true"
			}
			bars := newBars(a.IO, files)
			results := make([]submitted, len(files))
			each(len(files), submitAtOnce, func(i int) {
				results[i] = a.submitOne(ctx, files[i], form, wait, func(t wire.Task) { bars.set(i, t) })
				bars.end(i, results[i])
			})
			if err := Table(a, results, "FILE\tTASK\tSTATUS\tERROR", submittedRow); err != nil {
				return err
			}
			return worst(results)
		})
	f := c.Flags()
	f.StringVar(&kb, "kb", "", "knowledge base (made when missing for the name default)")
	f.StringVar(&title, "title", "", "title; only with one file")
	f.BoolVar(&wait, "wait", false, "wait until the documents are searchable")
	f.BoolVar(&force, "force", false, "take the same bytes in again")
	f.DurationVar(&timeout, "timeout", 0, "give up after this time; 0: never")
	return c
}

// submittedRow is a result for people.
func submittedRow(s submitted) []any {
	if s.Task == nil {
		return []any{clean(s.File), "-", "-", short(s.Error, 120)}
	}
	status := clean(s.Task.Status)
	if s.Task.Duplicate {
		status += " (was there)"
	}
	return []any{clean(s.File), clean(s.Task.TaskID), status, short(s.Error, 120)}
}

// worst is the first file's error, so that its exit code is the command's.
func worst(results []submitted) error {
	for _, r := range results {
		if r.err != nil {
			return fmt.Errorf("%s: %w", r.File, r.err)
		}
	}
	return nil
}

// each runs f for 0 … n−1, at most `at` at a time.
func each(n, at int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, at)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// submitOne sends one file and, when asked, waits for its end.
func (a *App) submitOne(ctx context.Context, path string, form map[string]string, wait bool, seen func(wire.Task)) submitted {
	s := submitted{File: path}
	fail := func(err error) submitted {
		s.err, s.Error = err, err.Error()
		return s
	}
	gateway := a.gateway()
	t, err := gateway.Upload(ctx, path, form)
	if err != nil {
		return fail(err)
	}
	s.Task = &t
	seen(t.Task)
	if !wait {
		return s
	}
	if !t.Status.Terminal() {
		last, err := gateway.Watch(ctx, t.TaskID, seen)
		if err != nil {
			return fail(err)
		}
		s.Task.Task = last
	}
	if err := verdict(s.Task.Task); err != nil {
		return fail(err)
	}
	return s
}

// verdict is an error unless the task succeeded.
func verdict(t wire.Task) error {
	if t.Status == taskstate.StatusSucceeded {
		return nil
	}
	return Failed(fmt.Errorf("task %s is %s: %s", t.TaskID, t.Status, cmp.Or(t.ErrorMessage, t.LastError)))
}

// withTimeout limits ctx when d is positive.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
