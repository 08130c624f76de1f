package taskstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// An owner is "process/call" to everybody else and one number in a state, whose row never grows: the number of the process's row
// in ingest_worker, and the call's. That row has the lease of the process, which is the lease of all its claims (design D22):
//   - Every start of a process has a row of its own: no number is used twice, and no row is deleted.
//   - Nobody shortens a lease but the renewal of the timeline, and the process itself when the database's clock was set back. So a lease
//     that a process has read may be believed, and a claim compares it with the clock of its own transaction: a third of the lease must
//     be left, or it is renewed first.
//   - A takeover judges the lease while it has the row locked, in its own transaction.

const (
	callBits = 36 // a process may make 2^36 claims, and a database may see 2^27 processes
	maxCall  = int64(1)<<callBits - 1
	// maxProcess is how long a process's name may be.
	maxProcess = 32
	// mostTries is far more than a call needs: one, another for its first lease, and one for each new timeline that begins meanwhile.
	mostTries = 5
	// noWorker is the owner that no state has.
	noWorker = -1
)

// leaseError names a process that has no row in a timeline, or too little left of its lease.
type leaseError struct {
	process string
	lease   time.Duration
}

func (e *leaseError) Error() string {
	return fmt.Sprintf("of its lease of %s the process %s has less than a third left", e.lease, e.process)
}

// worker is a process's row of ingest_worker.
type worker struct {
	no    int64
	until time.Time // its lease lasts at least so long
}

// workers are the processes that claim through a store, in one timeline: a database that was restored may have given their numbers
// to others.
type workers struct {
	making sync.Mutex // one row is made at a time: a process with two would renew one of them
	mu     sync.Mutex
	epoch  int64
	named  map[string]worker
}

// get returns a process's row, and the timeline that it is of; the number is noWorker when it has none.
func (w *workers) get(process string) (found worker, epoch int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found, known := w.named[process]
	if !known {
		found.no = noWorker
	}
	return found, w.epoch
}

// set notes a process's row in a timeline, or how long its lease lasts now: no less than it did, unless it was shortened.
func (w *workers) set(epoch int64, process string, row worker, shortened bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.named == nil || w.epoch != epoch {
		w.epoch, w.named = epoch, map[string]worker{}
	}
	if old := w.named[process]; !shortened && old.no == row.no && old.until.After(row.until) {
		row.until = old.until
	}
	w.named[process] = row
}

// ownersOf puts into states, as they are kept, the names of their owners and when their leases end (as Columns does in a list).
func (s *Store) ownersOf(ctx context.Context, tx taskstate.Tx, tasks []taskstate.Task) error {
	type process struct {
		name  string
		until taskstate.DBTime
	}
	found := map[int64]process{}
	numbers := make([]int64, len(tasks))
	var list []int64
	for i, t := range tasks {
		n, err := strconv.ParseInt(t.LeaseOwner, 10, 64)
		if err != nil {
			return fmt.Errorf("task %s: its owner: %w", t.ID, err)
		}
		numbers[i] = n
		if _, known := found[n>>callBits]; n != 0 && !known {
			found[n>>callBits] = process{}
			list = append(list, n>>callBits)
		}
	}
	if len(list) > 0 {
		query := s.queries.Bind("WorkersNumbered", sqldb.Parts{"list": sqldb.List(list)})
		err := sqldb.Each(ctx, tx, func(rows *sql.Rows) error {
			var no int64
			var p process
			err := rows.Scan(&no, &p.name, &p.until)
			found[no] = p
			return err
		}, query.Text, query.Args...)
		if err != nil {
			return fmt.Errorf("read who owns tasks: %w", err)
		}
	}
	for i := range tasks {
		t, p := &tasks[i], found[numbers[i]>>callBits]
		if t.LeaseOwner = ""; p.name != "" {
			t.LeaseOwner = ownerOf(p.name, numbers[i])
		}
		switch {
		case t.Status == taskstate.StatusSucceeded:
			t.WakeAt = time.Time{}
		case t.Status == taskstate.StatusRunning && numbers[i] != 0 && p.name != "":
			t.WakeAt = p.until.Time
		case t.Status == taskstate.StatusRunning && numbers[i] != 0:
			t.WakeAt = t.UpdatedAt
		}
	}
	return nil
}

// parseOwner cuts an owner into its process and its call.
func parseOwner(owner string) (process string, call int64, err error) {
	process, text, _ := strings.Cut(owner, "/")
	call, err = strconv.ParseInt(text, 10, 64)
	if err != nil || call < 0 || call > maxCall || process == "" || len(process) > maxProcess {
		return "", 0, fmt.Errorf("%w: the owner %q is not process/number with at most %d characters and a number up to %d", ErrInvalid, owner, maxProcess, maxCall)
	}
	return process, call, nil
}

// actorOf is a process as its calls name it.
func actorOf(process string) string {
	return taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}.String()
}

// ownerOf is a number of a process's row and call as everybody else has it.
func ownerOf(process string, number int64) string {
	return process + "/" + strconv.FormatInt(number&maxCall, 10)
}

// number is an owner as a state of a timeline has it, with its process's lease; the empty owner is 0.
func (w *workers) number(epoch int64, owner string) (no int64, of leased, err error) {
	if owner == "" {
		return 0, of, nil
	}
	process, call, err := parseOwner(owner)
	if err != nil {
		return 0, of, err
	}
	row, known := w.get(process)
	if row.no == noWorker || known != epoch {
		return noWorker, leased{process: process}, nil
	}
	return row.no<<callBits | call, leased{process: process, until: row.until}, nil
}

// leased is whose lease the claims of a batch are part of, and until when that lasts at least; the zero value: of nobody.
type leased struct {
	process string
	lease   time.Duration
	until   time.Time
}

// enough returns nil if a third of the lease is left at a time.
func (l leased) enough(now time.Time) error {
	if l.process != "" && l.until.Before(now.Add(l.lease/3)) {
		return &leaseError{l.process, l.lease}
	}
	return nil
}

// numbered finds the owners of changes as states have them, and refuses what states cannot keep. Of rows that are not locked the owner
// before is part of what the change compares. It returns whose lease the claims become part of: of several, the one that ends first.
func (s *Store) numbered(m taskstate.DBClock, changes []changed, unlocked bool) (first leased, err error) {
	var last [2]string
	var number [2]int64
	for i := range changes {
		c := &changes[i]
		if err := checkDelivery(c.by.Delivery); err != nil {
			return first, fmt.Errorf("task %s: %w", c.by.TaskID, err)
		}
		if unlocked && c.before.LeaseOwner != last[0] {
			last[0] = c.before.LeaseOwner
			if number[0], _, err = s.workers.number(m.Epoch, last[0]); err != nil {
				return first, fmt.Errorf("task %s: %w", c.by.TaskID, err)
			}
		}
		if (c.by.LeaseOwner != c.before.LeaseOwner || c.by.Wake.Kind == taskstate.DelayLease) && c.by.LeaseOwner != last[1] {
			last[1] = c.by.LeaseOwner
			var of leased
			if number[1], of, err = s.workers.number(m.Epoch, last[1]); err != nil {
				return first, fmt.Errorf("task %s: %w", c.by.TaskID, err)
			}
			of.lease = c.by.Wake.In
			if err := of.enough(m.Now); err != nil {
				return first, err
			}
			if first.process == "" || of.process != "" && of.until.Before(first.until) {
				first = of
			}
		}
		c.held, c.holds = number[0], number[1]
	}
	return first, nil
}

// withLease does work whose error may name a process that needs a lease.
func (s *Store) withLease(ctx context.Context, work func() error) error {
	for tries := 0; ; tries++ {
		err := work()
		var short *leaseError
		if !errors.As(err, &short) || tries == mostTries {
			return err
		}
		if err := s.renew(ctx, short.process, short.lease, sql.NullInt64{}); err != nil {
			return err
		}
	}
}

// Renew implements taskstate.Store.
func (s *Store) Renew(ctx context.Context, process string, lease time.Duration, slots int) error {
	return s.renew(ctx, process, lease, sql.NullInt64{Int64: int64(slots), Valid: true})
}

// renew is Renew; slots that are not valid stay as they are. The first time it gives the process its row. A renewal that the heartbeat's
// own connection does not do within a sixth of the lease is repeated on another. A lease that would last for more than twice its length
// from now on is from before the database's clock was set back: it is shortened, or its tasks would stay RUNNING for that long after the
// death of their process.
func (s *Store) renew(ctx context.Context, process string, lease time.Duration, slots sql.NullInt64) error {
	if _, _, err := parseOwner(process + "/0"); err != nil {
		return err
	}
	row, epoch := s.workers.get(process)
	if row.no == noWorker {
		return s.register(ctx, process, lease, slots, row.no)
	}
	renewed := false
	work := func(ctx context.Context, tx taskstate.Tx) error {
		m, err := s.ClockIn(ctx, tx)
		if err != nil {
			return err
		}
		length := time.Duration(boundedMicros(lease)) * time.Microsecond
		until := m.Now.Add(length)
		back := row.until.After(until.Add(length))
		query, args := s.queries.Get("WorkerRenew"), []any{until, until, slots, row.no, epoch}
		if back {
			query, args = s.queries.Get("WorkerShorten"), args[1:]
		}
		res, err := tx.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if renewed = n == 1; !renewed || err != nil {
			return err
		}
		if back {
			if _, err := tx.ExecContext(ctx, s.queries.Get("WakingNowOf"), until, actorOf(process)); err != nil {
				return err
			}
		}
		s.workers.set(epoch, process, worker{row.no, until}, back)
		return nil
	}
	first, cancel := context.WithTimeout(ctx, lease/6)
	err := s.Beat(first, work)
	cancel()
	if err != nil && ctx.Err() == nil {
		err = s.Transact(ctx, work, func(context.Context, taskstate.Tx) (bool, error) { return false, nil }) // done twice is as done once
	}
	switch {
	case err != nil:
		return fmt.Errorf("renew the lease of %s: %w", process, err)
	case renewed:
		return nil
	}
	return s.register(ctx, process, lease, slots, row.no) // the row is of another timeline, or somebody deleted it
}

// register gives a process a row in place of the one that it had; nothing when it has another by now. One that is made twice, for
// want of an answer, is a number that nobody uses.
func (s *Store) register(ctx context.Context, process string, lease time.Duration, slots sql.NullInt64, had int64) error {
	s.workers.making.Lock()
	defer s.workers.making.Unlock()
	row, epoch := s.workers.get(process)
	if row.no != had {
		return nil
	}
	err := s.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		m, err := s.ClockIn(ctx, tx)
		if err != nil {
			return err
		}
		epoch, row.until = m.Epoch, m.Now.Add(time.Duration(boundedMicros(lease))*time.Microsecond)
		if s.Dialect() == string(sqldb.Postgres) {
			return tx.QueryRowContext(ctx, s.queries.Get("WorkerAdd"), process, row.until, m.Now, slots).Scan(&row.no)
		}
		res, err := tx.ExecContext(ctx, s.queries.Get("WorkerAdd"), process, row.until, m.Now, slots)
		if err != nil {
			return err
		}
		row.no, err = res.LastInsertId()
		return err
	}, func(context.Context, taskstate.Tx) (bool, error) { return false, nil })
	if err != nil {
		return fmt.Errorf("give %s a lease: %w", process, err)
	}
	s.workers.set(epoch, process, row, false)
	return nil
}
