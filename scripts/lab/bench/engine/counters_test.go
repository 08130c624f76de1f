package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

const (
	gateTasks = 20_000
	// Batches form by themselves: with so many slots none depends on the speed of the machine being high.
	gateSlots = wideSlots
	batchOf   = 64.0 // what older figures were asked for
)

// A task's cost in counts, beside what it may be (make bench BENCH=counters shows more of it).
// Not parallel: the process's allocations are counted.
func TestWhatATaskCosts(t *testing.T) {
	r := newTestRig(t)
	submit, drain, err := r.life(t.Context(), gateTasks, gateSlots)
	require.NoError(t, err)
	t.Logf("submit: %.4f statements, %.0f B of redo, %.0f allocations; drain: %.4f statements, %.4f commits, %.4f fsyncs, %.4f Redis commands, %.0f B of redo, %.0f allocations",
		submit.SQL.Statements, submit.SQL.RedoBytes, submit.allocs, drain.SQL.Statements, drain.SQL.Commits, drain.SQL.Fsyncs,
		drain.Redis.Commands, drain.SQL.RedoBytes, drain.allocs)

	require.LessOrEqual(t, submit.SQL.Statements, 0.03, "statements of a bulk submit")
	require.LessOrEqual(t, drain.SQL.Statements, 0.05, "statements")
	require.LessOrEqual(t, drain.SQL.Commits, 0.012, "commits")
	require.LessOrEqual(t, drain.Redis.Commands, 0.02, "Redis commands")
	require.LessOrEqual(t, drain.SQL.Fsyncs, 0.015, "fsyncs")
	require.LessOrEqual(t, drain.SQL.RedoBytes, 700.0, "bytes of redo: 555, and 633 where others take the processors and batches are smaller")
	require.Less(t, drain.SQL.TempTables, 0.01, "temporary tables")

	// The same for batches of exactly 64, whatever size they had: a claim and a finish are a transaction each.
	require.LessOrEqual(t, drain.SQL.Statements/drain.SQL.Named["Com_commit"]*2/batchOf, 0.2, "statements in batches of 64")
	require.LessOrEqual(t, submit.allocs, 80.0, "allocations of a bulk submit")
	require.LessOrEqual(t, drain.allocs, 90.0, "allocations")
}

// newTestRig is a rig on servers that nobody else has.
func newTestRig(t *testing.T) *rig {
	t.Helper()
	r, err := newRig(t.Context(), Servers{
		SQL:   labserver.Private(t, labserver.KindMariaDB, labserver.Options{Database: "bench"}),
		Redis: labserver.Private(t, labserver.KindRedis, labserver.Options{}),
	})
	require.NoError(t, err)
	t.Cleanup(r.close)
	r.quiet = true
	return r
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
