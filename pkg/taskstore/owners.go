package taskstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/millweir/millweir/pkg/taskstate"
)

// An owner is "process/call" to everybody else and one number in a state, whose row never grows: the process's number in
// ingest_worker, and the call's. A process gets its number with its first claim; no number is used twice.

const (
	callBits = 36 // a process may make 2^36 claims, and a database may see 2^27 processes
	maxCall  = int64(1)<<callBits - 1
	// maxProcess is how long a process's name may be.
	maxProcess = 32
	// mostTries is far more than a call needs: one, and another for each new timeline that begins meanwhile.
	mostTries = 5
)

// unknownWorkerError names a process whose number is not known in a timeline.
type unknownWorkerError struct{ name string }

func (e *unknownWorkerError) Error() string { return "the number of " + e.name + " is not known" }

// workers are the numbers of processes in one timeline: a database that was restored may have given them to others.
type workers struct {
	mu    sync.Mutex
	epoch int64
	no    map[string]int64
}

// anyEpoch stands for the timeline that the numbers are of.
const anyEpoch = 0

// number is an owner as a state of a timeline has it; the empty owner is 0.
func (w *workers) number(epoch int64, owner string) (int64, error) {
	if owner == "" {
		return 0, nil
	}
	name, text, _ := strings.Cut(owner, "/")
	call, err := strconv.ParseInt(text, 10, 64)
	if err != nil || call < 0 || call > maxCall || name == "" || len(name) > maxProcess {
		return 0, fmt.Errorf("%w: the owner %q is not process/number with at most %d characters and a number up to %d", ErrInvalid, owner, maxProcess, maxCall)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	no, known := w.no[name]
	if !known || epoch != anyEpoch && w.epoch != epoch {
		return 0, &unknownWorkerError{name}
	}
	return no<<callBits | call, nil
}

// numbered finds the owners of changes as states have them, and refuses what states cannot keep.
func (s *Store) numbered(epoch int64, changes []changed) error {
	var last [2]string
	var number [2]int64
	for i := range changes {
		c := &changes[i]
		if err := checkDelivery(c.by.Delivery); err != nil {
			return fmt.Errorf("task %s: %w", c.by.TaskID, err)
		}
		for n, owner := range [2]string{c.before.LeaseOwner, c.by.LeaseOwner} {
			if owner == last[n] {
				continue
			}
			no, err := s.workers.number(epoch, owner)
			if err != nil {
				return fmt.Errorf("task %s: %w", c.by.TaskID, err)
			}
			last[n], number[n] = owner, no
		}
		c.held, c.holds = number[0], number[1]
	}
	return nil
}

// withWorkers does work that needs the numbers of processes. Its error names one that it does not know.
func (s *Store) withWorkers(ctx context.Context, work func() error) error {
	for tries := 0; ; tries++ {
		err := work()
		var unknown *unknownWorkerError
		if !errors.As(err, &unknown) || tries == mostTries {
			return err
		}
		if err := s.register(ctx, unknown.name); err != nil {
			return err
		}
	}
}

// register reads the number of a process, and gives it one if it has none.
func (s *Store) register(ctx context.Context, name string) error {
	var no, epoch int64
	err := s.Transact(ctx, func(ctx context.Context, tx taskstate.Tx) error {
		m, err := s.ClockIn(ctx, tx)
		if err != nil {
			return err
		}
		epoch = m.Epoch
		if _, err := tx.ExecContext(ctx, s.queries.Get("WorkerAdd"), name, m.Now); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, s.queries.Get("WorkerOf"), name).Scan(&no)
	}, func(context.Context, taskstate.Tx) (bool, error) { return false, nil }) // done twice is as done once
	if err != nil {
		return fmt.Errorf("number the process: %w", err)
	}
	s.workers.mu.Lock()
	defer s.workers.mu.Unlock()
	if s.workers.no == nil || s.workers.epoch != epoch {
		s.workers.epoch, s.workers.no = epoch, map[string]int64{}
	}
	s.workers.no[name] = no
	return nil
}
