package taskstore_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// claimedBy claims tasks for an owner; what brought each is by its id.
func claimedBy(t *testing.T, s *taskstore.Store, owner string, brought map[string]string, ids ...string) []taskstate.Outcome {
	t.Helper()
	process, _, _ := strings.Cut(owner, "/")
	out, err := s.Apply(t.Context(), taskstate.Batch{IDs: ids, Scope: taskstate.System(), Decide: taskstate.Each(
		func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
			return taskstate.Claim(policy, m, t, taskstate.ClaimRequest{Owner: owner, Process: process, Actor: worker, Delivery: brought[t.ID]})
		})})
	if len(ids) > 1 {
		require.NoError(t, err)
	} else if err != nil {
		return []taskstate.Outcome{{Err: err}}
	}
	return out
}

// read is the one text that a query returns.
func read(t *testing.T, s *taskstore.Store, query string, args ...any) (out string) {
	t.Helper()
	require.NoError(t, s.Reader().QueryRowContext(t.Context(), sqldb.Rebind(sqldb.Dialect(s.Dialect()), query), args...).Scan(&out))
	return out
}

// An owner is a number where it is kept and a text to everybody else; each start of a process has one, though its claims come at once.
func TestAnOwnerIsANumber(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			s := migrated(t, cfg)
			stores := []*taskstore.Store{s, open(t, cfg)} // two starts of each process
			ids := submitted(t, s, 8)
			var all sync.WaitGroup
			for i, id := range ids {
				all.Go(func() {
					owner := fmt.Sprintf("worker-%d/%d", i%2, i)
					out := claimedBy(t, stores[i/4], owner, nil, id)
					if out[0].Err != nil || out[0].After.LeaseOwner != owner {
						t.Errorf("%s: %+v", owner, out[0])
					}
				})
			}
			all.Wait()
			for i, id := range ids {
				owner := fmt.Sprintf("worker-%d/%d", i%2, i)
				row, err := s.Get(t.Context(), taskstate.System(), id)
				require.NoError(t, err)
				require.Equal(t, owner, row.LeaseOwner)
				require.Equal(t, owner, strings.TrimSpace(read(t, s, "SELECT lease_owner FROM ingest_task WHERE id = ?", id)))
			}
			require.Equal(t, "4", read(t, s, "SELECT COUNT(*) FROM ingest_worker WHERE name <> ''"))
			require.Equal(t, "4", read(t, s, "SELECT COUNT(DISTINCT lease_owner >> 36) FROM ingest_task_state"))
		})
	}
}

// A number is of a timeline: after a restore another process may have it.
func TestANumberIsOfATimeline(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 2)
			claimedBy(t, s, "p/1", nil, ids[0])
			_, err := s.DB().ExecContext(t.Context(), "UPDATE ingest_worker SET name = 'somebody' WHERE name = 'p'") // as the restored database has it
			require.NoError(t, err)
			_, _, err = s.RenewEpoch(t.Context())
			require.NoError(t, err)
			out := claimedBy(t, s, "p/2", nil, ids[1])
			require.NoError(t, out[0].Err)
			require.Equal(t, []string{"somebody/1", "p/2"}, []string{
				strings.TrimSpace(read(t, s, "SELECT lease_owner FROM ingest_task WHERE id = ?", ids[0])),
				strings.TrimSpace(read(t, s, "SELECT lease_owner FROM ingest_task WHERE id = ?", ids[1])),
			})
		})
	}
}

// What a state cannot keep is refused by name, and of a batch only for its own task.
func TestOwnersAndDeliveriesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 3)
			for _, owner := range []string{"p", "/1", "p/", "p/x", "p/-1", "p/68719476736", strings.Repeat("p", 33) + "/1", "p/1/2"} {
				err := claimedBy(t, s, owner, nil, ids[0])[0].Err
				require.ErrorIs(t, err, taskstore.ErrInvalid, owner)
				require.ErrorContains(t, err, fmt.Sprintf("the owner %q", owner))
			}
			for _, brought := range []string{"1-a", "1 0", "ü", strings.Repeat("1", 32), "1-0\n", "1\x00"} {
				out := claimedBy(t, s, "p/1", map[string]string{ids[1]: brought}, ids[1], ids[2])
				require.ErrorIs(t, out[0].Err, taskstore.ErrInvalid, brought)
				require.ErrorContains(t, out[0].Err, fmt.Sprintf("the delivery %q", brought))
			}
			require.Equal(t, "2", read(t, s, "SELECT COUNT(*) FROM ingest_task WHERE status = 'QUEUED'"))
			require.NoError(t, claimedBy(t, s, strings.Repeat("p", 32)+"/68719476735", nil, ids[0])[0].Err)
		})
	}
}

// Each name of a delivery comes back as it was, from the row, its view and the log.
func TestDeliveriesAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := migrated(t, config(t))
			ids := submitted(t, s, 64)
			random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's names
			brought := map[string]string{}
			for i, id := range ids {
				var b strings.Builder
				for range i / 2 { // up to 31 characters
					b.WriteByte("0123456789-:k./"[random.IntN(15)])
				}
				brought[id] = b.String()
			}
			brought[ids[40]], brought[ids[41]], brought[ids[42]] = "1732584000123-0", "12:1732584000123-4294967296", "k:11:9223372036854775807"
			for _, o := range claimedBy(t, s, "p/1", brought, ids...) {
				require.NoError(t, o.Err)
				require.Equal(t, brought[o.TaskID], o.After.Delivery)
			}
			rows, err := s.GetMany(t.Context(), taskstate.System(), ids)
			require.NoError(t, err)
			for _, row := range rows {
				require.Equal(t, brought[row.ID], row.Delivery)
				require.Equal(t, brought[row.ID], read(t, s, "SELECT delivery FROM ingest_task WHERE id = ?", row.ID))
				require.Equal(t, brought[row.ID], read(t, s, "SELECT delivery FROM ingest_task_transition WHERE task_id = ? AND to_status = 'RUNNING'", row.ID))
			}
		})
	}
}

// Counts and fences of a call's tasks are read back whether they are as the call says or not.
func TestTheLogSaysWhatItsCallDoesNot(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 3)
			claimedBy(t, s, "p/1", nil, ids[1])
			_, err := s.Apply(ctx, taskstate.Batch{IDs: ids[1:2], Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.HandBack(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, "")
			})})
			require.NoError(t, err)
			out := claimedBy(t, s, "p/2", nil, ids...)
			require.Len(t, out, 3)
			log, err := s.TransitionsOf(ctx, map[string]int64{ids[0]: 0, ids[1]: 0, ids[2]: 0}, 100)
			require.NoError(t, err)
			last := map[string]int64{}
			for _, tr := range log {
				last[tr.TaskID] = tr.Fence
			}
			require.Equal(t, map[string]int64{ids[0]: 1, ids[1]: 2, ids[2]: 1}, last)
			require.Equal(t, "1", read(t, s, "SELECT COUNT(*) FROM ingest_task_log WHERE fence IS NOT NULL"))
			require.Equal(t, "2", read(t, s, "SELECT MAX(fence) FROM ingest_task_transition WHERE task_id = ?", ids[1]))
		})
	}
}

// The end of a lease is no column: the view has it while somebody holds the task, and shows no time to wake of what succeeded.
func TestTheViewShowsLeasesThatHold(t *testing.T) {
	t.Parallel()
	for name, config := range labserver.Databases(databases) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := migrated(t, config(t)), t.Context()
			ids := submitted(t, s, 3)
			claimedBy(t, s, "p/1", nil, ids[0], ids[1])
			_, err := s.Apply(ctx, taskstate.Batch{IDs: ids[:1], Scope: taskstate.System(), Decide: taskstate.Each(func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
				return taskstate.Succeed(m, t, taskstate.Holder{Token: taskstate.Token{Epoch: m.Epoch, Fence: t.Fence}, Actor: worker}, nil, "")
			})})
			require.NoError(t, err)
			shown := func(id string) (lease, wake bool) {
				var l, w taskstate.DBTime
				row := s.Reader().QueryRowContext(ctx, sqldb.Rebind(sqldb.Dialect(s.Dialect()), "SELECT lease_expires_at, wake_at FROM ingest_task WHERE id = ?"), id)
				require.NoError(t, row.Scan(&l, &w))
				return !l.IsZero(), !w.IsZero()
			}
			for i, want := range [][2]bool{{false, false}, {true, true}, {false, true}} {
				lease, wake := shown(ids[i])
				require.Equal(t, want, [2]bool{lease, wake}, "task %d", i)
			}
		})
	}
}
