package taskstore_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/labserver/commitproxy"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// cut says when a COMMIT loses its connection.
type cut int32

const (
	cutNever  cut = iota
	cutBefore     // the server never reads it
	cutAfter      // the server has committed
)

var (
	cuts   = map[string]cut{"before": cutBefore, "after": cutAfter}
	worker = taskstate.Actor{Kind: taskstate.ActorWorker, Name: "w"}
	policy = taskstate.Policy{MaxCrashes: 3, Lease: 60e9, Slack: 1e9, BaseBackoff: 1e9, MaxBackoff: 60e9, DLQ: true}
)

// newTask is a plain task.
func newTask(id string) taskstate.NewTask {
	return taskstate.NewTask{Task: taskstate.Task{ID: id, UserID: "u1", Type: "document", Channel: "http", MaxAttempts: 3}}
}

// claim claims as a worker does.
func claim(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
	return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: "p/1", Process: "p", Actor: worker})
}

// faults runs every kind of write while arm makes the next COMMIT lose its answer, and checks that each was done exactly once.
func faults(t *testing.T, s *taskstore.Store, when cut, arm func(cut)) {
	t.Helper()
	ctx := t.Context()
	runs := 0
	// What a new connection asks the server is not to be taken for a COMMIT.
	require.NoError(t, s.InTx(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) error { return nil }))
	arm(when)
	out, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
		runs++
		return []taskstate.NewTask{newTask(idA), newTask(idB)}, nil
	})
	require.NoError(t, err)
	require.Len(t, out, 2)
	require.Equal(t, map[cut]int{cutBefore: 2, cutAfter: 1}[when], runs, "runs of prepare")
	check := func(id string, status taskstate.Status, transitions int) taskstate.Task {
		t.Helper()
		task, err := s.Get(ctx, taskstate.System(), id)
		require.NoError(t, err)
		require.Equal(t, status, task.Status)
		log, err := s.Transitions(ctx, taskstate.System(), id, 0, 100)
		require.NoError(t, err)
		require.Len(t, log, transitions)
		return task
	}
	require.Equal(t, out[0], check(idA, taskstate.StatusQueued, 1))

	arm(when)
	applied, err := s.Apply(ctx, taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerClaimed, applied[0].Answer, "a task is never busy to itself")
	require.Equal(t, applied[0].After, check(idA, taskstate.StatusRunning, 2))
	require.EqualValues(t, 1, applied[0].After.Fence)

	arm(when)
	swept, err := s.Sweep(ctx, taskstate.Sweep{Status: taskstate.StatusQueued, Limit: 5, Decide: taskstate.Each(claim)})
	require.NoError(t, err)
	require.Len(t, swept, 1)
	require.Equal(t, taskstate.AnswerClaimed, swept[0].Answer)
	require.Equal(t, swept[0].After, check(idB, taskstate.StatusRunning, 2))

	// Its holder ends it without a look at the row.
	arm(when)
	ended, err := s.Apply(ctx, taskstate.Batch{IDs: []string{idB}, Scope: taskstate.System(), Held: []taskstate.Task{swept[0].After}, Decide: taskstate.Each(
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: swept[0].After.Fence}, Actor: worker}, nil, "")
		})})
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerApplied, ended[0].Answer)
	require.Equal(t, ended[0].After, check(idB, taskstate.StatusSucceeded, 3))

	// A change without a log: a hand-back, then its promise renewed.
	_, err = s.Apply(ctx, taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.HandBack(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, "")
		})})
	require.NoError(t, err)
	arm(when)
	silent, err := s.Apply(ctx, taskstate.Batch{IDs: []string{idA}, Scope: taskstate.System(), Decide: taskstate.Each(
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Enqueue(policy, m, t, m.Now.Add(60e9))
		})})
	require.NoError(t, err)
	require.Equal(t, taskstate.AnswerApplied, silent[0].Answer)
	require.Equal(t, 1, check(idA, taskstate.StatusQueued, 3).EnqueueCount)
	require.Equal(t, silent[0].After, check(idA, taskstate.StatusQueued, 3))

	arm(when)
	err = s.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, "UPDATE ingest_task_body SET chat_id = ? WHERE id = ?", "x", idA)
		return err
	})
	require.ErrorIs(t, err, taskstate.ErrOutcomeUnknown)
	require.NotErrorIs(t, err, taskstate.ErrUnavailable)
	arm(cutNever)
	want := map[cut]string{cutBefore: "", cutAfter: "x"}[when]
	require.Equal(t, want, check(idA, taskstate.StatusQueued, 3).ChatID)
}

func TestUnknownCommitIsReadBack(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		for point, when := range cuts {
			t.Run(name+"/"+point, func(t *testing.T) {
				t.Parallel()
				s := migrated(t, config(t))
				armed := cutNever
				s.Watch(func(query string, done bool) error {
					if query != "COMMIT" || armed == cutNever || done != (armed == cutAfter) {
						return nil
					}
					armed = cutNever
					return driver.ErrBadConn
				})
				faults(t, s, when, func(c cut) { armed = c })
			})
		}
	}
}

func TestConnectionCutAtCommit(t *testing.T) {
	t.Parallel()
	for point, when := range cuts {
		for name, postgres := range map[string]bool{"mysql": false, "postgres": true} {
			t.Run(name+"/"+point, func(t *testing.T) {
				t.Parallel()
				var cfg taskstore.Config
				through := func(server *labserver.Server, address string) (*commitproxy.Proxy, string) {
					p, err := commitproxy.New(server.Addr, postgres)
					require.NoError(t, err)
					t.Cleanup(p.Close)
					return p, strings.Replace(address, server.Addr, p.Addr, 1)
				}
				var p *commitproxy.Proxy
				if postgres {
					p, cfg.DatabaseURL = through(labserver.Postgres(t), labserver.PostgresDatabase(t))
				} else {
					p, cfg.MySQLDSN = through(labserver.MariaDB(t), labserver.MySQLDatabase(t))
				}
				s := migrated(t, cfg)
				faults(t, s, when, func(when cut) {
					if when == cutNever {
						p.Cut(0, nil)
					} else {
						p.CutNext(when == cutAfter)
					}
				})
			})
		}
	}
}

// TestStatementsDoNotGrow counts the statements of one call for batches of 1 and 300.
func TestStatementsDoNotGrow(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			first := submitted(t, s, 1)
			_, err := s.Apply(t.Context(), taskstate.Batch{IDs: first, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
			require.NoError(t, err) // the process has its number
			s.TrustLocks()          // on a busy machine 300 rows take longer than the time that is trusted
			count := 0
			s.Watch(func(_ string, done bool) error {
				if !done {
					count++
				}
				return nil
			})
			begin, written, call := 1, 1, 1
			switch name {
			case "mysql": // a transaction begins by itself, and its time is that of its locks
				begin, written = 0, 0
			case "postgres": // one statement writes the log and its call, and one a body and its state
				written, call = 0, 0
			}
			for _, size := range []int{1, 300} {
				var tasks []taskstate.NewTask
				var ids []string
				for i := range size {
					ids = append(ids, fmt.Sprintf("0190%04d-0000-7000-8000-%012d", size, i))
					tasks = append(tasks, newTask(ids[i]))
				}
				counted := func(what string, want int, f func() error) {
					t.Helper()
					count = 0
					require.NoError(t, f())
					require.Equal(t, want, count, "statements of %s of %d", what, size)
				}
				counted("submit", 4+begin+2*call, func() error { // BEGIN, moment, bodies, states, call, log, COMMIT
					_, err := s.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) ([]taskstate.NewTask, error) {
						return tasks, nil
					})
					return err
				})
				counted("claim", 4+begin+written+call, func() error { // BEGIN, lock, UPDATE, time, call, log, COMMIT
					_, err := s.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(claim)})
					return err
				})
				beats := make([]taskstate.Beat, size)
				m, err := s.Moment(t.Context())
				require.NoError(t, err)
				for i, id := range ids {
					beats[i] = taskstate.Beat{TaskID: id, Status: taskstate.StatusRunning, Token: taskstate.Token{Epoch: m.Epoch, Fence: 1}, Owner: "p/1", Renew: true}
				}
				counted("heartbeat", 2, func() error {
					lost, err := s.Heartbeat(t.Context(), policy.Lease, beats)
					require.Empty(t, lost)
					return err
				})
				sweep := taskstate.Sweep{Status: taskstate.StatusRunning, WakeBefore: taskstate.In(3600e9), Limit: 400}
				sweep.Decide = taskstate.Each(func(_ taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
				})
				_, err = s.Sweep(t.Context(), sweep) // it tidies the calls of the size before
				require.NoError(t, err)
				counted("sweep", 8+begin+written+call, func() error { // which calls wake, which tasks; then as a claim, with whose lease has ended
					sweep.Decide = taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
						return taskstate.Cancel(m, t, worker, taskstate.ReasonCancelled, "")
					})
					_, err := s.Sweep(t.Context(), sweep)
					return err
				})
			}
		})
	}
}
