package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	values := make([]time.Duration, 100)
	for i := range values {
		values[99-i] = time.Duration(i + 1)
	}
	for p, want := range map[float64]time.Duration{0: 1, 1: 1, 50: 50, 99: 99, 100: 100} {
		require.Equal(t, want, figure.Percentile(values, p), p)
	}
	require.Zero(t, figure.Percentile(nil, 50))
	require.Equal(t, time.Duration(7), figure.Percentile([]time.Duration{7}, 99))
}

func TestEachFigureStandsBesideWhatWasAsked(t *testing.T) {
	t.Parallel()
	measured := bench{name: "x", what: "some", limit: time.Minute, run: func(context.Context, *world.Bench) ([]figure.Figure, error) {
		return []figure.Figure{
			{Name: "below", Measured: 2, Asked: 3, Relation: "≤", Unit: "ms"},
			{Name: "not below", Measured: 4, Asked: 3, Relation: "≤"},
			{Name: "above", Measured: 4, Asked: 3, Relation: "≥"},
			{Name: "not above", Measured: 2, Asked: 3, Relation: "≥"},
			{Name: "not asked", Measured: 2},
		}, nil
	}}
	broken := bench{name: "y", what: "other", limit: time.Minute, run: func(context.Context, *world.Bench) ([]figure.Figure, error) {
		return nil, errors.New("no server")
	}}
	file := filepath.Join(t.TempDir(), "new", "bench.json")
	var table bytes.Buffer
	err := measure(t.Context(), nil, []bench{measured, broken}, file, true, &table)
	require.ErrorContains(t, err, "y could not be measured")
	require.NotErrorIs(t, err, errMissed, "they are only told")
	require.Equal(t, 2, bytes.Count(table.Bytes(), []byte("MISSED")))
	require.Contains(t, table.String(), "≤ 3 ms")
	require.Contains(t, table.String(), "FAILED: no server")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(raw, &r))
	var met []bool
	for _, f := range r.Figures {
		met = append(met, f.Met)
	}
	require.Equal(t, []bool{true, false, true, false, true, false}, met)
	require.Equal(t, "no server", r.Figures[5].Error)
}

func TestNamesChooseBenchmarks(t *testing.T) {
	t.Parallel()
	for names, n := range map[string]int{"": len(benches), "pdf,paid": 2, "noop": 5} {
		chosen, err := verb.Choose(names, benches, nameOf)
		require.NoError(t, err)
		require.Len(t, chosen, n)
	}
	var out, problems bytes.Buffer
	require.Equal(t, 2, run(t.Context(), benches, []string{"-name", "none"}, &out, &problems))
	require.Contains(t, problems.String(), `nothing begins with "none"`)
}

func TestAMissedFigureIsAFailure(t *testing.T) {
	t.Parallel()
	figures := func(list ...figure.Figure) []bench {
		return []bench{{name: inProcess[0].name, limit: time.Minute, run: func(context.Context, *world.Bench) ([]figure.Figure, error) { return list, nil }}}
	}
	below := figure.Figure{Name: "below", Measured: 2, Asked: 3, Relation: "≤", Unit: "ms"}
	above := figure.Figure{Name: "above", Measured: 4, Asked: 3, Relation: "≤", Unit: "ms"}
	for name, c := range map[string]struct {
		figures []figure.Figure
		args    []string
		code    int
		want    string
	}{
		"all met":          {[]figure.Figure{below, {Name: "told", Measured: 9}}, nil, 0, "1 figures asked for: 1 met, 0 missed; 0 could not be measured\n"},
		"one missed":       {[]figure.Figure{below, above}, nil, 1, "2 figures asked for: 1 met, 1 missed; 0 could not be measured\n  missed: noop-mysql, above: 4 ms, asked ≤ 3\n"},
		"missed and told":  {[]figure.Figure{below, above}, []string{"-report"}, 0, "1 missed"},
		"nothing asked of": {[]figure.Figure{{Name: "told", Measured: 9}}, nil, 0, "0 figures asked for"},
	} {
		var out, problems bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), figures(c.figures...), c.args, &out, &problems), name)
		require.Contains(t, out.String(), c.want, name)
		require.Equal(t, c.code != 0, bytes.Contains(problems.Bytes(), []byte("-report tells them")), name)
	}
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
