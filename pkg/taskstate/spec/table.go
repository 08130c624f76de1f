package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

// ErrInvalid says that a task is one that no store may keep.
var ErrInvalid = errors.New("invalid task")

// Table is ingest_task with its log, in memory: what every store must answer and hold after the same calls.
// Time comes in from outside, as the compared database measured it. It is not safe for concurrent use.
type Table struct {
	Epoch int64
	tasks map[string]taskstate.Task
	log   map[string][]taskstate.Transition
	// leases are until when processes have theirs, by name; claimed, in which epoch a claim became part of its process's lease.
	leases  map[string]time.Time
	claimed map[string]int64
}

// NewTable makes an empty table of an epoch.
func NewTable(epoch int64) *Table {
	return &Table{Epoch: epoch, tasks: map[string]taskstate.Task{}, log: map[string][]taskstate.Transition{}, leases: map[string]time.Time{}, claimed: map[string]int64{}}
}

// Submit inserts tasks at an instant, all or none. taskstate.ErrDuplicateKey; ErrInvalid.
func (x *Table) Submit(at time.Time, tasks []taskstate.NewTask) ([]taskstate.Task, error) {
	type key struct{ user, key string }
	taken := map[key]bool{}
	for _, t := range x.tasks {
		taken[key{t.UserID, t.IdempotencyKey}] = t.IdempotencyKey != ""
	}
	for _, n := range tasks {
		if n.MaxAttempts < 1 {
			return nil, fmt.Errorf("task %s: %w", n.ID, ErrInvalid)
		}
	}
	for _, n := range tasks {
		k := key{n.UserID, n.IdempotencyKey}
		if taken[k] {
			return nil, fmt.Errorf("task %s: %w", n.ID, taskstate.ErrDuplicateKey)
		}
		taken[k] = n.IdempotencyKey != ""
	}
	out := make([]taskstate.Task, len(tasks))
	for i, n := range tasks {
		t := n.Task
		t.Status, t.Progress.Stage, t.DLQ = taskstate.StatusQueued, taskstate.StageNone, taskstate.DLQNone
		t.CreatedAt, t.UpdatedAt, t.WakeAt, t.EnqueuedAt = at, at, at, at
		x.tasks[t.ID], out[i] = t, t
		x.log[t.ID] = []taskstate.Transition{{
			TaskID: t.ID, To: t.Status, Reason: taskstate.ReasonAccepted, Epoch: x.Epoch, Actor: n.Actor.String(), CreatedAt: at,
		}}
	}
	return out, nil
}

// Call is one Apply or Sweep.
type Call struct {
	Scope  taskstate.Scope
	Decide func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision
	Refuse string // the hook refuses a change of this task; empty: none
	// Locked and Written are when the database locked a row, and when it wrote it.
	Locked  func(id string) taskstate.DBClock
	Written func(id string) time.Time
}

// Apply is Store.Apply. ok is false when the call fails as a whole, because its only row was refused by the hook.
func (x *Table) Apply(ids []string, c Call) (out []taskstate.Outcome, ok bool) {
	for _, id := range ids {
		o := taskstate.Outcome{Decision: taskstate.Decision{TaskID: id, Answer: taskstate.AnswerSkipped}}
		t, exists := x.tasks[id]
		if exists && (c.Scope.All() || t.UserID == c.Scope.UserID) {
			o.Before, o.After = t, t
			o.Decision = c.Decide(c.Locked(id), t)
		}
		if o.Change != nil && id == c.Refuse {
			if len(ids) == 1 {
				return nil, false
			}
			o = taskstate.Outcome{Decision: taskstate.Decision{TaskID: id, Answer: taskstate.AnswerKept}}
		}
		if o.Change != nil {
			o.After = x.write(t, o.Change, c.Written(id))
		}
		out = append(out, o)
	}
	return out, true
}

// write changes a row and writes its transition.
func (x *Table) write(t taskstate.Task, c *taskstate.Change, at time.Time) taskstate.Task {
	t = Write(t, c, at)
	if c.Wake.Kind == taskstate.DelayLease {
		t.WakeAt, x.claimed[t.ID] = x.leases[processOf(t.LeaseOwner)], x.Epoch
	}
	x.tasks[t.ID] = t
	if !c.Silent {
		x.log[t.ID] = append(x.log[t.ID], transition(t, c))
	}
	return t
}

// Due returns the tasks of a status with wake_at before an instant, or at it too, in the order of a sweep.
func (x *Table) Due(status taskstate.Status, until time.Time, inclusive bool, limit int, exclude []string) []string {
	var found []taskstate.Task
	for _, t := range x.tasks {
		in := t.WakeAt.Before(until) || inclusive && t.WakeAt.Equal(until)
		if t.Status == status && status != taskstate.StatusSucceeded && !t.WakeAt.IsZero() && in && !slices.Contains(exclude, t.ID) {
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b taskstate.Task) int {
		return cmp.Or(a.WakeAt.Compare(b.WakeAt), a.UpdatedAt.Compare(b.UpdatedAt), strings.Compare(a.ID, b.ID))
	})
	out := make([]string, min(limit, len(found)))
	for i := range out {
		out[i] = found[i].ID
	}
	return out
}

// Renew is Store.Renew: a process has its lease until an instant, which becomes that of all its claims.
func (x *Table) Renew(process string, until time.Time) {
	x.leases[process] = until
	for id, t := range x.tasks {
		if t.Status == taskstate.StatusRunning && processOf(t.LeaseOwner) == process && x.claimed[id] == x.Epoch {
			t.WakeAt = until
			x.tasks[id] = t
		}
	}
}

// processOf is the part of an owner that names the process.
func processOf(owner string) string {
	process, _, _ := strings.Cut(owner, "/")
	return process
}

// HeldBy are the tasks that Store.Held returns however far ahead it looks, in the order of their ids: not those of an earlier epoch.
func (x *Table) HeldBy(process string) (held []taskstate.HeldTask) {
	for _, id := range x.IDs() {
		if t := x.tasks[id]; t.Status == taskstate.StatusRunning && processOf(t.LeaseOwner) == process && x.claimed[id] == x.Epoch {
			held = append(held, taskstate.HeldTask{TaskID: id, Fence: t.Fence, Owner: t.LeaseOwner})
		}
	}
	return held
}

// Heartbeat is Store.Heartbeat at an instant; lost come in the order of their ids.
func (x *Table) Heartbeat(at time.Time, lease time.Duration, beats []taskstate.Beat) (lost []string) {
	for _, b := range beats {
		t, exists := x.tasks[b.TaskID]
		if !exists || t.Status != b.Status || t.LeaseOwner != b.Owner || b.Token != (taskstate.Token{Epoch: x.Epoch, Fence: t.Fence}) ||
			t.Status == taskstate.StatusRunning && x.claimed[t.ID] != x.Epoch {
			lost = append(lost, b.TaskID)
			continue
		}
		if b.Renew && t.Status != taskstate.StatusRunning {
			t.WakeAt = at.Add(lease)
		}
		if b.Progress != nil && *b.Progress != t.Progress {
			t.Progress, t.UpdatedAt = *b.Progress, at
		}
		x.tasks[t.ID] = t
	}
	slices.Sort(lost)
	return lost
}

// Held is Store.Hold's predicate.
func (x *Table) Held(id string, token taskstate.Token) bool {
	t := x.tasks[id]
	return t.Status == taskstate.StatusRunning && token == taskstate.Token{Epoch: x.Epoch, Fence: t.Fence}
}

// RenewEpoch starts a new history at an instant and ends the lease of every process; it returns how many tasks were running.
func (x *Table) RenewEpoch(epoch int64, at time.Time) (leases int64) {
	x.Epoch = epoch
	for id, t := range x.tasks {
		if t.Status == taskstate.StatusRunning {
			leases++
			if t.LeaseOwner != "" && t.WakeAt.After(at) {
				t.WakeAt = at
				x.tasks[id] = t
			}
		}
	}
	clear(x.leases)
	return leases
}

// Age lets the times that a row waits for be past, as if time had gone by: a claim is then of a process that is gone.
func (x *Table) Age(id string, past time.Time) taskstate.Task {
	t := x.tasks[id]
	for _, column := range []*time.Time{&t.NextRetryAt, &t.WakeAt, &t.EnqueuedAt} {
		if !column.IsZero() {
			*column = past
		}
	}
	x.tasks[id] = t
	delete(x.claimed, id)
	return t
}

// IDs are the tasks, in order.
func (x *Table) IDs() []string { return slices.Sorted(maps.Keys(x.tasks)) }

// Get returns a task; the zero Task when there is none.
func (x *Table) Get(id string) taskstate.Task { return x.tasks[id] }

// Log returns a task's transitions, oldest first, without ids.
func (x *Table) Log(id string) []taskstate.Transition { return x.log[id] }

// Counts is Store.Counts.
func (x *Table) Counts(s taskstate.Scope) map[taskstate.Status]int64 {
	out := map[taskstate.Status]int64{}
	for _, t := range x.tasks {
		if s.All() || t.UserID == s.UserID {
			out[t.Status]++
		}
	}
	return out
}
