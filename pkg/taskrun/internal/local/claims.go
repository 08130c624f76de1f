package local

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

// HungAfter is when a cancelled run that is not back is given up (design D15).
const HungAfter = 5 * time.Second

// Claim is one claim of this process, from its commit to the commit of its outcome.
type Claim struct {
	Task     taskstate.Task // as claimed
	Token    taskstate.Token
	Owner    string
	Delivery string // acknowledged at the end; empty: none
	Recovery bool   // whose slot it uses
	Alone    bool   // the process runs nothing beside it
	Began    time.Time
	// EntryGone: the queue had no such entry when it was to be adopted; the run goes on without one (design D4).
	EntryGone atomic.Bool
	Base      context.Context // of the process
	Attempt   context.Context // with the attempt's span and the task's ids; nil: nothing records, Base has to do
	Span      trace.Span      // of the attempt: ends when the claim is dropped; one that does nothing when nothing records
	ending    trace.Span      // of the finish; nil before it

	ctxMu  sync.Mutex
	made   context.Context // see Ctx; nil: nobody asked
	cancel context.CancelCauseFunc
	ended  error // the cause of the end; nil: it goes on

	mu         sync.Mutex
	Progress   taskstate.Progress
	dirty      bool      // progress is not in the row yet
	Asked      time.Time // whether its row still names it
	Reported   time.Time
	StageBegan time.Time
	stalled    time.Time // when it was cancelled for silence; zero: it was not
	lost       bool
	worker     string // who runs it; empty: nobody yet
	hung       bool   // written off: it asks no more
	done       bool   // its goroutine has returned
}

// Holder is who finishes it, and how far it is: the last report may not have been written yet.
func (h *Claim) Holder(process string) taskstate.Holder {
	return taskstate.Holder{Token: h.Token, Actor: Worker(process), Progress: h.At()}
}

// Worker is the audit's name of this process.
func Worker(process string) taskstate.Actor {
	return taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}
}

// Report takes progress at now and returns the stage that it ended, with its time; "" when it did not.
func (h *Claim) Report(p taskstate.Progress, now time.Time) (ended taskstate.Stage, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Reported = now
	p.Percent = min(max(p.Percent, 0), 99)
	if p == h.Progress || h.done {
		return "", 0
	}
	if p.Stage != h.Progress.Stage {
		ended, took = h.Progress.Stage, now.Sub(h.StageBegan)
		h.StageBegan = now
	}
	h.Progress, h.dirty = p, true
	return ended, took
}

// Waits notes that the run waits for the database: that is no stall.
func (h *Claim) Waits(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Reported = now
}

// Woke notes that the whole process stood still for d, and not this run alone.
func (h *Claim) Woke(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Reported = h.Reported.Add(d)
	if !h.stalled.IsZero() {
		h.stalled = h.stalled.Add(d)
	}
}

// Finish notes that the goroutine is back; it returns the last stage with its time and whether the slot was written off.
func (h *Claim) Finish(now time.Time) (last taskstate.Stage, took time.Duration, hung bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = true
	hung, h.hung = h.hung, false
	return h.Progress.Stage, now.Sub(h.StageBegan), hung
}

// Lose marks the claim as lost and stops its run.
func (h *Claim) Lose() {
	h.mu.Lock()
	h.lost = true
	h.mu.Unlock()
	h.Cancel(taskstate.ErrLost)
}

// IsLost reports whether the claim is known to be lost.
func (h *Claim) IsLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// Beat returns what the heartbeat has to say, and whether there is anything, or a third of a lease has passed since it asked.
func (h *Claim) Beat(now time.Time, lease time.Duration) (b taskstate.Beat, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost || h.hung {
		return b, false
	}
	if Elapsed(now, h.Asked) < lease/3 && !h.dirty {
		return b, false
	}
	b = taskstate.Beat{TaskID: h.Task.ID, Status: taskstate.StatusRunning, Token: h.Token, Owner: h.Owner}
	if h.dirty {
		p := h.Progress
		b.Progress = &p
	}
	return b, true
}

// Beaten notes that b was written, begun at now.
func (h *Claim) Beaten(b taskstate.Beat, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Asked = now
	if b.Progress != nil && *b.Progress == h.Progress {
		h.dirty = false
	}
}

// silence tells what the stall watch has to do with it.
type silence int

const (
	SilenceNone    silence = iota
	SilenceStalled         // cancel it
	SilenceHung            // cancelled before and still not back: write it off
)

// Watch judges its silence; limit 0: none.
func (h *Claim) Watch(now time.Time, limit func(taskstate.Stage) time.Duration) silence {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.done || h.hung:
		return SilenceNone
	case h.stalled.IsZero():
		l := limit(h.Progress.Stage)
		if l == 0 || now.Sub(h.Reported) < l {
			return SilenceNone
		}
		h.stalled = now
		return SilenceStalled
	case now.Sub(h.stalled) >= HungAfter:
		h.hung = true
		return SilenceHung
	}
	return SilenceNone
}

// RunBy notes which worker runs it.
func (h *Claim) RunBy(worker string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.worker = worker
}

// Worker is who runs it, as goroutines are labelled in profiles; empty: nobody yet.
func (h *Claim) Worker() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.worker
}

// At is how far it is.
func (h *Claim) At() taskstate.Progress {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.Progress
}

// Finishing begins the span of the finish, from the end of the run to its commit.
func (h *Claim) Finishing(tracer trace.Tracer) {
	if h.Span != nil && h.Span.IsRecording() {
		_, span := tracer.Start(h.Ctx(), "finish")
		h.mu.Lock()
		h.ending = span
		h.mu.Unlock()
	}
}

// Ends is the span of the finish; nil: nothing records it.
func (h *Claim) Ends() trace.Span {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ending
}

// endSpans ends what was begun; a second time does nothing.
func (h *Claim) endSpans() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ending != nil {
		h.ending.End()
	}
	if h.Span != nil {
		h.Span.End()
	}
}

// Claims are the claims of this process.
type Claims struct {
	mu      sync.Mutex
	m       map[string][]*Claim // by task; more than one only while an older claim does not know that it is lost
	n       int
	changed signal // rings when one is dropped
}

func NewClaims() *Claims { return &Claims{m: map[string][]*Claim{}} }

// Add registers h. An older claim of the same task has been lost, whether its run knows it or not.
func (hs *Claims) Add(h *Claim) {
	hs.mu.Lock()
	older := slices.Clone(hs.m[h.Task.ID])
	hs.m[h.Task.ID] = append(hs.m[h.Task.ID], h)
	hs.n++
	hs.mu.Unlock()
	for _, o := range older {
		o.Lose()
	}
}

// Drop removes h.
func (hs *Claims) Drop(h *Claim) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.endSpans()
	all := hs.m[h.Task.ID]
	i := slices.Index(all, h)
	if i < 0 {
		return
	}
	hs.n--
	if len(all) == 1 {
		delete(hs.m, h.Task.ID)
	} else {
		hs.m[h.Task.ID] = slices.Delete(all, i, i+1)
	}
	hs.changed.ring()
}

// Has reports whether the claim with this fence is held and not known to be lost.
func (hs *Claims) Has(id string, fence int64) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.ContainsFunc(hs.m[id], func(h *Claim) bool { return h.Token.Fence == fence && !h.IsLost() })
}

// All returns the claims, in no order.
func (hs *Claims) All() []*Claim {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	out := make([]*Claim, 0, hs.n)
	for _, held := range hs.m {
		out = append(out, held...)
	}
	return out
}

// Ids returns at most n of the tasks held.
func (hs *Claims) Ids(n int) []string {
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

// Empty reports whether nothing is held; if not, changed is closed at the next drop.
func (hs *Claims) Empty() (yes bool, changed <-chan struct{}) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.n == 0 {
		return true, nil
	}
	return false, hs.changed.wait()
}

// Calls are the claiming calls of this process that are not over, by owner text: what they have claimed is this process's
// own although it does not run yet. A process can stand still between a COMMIT and what follows it.
type Calls struct {
	mu     sync.Mutex
	Owners map[string]bool // true: a try has claimed what nobody knows yet
}

func NewCalls() *Calls { return &Calls{Owners: map[string]bool{}} }

func (a *Calls) End(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.Owners, owner)
}

// Note begins a call, or says whether one of its COMMITs had no answer.
func (a *Calls) Note(owner string, unheard bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Owners[owner] = unheard
}

// Has reports whether the owner of a row is a call that is not over.
func (a *Calls) Has(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.Owners[owner]
	return known
}

// Open reports whether some call is not over.
func (a *Calls) Open() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.Owners) > 0
}

// UnheardOf reports whether a COMMIT of this call had no answer.
func (a *Calls) UnheardOf(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Owners[owner]
}

// Unsure reports whether some call may have claimed what nobody knows yet.
func (a *Calls) Unsure() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, yes := range a.Owners {
		if yes {
			return true
		}
	}
	return false
}
