package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

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
	if t.Status == taskstate.StatusRetrying {
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
