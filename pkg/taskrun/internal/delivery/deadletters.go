package delivery

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskrun/internal/local"
	"github.com/millweir/millweir/pkg/taskstate"
)

// writeDLQPending writes one batch: entries, acknowledgements, marks; it returns how many rows it read.
func (c *Effects) writeDLQPending(ctx context.Context, entryOf func(taskstate.Task) string) (int, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	var epoch int64
	outs, err := c.Store.Sweep(ctx, taskstate.Sweep{
		Status: taskstate.StatusDead, WakeBefore: taskstate.In(0), Limit: c.cfg.SweepBatch,
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			epoch = m.Epoch
			return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
		}),
	})
	if err != nil {
		return 0, fmt.Errorf("sweep owed dead letters: %w", err)
	}
	var ls []DeadLetter
	for _, o := range outs {
		if o.Before.DLQ == taskstate.DLQOwed {
			ls = append(ls, deadLetterOf(o.Before, epoch, entryOf(o.Before)))
		}
	}
	if len(ls) == 0 {
		return 0, nil
	}
	crash.Point("owed.after_scan")
	if err := c.writeDeadLettersNow(ctx, ls); err != nil {
		return 0, err
	}
	return len(outs), nil
}

// unsentTx is one transaction that turns unsent dead letters into owed entries; its hooks may run again.
type unsentTx struct {
	outbox Outbox
	byTask map[string][]ingestq.UnsentDeadLetter
	owed   map[string]int64 // the event that each change stands for, of the last call of decide
}

// decide locks the events of tasks and owes an entry for those of their very last death.
func (u *unsentTx) decide(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
	u.owed = map[string]int64{}
	var seqs []int64
	for _, t := range tasks {
		for _, l := range u.byTask[t.ID] {
			seqs = append(seqs, l.Seq)
		}
	}
	locked, err := u.outbox.LockDeadLetters(ctx, tx, seqs)
	if err != nil {
		return nil, err
	}
	out := make([]taskstate.Decision, len(tasks))
	for i, t := range tasks {
		out[i] = taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
		for _, l := range u.byTask[t.ID] {
			if d := taskstate.OweDLQ(m, t, l.Fence); locked[l.Seq] && d.Change != nil {
				out[i], u.owed[t.ID] = d, l.Seq
				break
			}
		}
	}
	return out, nil
}

// onTransition removes the events whose entries are owed now.
func (u *unsentTx) onTransition(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock, changed []taskstate.Decision) error {
	seqs := make([]int64, len(changed))
	for i, d := range changed {
		seqs[i] = u.owed[d.TaskID]
	}
	slices.Sort(seqs)
	n, err := u.outbox.DropDeadLetters(ctx, tx, seqs)
	if err == nil && n != len(seqs) {
		err = fmt.Errorf("%d of %d locked events were there", n, len(seqs))
	}
	return err
}

// takeUnsent turns one batch of unsent dead letters of the other transport into owed entries, and removes those whose task was
// replayed since: a fence never comes back. It returns how many events are gone.
func (p *pendingEntries) takeUnsent(ctx context.Context) (int, error) {
	ctx, cancel := local.Bounded(ctx)
	defer cancel()
	deadLetters, err := p.Outbox.UnsentDeadLetters(ctx, p.cfg.SweepBatch)
	if err != nil || len(deadLetters) == 0 {
		return 0, err
	}
	u := &unsentTx{outbox: p.Outbox, byTask: map[string][]ingestq.UnsentDeadLetter{}}
	for _, l := range deadLetters {
		u.byTask[l.TaskID] = append(u.byTask[l.TaskID], l)
	}
	outs, err := p.Store.Apply(ctx, taskstate.Batch{
		IDs: slices.Sorted(maps.Keys(u.byTask)), Scope: taskstate.System(), Decide: u.decide, OnTransition: u.onTransition,
	})
	if err != nil {
		return 0, fmt.Errorf("owe %d unsent dead letters: %w", len(deadLetters), err)
	}
	gone := 0
	var stale []int64
	for _, o := range outs {
		if o.Err == nil && o.Change != nil {
			gone++
		}
		for _, l := range u.byTask[o.TaskID] {
			if o.Err == nil && endedBefore(o.Before, l) {
				stale = append(stale, l.Seq)
			}
		}
	}
	if len(stale) == 0 {
		return gone, nil
	}
	err = p.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := p.Outbox.DropDeadLetters(ctx, tx, stale)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("remove %d dead letters of tasks that were replayed: %w", len(stale), err)
	}
	return gone + len(stale), nil
}

// endedBefore reports whether the row needs no dead letter of that death any more: it was replayed, is gone, or owes it already.
func endedBefore(t taskstate.Task, l ingestq.UnsentDeadLetter) bool {
	return t.Status != taskstate.StatusDead || t.Fence != l.Fence || t.DLQ == taskstate.DLQOwed
}
