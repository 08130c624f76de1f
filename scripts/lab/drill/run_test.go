package drill

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

// judged is a report in which each rule has judged one event.
func judged(rules ...string) (out history.Report) {
	for _, id := range rules {
		out = append(out, history.Result{Rule: id, Judged: 1})
	}
	return out
}

// play runs one drill whose checker says sum, and returns its line.
func play(t *testing.T, limit time.Duration, sum history.Report, scene func(ctx context.Context, s *stage.Stage) (string, error)) (bool, string) {
	t.Helper()
	var out bytes.Buffer
	r := run{Flags: verb.Flags{Seed: 7}, bench: &world.Bench{Run: "run"}, said: &stage.Notebook{}, to: &out}
	ok := r.one(t.Context(), drill{name: "main-x", limit: limit, rules: always, run: func(ctx context.Context, s *stage.Stage) (string, error) {
		s.Said.Add(sum)
		return scene(ctx, s)
	}})
	return ok, out.String()
}

func TestEachDrillIsOneLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit time.Duration
		sum   history.Report
		err   error
		want  string // a pattern: how long it took is chance
	}{
		"passes":           {time.Minute, judged(always...), nil, `^PASS main-x \(\d+\.\d s\): all well\n$`},
		"fails":            {time.Minute, nil, errors.New("lost one"), `^FAIL main-x \(\d+\.\d s, seed 7\): lost one\n  logs: run/main-x\n$`},
		"too long":         {time.Nanosecond, nil, nil, `took longer than 1ns`},
		"nobody was asked": {time.Minute, nil, nil, `the checker was not asked`},
		"nothing judged":   {time.Minute, judged(always[1:]...), nil, `I1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, line := play(t, c.limit, c.sum, func(ctx context.Context, _ *stage.Stage) (string, error) {
				if c.limit < time.Second {
					<-ctx.Done()
					return "", context.Cause(ctx)
				}
				return "all well", c.err
			})
			require.Equal(t, name == "passes", ok)
			require.Regexp(t, c.want, line)
		})
	}
}

func TestOneSeedGivesTheSameMoments(t *testing.T) {
	t.Parallel()
	var seen [2]*rand.Rand
	for i := range seen {
		play(t, time.Minute, judged(always...), func(_ context.Context, s *stage.Stage) (string, error) {
			seen[i] = s.Random
			return "", nil
		})
	}
	require.Equal(t, seen[0].Uint64(), seen[1].Uint64())
}

func TestNamesChooseDrills(t *testing.T) {
	t.Parallel()
	all := drills()
	chosen, err := verb.Choose("main-kill9", all, func(d drill) string { return d.name })
	require.NoError(t, err)
	require.Len(t, chosen, 5)
	names := map[string]bool{}
	for _, d := range all {
		require.False(t, names[d.name], d.name)
		names[d.name] = true
	}
	require.Len(t, all, 81)
	var out, problems bytes.Buffer
	require.Equal(t, 0, Run(t.Context(), []string{"-list"}, &out, &problems))
	require.Equal(t, len(all), strings.Count(out.String(), "\n"))
	require.Equal(t, 2, Run(t.Context(), []string{"-name", "x-"}, &out, &problems))
}

func TestEveryDrillIsInTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "docs", "drills.md"))
	require.NoError(t, err)
	rows := 0
	for _, d := range drills() {
		require.Contains(t, string(text), "\n| `"+d.name+"` |", "deploy/docs/drills.md needs a row")
	}
	for _, on := range []string{"main", "kafka", "streammq", "mirror"} {
		rows += strings.Count(string(text), "\n| `"+on+"-")
	}
	require.Equal(t, len(drills()), rows)
}

func TestEveryApplicableRuleIsNamedBySomeDrill(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for _, d := range drills() {
		for _, id := range d.rules {
			named[id] = true
		}
	}
	byChance := []string{"I19", "L2"} // judged by a look under way: which drill has something pending or running then is chance
	for _, id := range rules.Applicable() {
		require.True(t, named[id] || slices.Contains(byChance, id) || slices.Contains(elsewhere, id), "no drill names %s", id)
	}
	for id := range named {
		require.Contains(t, slices.Concat(rules.Applicable(), stage.Kafka.Rules, stage.Partitions.Rules, stage.Mirror.Rules), id)
	}
}

func TestEachTransportHasItsRules(t *testing.T) {
	t.Parallel()
	require.Equal(t, always, rulesOf(stage.Redis, "x"))
	require.Equal(t, always, rulesOf(stage.Partitions, "kill9-dev"), "its Redis is inside")
	require.Subset(t, rulesOf(stage.Partitions, "kill9-worker"), stage.Partitions.Rules)
	require.Subset(t, rulesOf(stage.Kafka, "broker"), onOutbox)
	require.NotContains(t, rulesOf(stage.Kafka, "switch"), "I21")
}

func TestARuleThatJudgedNothingFailsTheDrillAndTheRun(t *testing.T) {
	t.Parallel()
	n := &stage.Notebook{}
	n.Add(judged(rules.Applicable()[1:]...))
	n.Add(judged(rules.Applicable()[:1]...)) // several looks add up
	var out bytes.Buffer
	require.NoError(t, summarize(n.Sum(), &out))
	require.Contains(t, out.String(), "I28 1 ·")
	short := slices.DeleteFunc(judged(rules.Applicable()...), func(r history.Result) bool { return r.Rule == "L6" })
	require.ErrorContains(t, summarize(short, &out), "L6")
}

func TestMain(m *testing.M) { labserver.Main(m, labserver.NoLeaks) }
