package taskstore_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// takingOver is a sweep by which a process takes over what runs.
func takingOver(process string, decided func()) taskstate.Sweep {
	return taskstate.Sweep{
		Status: taskstate.StatusRunning, WakeBefore: taskstate.In(0), Limit: 10,
		Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			if decided != nil {
				decided()
			}
			return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{
				Owner: process + "/1", Process: process, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: process}, Takeover: true,
			})
		}),
	}
}

// lapse ends the leases of processes, as if they had not renewed them for long; calls may wake early.
func lapse(t *testing.T, s *taskstore.Store) {
	t.Helper()
	_, err := s.DB().ExecContext(t.Context(), "UPDATE ingest_worker SET lease_until = created_at")
	require.NoError(t, err)
	wakeEarly(t, s)
}

// wakeEarly lets the calls of claims that wake be due.
func wakeEarly(t *testing.T, s *taskstore.Store) {
	t.Helper()
	_, err := s.DB().ExecContext(t.Context(), "UPDATE ingest_task_call SET wake_at = created_at WHERE to_status = 'RUNNING' AND wake_at < '9999-12-30'")
	require.NoError(t, err)
}

// A look at a call whose time has come moves it to the end of the lease of the tasks that run, and does not end it for those that do not.
func TestACallOfClaimsWakesUntilNoneRuns(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 2)
			claimedBy(t, s, "p/1", nil, ids...)
			_, err := s.Apply(ctx, taskstate.Batch{IDs: ids[:1], Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, nil, "")
			})})
			require.NoError(t, err)
			wakeEarly(t, s)
			next, err := s.NextWake(ctx, taskstate.StatusRunning, time.Hour)
			require.NoError(t, err)
			require.Greater(t, next, policy.Lease/2, "nothing is due before the lease ends")
			lapse(t, s)
			outs, err := s.Sweep(ctx, takingOver("q", nil))
			require.NoError(t, err)
			require.Len(t, outs, 1)
			require.Equal(t, ids[1], outs[0].TaskID)
		})
	}
}

// Whoever takes over has the process's lease locked: it is not renewed between the look at it and the takeover's commit.
func TestNoLeaseIsRenewedUnderATakeover(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			s, other := migrated(t, cfg), open(t, cfg)
			ids := submitted(t, s, 1)
			require.NoError(t, claimedBy(t, s, "p/1", nil, ids[0])[0].Err)
			lapse(t, s)
			require.NoError(t, other.Renew(t.Context(), "q", policy.Lease, 8)) // it does not have to do so in between
			outs, err := other.Sweep(t.Context(), takingOver("q", func() {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				require.Error(t, s.Renew(ctx, "p", policy.Lease, 8), "it waits for the takeover")
			}))
			require.NoError(t, err)
			require.Len(t, outs, 1)
			require.Equal(t, "q/1", outs[0].After.LeaseOwner)
			require.NoError(t, s.Renew(t.Context(), "p", policy.Lease, 8))
			row, err := s.Get(t.Context(), taskstate.System(), ids[0])
			require.NoError(t, err)
			require.Equal(t, "q/1", row.LeaseOwner)
		})
	}
}

// A lease that is renewed after the look at what wakes, and before the takeover has it locked, is not taken from.
func TestALeaseThatIsRenewedInTimeIsNotTakenFrom(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		if name == "sqlite" {
			continue // one writer: a takeover's transaction begins after the renewal, or the renewal after it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			s, other := migrated(t, cfg), open(t, cfg)
			ids := submitted(t, s, 2)
			for i, id := range ids {
				require.NoError(t, claimedBy(t, s, []string{"p/1", "r/1"}[i], nil, id)[0].Err)
			}
			lapse(t, s)
			renewed := false
			other.Watch(func(query string, done bool) error {
				if !done && !renewed && strings.Contains(query, "SKIP LOCKED") && strings.Contains(query, "w.lease_until <") {
					renewed = true
					require.NoError(t, s.Renew(t.Context(), "p", policy.Lease, 8))
				}
				return nil
			})
			outs, err := other.Sweep(t.Context(), takingOver("q", nil))
			require.NoError(t, err)
			require.True(t, renewed)
			require.Len(t, outs, 1)
			require.Equal(t, []any{ids[1], "q/1"}, []any{outs[0].TaskID, outs[0].After.LeaseOwner})
			row, err := s.Get(t.Context(), taskstate.System(), ids[0])
			require.NoError(t, err)
			require.Equal(t, []any{"p/1", 0}, []any{row.LeaseOwner, row.CrashCount})
		})
	}
}

// A process that has less than a third of its lease left renews it before it claims; one that has more does not.
func TestAClaimNeedsAThirdOfItsLease(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 3)
			var renewals atomic.Int32
			s.Watch(func(query string, done bool) error {
				if done && strings.HasPrefix(query, "UPDATE ingest_worker") {
					renewals.Add(1)
				}
				return nil
			})
			require.NoError(t, s.Renew(t.Context(), "p", policy.Lease/4, 8))
			out := claimedBy(t, s, "p/1", nil, ids[0])
			require.NoError(t, out[0].Err)
			require.Equal(t, int32(1), renewals.Load())
			left := out[0].After.LeaseExpiresAt().Sub(out[0].After.UpdatedAt)
			require.Greater(t, left, policy.Lease/2)
			require.LessOrEqual(t, left, policy.Lease)
			out = claimedBy(t, s, "p/2", nil, ids[1])
			require.NoError(t, out[0].Err)
			require.Equal(t, int32(1), renewals.Load(), "enough was left")
			row, err := s.Get(t.Context(), taskstate.System(), ids[1])
			require.NoError(t, err)
			require.Equal(t, row, out[0].After)
		})
	}
}

// A claim whose process has no row, which is nobody's doing but an operator's, has no lease: it is taken over. The process gets another
// row, and what it claims from then on is its own.
func TestAProcessWithoutARow(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 2)
			require.NoError(t, claimedBy(t, s, "p/1", nil, ids[0])[0].Err)
			_, err := s.DB().ExecContext(t.Context(), "DELETE FROM ingest_worker WHERE name = 'p'")
			require.NoError(t, err)
			_, err = s.DB().ExecContext(t.Context(), "UPDATE ingest_task_call SET wake_at = created_at WHERE to_status = 'RUNNING'")
			require.NoError(t, err)
			require.NoError(t, s.Renew(t.Context(), "p", policy.Lease, 8))
			require.NoError(t, claimedBy(t, s, "p/2", nil, ids[1])[0].Err)
			outs, err := s.Sweep(t.Context(), takingOver("q", nil))
			require.NoError(t, err)
			require.Len(t, outs, 1)
			require.Equal(t, []any{ids[0], "q/1", 1}, []any{outs[0].TaskID, outs[0].After.LeaseOwner, outs[0].After.CrashCount})
		})
	}
}

// A heartbeat whose own connection hangs is sent over another before the lease is over.
func TestAHeartbeatThatHangsIsSentOverAnotherConnection(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 1)
			require.NoError(t, claimedBy(t, s, "p/1", nil, ids[0])[0].Err)
			lapse(t, s)
			const hangs = time.Second / 2
			began := time.Now()
			s.Watch(func(query string, done bool) error {
				if !done && strings.HasPrefix(query, "UPDATE ingest_worker") && time.Since(began) < hangs {
					<-time.After(2 * hangs)
					return context.DeadlineExceeded
				}
				return nil
			})
			before, err := s.Moment(t.Context())
			require.NoError(t, err)
			require.NoError(t, s.Renew(t.Context(), "p", 6*hangs, 8))
			after, err := s.Moment(t.Context())
			require.NoError(t, err)
			require.Greater(t, after.Now.Sub(before.Now), hangs)
			row, err := s.Get(t.Context(), taskstate.System(), ids[0])
			require.NoError(t, err)
			require.Greater(t, row.LeaseExpiresAt().Sub(before.Now), 6*hangs)
		})
	}
}

// A process sees its RUNNING tasks long before anybody else looks at their calls, and ends those of its calls that have none.
func TestAProcessSeesWhatItsRowsSay(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 4)
			claimedBy(t, s, "w/1", nil, ids[0], ids[1])
			claimedBy(t, s, "w/2", nil, ids[2])
			require.NoError(t, claimedBy(t, s, "q/1", nil, ids[3])[0].Err)
			for _, id := range []string{ids[0], ids[2]} {
				_, err := s.Apply(ctx, taskstate.Batch{IDs: []string{id}, Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, nil, "")
				})})
				require.NoError(t, err)
			}
			waking := func() string {
				return read(t, s, "SELECT COUNT(*) FROM ingest_task_call WHERE to_status = 'RUNNING' AND wake_at < ?", time.Date(9999, 12, 30, 0, 0, 0, 0, time.UTC))
			}
			require.Equal(t, "3", waking())
			held, err := s.Held(ctx, worker.Name, 2*policy.Lease)
			require.NoError(t, err)
			require.Equal(t, []taskstate.HeldTask{{TaskID: ids[1], Fence: 1, Owner: worker.Name + "/1"}}, held)
			require.Equal(t, "2", waking(), "the call that has none left wakes no more")
			near, err := s.Held(ctx, worker.Name, 0)
			require.NoError(t, err)
			require.Empty(t, near, "nothing wakes yet")
		})
	}
}

// Tasks of several calls stand between each other: each call is judged by its own.
func TestCallsWhoseTasksStandAmongOthers(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := make([]string, 40)
			_, err := s.Submit(ctx, func(context.Context, taskstate.Tx, taskstate.DBClock) (out []taskstate.NewTask, err error) {
				for i := range ids {
					ids[i] = uuid.Must(uuid.NewV7()).String()
					out = append(out, newTask(ids[i]))
				}
				return out, nil
			})
			require.NoError(t, err)
			slices.Sort(ids)
			var even, odd []string
			for i, id := range ids {
				if i%2 == 0 {
					even = append(even, id)
				} else {
					odd = append(odd, id)
				}
			}
			claimedBy(t, s, "w/1", nil, even...)
			claimedBy(t, s, "q/1", nil, odd...)
			held := func() (out []string) {
				of, err := s.Held(ctx, "w", 2*policy.Lease)
				require.NoError(t, err)
				for _, h := range of {
					out = append(out, h.TaskID)
				}
				return out
			}
			require.Equal(t, even, held())
			outs, err := s.Apply(ctx, taskstate.Batch{IDs: even[1:], Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, nil, "")
			})})
			require.NoError(t, err)
			require.Len(t, outs, len(even)-1)
			require.Equal(t, even[:1], held())
			lapse(t, s)
			sweep := takingOver("z", nil)
			sweep.Limit = len(ids)
			outs, err = s.Sweep(ctx, sweep)
			require.NoError(t, err)
			taken := map[string]bool{}
			for _, o := range outs {
				taken[o.TaskID] = o.Answer == taskstate.AnswerClaimed
			}
			want := map[string]bool{even[0]: true}
			for _, id := range odd {
				want[id] = true
			}
			require.Equal(t, want, taken)
			counts, err := s.Counts(ctx, taskstate.System(), "")
			require.NoError(t, err)
			require.Equal(t, map[taskstate.Status]int64{taskstate.StatusRunning: 21, taskstate.StatusSucceeded: 19}, counts)
		})
	}
}

// A process that stands still inside of a claim does not claim under the lease that has ended meanwhile.
func TestAClaimThatStoodStillIsMadeAnew(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 1)
			short := policy
			short.Lease = time.Second
			require.NoError(t, s.Renew(t.Context(), "p", short.Lease, 8))
			stood := false
			s.Watch(func(query string, done bool) error {
				if !done && !stood && strings.HasPrefix(query, "UPDATE ingest_task_state") {
					stood = true
					<-time.After(short.Lease)
				}
				return nil
			})
			out, err := s.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(
				func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Claim(short, m, t, taskstate.ClaimRequest{Owner: "p/1", Process: "p", Actor: worker})
				})})
			require.NoError(t, err)
			require.True(t, stood)
			require.Equal(t, taskstate.AnswerClaimed, out[0].Answer)
			log, err := s.Transitions(t.Context(), taskstate.System(), ids[0], 0, 10)
			require.NoError(t, err)
			require.Len(t, log, 2)
			require.GreaterOrEqual(t, log[1].LeaseExpiresAt.Sub(log[1].CreatedAt), short.Lease/3)
		})
	}
}

// A RUNNING task that a process has reserved lives with that process's lease, and is another's when it has ended: one crash is counted,
// that of the run.
func TestAReservationEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 1)
			require.NoError(t, claimedBy(t, s, "p/1", nil, ids[0])[0].Err)
			_, err := s.DB().ExecContext(ctx, "UPDATE ingest_task_state SET crash_count = 1")
			require.NoError(t, err)
			sweep := func(process string, alone bool) []taskstate.Outcome {
				require.NoError(t, s.Renew(ctx, process, policy.Lease, 8))
				w := takingOver(process, nil)
				w.Decide = taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
					return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{
						Owner: process + "/1", Process: process, Actor: taskstate.Actor{Kind: taskstate.ActorWorker, Name: process},
						Takeover: true, Reserve: true, Alone: alone,
					})
				})
				out, err := s.Sweep(ctx, w)
				require.NoError(t, err)
				return out
			}
			lapse(t, s)
			out := sweep("q", false)
			require.Len(t, out, 1)
			require.Equal(t, taskstate.AnswerReserved, out[0].Answer)
			held, err := s.Held(ctx, "q", 2*policy.Lease)
			require.NoError(t, err)
			require.Equal(t, []taskstate.HeldTask{{TaskID: ids[0], Fence: 1, Owner: "q/1"}}, held, "it asks about it too")
			wakeEarly(t, s)
			require.Empty(t, sweep("z", true), "its lease lasts")
			lapse(t, s)
			out = sweep("z", true)
			require.Len(t, out, 1)
			require.Equal(t, []any{taskstate.AnswerClaimed, "z/1", 2}, []any{out[0].Answer, out[0].After.LeaseOwner, out[0].After.CrashCount})
		})
	}
}
