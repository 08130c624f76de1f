package submit

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/cli"
)

// barWidth is the characters of a progress bar.
const barWidth = 24

// progress shows how far files are. Its methods may be called from many goroutines.
type progress interface {
	begin(i int, name string)              // file i is taken up
	note(i int, state string, percent int) // what this command does with it
	set(i int, t wire.Task)                // how far its task is
	end(i int, r submitted)                // nothing more comes of it
	above() io.Writer                      // writes lines that do not get into the way; nil: any does
	close()
}

// newProgress shows on a terminal a line for each running file and one for all, elsewhere a line for each change of state.
func (s *submission) newProgress(ctx context.Context, args []string) progress {
	if asJSON := s.Output == "json" || s.Output == "jsonl"; !s.Terminal || asJSON && s.Width > 0 { // which would stand between the lines
		return &lines{w: s.Err, files: map[int]*line{}}
	}
	return newLive(ctx, s, args)
}

// line is a file of which lines are printed.
type line struct{ name, state string }

// lines prints a line for each change of a file's state.
type lines struct {
	mu    sync.Mutex
	w     io.Writer
	files map[int]*line // that run
}

func (l *lines) begin(i int, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files[i] = &line{name: cli.Short(filepath.Base(name), 32)}
}

func (l *lines) note(i int, state string, percent int) {
	if state != "sending" { // which is over soon
		l.show(i, state, percent, "")
	}
}

func (l *lines) set(i int, t wire.Task) { l.show(i, cli.Clean(t.Status), t.Progress, noteOf(t)) }

func (l *lines) end(i int, r submitted) {
	switch {
	case r.err != nil:
		l.show(i, "failed", 0, cli.Short(r.Error, 80))
	case r.Task != nil:
		l.show(i, cli.Clean(r.Task.Status), r.Task.Progress, "")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.files, i)
}

func (l *lines) above() io.Writer { return nil }

func (l *lines) close() {}

// show prints a line when the state is another one.
func (l *lines) show(i int, state string, percent int, note string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.files[i]
	if f == nil || f.state == state {
		return
	}
	f.state = state
	full := min(max(percent, 0), 100) * barWidth / 100
	text := fmt.Sprintf("%-32s [%s%s] %3d%% %-10s %s", f.name, strings.Repeat("#", full), strings.Repeat(".", barWidth-full), percent, state, note)
	_, _ = fmt.Fprintln(l.w, strings.TrimRight(text, " "))
}

// noteOf says more of a task than its status.
func noteOf(t wire.Task) string {
	if t.Status == taskstate.StatusRetrying || t.Status == taskstate.StatusSuspended {
		return cli.Short(t.LastError, 60)
	}
	note := ""
	if t.Stage != taskstate.StageNone {
		note = cli.Clean(t.Stage)
	}
	if t.TotalSegments > 0 {
		note = strings.TrimSpace(fmt.Sprintf("%s %d/%d", note, t.ProcessedSegments, t.TotalSegments))
	}
	return note
}

// live redraws a line for each running file, and one for all.
type live struct {
	container *mpb.Progress
	redraw    chan any
	colors    bool

	mu    sync.Mutex
	bars  map[int]*liveBar
	total *mpb.Bar

	began               time.Time
	found               atomic.Int64 // files that there are, as far as they were counted
	counted             atomic.Bool  // found is all
	done, failed        atomic.Int64
	stop                context.CancelFunc
	counting, redrawing sync.WaitGroup
}

// liveBar is a running file.
type liveBar struct {
	bar  *mpb.Bar
	name string
	note atomic.Pointer[string]
}

// redrawEvery is the time between two drawings.
const redrawEvery = 100 * time.Millisecond

func newLive(ctx context.Context, s *submission, args []string) *live {
	l := &live{redraw: make(chan any), colors: s.Getenv("NO_COLOR") == "", bars: map[int]*liveBar{}, began: time.Now()}
	ctx, l.stop = context.WithCancel(ctx)
	l.container = mpb.New(mpb.WithOutput(s.Err), mpb.ForceTTY(), mpb.WithManualRefresh(l.redraw))
	l.total = l.container.New(0, mpb.NopStyle(), mpb.BarPriority(1<<30), mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return l.sum() })))
	l.counting.Go(func() {
		sources(args, map[string]int{})(func(source) bool {
			l.found.Add(1)
			return ctx.Err() == nil
		})
		l.counted.Store(true)
	})
	l.redrawing.Go(func() {
		tick := time.NewTicker(redrawEvery)
		defer tick.Stop()
		for {
			l.draw(ctx)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return l
}

// draw draws all lines anew.
func (l *live) draw(ctx context.Context) {
	select {
	case l.redraw <- nil:
	case <-ctx.Done():
	}
}

// sum is the line for all.
func (l *live) sum() string {
	done, found := l.done.Load(), l.found.Load()
	seconds := time.Since(l.began).Seconds()
	text := fmt.Sprintf("%d of %d", done, found)
	if !l.counted.Load() {
		text += "+"
	}
	if done > 0 && seconds >= 1 {
		rate := float64(done) / seconds
		text += fmt.Sprintf("  %.1f/s", rate)
		if l.counted.Load() && found > done {
			text += "  " + time.Duration(float64(found-done)/rate*float64(time.Second)).Round(time.Second).String() + " left"
		}
	}
	if failed := l.failed.Load(); failed > 0 {
		text += l.paint(fmt.Sprintf("  %d failed", failed), "31")
	}
	return text
}

// paint colours a text where colours are wanted.
func (l *live) paint(text, color string) string {
	if !l.colors {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

func (l *live) begin(i int, name string) {
	b := &liveBar{name: cli.Short(filepath.Base(name), 32)}
	b.say("sending")
	b.bar = l.container.New(100, mpb.BarStyle().Lbound("[").Filler("#").Tip("").Padding(".").Rbound("]"), mpb.BarWidth(barWidth+2), mpb.BarPriority(i), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.name }, decor.WC{W: 33, C: decor.DindentRight})),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return *b.note.Load() })))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bars[i] = b
}

// say sets what stands behind the bar.
func (b *liveBar) say(text string) { b.note.Store(&text) }

// of is a running file's line.
func (l *live) of(i int) *liveBar {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bars[i]
}

func (l *live) note(i int, state string, percent int) {
	b := l.of(i)
	b.say(fmt.Sprintf("%3d%% %s", percent, state))
	b.bar.SetCurrent(int64(min(max(percent, 0), 99))) // a whole one is taken away
}

func (l *live) set(i int, t wire.Task) {
	l.note(i, strings.TrimSpace(fmt.Sprintf("%-10s %s", cli.Clean(t.Status), noteOf(t))), t.Progress)
}

func (l *live) end(i int, r submitted) {
	if r.err != nil {
		l.failed.Add(1)
		_, _ = fmt.Fprintf(l.above(), "%s: %s\n", cli.Clean(r.File), l.paint(cli.Short(r.Error, 200), "31"))
	}
	l.done.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bars[i].bar.Abort(true)
	delete(l.bars, i)
}

// above writes whole lines above those that are redrawn.
func (l *live) above() io.Writer { return l.container }

func (l *live) close() {
	l.draw(context.Background())
	l.stop()
	l.redrawing.Wait()
	l.counting.Wait()
	l.total.Abort(false)
	l.container.Wait()
}
