package drawing

import (
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// timelineWidth is the width of a drawing in its own units.
const timelineWidth = 1000

// Timeline is a task's log drawn to scale: one span for each status, as wide as it lasted.
type Timeline struct {
	Spans      []Span
	Ticks      []time.Duration // since the beginning, evenly over the width
	From, To   time.Time
	Whole      time.Duration
	OtherParts bool // the log is longer than what is drawn
}

// Span is the time between two changes.
type Span struct {
	Change wire.Transition  // that began it
	Status taskstate.Status // during it
	Wait   time.Duration    // how long it lasted, or lasts so far
	Open   bool             // it goes on
	X, W   float64          // in units of the drawing
}

// OfLog draws a log, the oldest change first. now ends the last span of a task that has not ended.
func OfLog(log []wire.Transition, now time.Time) Timeline {
	var t Timeline
	if len(log) == 0 {
		return t
	}
	last := log[len(log)-1]
	t.From, t.To = log[0].CreatedAt.Time, last.CreatedAt.Time
	if !last.ToStatus.Terminal() && now.After(t.To) {
		t.To = now
	}
	t.Whole = t.To.Sub(t.From)
	unit := timelineWidth / max(float64(t.Whole), 1)
	for i, change := range log {
		end := t.To
		if i+1 < len(log) {
			end = log[i+1].CreatedAt.Time
		}
		s := Span{Change: change, Status: change.ToStatus, Wait: max(end.Sub(change.CreatedAt.Time), 0)}
		s.Open = i+1 == len(log) && !change.ToStatus.Terminal()
		s.X = float64(change.CreatedAt.Sub(t.From)) * unit
		s.W = float64(s.Wait) * unit
		t.Spans = append(t.Spans, s)
	}
	for i := range 5 {
		t.Ticks = append(t.Ticks, t.Whole*time.Duration(i)/4)
	}
	return t
}
