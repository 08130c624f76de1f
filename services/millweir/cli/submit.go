package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
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
	var meta metadataFlag
	var wait, force bool
	var timeout time.Duration
	c := Verb("submit FILE… [--kb NAME] [--title TEXT] [--meta KEY=TEXT] [--wait] [--force]", "take documents in", NeedsSome("file"),
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
			if meta != nil {
				form["metadata"] = meta.String()
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
	f.Var(&meta, "meta", "what the documents are found by, KEY=TEXT or KEY:=JSON; may be repeated")
	f.BoolVar(&wait, "wait", false, "wait until the documents are searchable")
	f.BoolVar(&force, "force", false, "take the same bytes in again")
	f.DurationVar(&timeout, "timeout", 0, "give up after this time; 0: never")
	return c
}

// metadataFlag are pairs KEY=TEXT, or KEY:=JSON for what is no text; nil: none was given.
type metadataFlag map[string]any

// Set implements pflag.Value.
func (m *metadataFlag) Set(pair string) error {
	key, text, ok := strings.Cut(pair, "=")
	if !ok {
		return errors.New("KEY=TEXT or KEY:=JSON is expected")
	}
	var value any = text
	if name, isJSON := strings.CutSuffix(key, ":"); isJSON {
		key = name
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return fmt.Errorf("%s is no JSON: %w", text, err)
		}
	}
	if *m == nil {
		*m = metadataFlag{}
	}
	if _, twice := (*m)[key]; twice {
		return fmt.Errorf("%s stands more than once", key)
	}
	(*m)[key] = value
	return nil
}

// String implements pflag.Value: JSON.
func (m *metadataFlag) String() string {
	if *m == nil {
		return ""
	}
	text, _ := json.Marshal(*m) // what was JSON is JSON
	return string(text)
}

// Type implements pflag.Value.
func (*metadataFlag) Type() string { return "pair" }

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

// barWidth is the characters of a progress bar.
const barWidth = 24

// bars shows how far files are: redrawn on a terminal, a line per change of state elsewhere.
type bars struct {
	mu       sync.Mutex
	w        io.Writer
	redraw   bool
	lines    []string
	states   []string
	names    []string
	drawn    bool
	useColor bool
}

// newBars makes one bar a file.
func newBars(std IO, files []string) *bars {
	b := &bars{w: std.Err, redraw: std.Terminal, useColor: std.Terminal && std.Getenv("NO_COLOR") == ""}
	for _, f := range files {
		b.names = append(b.names, short(filepath.Base(f), 32))
		b.lines = append(b.lines, b.line(len(b.names)-1, "sending", 0, ""))
		b.states = append(b.states, "")
	}
	return b
}

// line renders one bar.
func (b *bars) line(i int, state string, percent int, note string) string {
	full := min(max(percent, 0), 100) * barWidth / 100
	return fmt.Sprintf("%-32s [%s%s] %3d%% %-10s %s", b.names[i], strings.Repeat("#", full), strings.Repeat(".", barWidth-full), percent, state, note)
}

// set shows a task's progress.
func (b *bars) set(i int, t wire.Task) {
	note := clean(t.Stage)
	if t.TotalSegments > 0 {
		note += fmt.Sprintf(" %d/%d", t.ProcessedSegments, t.TotalSegments)
	}
	if t.Status == taskstate.StatusRetrying || t.Status == taskstate.StatusSuspended {
		note = short(t.LastError, 60)
	}
	b.show(i, clean(t.Status), b.line(i, clean(t.Status), t.Progress, note))
}

// end shows what became of a file.
func (b *bars) end(i int, s submitted) {
	if s.err != nil {
		b.show(i, "failed", b.line(i, b.paint("failed", "31"), 0, short(s.Error, 80)))
		return
	}
	b.show(i, clean(s.Task.Status), b.line(i, b.paint(clean(s.Task.Status), "32"), s.Task.Progress, ""))
}

// paint colours a word where colours are wanted.
func (b *bars) paint(word, color string) string {
	if !b.useColor {
		return word
	}
	return "\x1b[" + color + "m" + word + "\x1b[0m"
}

// show redraws all bars, or prints a line when the state changed.
func (b *bars) show(i int, state, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines[i] = line
	changed := b.states[i] != state
	b.states[i] = state
	if !b.redraw {
		if changed {
			_, _ = fmt.Fprintln(b.w, strings.TrimRight(line, " "))
		}
		return
	}
	if b.drawn {
		_, _ = fmt.Fprintf(b.w, "\x1b[%dA", len(b.lines))
	}
	b.drawn = true
	for _, l := range b.lines {
		_, _ = fmt.Fprintf(b.w, "\x1b[2K%s\n", l)
	}
}
