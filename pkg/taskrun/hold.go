package taskrun

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Causes for which a run's context ends, besides taskstate.ErrLost.
var (
	// ErrStopping: the process stops; what has not ended is handed back and counts no attempt.
	ErrStopping = errors.New("the process stops")
	// ErrStalled: the stage reported nothing for its limit; the attempt failed.
	ErrStalled = errors.New("no progress within the stage's limit")
)

// claim is one claim of this process, from its commit to the commit of its outcome.
type claim struct {
	task     taskstate.Task // as claimed
	token    taskstate.Token
	owner    string
	delivery string  // acknowledged at the end; empty: none
	kind     Handler // nil: nobody knows this type
	recovery bool    // whose slot it uses
	alone    bool    // the process runs nothing beside it
	began    time.Time
	// entryGone: the queue had no such entry when it was to be adopted; the run goes on without one (design D4).
	entryGone atomic.Bool
	ctx       context.Context // one per claim: it is cancelled from outside its goroutine; holds the attempt's span
	span      trace.Span      // of the attempt: ends when the claim is dropped
	ending    trace.Span      // of the finish; nil before it
	cancel    context.CancelCauseFunc

	mu         sync.Mutex
	progress   taskstate.Progress
	dirty      bool // progress is not in the row yet
	renewed    time.Time
	reported   time.Time
	stageBegan time.Time
	stalled    time.Time // when it was cancelled for silence; zero: it was not
	lost       bool
	hung       bool // written off: not renewed any more
	done       bool // its goroutine has returned
}

// holder is who finishes it.
func (h *claim) holder(process string) taskstate.Holder {
	return taskstate.Holder{Token: h.token, Actor: worker(process)}
}

// worker is the audit's name of this process.
func worker(process string) taskstate.Actor {
	return taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}
}

// report takes progress at now and returns the stage that it ended, with its time; "" when it did not.
func (h *claim) report(p taskstate.Progress, now time.Time) (ended taskstate.Stage, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = now
	p.Percent = min(max(p.Percent, 0), 99)
	if p == h.progress || h.done {
		return "", 0
	}
	if p.Stage != h.progress.Stage {
		ended, took = h.progress.Stage, now.Sub(h.stageBegan)
		h.stageBegan = now
	}
	h.progress, h.dirty = p, true
	return ended, took
}

// waits notes that the run waits for the database: that is no stall.
func (h *claim) waits(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = now
}

// woke notes that the whole process stood still for d, and not this run alone.
func (h *claim) woke(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reported = h.reported.Add(d)
	if !h.stalled.IsZero() {
		h.stalled = h.stalled.Add(d)
	}
}

// finish notes that the goroutine is back; it answers the last stage with its time and whether the slot was written off.
func (h *claim) finish(now time.Time) (last taskstate.Stage, took time.Duration, hung bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = true
	hung, h.hung = h.hung, false
	return h.progress.Stage, now.Sub(h.stageBegan), hung
}

// lose marks the claim as lost and stops its run.
func (h *claim) lose() {
	h.mu.Lock()
	h.lost = true
	h.mu.Unlock()
	h.cancel(taskstate.ErrLost)
}

// isLost reports whether the claim is known to be lost.
func (h *claim) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// beat returns what the heartbeat has to say, and whether there is anything.
// A lease is renewed when a third of it has passed.
func (h *claim) beat(now time.Time, lease time.Duration) (b taskstate.Beat, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost || h.hung {
		return b, false
	}
	renew := elapsed(now, h.renewed) >= lease/3
	if !renew && !h.dirty {
		return b, false
	}
	b = taskstate.Beat{
		TaskID: h.task.ID, Status: taskstate.StatusRunning, Token: h.token, Owner: h.owner, Renew: renew,
	}
	if h.dirty {
		p := h.progress
		b.Progress = &p
	}
	return b, true
}

// beaten notes that b was written, begun at now.
func (h *claim) beaten(b taskstate.Beat, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Renew {
		h.renewed = now
	}
	if b.Progress != nil && *b.Progress == h.progress {
		h.dirty = false
	}
}

// silence tells what the stall watch has to do with it.
type silence int

const (
	silenceNone    silence = iota
	silenceStalled         // cancel it
	silenceHung            // cancelled before and still not back: write it off
)

// watch judges its silence; limit 0: none.
func (h *claim) watch(now time.Time, limit func(taskstate.Stage) time.Duration) silence {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.done || h.hung:
		return silenceNone
	case h.stalled.IsZero():
		l := limit(h.progress.Stage)
		if l == 0 || now.Sub(h.reported) < l {
			return silenceNone
		}
		h.stalled = now
		return silenceStalled
	case now.Sub(h.stalled) >= hungAfter:
		h.hung = true
		return silenceHung
	}
	return silenceNone
}

// stage is where it is.
func (h *claim) stage() taskstate.Stage {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.progress.Stage
}

// finishing begins the span of the finish, from the end of the run to its commit.
func (h *claim) finishing(tracer trace.Tracer) {
	if h.span != nil && h.span.IsRecording() {
		_, span := tracer.Start(h.ctx, "finish")
		h.mu.Lock()
		h.ending = span
		h.mu.Unlock()
	}
}

// ends is the span of the finish; nil: nothing records it.
func (h *claim) ends() trace.Span {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ending
}

// endSpans ends what was begun; a second time does nothing.
func (h *claim) endSpans() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ending != nil {
		h.ending.End()
	}
	if h.span != nil {
		h.span.End()
	}
}

// claims are the claims of this process.
type claims struct {
	mu      sync.Mutex
	m       map[string][]*claim // by task; more than one only while an older claim does not know that it is lost
	n       int
	changed signal // rings when one is dropped
}

func newClaims() *claims { return &claims{m: map[string][]*claim{}} }

// add registers h. An older claim of the same task has been lost, whether its run knows it or not.
func (hs *claims) add(h *claim) {
	hs.mu.Lock()
	older := slices.Clone(hs.m[h.task.ID])
	hs.m[h.task.ID] = append(hs.m[h.task.ID], h)
	hs.n++
	hs.mu.Unlock()
	for _, o := range older {
		o.lose()
	}
}

// drop removes h.
func (hs *claims) drop(h *claim) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.endSpans()
	all := hs.m[h.task.ID]
	i := slices.Index(all, h)
	if i < 0 {
		return
	}
	hs.n--
	if len(all) == 1 {
		delete(hs.m, h.task.ID)
	} else {
		hs.m[h.task.ID] = slices.Delete(all, i, i+1)
	}
	hs.changed.ring()
}

// has reports whether the claim with this fence is held and not known to be lost.
func (hs *claims) has(id string, fence int64) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.m[id] {
		if h.token.Fence == fence && !h.isLost() {
			return true
		}
	}
	return false
}

// all returns the claims, in no order.
func (hs *claims) all() []*claim {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	out := make([]*claim, 0, hs.n)
	for _, held := range hs.m {
		out = append(out, held...)
	}
	return out
}

// ids returns at most n of the tasks held.
func (hs *claims) ids(n int) []string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	out := make([]string, 0, min(n, len(hs.m)))
	for id := range hs.m {
		if len(out) == n {
			break
		}
		out = append(out, id)
	}
	return out
}

// empty reports whether nothing is held; if not, changed is closed at the next drop.
func (hs *claims) empty() (yes bool, changed <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.n == 0 {
		return true, nil
	}
	return false, hs.changed.wait()
}
