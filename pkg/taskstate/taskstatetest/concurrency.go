package taskstatetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
)

const (
	racers = 6
	// waitTime is what the tests take for "does not wait", on a loaded machine too.
	waitTime = time.Minute
)

// testRacingClaims has racers claim as deliveries do, which take nothing over. A takeover belongs to a sweep (design D22), which reads
// leases once it has its rows: the statement that locks rows may see the claim of a process whose first lease is younger than its
// snapshot. Postgres takes that at Bind and the statement's time at Execute; where another process registered, claimed and committed
// between the two, its claim would seem to have ended.
func testRacingClaims(t *testing.T, b *bench) {
	ids := b.queued(40)
	var mu sync.Mutex
	won := map[string]string{}
	b.race(func(n int, s taskstate.Database) error {
		owner := fmt.Sprintf("p%d", n)
		mixed := append([]string(nil), ids...)
		for i := range mixed { // each racer names them in another order
			mixed[i], mixed[(i*7+n)%len(mixed)] = mixed[(i*7+n)%len(mixed)], mixed[i]
		}
		for from := 0; from < len(mixed); from += 8 {
			out, err := s.Apply(b.ctx, taskstate.Batch{
				IDs: mixed[from : from+8], Scope: taskstate.System(),
				Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Claim(b.p, m, t, taskstate.ClaimRequest{Owner: owner + "/1", Process: owner, Actor: worker, Delivery: "1-0"})
				}),
			})
			if err != nil {
				return err
			}
			mu.Lock()
			for _, o := range out {
				if o.Answer != taskstate.AnswerClaimed {
					continue
				}
				if won[o.TaskID] != "" {
					t.Errorf("%s was won by %s and %s", o.TaskID, won[o.TaskID], owner)
				}
				won[o.TaskID] = owner
			}
			mu.Unlock()
		}
		return nil
	})
	equal(t, "won", len(won), len(ids))
	for _, id := range ids {
		equal(t, "fence", b.get(id).Fence, 1)
		equal(t, "owner", b.get(id).LeaseOwner, won[id]+"/1")
		equal(t, "log", len(b.log(id)), 2)
	}
}

func testRacingSweeps(t *testing.T, b *bench) {
	ids := b.queued(60)
	var mu sync.Mutex
	won := map[string]int{}
	b.race(func(n int, s taskstate.Database) error {
		for empty := 0; empty < 3; {
			out, err := s.Sweep(b.ctx, taskstate.Sweep{
				Status: taskstate.StatusQueued, WakeBefore: taskstate.In(0), Limit: 5,
				Decide: taskstate.Each(b.claiming(fmt.Sprintf("p%d", n))),
			})
			if err != nil {
				return err
			}
			if len(out) == 0 {
				empty++
			}
			mu.Lock()
			for _, o := range out {
				won[o.TaskID]++
			}
			mu.Unlock()
		}
		return nil
	})
	equal(t, "swept", len(won), len(ids))
	for id, n := range won {
		equal(t, "times "+id, n, 1)
		equal(t, "fence", b.get(id).Fence, 1)
	}
}

// race runs f in several goroutines, half of them on a store of their own.
func (b *bench) race(f func(n int, s taskstate.Database) error) {
	b.t.Helper()
	other := b.reopen(b.t)
	var wg sync.WaitGroup
	for n := range racers {
		s := b.s
		if n%2 == 1 {
			s = other
		}
		wg.Go(func() {
			if err := f(n, s); err != nil {
				b.t.Error(err)
			}
		})
	}
	wg.Wait()
	if b.t.Failed() {
		b.t.FailNow()
	}
}

// testParallelSweeps holds one sweep open: another gets other rows, and a third party writes rows of neither, without waiting.
func testParallelSweeps(t *testing.T, b *bench) {
	ids := b.queued(12)
	running := b.claimed()
	m, err := b.s.Moment(b.ctx)
	b.fatalIf(err)
	for i, id := range ids {
		b.set(id, "wake_at = ?", m.Now.Add(-time.Duration(len(ids)-i)*time.Second))
	}
	sweep := func(ctx context.Context, s taskstate.Database, also taskstate.TransitionFunc) ([]taskstate.Outcome, error) {
		return s.Sweep(ctx, taskstate.Sweep{
			Status: taskstate.StatusQueued, WakeBefore: taskstate.In(0), Limit: 4,
			Decide: taskstate.Each(b.claiming("p1")), OnTransition: also,
		})
	}
	inside, leave := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var first []taskstate.Outcome
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		first, err = sweep(b.ctx, b.s, func(context.Context, taskstate.Tx, taskstate.DBClock, []taskstate.Decision) error {
			once.Do(func() { close(inside) })
			<-leave
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	done := func() { close(leave); wg.Wait() }
	if !b.features.RowLocks {
		ctx, cancel := context.WithTimeout(b.ctx, 100*time.Millisecond)
		defer cancel()
		_, err := sweep(ctx, b.s, nil)
		done()
		if err == nil {
			t.Fatal("two writers at once in a database that has one")
		}
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, waitTime)
	defer cancel()
	second, err := sweep(ctx, b.s, nil)
	if err == nil {
		_, err = b.s.Apply(ctx, taskstate.Batch{
			IDs: []string{ids[11], running.ID}, Scope: taskstate.System(),
			Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Cancel(m, t, worker, taskstate.ReasonCancelled, "")
			}),
		})
	}
	if err == nil {
		_, err = b.s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
			return []taskstate.NewTask{newTask()}, nil
		})
	}
	done()
	b.fatalIf(err)
	names := func(out []taskstate.Outcome) (s []string) {
		for _, o := range out {
			s = append(s, o.TaskID)
		}
		return s
	}
	equal(t, "first", fmt.Sprint(names(first)), fmt.Sprint(ids[:4]))
	equal(t, "second", fmt.Sprint(names(second)), fmt.Sprint(ids[4:8]))
}

// testDeadlock makes two transactions lock two rows in opposite order; both calls must end well.
func testDeadlock(t *testing.T, b *bench) {
	if !b.features.RowLocks {
		t.Log("one writer at a time: there is nothing to deadlock")
	}
	mine, rows := b.queued(2), b.queued(2)
	var met sync.WaitGroup
	met.Add(2)
	other := b.s
	if !b.features.RowLocks {
		other = b.reopen(t)
	}
	runs := make([]int, 2)
	var wg sync.WaitGroup
	for n, s := range []taskstate.Database{b.s, other} {
		wg.Go(func() {
			out, err := s.Apply(b.ctx, taskstate.Batch{
				IDs: mine[n : n+1], Scope: taskstate.System(), Decide: taskstate.Each(b.claiming("p1")),
				OnTransition: func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock, _ []taskstate.Decision) error {
					runs[n]++
					for step := range 2 {
						_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET attempt_traceparent = ? WHERE id = ?", fmt.Sprint(n), b.key(rows[(n+step)%2]))
						if err != nil {
							return fmt.Errorf("lock %d: %w", step, err)
						}
						if step == 0 && runs[n] == 1 && b.features.RowLocks {
							met.Done()
							met.Wait() // both hold their first row
						}
					}
					return nil
				},
			})
			switch {
			case err != nil:
				t.Error(err)
			case out[0].Err != nil || out[0].Answer != taskstate.AnswerClaimed:
				t.Errorf("outcome %+v", out[0])
			}
		})
	}
	wg.Wait()
	if b.features.RowLocks && runs[0]+runs[1] < 3 {
		t.Fatal("no transaction was run again: the test did not force a deadlock")
	}
	for _, id := range mine {
		equal(t, "log", len(b.log(id)), 2)
	}
}

// testContext lets a call wait for a lock, or for the only writer, and ends it by its context.
func testContext(t *testing.T, b *bench) {
	id := b.queued(1)[0]
	inside, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := b.s.InTx(b.ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE ingest_task_state SET attempt_traceparent = ? WHERE id = ?", "x", b.key(id))
			close(inside)
			<-leave
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	ctx, cancel := context.WithTimeout(b.ctx, 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := b.s.Apply(ctx, taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(b.claiming("p1"))})
	took := time.Since(start)
	close(leave)
	wg.Wait()
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, taskstate.ErrUnavailable) {
		t.Fatalf("got %v, want the context's error and ErrUnavailable", err)
	}
	if took > waitTime {
		t.Fatalf("the call ended after %s", took)
	}
	equal(t, "nothing was done", b.get(id).Status, taskstate.StatusQueued)
	canceled, stop := context.WithCancel(b.ctx)
	stop()
	if _, err := b.s.Get(canceled, taskstate.System(), id); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	equal(t, "the store goes on", b.one(id, b.claiming("p1")).Answer, taskstate.AnswerClaimed)
}

// testLogComplete lets racers do everything at random and then checks the log against the rows.
func testLogComplete(t *testing.T, b *bench) {
	ids := b.queued(10)
	b.race(func(n int, s taskstate.Database) error {
		for i := range 12 {
			owner := fmt.Sprintf("p%d", n)
			out, err := s.Apply(b.ctx, taskstate.Batch{
				IDs: []string{ids[(n+i)%10], ids[(n+i+3)%10]}, Scope: taskstate.System(),
				Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					switch (n + i) % 5 {
					case 0:
						return taskstate.Cancel(m, t, worker, taskstate.ReasonCancelled, "")
					case 1:
						return taskstate.Retry(m, t, worker)
					case 2, 3:
						return b.claiming(owner)(m, t)
					}
					return taskstate.Fail(b.p, m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}}, taskstate.Failure{})
				}),
			})
			if err != nil {
				return err
			}
			for _, o := range out {
				if o.Err != nil {
					return o.Err
				}
			}
		}
		return nil
	})
	for _, id := range ids {
		at, fence := taskstate.StatusNone, int64(0)
		var last taskstate.Transition
		for _, tr := range b.log(id) {
			if tr.From != at || !taskstate.Legal(tr.From, tr.To, tr.Reason) || tr.Fence < fence {
				t.Fatalf("task %s: after %s (fence %d) came %+v", id, at, fence, tr)
			}
			if tr.CreatedAt.Before(last.CreatedAt) {
				t.Fatalf("task %s: transition %d is older than the one before", id, tr.ID)
			}
			at, fence, last = tr.To, tr.Fence, tr
		}
		row := b.get(id)
		equal(t, "status", row.Status, at)
		equal(t, "fence", row.Fence, fence)
		equal(t, "attempts", row.AttemptCount, last.AttemptCount)
		equal(t, "updated", row.UpdatedAt, last.CreatedAt)
		equal(t, "next retry", row.NextRetryAt, last.NextRetryAt)
	}
}
