package taskrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// memStore is a Store in memory whose clock is time.Now (fake inside a synctest bubble).
// It exists to force what a real database cannot be made to do on time; the same scenarios run on real ones too.
type memStore struct {
	taskstate.Database // what the runner does not use panics

	mu    sync.Mutex
	rows  map[string]taskstate.Task
	log   []taskstate.Transition
	epoch int64
	calls map[string]int
	// leases are until when processes have theirs, by name.
	leases map[string]time.Time
	// drains are what processes are asked for and have done, by name.
	drains map[string]string
	// locked is a row that another transaction has: no sweep takes it.
	locked string
	// fault is asked before each call, by its name; after what is committed, with the name and "!" behind it.
	fault func(op string) error
	// applying is asked before a transaction of Apply. ErrUnavailable is said instead of it, another error after its commit.
	// nil: nobody is asked.
	applying func(b taskstate.Batch) error
	// outbox is told of rows whose change says Deliver; nil: there is none.
	outbox func(t taskstate.Task)
}

func newMemStore() *memStore {
	return &memStore{rows: map[string]taskstate.Task{}, epoch: 7, calls: map[string]int{}, leases: map[string]time.Time{}}
}

// put inserts a task that was promised now.
func (s *memStore) put(t taskstate.Task) taskstate.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := instant()
	if t.Status == "" {
		t.Status = taskstate.StatusQueued
	}
	if t.Type == "" {
		t.Type = "test"
	}
	if t.MaxAttempts == 0 {
		t.MaxAttempts = 3
	}
	if t.DLQ == "" {
		t.DLQ = taskstate.DLQNone
	}
	if t.Status == taskstate.StatusQueued {
		if t.EnqueuedAt.IsZero() {
			t.EnqueuedAt = now
		}
		if t.WakeAt.IsZero() {
			t.WakeAt = t.EnqueuedAt
		}
	}
	t.UserID, t.CreatedAt, t.UpdatedAt = "u", now, now
	s.rows[t.ID] = t
	return t
}

func (s *memStore) get(id string) taskstate.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id]
}

// statuses counts rows by status.
func (s *memStore) statuses() map[taskstate.Status]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[taskstate.Status]int{}
	for _, t := range s.rows {
		out[t.Status]++
	}
	return out
}

// path is the statuses that a task went through.
func (s *memStore) path(id string) []taskstate.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []taskstate.Status
	for _, tr := range s.log {
		if tr.TaskID == id {
			out = append(out, tr.To)
		}
	}
	return out
}

func (s *memStore) called(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func instant() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func (s *memStore) enter(ctx context.Context, op string) error {
	s.mu.Lock()
	s.calls[op]++
	fault := s.fault
	s.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if fault != nil {
		if err := fault(op); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	return nil
}

func (s *memStore) leave(op string) error {
	s.mu.Lock()
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		return fault(op + "!")
	}
	return nil
}

func (s *memStore) setFault(f func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

func (s *memStore) Apply(ctx context.Context, b taskstate.Batch) ([]taskstate.Outcome, error) {
	if err := s.enter(ctx, "apply"); err != nil {
		return nil, err
	}
	var unheard error
	if s.applying != nil {
		unheard = s.applying(b)
	}
	if errors.Is(unheard, taskstate.ErrUnavailable) {
		return nil, unheard
	}
	s.mu.Lock()
	var tasks []taskstate.Task
	for _, id := range b.IDs {
		if t, ok := s.rows[id]; ok {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, func(a, b taskstate.Task) int { return strings.Compare(a.ID, b.ID) })
	if slices.EqualFunc(tasks, b.Held, func(row, held taskstate.Task) bool {
		return row.ID == held.ID && row.Status == held.Status && row.Fence == held.Fence && row.LeaseOwner == held.LeaseOwner
	}) {
		tasks = b.Held
	}
	byID, err := s.write(ctx, tasks, b.Decide, b.OnTransition)
	s.mu.Unlock()
	if err == nil {
		err = cmp.Or(unheard, s.leave("apply"))
	}
	if err != nil {
		return nil, err
	}
	out := make([]taskstate.Outcome, len(b.IDs))
	for i, id := range b.IDs {
		o, ok := byID[id]
		if !ok {
			o = taskstate.Outcome{Decision: taskstate.Decision{TaskID: id, Answer: taskstate.AnswerSkipped}}
		}
		out[i] = o
	}
	return out, nil
}

func (s *memStore) Sweep(ctx context.Context, w taskstate.Sweep) ([]taskstate.Outcome, error) {
	if err := s.enter(ctx, "sweep "+string(w.Status)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	until := instant().Add(w.WakeBefore.In)
	var tasks []taskstate.Task
	for _, t := range s.rows {
		due := !t.WakeAt.After(until)
		if !w.Before.IsZero() {
			due = t.WakeAt.Before(w.Before)
		}
		if t.Status == w.Status && !t.WakeAt.IsZero() && due && t.ID != s.locked && !slices.Contains(w.Exclude, t.ID) {
			tasks = append(tasks, t)
		}
	}
	sort.Slice(tasks, func(i, j int) bool {
		if !tasks[i].WakeAt.Equal(tasks[j].WakeAt) {
			return tasks[i].WakeAt.Before(tasks[j].WakeAt)
		}
		return tasks[i].ID < tasks[j].ID
	})
	tasks = tasks[:min(len(tasks), w.Limit)]
	byID, err := s.write(ctx, tasks, w.Decide, w.OnTransition)
	s.mu.Unlock()
	if err == nil {
		err = s.leave("sweep " + string(w.Status))
	}
	if err != nil {
		return nil, err
	}
	out := make([]taskstate.Outcome, len(tasks))
	for i, t := range tasks {
		out[i] = byID[t.ID]
	}
	return out, nil
}

// write decides and commits; s.mu is held.
func (s *memStore) write(ctx context.Context, tasks []taskstate.Task, decide taskstate.DecideFunc, also taskstate.TransitionFunc) (map[string]taskstate.Outcome, error) {
	m := taskstate.DBClock{Now: instant(), Epoch: s.epoch}
	ds, err := decide(ctx, nil, m, tasks)
	if err != nil {
		return nil, err
	}
	if len(ds) != len(tasks) {
		return nil, fmt.Errorf("%d decisions for %d tasks", len(ds), len(tasks))
	}
	out := map[string]taskstate.Outcome{}
	var changed []taskstate.Decision
	for i, d := range ds {
		o := taskstate.Outcome{Decision: d, Before: tasks[i], After: tasks[i]}
		if c := d.Change; c != nil {
			if c.From != tasks[i].Status || c.Fence != tasks[i].Fence {
				return nil, fmt.Errorf("change of %s: predicate does not hold", c.TaskID)
			}
			if !c.Silent && !taskstate.Legal(c.From, c.To, c.Reason) {
				return nil, fmt.Errorf("change of %s: %s → %s for %s is not legal", c.TaskID, c.From, c.To, c.Reason)
			}
			o.After = render(tasks[i], c, m.Now)
			if c.Wake.Kind == taskstate.DelayLease {
				process := processOf(c.LeaseOwner)
				if s.leases[process].Before(m.Now.Add(c.Wake.In / 3)) {
					s.renew(process, m.Now.Add(c.Wake.In))
				}
				o.After.WakeAt = s.leases[process]
			}
			if c.Progress == tasks[i].Progress { // a heartbeat may have written more than a holder's copy says
				o.After.Progress = s.rows[c.TaskID].Progress
			}
			changed = append(changed, d)
		}
		out[d.TaskID] = o
	}
	if also != nil && len(changed) > 0 {
		if err := also(ctx, nil, m, changed); err != nil {
			return nil, err
		}
	}
	for _, d := range changed {
		o := out[d.TaskID]
		s.rows[d.TaskID] = o.After
		if d.Change.Deliver && s.outbox != nil {
			s.outbox(o.After)
		}
		if c := d.Change; !c.Silent {
			s.log = append(s.log, taskstate.Transition{
				ID: int64(len(s.log) + 1), TaskID: d.TaskID, From: c.From, To: c.To, Reason: c.Reason,
				AttemptCount: c.AttemptCount, CrashCount: c.CrashCount, Fence: c.NewFence, Actor: c.Actor.String(),
				Message: c.Message, Delivery: c.Delivery, ErrorCode: c.ErrorCode, CreatedAt: m.Now,
			})
		}
	}
	return out, nil
}

// render applies a change to a row.
func render(t taskstate.Task, c *taskstate.Change, now time.Time) taskstate.Task {
	set := func(at *time.Time, d taskstate.Delay) {
		switch d.Kind {
		case taskstate.DelayKeep, taskstate.DelayLease:
		case taskstate.DelayNever:
			*at = time.Time{}
		case taskstate.DelayIn:
			*at = now.Add(d.In)
		}
	}
	t.Status, t.Fence, t.AttemptCount, t.CrashCount, t.ThrottleCount = c.To, c.NewFence, c.AttemptCount, c.CrashCount, c.ThrottleCount
	set(&t.NextRetryAt, c.NextRetry)
	set(&t.WakeAt, c.Wake)
	set(&t.EnqueuedAt, c.Enqueue)
	t.LeaseOwner, t.EnqueueCount, t.DLQ, t.Delivery, t.Progress = c.LeaseOwner, c.EnqueueCount, c.DLQ, c.Delivery, c.Progress
	t.LastError, t.ErrorMessage, t.ErrorCode, t.Result = c.LastError, c.ErrorMessage, c.ErrorCode, c.Result
	t.AttemptTrace, t.UpdatedAt = c.AttemptTrace, now
	return t
}

// processOf is the part of an owner that names the process.
func processOf(owner string) string {
	process, _, _ := strings.Cut(owner, "/")
	return process
}

// renew sets the lease of a process, which is that of all its claims; s.mu is held.
func (s *memStore) renew(process string, until time.Time) {
	s.leases[process] = until
	for id, t := range s.rows {
		if t.Status == taskstate.StatusRunning && processOf(t.LeaseOwner) == process {
			t.WakeAt = until
			s.rows[id] = t
		}
	}
}

func (s *memStore) Renew(ctx context.Context, process string, lease time.Duration, _ int) error {
	if err := s.enter(ctx, "renew"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renew(process, instant().Add(lease))
	return nil
}

// alive reports whether the lease of a process lasts.
func (s *memStore) alive(process string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[process].After(instant())
}

func (s *memStore) Drains(ctx context.Context, process string) (bool, error) {
	if err := s.enter(ctx, "drains"); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drains[process] != "", nil
}

func (s *memStore) Drained(_ context.Context, process string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains[process] == "asked" {
		s.drains[process] = "drained"
	}
	return nil
}

func (s *memStore) Drain(_ context.Context, process string, off bool, _ time.Duration, _ taskstate.TxFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drains == nil {
		s.drains = map[string]string{}
	}
	if off {
		delete(s.drains, process)
	} else if s.drains[process] == "" {
		s.drains[process] = "asked"
	}
	return nil
}

func (s *memStore) drainOf(process string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drains[process]
}

func (s *memStore) Held(ctx context.Context, process string, _ time.Duration) (held []taskstate.HeldTask, err error) {
	if err := s.enter(ctx, "held"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range s.rows {
		if t.Status == taskstate.StatusRunning && processOf(t.LeaseOwner) == process {
			held = append(held, taskstate.HeldTask{TaskID: id, Fence: t.Fence, Owner: t.LeaseOwner})
		}
	}
	return held, nil
}

func (s *memStore) Heartbeat(ctx context.Context, lease time.Duration, beats []taskstate.Beat) ([]string, error) {
	if err := s.enter(ctx, "heartbeat"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var lost []string
	for _, b := range beats {
		t, ok := s.rows[b.TaskID]
		if !ok || t.Status != b.Status || t.Fence != b.Token.Fence || t.LeaseOwner != b.Owner || s.epoch != b.Token.Epoch {
			lost = append(lost, b.TaskID)
			continue
		}
		if b.Renew && t.Status != taskstate.StatusRunning {
			t.WakeAt = instant().Add(lease)
		}
		if b.Progress != nil {
			t.Progress = *b.Progress
		}
		s.rows[b.TaskID] = t
	}
	return lost, nil
}

func (s *memStore) GetMany(ctx context.Context, _ taskstate.Scope, ids []string) ([]taskstate.Task, error) {
	if err := s.enter(ctx, "getmany"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []taskstate.Task
	for _, id := range ids {
		if t, ok := s.rows[id]; ok {
			out = append(out, t)
		}
	}
	return out, nil
}

func (s *memStore) Due(ctx context.Context, _ int) (n int64, oldest time.Duration, err error) {
	if err := s.enter(ctx, "due"); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.rows {
		live := t.Status == taskstate.StatusQueued || t.Status == taskstate.StatusRetrying || t.Status == taskstate.StatusRunning
		if live && !t.WakeAt.After(instant()) {
			n++
			oldest = max(oldest, instant().Sub(t.WakeAt))
		}
	}
	return n, oldest, nil
}

func (s *memStore) NextWake(ctx context.Context, status taskstate.Status, limit time.Duration) (time.Duration, error) {
	if err := s.enter(ctx, "nextwake"); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.rows {
		if t.Status == status && !t.WakeAt.IsZero() {
			limit = min(limit, t.WakeAt.Sub(instant()))
		}
	}
	return limit, nil
}

func (s *memStore) Moment(ctx context.Context) (taskstate.DBClock, error) {
	if err := s.enter(ctx, "moment"); err != nil {
		return taskstate.DBClock{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return taskstate.DBClock{Now: instant(), Epoch: s.epoch}, nil
}

// change applies a person's act.
func (s *memStore) change(id string, f func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision) taskstate.Outcome {
	outs, err := s.Apply(context.Background(), taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(f)})
	if err != nil {
		panic(err)
	}
	return outs[0]
}

func (s *memStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	if err := s.enter(ctx, "intx"); err != nil {
		return err
	}
	return f(ctx, nil, taskstate.DBClock{Now: instant(), Epoch: s.epoch})
}
