// Package watch tells those who wait about each change of a task.
package watch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	// watchEvery is the longest pause between two looks at a task: 3 statements a second while somebody watches.
	watchEvery = 300 * time.Millisecond
	// watchFirst is the shortest, for who has just come: whoever waits for a short task sees its end soon. The next looks come after
	// half the time for which it was watched.
	watchFirst = 4 * time.Millisecond
	// watchChunk is the most ids of one look; more watched tasks make the looks rarer, not more.
	watchChunk = 1000
	// watchLog is the most transitions read in one look; the rest comes in the next.
	watchLog = 2000
	// watchBuffer holds a slow client's events; beyond it the poller waits for the client, and no other.
	watchBuffer = 32
)

// Watches follows tasks: one poller serves all watchers of a process. Run must run for Watch to see changes.
type Watches struct {
	store taskstate.Store
	log   *slog.Logger
	every time.Duration
	wake  chan struct{}

	mu       sync.Mutex
	watchers map[string]map[*watcher]struct{} // by task id
}

// NewWatches makes a Watches.
func NewWatches(store taskstate.Store, log *slog.Logger) *Watches {
	return &Watches{store: store, log: log, every: watchEvery, wake: make(chan struct{}, 1), watchers: map[string]map[*watcher]struct{}{}}
}

// Watch follows one task; see Service. taskstate.ErrNotFound.
func (r *Watches) Watch(ctx context.Context, c ingest.Caller, id string, after int64) (<-chan ingest.TaskEvent, error) {
	t, err := r.store.Get(ctx, c.Scope, id)
	if err != nil {
		return nil, err
	}
	after, log, err := r.since(ctx, id, after)
	if err != nil {
		return nil, err
	}
	if n := len(log); n > 0 && t.UpdatedAt.Before(log[n-1].CreatedAt) { // it moved between the two looks
		if t, err = r.store.Get(ctx, c.Scope, id); err != nil {
			return nil, err
		}
	}
	w := &watcher{id: id, out: make(chan ingest.TaskEvent, max(watchBuffer, len(log)+1)), last: after}
	if after == 0 && len(log) > 0 {
		log = log[len(log)-1:] // no history asked for: the present state first
	}
	if after > 0 && len(log) > 1 {
		if w.then, err = r.carriedAt(ctx, id, after); err != nil {
			return nil, err
		}
	}
	ended := len(log) == 0 && t.Status.Terminal() // seen before: nothing more to say
	if len(log) == 0 && !ended {
		w.seen, w.then = t, carriedBy(t)
		w.out <- ingest.TaskEvent{Task: t, TransitionID: after}
	}
	if ended || w.offer(t, log) {
		close(w.out)
		return w.out, nil
	}
	r.add(ctx, w)
	return w.out, nil
}

// since reads the log after a transition. One that is not in it was never sent, or was lost when the database was killed; then
// known is 0, and the log comes from its start.
func (r *Watches) since(ctx context.Context, id string, after int64) (known int64, log []taskstate.Transition, err error) {
	if after > 0 {
		log, err = r.store.TransitionsOf(ctx, map[string]int64{id: after - 1}, watchLog)
		if err != nil || len(log) > 0 && log[0].ID == after {
			return after, log[min(1, len(log)):], err
		}
	}
	log, err = r.store.TransitionsOf(ctx, map[string]int64{id: 0}, watchLog)
	return 0, log, err
}

// watcher is one client.
type watcher struct {
	id   string
	out  chan ingest.TaskEvent
	last int64          // the last transition sent
	seen taskstate.Task // as last sent
	then carried        // at the last transition sent

	began, due time.Time // when it came, and when its task is looked at next
}

// carried is what a task's row keeps from one transition to the next and the log says only at its origin.
type carried struct {
	lastError, errorMessage string
	throttles               int
}

// carriedBy is what a row says.
func carriedBy(t taskstate.Task) carried {
	return carried{lastError: t.LastError, errorMessage: t.ErrorMessage, throttles: t.ThrottleCount}
}

// after is what is carried on from a transition. A failure's words for the user are not in the log.
func (c carried) after(tr taskstate.Transition) carried {
	switch tr.Reason {
	case taskstate.ReasonFailed, taskstate.ReasonStalled, taskstate.ReasonExhausted, taskstate.ReasonPermanent:
		return carried{lastError: tr.Message, errorMessage: tr.Message}
	case taskstate.ReasonSuspended:
		if heldBy(tr) { // its holder says why; what an operator says is no error
			return carried{lastError: tr.Message, errorMessage: tr.Message, throttles: c.throttles}
		}
	case taskstate.ReasonThrottled:
		return carried{lastError: tr.Message, errorMessage: tr.Message, throttles: c.throttles + 1}
	case taskstate.ReasonCrashLimit:
		return carried{lastError: tr.Message, errorMessage: tr.Message, throttles: c.throttles}
	case taskstate.ReasonAccepted, taskstate.ReasonDone, taskstate.ReasonReplayed, taskstate.ReasonResumed:
		return carried{}
	case taskstate.ReasonClaimed, taskstate.ReasonTakeover, taskstate.ReasonHandedBack, taskstate.ReasonRetryNow, taskstate.ReasonCancelled,
		taskstate.ReasonDeleted, taskstate.ReasonSuperseded:
	}
	return c
}

// heldBy reports whether the holder of a task made a change.
func heldBy(tr taskstate.Transition) bool {
	return strings.HasPrefix(tr.Actor, string(taskstate.ActorWorker)+":")
}

// keeps reports whether a transition leaves alone what is carried.
func keeps(tr taskstate.Transition) bool {
	probe := carried{lastError: "x", errorMessage: "x", throttles: 1}
	return probe.after(tr) == probe
}

// carriedAt reads a task's log from its start up to a transition.
func (r *Watches) carriedAt(ctx context.Context, id string, until int64) (carried, error) {
	var c carried
	for from := int64(0); from < until; {
		log, err := r.store.TransitionsOf(ctx, map[string]int64{id: from}, watchLog)
		if err != nil {
			return c, err
		}
		for _, tr := range log {
			if from = tr.ID; from <= until {
				c = c.after(tr)
			}
		}
		if len(log) < watchLog {
			break
		}
	}
	return c, nil
}

// offer sends what the client has not seen and reports whether the task has ended for it.
// A full client keeps its place: what did not fit is offered again.
func (w *watcher) offer(t taskstate.Task, log []taskstate.Transition) (ended bool) {
	for i, tr := range log {
		if tr.ID <= w.last {
			continue
		}
		if i == len(log)-1 && t.UpdatedAt.Before(tr.CreatedAt) {
			return false // the row was read before this change: the next look shows it as it is then
		}
		state := t
		if i < len(log)-1 || !stands(t, tr) {
			state = asOf(t, tr, w.carriedAfter(t, log, i))
		}
		if !w.send(ingest.TaskEvent{Task: state, TransitionID: tr.ID, Terminal: tr.To.Terminal()}) {
			return false
		}
		w.last, w.then = tr.ID, carriedBy(state)
		if tr.To.Terminal() && i == len(log)-1 {
			return true
		}
	}
	if t.UpdatedAt.After(w.seen.UpdatedAt) && t.Progress != w.seen.Progress && sameStep(t, w.seen) {
		w.send(ingest.TaskEvent{Task: t, TransitionID: w.last})
	}
	return false
}

// sameStep reports whether nothing but progress lies between two states of a task. A row may have moved on since the last
// transition that was read: its own comes with the next look, and only with its number is the row shown.
func sameStep(a, b taskstate.Task) bool {
	return a.Status == b.Status && a.Fence == b.Fence && a.AttemptCount == b.AttemptCount && a.CrashCount == b.CrashCount &&
		a.NextRetryAt.Equal(b.NextRetryAt)
}

// send hands an event over without waiting.
func (w *watcher) send(e ingest.TaskEvent) bool {
	select {
	case w.out <- e:
		w.seen = e.Task
		return true
	default:
		return false
	}
}

// stands reports whether a row is where a transition has left it.
func stands(t taskstate.Task, tr taskstate.Transition) bool {
	return t.Status == tr.To && t.Fence == tr.Fence && t.AttemptCount == tr.AttemptCount && t.CrashCount == tr.CrashCount &&
		t.NextRetryAt.Equal(tr.NextRetryAt)
}

// carriedAfter is what the task carried after the transition log[i]: the row's own when nothing has touched it since.
func (w *watcher) carriedAfter(t taskstate.Task, log []taskstate.Transition, i int) carried {
	untouched := stands(t, log[len(log)-1])
	for _, later := range log[i+1:] {
		untouched = untouched && keeps(later)
	}
	if untouched {
		return carriedBy(t)
	}
	return w.then.after(log[i])
}

// asOf is t as it was when tr was written; how far it was then is not kept, so its progress starts anew.
func asOf(t taskstate.Task, tr taskstate.Transition, c carried) taskstate.Task {
	t.Status, t.AttemptCount, t.CrashCount, t.Fence = tr.To, tr.AttemptCount, tr.CrashCount, tr.Fence
	t.NextRetryAt, t.WakeAt, t.UpdatedAt = tr.NextRetryAt, tr.LeaseExpiresAt, tr.CreatedAt
	t.Progress = taskstate.Progress{Stage: taskstate.StageNone}
	t.LastError, t.ErrorMessage, t.ErrorCode, t.ThrottleCount = c.lastError, c.errorMessage, tr.ErrorCode, c.throttles
	if !tr.To.Terminal() {
		t.Result = nil
	}
	return t
}

// add puts a watcher in until ctx ends or its task does.
func (r *Watches) add(ctx context.Context, w *watcher) {
	w.began = time.Now()
	w.due = w.began.Add(watchFirst)
	r.mu.Lock()
	if r.watchers[w.id] == nil {
		r.watchers[w.id] = map[*watcher]struct{}{}
	}
	r.watchers[w.id][w] = struct{}{}
	r.mu.Unlock()
	context.AfterFunc(ctx, func() { r.remove(w) })
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// remove takes a watcher out and closes its channel, once.
func (r *Watches) remove(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.watchers[w.id]
	if _, ok := set[w]; !ok {
		return
	}
	delete(set, w)
	if len(set) == 0 {
		delete(r.watchers, w.id)
	}
	close(w.out)
}

// Run feeds the watchers until ctx ends. It looks while anybody watches and sleeps otherwise.
func (r *Watches) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time // nil: nobody watches
		if wait, any := r.look(ctx); any {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			r.closeAll()
			return nil
		case <-r.wake:
		case <-due:
		}
	}
}

// closeAll ends every watch at a stop.
func (r *Watches) closeAll() {
	r.mu.Lock()
	var all []*watcher
	for _, set := range r.watchers {
		all = slices.AppendSeq(all, maps.Keys(set))
	}
	r.mu.Unlock()
	for _, w := range all {
		r.remove(w)
	}
}

// look reads the tasks whose watchers are due and serves these; it returns when the next are, and whether anybody watches.
// An error is logged and the next look tries again.
func (r *Watches) look(ctx context.Context) (wait time.Duration, watched bool) {
	now := time.Now()
	ids := r.due(now.Add(watchFirst / 2))
	for chunk := range slices.Chunk(ids, watchChunk) {
		if err := r.serve(ctx, chunk); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "watch: tasks could not be read", slog.Any("error", err))
		}
	}
	return r.next(ids)
}

// due lists the tasks that have a watcher who is due.
func (r *Watches) due(at time.Time) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, set := range r.watchers {
		for w := range set {
			if !w.due.After(at) {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// next puts off the watchers of the tasks that were looked at: the longer they watch, the longer, up to the poller's pause.
func (r *Watches) next(looked []string) (wait time.Duration, watched bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	most := r.every * time.Duration((len(r.watchers)+watchChunk-1)/watchChunk)
	for _, id := range looked {
		for w := range r.watchers[id] {
			w.due = now.Add(min(max(watchFirst, now.Sub(w.began)/2), most))
		}
	}
	var first time.Time
	for _, set := range r.watchers {
		for w := range set {
			if first.IsZero() || w.due.Before(first) {
				first = w.due
			}
		}
	}
	return max(0, first.Sub(now)), !first.IsZero()
}

// serve reads the tasks of ids and, only for those that changed, their logs.
func (r *Watches) serve(ctx context.Context, ids []string) error {
	tasks, err := r.store.GetMany(ctx, taskstate.System(), ids)
	if err != nil {
		return err
	}
	changed := map[string]taskstate.Task{}
	after := map[string]int64{}
	r.mu.Lock()
	for _, t := range tasks {
		for w := range r.watchers[t.ID] {
			if t.UpdatedAt.Equal(w.seen.UpdatedAt) && t.Status == w.seen.Status {
				continue
			}
			changed[t.ID] = t
			if from, ok := after[t.ID]; !ok || w.last < from {
				after[t.ID] = w.last
			}
		}
	}
	r.mu.Unlock()
	if len(changed) == 0 {
		return nil
	}
	log, err := r.store.TransitionsOf(ctx, after, watchLog)
	if err != nil {
		return err
	}
	byTask := map[string][]taskstate.Transition{}
	for _, tr := range log {
		byTask[tr.TaskID] = append(byTask[tr.TaskID], tr)
	}
	for id, t := range changed {
		r.deliver(t, after[id], byTask[id])
	}
	return nil
}

// deliver offers one task's news after a transition to its watchers and lets those go for whom it ended. Who has not seen that
// transition, because it came after the row was read or was up to date with it, waits for the next look: it would miss some.
func (r *Watches) deliver(t taskstate.Task, after int64, log []taskstate.Transition) {
	r.mu.Lock()
	var ended []*watcher
	for w := range r.watchers[t.ID] {
		if w.last >= after && w.offer(t, log) {
			ended = append(ended, w)
		}
	}
	r.mu.Unlock()
	for _, w := range ended {
		r.remove(w)
	}
}
