package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// maxProblems bounds what an Audit tells.
const maxProblems = 12

// Audit says how the world must look at rest and judges it by tables, streams and vectors alone.
type Audit struct {
	DB      taskstate.Tx
	Vectors ingest.VectorStore
	Stream  *Stream // nil: the queue was inside the process and is gone
	// Load, when set, is what was accepted: all of it must be there.
	Load *Record
	// Want are the tasks that must end otherwise than SUCCEEDED, by id.
	Want map[string]taskstate.Status
}

// AuditError lists what is wrong; the log and the row of the first guilty task are in its text.
type AuditError struct {
	Problems []string
	Guilty   string // id of the first task with a problem; may be empty
	Chain    string
}

// Error shows at most a dozen problems and the guilty task's log.
func (e *AuditError) Error() string {
	shown := e.Problems[:min(len(e.Problems), maxProblems)]
	text := fmt.Sprintf("%d violations:\n  %s", len(e.Problems), strings.Join(shown, "\n  "))
	if e.Chain != "" {
		text += "\n  log of task " + e.Guilty + ":\n" + e.Chain
	}
	return text
}

// finding collects problems while it looks.
type finding struct {
	problems []string
	guilty   string
}

func (f *finding) add(task, format string, args ...any) {
	if f.guilty == "" {
		f.guilty = task
	}
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// Settled waits until every task is terminal (or where Want has it), nothing is pending and no DLQ entry is owed.
func (a Audit) Settled(ctx context.Context, limit time.Duration) error {
	return Until(ctx, limit, 100*time.Millisecond, func(ctx context.Context) error {
		rows, err := tasks(ctx, a.DB)
		if err != nil {
			return err
		}
		for _, t := range rows {
			if !t.status.Terminal() && a.Want[t.id] != t.status {
				return fmt.Errorf("task %s (%s) is %s, attempt %d, crashes %d, last error %q", t.id, t.file, t.status, t.attempts, t.crashes, t.lastError)
			}
			if t.dlq == taskstate.DLQOwed {
				return fmt.Errorf("task %s still owes its DLQ entry", t.id)
			}
		}
		if a.Stream == nil {
			return nil
		}
		n, err := a.Stream.Pending(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("XPENDING %s %s is %d", StreamKey, Group, n)
		}
		return err
	})
}

// Run judges. Errors: *AuditError; what kept it from looking.
func (a Audit) Run(ctx context.Context) error {
	f := &finding{}
	rows, err := tasks(ctx, a.DB)
	if err != nil {
		return fmt.Errorf("audit: tasks: %w", err)
	}
	logs, err := Logs(ctx, a.DB)
	if err != nil {
		return fmt.Errorf("audit: transitions: %w", err)
	}
	a.outcomes(f, rows)
	for _, t := range rows {
		chain(f, t, logs[t.id])
	}
	if err := a.content(ctx, f, rows); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if a.Stream != nil {
		if err := a.queue(ctx, f, rows); err != nil {
			return fmt.Errorf("audit: queue: %w", err)
		}
	}
	if len(f.problems) == 0 {
		return nil
	}
	return &AuditError{Problems: f.problems, Guilty: f.guilty, Chain: Chain(logs[f.guilty])}
}

// outcomes: nothing that was accepted is missing, and every task ended as it should.
func (a Audit) outcomes(f *finding, rows []taskRow) {
	known := map[string]taskRow{}
	for _, t := range rows {
		known[t.id] = t
		want := taskstate.StatusSucceeded
		if w, ok := a.Want[t.id]; ok {
			want = w
		}
		if t.status != want {
			f.add(t.id, "task %s (%s) is %s, not %s: attempt %d/%d, crashes %d, code %q, last error %q",
				t.id, t.file, t.status, want, t.attempts, t.max, t.crashes, t.code, t.lastError)
		}
	}
	if a.Load == nil {
		return
	}
	for id, d := range a.Load.Accepted {
		if t, ok := known[id]; !ok {
			f.add(id, "LOST: task %s (%s) was answered with 2xx and is not in the table", id, d.Name)
		} else if t.file != d.Name {
			f.add(id, "task %s is about %q and was accepted for %q", id, t.file, d.Name)
		}
	}
	for status, n := range a.Load.Other {
		f.add("", "%d uploads were answered with %d", n, status)
	}
	a.once(f, rows)
}

// once: one task per file name of the load, accepted or not: repeats with one key made no second document.
func (a Audit) once(f *finding, rows []taskRow) {
	byFile := map[string][]string{}
	for _, t := range rows {
		byFile[t.file] = append(byFile[t.file], t.id)
	}
	check := func(d Doc) {
		if ids := byFile[d.Name]; len(ids) > 1 {
			f.add(ids[1], "%s was uploaded with one key and became %d tasks", d.Name, len(ids))
		}
	}
	for _, d := range a.Load.Accepted {
		check(d)
	}
	for _, d := range a.Load.Maybe {
		check(d)
	}
}

// queue: nothing is pending, and every DEAD task has its entry in the DLQ.
func (a Audit) queue(ctx context.Context, f *finding, rows []taskRow) error {
	pending, err := a.Stream.Pending(ctx)
	if err != nil {
		return err
	}
	if pending != 0 {
		f.add("", "XPENDING %s %s is %d, not 0", StreamKey, Group, pending)
	}
	deaths, err := a.Stream.Deaths(ctx)
	if err != nil {
		return err
	}
	for _, t := range rows {
		if t.status != taskstate.StatusDead {
			continue
		}
		if t.dlq != taskstate.DLQWritten || deaths[Death{t.id, t.fence}] == 0 {
			f.add(t.id, "task %s is DEAD with fence %d, dlq_state %s, and has %d entries in %s",
				t.id, t.fence, t.dlq, deaths[Death{t.id, t.fence}], DLQKey)
		}
	}
	return nil
}

// sortedKeys are a map's keys in order.
func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
