package drill

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

func TestEachDrillIsOneLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit time.Duration
		Run   func(ctx context.Context, s *stage.Stage) (string, error)
		Want  string // a pattern: how long it took is chance
		ok    bool
	}{
		"passes": {time.Minute, func(context.Context, *stage.Stage) (string, error) { return "all well", nil }, `^PASS main-x \(\d+\.\d s\): all well\n$`, true},
		"fails":  {time.Minute, func(context.Context, *stage.Stage) (string, error) { return "", errors.New("lost one") }, `^FAIL main-x \(\d+\.\d s, seed 7\): lost one\n  logs: run/main-x\n$`, false},
		"too long": {time.Millisecond, func(ctx context.Context, _ *stage.Stage) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}, `took longer than 1ms`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			d := drill{Name: "main-x", limit: c.limit, Run: c.Run}
			require.Equal(t, c.ok, d.report(t.Context(), &world.Bench{Run: "run"}, settings{seed: 7}, &out))
			require.Regexp(t, c.Want, out.String())
		})
	}
}

func TestOneSeedGivesTheSameMoments(t *testing.T) {
	t.Parallel()
	var seen [2]int
	for i := range seen {
		d := drill{Name: "main-x", limit: time.Minute, Run: func(_ context.Context, s *stage.Stage) (string, error) {
			seen[i] = s.Random.IntN(1 << 30)
			return "", nil
		}}
		require.True(t, d.report(t.Context(), &world.Bench{}, settings{seed: 42}, &bytes.Buffer{}))
	}
	require.Equal(t, seen[0], seen[1])
}

func TestNamesChooseDrills(t *testing.T) {
	t.Parallel()
	require.Len(t, matching("main-kill9"), 5)
	names := map[string]bool{}
	for _, d := range drills {
		require.True(t, strings.HasPrefix(d.Name, "main-") || strings.HasPrefix(d.Name, "kafka-") || strings.HasPrefix(d.Name, "streammq-"), d.Name)
		require.False(t, names[d.Name], d.Name)
		names[d.Name] = true
	}
	var out, problems bytes.Buffer
	require.Equal(t, 0, Run(t.Context(), []string{"-list"}, &out, &problems))
	require.Equal(t, len(drills), strings.Count(out.String(), "\n"))
	require.Equal(t, 2, Run(t.Context(), []string{"-name", "x-"}, &out, &problems))
}

func TestEveryDrillIsInTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "docs", "drills.md"))
	require.NoError(t, err)
	for _, d := range drills {
		require.Contains(t, string(text), "\n| `"+d.Name+"` |", "deploy/docs/drills.md needs a row")
	}
	require.Equal(t, len(drills), strings.Count(string(text), "\n| `main-")+strings.Count(string(text), "\n| `kafka-")+
		strings.Count(string(text), "\n| `streammq-"))
}
