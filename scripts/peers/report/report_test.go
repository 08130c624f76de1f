package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/peers/rival"
	"github.com/millweir/millweir/scripts/peers/stage"
)

// timed is a result of a phase that had 1,000 tasks and this rate.
func timed(system string, rep int, phase rival.Phase, rate float64) Result {
	return Result{
		System: system, Keeps: "flush=1", Rep: rep, Phase: phase, Reply: rival.Reply{Tasks: 1000, Seconds: 1000 / rate},
		PerTask: stage.Counters{Statements: 0.0421, RedoBytes: 1234, ClientMicros: 1e6 / rate / 2, ServerMicros: 1e6 / rate / 2},
	}
}

// sample is a run of three repetitions on a machine that became ten times slower after the first one.
func sample() *Report {
	r := &Report{At: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), CPUs: 2, Kernel: "6.1", Tasks: 20_000, Reps: 3, Rate: 500, Loads: []string{"0.1", "9.0", "8.0", "0.2"}}
	for rep, speed := range []float64{10, 1, 1} {
		r.Results = append(r.Results,
			timed("raw-cycle", rep, rival.PhaseCycle, 2_000*speed),
			timed("millweir", rep, rival.PhaseSubmit, 4_000*speed),
			timed("millweir", rep, rival.PhaseDrain, 3_200*speed),
			Result{System: "millweir", Rep: rep, Phase: rival.PhaseLatency, Reply: rival.Reply{Tasks: 1500, SentP50: 4, SentP99: 9, CommitP50: 2, CommitP99: 21}},
			timed("river", rep, rival.PhaseDrain, 1_600*speed),
			Result{System: "bullmq", Rep: rep, Phase: rival.PhasePrepare, Error: "install: npm is\nnot there"},
		)
	}
	r.Judge()
	return r
}

func figure(t *testing.T, r *Report, name string) Figure {
	t.Helper()
	for _, f := range r.Asked {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no figure %q", name)
	return Figure{}
}

// Ratios are taken inside a repetition, so that a machine that slows down during the run does not bend them.
func TestRatiosAreThoseInsideARepetition(t *testing.T) {
	t.Parallel()
	r := sample()
	f := figure(t, r, "drain ÷ River")
	require.InDelta(t, 2, f.Measured.Median, 1e-9)
	require.InDelta(t, 2, f.Measured.Min, 1e-9)
	require.InDelta(t, 2, f.Measured.Max, 1e-9)
	require.InDelta(t, 2, f.ByCPU.Median, 1e-9)
	require.Equal(t, 3, f.Measured.N)
	require.True(t, f.Met)
	drained := r.Spread("millweir", drain)
	require.InDelta(t, 3_200, drained.Median, 1e-6, "rates are medians over the repetitions")
	require.InDelta(t, 32_000, drained.Max, 1e-6)
}

// One task after the other through both phases: 1/(1/4000 + 1/3200) = 1778 of the 2000 that the raw cycle does.
func TestCombinedRateIsThatOfBothPhasesInARow(t *testing.T) {
	t.Parallel()
	r := sample()
	f := figure(t, r, "submit + drain ÷ raw cycle on our tables")
	require.InDelta(t, 0.889, f.Measured.Median, 0.001)
	require.InDelta(t, 0.889, f.ByCPU.Median, 0.001)
	require.True(t, f.Met)
}

func TestGoalsAreMissedBothWays(t *testing.T) {
	t.Parallel()
	r := sample()
	require.True(t, figure(t, r, "commit → handler start, p50").Met)
	require.False(t, figure(t, r, "commit → handler start, p99").Met, "21 ms where at most 20 are asked")
	for i := range r.Results {
		if r.Results[i].System == "river" {
			r.Results[i].Reply.Seconds /= 2
		}
	}
	r.Judge()
	require.False(t, figure(t, r, "drain ÷ River").Met, "1 × where at least 1.5 is asked")
}

// The goal of the relay is for batches as large as the forwarder's; that of its default batches is told and judged by nothing.
func TestRelaysAreCompared(t *testing.T) {
	t.Parallel()
	for rate, wanted := range map[float64]bool{20_000: true, 19_999: false} {
		r := &Report{Reps: 1, Results: []Result{
			timed("relay", 0, rival.PhaseDrain, 8_000), timed("relay-500", 0, rival.PhaseDrain, rate),
			timed("relay-watermill", 0, rival.PhaseDrain, 400),
		}}
		r.Judge()
		require.Len(t, r.Asked, 2)
		require.Equal(t, wanted, figure(t, r, "relay, batches of 500 ÷ watermill's forwarder").Met)
		told := figure(t, r, "relay, default batches of 20 ÷ watermill's forwarder")
		require.InDelta(t, 20, told.Measured.Median, 1e-9)
		require.Equal(t, Told, told.Relation)
	}
}

// What failed is never met, and never left out.
func TestWhatFailedIsSaid(t *testing.T) {
	t.Parallel()
	r := sample()
	f := figure(t, r, "drain ÷ BullMQ")
	require.Zero(t, f.Measured.N)
	require.False(t, f.Met)
	text := r.Markdown()
	require.Regexp(t, `\| drain ÷ BullMQ +\| ≥ 1.7 × +\| – +\| +\| not measured`, text)
	require.NotContains(t, text, "drain ÷ taskiq", "it took no part in the run")
	require.Contains(t, text, "- bullmq: prepare failed: install: npm is not there")
}

func TestTables(t *testing.T) {
	t.Parallel()
	text := sample().Markdown()
	require.Contains(t, text, "Load of the machine at their starts and at the end: 0.1, 9.0, 8.0, 0.2.")
	require.Regexp(t, `\| drain ÷ River +\| ≥ 1.5 × +\| 2.00 × +\| 2.00 … 2.00 +\| met +\| 2.00 ×`, text)
	require.Regexp(t, `\| commit → handler start, p99 +\| ≤ 8 ms +\| 21.0 ms +\| 21.0 … 21.0 +\| MISSED`, text)
	require.Regexp(t, `\| millweir +\| flush=1 +\| 4,000 +\| 3,200 +\| 3,200 … 32,000 +\| 1,778 +\| 4.00 · 9.00 +\| 2.00 · 21.0`, text)
	require.Regexp(t, `\| millweir +\| drain +\| 0.042 +\| 0 +\| 0 +\| 1,234 +\| 0 +\| 0 +\| 156 +\| 156 `, text)
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| ") {
			require.True(t, strings.HasSuffix(line, "|\n"), line)
		}
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	r := sample()
	page := "# Speed\n" + begin + "\nold\n" + end + "\nmore\n"
	once, err := r.IntoPage(page)
	require.NoError(t, err)
	require.Contains(t, once, "# Speed\n"+begin)
	require.Contains(t, once, "drain ÷ River")
	require.NotContains(t, once, "old")
	require.True(t, strings.HasSuffix(once, end+"\nmore\n"))
	twice, err := r.IntoPage(once)
	require.NoError(t, err)
	require.Equal(t, once, twice)
	_, err = r.IntoPage("# Speed")
	require.ErrorContains(t, err, "no place")
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.001: "0", 0.256: "0.26", 9.999: "10.00", 12.34: "12.3", 123.4: "123", 1234.5: "1,235", 1234567: "1,234,567", -2500: "-2,500", -100000: "-100,000",
	} {
		require.Equal(t, want, number(v), v)
	}
}
