// Package drawing lays out what the console draws: numbers over time, and a task's log. Templates make SVG of it.
package drawing

import (
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/wire"
)

const (
	plotWidth  = 600 // of a drawing, in its own units
	plotHeight = 100
	plotGap    = 0.2 // of a bar's place, between two
)

// History is what ended in each part of the last hour or day, drawn as bars, and how long it took, drawn beside them.
type History struct {
	Day        bool
	Bars       []Bar
	Most       int64 // that ended in one part: the top of the drawing
	Longest    time.Duration
	Rows       []Bar // parts in which anything happened, the newest first: the table behind the drawings
	Done, Dead int64
	AtLeast    bool // the numbers are higher
}

// Bar is one part of a History. Y is where a bar begins, from above, H its height.
type Bar struct {
	At           time.Time
	Done, Dead   int64
	AtLeast      bool
	Half, Slow   time.Duration // what half and what 95 % of the sampled tasks took
	Sampled      int
	X, W         float64
	DoneY, DoneH float64 // succeeded
	DeadY, DeadH float64 // failed, on top of it
	HalfY, HalfH float64
	SlowY, SlowH float64 // from half to 95 %, on top of it
}

// OfHistory draws what the API says of the last hour or day.
func OfHistory(h wire.History, day bool) History {
	p := History{Day: day}
	width := plotWidth / max(float64(len(h.Buckets)), 1)
	for i, b := range h.Buckets {
		x := Bar{At: b.At.Time, Done: b.Succeeded, Dead: b.Dead, AtLeast: b.AtLeast, Sampled: b.Sampled, X: float64(i) * width, W: width * (1 - plotGap)}
		x.Half, x.Slow = seconds(b.SecondsHalf), seconds(b.SecondsMost)
		p.Most, p.Longest = max(p.Most, x.Done+x.Dead), max(p.Longest, x.Slow)
		p.Done, p.Dead, p.AtLeast = p.Done+x.Done, p.Dead+x.Dead, p.AtLeast || x.AtLeast
		p.Bars = append(p.Bars, x)
	}
	unit, long := plotHeight/max(float64(p.Most), 1), plotHeight/max(p.Longest.Seconds(), 1e-9)
	for i := range p.Bars {
		b := &p.Bars[i]
		b.DoneH, b.DeadH = float64(b.Done)*unit, float64(b.Dead)*unit
		b.DoneY = plotHeight - b.DoneH
		b.DeadY = b.DoneY - b.DeadH
		b.HalfH, b.SlowH = b.Half.Seconds()*long, (b.Slow-b.Half).Seconds()*long
		b.HalfY = plotHeight - b.HalfH
		b.SlowY = b.HalfY - b.SlowH
		if b.Done+b.Dead > 0 {
			p.Rows = append(p.Rows, *b)
		}
	}
	slices.Reverse(p.Rows)
	return p
}

// seconds is a time of the API; 0: there is none.
func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}
