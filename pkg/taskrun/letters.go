package taskrun

import (
	"context"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/crash"
	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// dlqPendingOnce writes the dead letters that DEAD rows still owe (design D11).
func (r *Runner) dlqPendingOnce(ctx context.Context) error {
	batch := r.writeDLQPending
	switch {
	case !r.transport.Pending && r.deps.DeadLetters == nil:
		batch = r.dlqPendingByEvent
	case r.transport.Pending && !r.cfg.Policy.DLQ:
		return nil
	case r.transport.Pending && r.deps.Outbox != nil:
		if err := r.full(ctx, r.takeUnsent); err != nil {
			return err
		}
	}
	return r.full(ctx, batch)
}

// full calls batch while it answers that it did as much as it may.
func (r *Runner) full(ctx context.Context, batch func(context.Context) (int, error)) error {
	for ctx.Err() == nil {
		n, err := batch(ctx)
		if err != nil || n < r.cfg.SweepBatch {
			return err
		}
	}
	return nil
}

// writeDLQPending writes one batch: entries, acknowledgements, marks; it answers how many rows it read.
func (r *Runner) writeDLQPending(ctx context.Context) (int, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	var epoch int64
	began := r.deps.Now()
	outs, err := r.deps.Store.Sweep(ctx, taskstate.Sweep{
		Status: taskstate.StatusDead, WakeBefore: taskstate.In(0), Limit: r.cfg.SweepBatch,
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			epoch = m.Epoch
			return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
		}),
	})
	if r.storeDone(began, err) != nil {
		return 0, fmt.Errorf("sweep owed dead letters: %w", err)
	}
	var ls []deadLetter
	for _, o := range outs {
		if o.Before.DLQ == taskstate.DLQOwed {
			ls = append(ls, deadLetterOf(o.Before, epoch, r.entryOf(o.Before)))
		}
	}
	if len(ls) == 0 {
		return 0, nil
	}
	crash.Point("owed.after_scan")
	if err := r.effects.writeDeadLettersNow(ctx, ls); err != nil {
		return 0, err
	}
	return len(outs), nil
}

// deadLetterWriter is where entries that rows owe are written.
func (r *Runner) deadLetterWriter() DeadLetterWriter {
	if r.deps.DeadLetters != nil {
		return r.deps.DeadLetters
	}
	return r.deps.Queue
}

// dlqPendingByEvent turns one batch of owed entries into events, each with its mark (design D11); it answers how many rows it read.
func (r *Runner) dlqPendingByEvent(ctx context.Context) (int, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	began := r.deps.Now()
	outs, err := r.deps.Store.Sweep(ctx, taskstate.Sweep{
		Status: taskstate.StatusDead, WakeBefore: taskstate.In(0), Limit: r.cfg.SweepBatch,
		Decide: taskstate.Each(taskstate.SendDLQ),
	})
	if r.storeDone(began, err) != nil {
		return 0, fmt.Errorf("send owed dead letters by the outbox: %w", err)
	}
	if !slices.ContainsFunc(outs, func(o taskstate.Outcome) bool { return o.Err == nil && o.Change != nil }) {
		return 0, nil // nothing moves by looking again at once
	}
	return len(outs), nil
}

// unsentTx is one transaction that turns unsent dead letters into owed entries; its hooks may run again.
type unsentTx struct {
	outbox          Outbox
	byTask          map[string][]ingestq.UnsentDeadLetter
	writeDLQPending map[string]int64 // the event that each change stands for, of the last call of decide
}

// decide locks the events of tasks and owes an entry for those of their very last death.
func (u *unsentTx) decide(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, tasks []taskstate.Task) ([]taskstate.Decision, error) {
	u.writeDLQPending = map[string]int64{}
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
				out[i], u.writeDLQPending[t.ID] = d, l.Seq
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
		seqs[i] = u.writeDLQPending[d.TaskID]
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
func (r *Runner) takeUnsent(ctx context.Context) (int, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	deadLetters, err := r.deps.Outbox.UnsentDeadLetters(ctx, r.cfg.SweepBatch)
	if err != nil || len(deadLetters) == 0 {
		return 0, err
	}
	u := &unsentTx{outbox: r.deps.Outbox, byTask: map[string][]ingestq.UnsentDeadLetter{}}
	var ids []string
	for _, l := range deadLetters {
		if u.byTask[l.TaskID] == nil {
			ids = append(ids, l.TaskID)
		}
		u.byTask[l.TaskID] = append(u.byTask[l.TaskID], l)
	}
	outs, err := r.apply(ctx, taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: u.decide, OnTransition: u.onTransition})
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
	err = r.deps.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := r.deps.Outbox.DropDeadLetters(ctx, tx, stale)
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
