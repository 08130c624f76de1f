package stage

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/peers/rival"
)

func TestCountersPerTask(t *testing.T) {
	t.Parallel()
	before := Counters{Statements: 10, Fsyncs: 3, ClientMicros: 100}
	after := Counters{Statements: 30, Fsyncs: 3, ClientMicros: 400}
	require.Equal(t, Counters{Statements: 2, ClientMicros: 30}, after.PerTask(before, 10))
	require.Equal(t, Counters{Statements: 2, Commits: 1}, Median([]Counters{{Statements: 1, Commits: 1}, {Statements: 9, Commits: 1}, {Statements: 2, Commits: 1}}))
	require.InDelta(t, 2.5, MedianOf([]float64{4, 1, 2, 3}), 0)
	require.Zero(t, MedianOf(nil))
}

func TestProcessorTimeOfOurselves(t *testing.T) { // alone: the children of other tests would count
	used := func() (micros float64) {
		for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
			var u syscall.Rusage
			require.NoError(t, syscall.Getrusage(who, &u))
			micros += float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
		}
		return micros
	}
	for used() < 100_000 { //nolint:revive // ten ticks are to be used
	}
	const cut = 4 * 10_000 // user and system time, our own and our children's, are each cut to a tick
	from := used()
	got := cpuMicros(os.Getpid())
	require.GreaterOrEqual(t, got, from-cut)
	require.LessOrEqual(t, got, used())
}

// shell is a system of a few lines.
func shell(t *testing.T, script string) *Program {
	t.Helper()
	p, err := Launch([]string{"/bin/sh", "-c", script}, []string{"WORD=env"}, filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(p.End)
	return p
}

func TestProgramAnswersPhases(t *testing.T) {
	t.Parallel()
	p := shell(t, `while read phase; do echo "{\"tasks\": 5, \"note\": \"$WORD $phase\"}"; done`)
	for _, phase := range []rival.Phase{rival.PhaseSubmit, rival.PhaseDrain} {
		r, err := p.Ask(t.Context(), phase)
		require.NoError(t, err)
		require.Equal(t, rival.Reply{Tasks: 5, Note: "env " + string(phase)}, r)
	}
	p.End()
	require.ErrorIs(t, syscall.Kill(p.PID(), 0), syscall.ESRCH, "it ends with its input")
}

func TestProgramThatFails(t *testing.T) {
	t.Parallel()
	_, err := shell(t, `read phase; echo '{"error": "no such table"}'`).Ask(t.Context(), rival.PhaseSubmit)
	require.EqualError(t, err, "no such table")
	_, err = shell(t, `read phase; echo "cannot go on" >&2; exit 3`).Ask(t.Context(), rival.PhaseSubmit)
	require.ErrorContains(t, err, "the process ended")
	require.ErrorContains(t, err, "cannot go on")
	_, err = shell(t, `read phase; echo 12 monkeys`).Ask(t.Context(), rival.PhaseSubmit)
	require.ErrorContains(t, err, "12 monkeys")
}

// A list is installed once, and again when it changed or its installation broke off.
func TestInstallOnce(t *testing.T) {
	t.Parallel()
	dir, built := filepath.Join(t.TempDir(), "x"), 0
	build := func() error { built++; return nil }
	for _, list := range []string{"a", "a", "b"} {
		require.NoError(t, install(dir, "list", []byte(list), build))
	}
	require.Equal(t, 2, built)
	require.Error(t, install(dir, "list", []byte("c"), func() error { return errors.New("broke off") }))
	require.NoError(t, install(dir, "list", []byte("c"), build))
	require.Equal(t, 3, built)
}
