package lab

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// step is one transition of a test's log.
func step(from, to taskstate.Status, reason taskstate.Reason, attempt, crash int, fence int64) taskstate.Transition {
	return taskstate.Transition{TaskID: "t", From: from, To: to, Reason: reason, AttemptCount: attempt, CrashCount: crash, Fence: fence}
}

const (
	queued    = taskstate.StatusQueued
	running   = taskstate.StatusRunning
	retrying  = taskstate.StatusRetrying
	succeeded = taskstate.StatusSucceeded
	dead      = taskstate.StatusDead
)

// whole is a log with a failure, a takeover, a hand-back and a success.
func whole() []taskstate.Transition {
	return []taskstate.Transition{
		step("", queued, taskstate.ReasonAccepted, 0, 0, 0),
		step(queued, running, taskstate.ReasonClaimed, 0, 0, 1),
		step(running, retrying, taskstate.ReasonFailed, 1, 0, 1),
		step(retrying, running, taskstate.ReasonClaimed, 1, 0, 2),
		step(running, running, taskstate.ReasonTakeover, 1, 1, 3),
		step(running, queued, taskstate.ReasonHandedBack, 1, 1, 3),
		step(queued, running, taskstate.ReasonClaimed, 1, 1, 4),
		step(running, succeeded, taskstate.ReasonDone, 1, 1, 4),
	}
}

func TestChainFindsEveryKindOfBrokenLog(t *testing.T) {
	t.Parallel()
	row := taskRow{id: "t", status: succeeded, attempts: 1, crashes: 1, fence: 4}
	for name, c := range map[string]struct {
		spoil func(log []taskstate.Transition, row *taskRow) []taskstate.Transition
		want  string // part of a problem; empty: none
	}{
		"whole":        {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition { return l }, ""},
		"empty":        {func([]taskstate.Transition, *taskRow) []taskstate.Transition { return nil }, "no transitions"},
		"missing step": {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition { return append(l[:2], l[3:]...) }, "goes from"},
		"illegal reason": {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition {
			l[7].Reason = taskstate.ReasonClaimed
			return l
		}, "illegal"},
		"fence jumped": {func(l []taskstate.Transition, r *taskRow) []taskstate.Transition {
			l[6].Fence, l[7].Fence, r.fence = 5, 5, 5
			return l
		}, "must be 4"},
		"fence stale": {func(l []taskstate.Transition, r *taskRow) []taskstate.Transition {
			l[7].Fence, r.fence = 3, 3
			return l
		}, "must be 4"},
		"attempt lost":        {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition { l[2].AttemptCount = 0; return l }, "attempt 0, must be 1"},
		"hand-back counted":   {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition { l[5].AttemptCount = 2; return l }, "attempt 2, must be 1"},
		"crash not counted":   {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition { l[4].CrashCount = 0; return l }, "crash count 0, must be 1"},
		"row differs":         {func(l []taskstate.Transition, r *taskRow) []taskstate.Transition { r.status = dead; return l }, "its row says DEAD"},
		"row has other fence": {func(l []taskstate.Transition, r *taskRow) []taskstate.Transition { r.fence = 9; return l }, "fence 9"},
		"time runs back": {func(l []taskstate.Transition, _ *taskRow) []taskstate.Transition {
			l[3].CreatedAt = time.Unix(10, 0)
			return l
		}, "older than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, r := &finding{}, row
			chain(f, r, c.spoil(whole(), &r))
			if c.want == "" {
				require.Empty(t, f.problems)
				return
			}
			require.Contains(t, strings.Join(f.problems, "\n"), c.want)
			require.Equal(t, "t", f.guilty)
		})
	}
}

// shelf is a document with one visible version of three segments.
func shelf() (library, documentRow) {
	d := documentRow{id: "d", base: "b", status: "READY", visible: "v", segments: 3}
	return library{
		docs:      []documentRow{d},
		byDoc:     map[string][]versionRow{"d": {{id: "v", document: "d", task: "t", state: "VISIBLE", segments: 3}}},
		byVersion: map[string][]segmentRow{"v": {{"v", "x0", 0}, {"v", "x1", 1}, {"v", "x2", 2}}},
	}, d
}

func TestDocumentFindsEveryKindOfBrokenVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(l library, d *documentRow)
		want  string
	}{
		"whole":           {func(library, *documentRow) {}, ""},
		"gap":             {func(l library, _ *documentRow) { l.byVersion["v"][2].index = 3 }, "stands at place 2"},
		"segment missing": {func(l library, _ *documentRow) { l.byVersion["v"] = l.byVersion["v"][:2] }, "has 2 segments"},
		"vector shared":   {func(l library, _ *documentRow) { l.byVersion["v"][2].vector = "x0" }, "is also one of"},
		"two visible": {func(l library, _ *documentRow) {
			l.byDoc["d"] = append(l.byDoc["d"], versionRow{id: "w", state: "VISIBLE"})
		}, "2 visible versions"},
		"none visible":        {func(l library, _ *documentRow) { l.byDoc["d"][0].state = "SUPERSEDED" }, "0 visible versions"},
		"still building":      {func(l library, _ *documentRow) { l.byDoc["d"][0].state = "BUILDING" }, "still BUILDING"},
		"names another":       {func(_ library, d *documentRow) { d.visible = "w" }, "names visible version"},
		"status of a failure": {func(_ library, d *documentRow) { d.status = "FAILED" }, "has status FAILED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := shelf()
			c.spoil(l, &d)
			f := &finding{}
			l.document(f, d, "t", true, map[string]string{})
			if c.want == "" {
				require.Empty(t, f.problems)
				return
			}
			require.Contains(t, strings.Join(f.problems, "\n"), c.want)
		})
	}
}

// heap is a vector store that only lists and tells what is there.
type heap struct {
	ingest.VectorStore
	ids []string
}

func (h heap) Present(_ context.Context, _ string, ids []string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, want := range ids {
		for _, id := range h.ids {
			out[want] = out[want] || id == want
		}
	}
	return out, nil
}

func (h heap) List(_ context.Context, _ string, offset, _ int) ([]string, error) {
	return h.ids[offset:], nil
}

func TestVectorsThatAreMissingStrayOrDoubleAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ids  []string
		want string
	}{
		"whole":   {[]string{"x0", "x1", "x2", "old"}, ""},
		"missing": {[]string{"x0", "x2"}, "vector x1 of task t is not in the store"},
		"stray":   {[]string{"x0", "x1", "x2", "y"}, "which no row names"},
		"double":  {[]string{"x0", "x1", "x2", "x2"}, "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := shelf()
			l.garbage = []string{"old"}
			f, want := &finding{}, map[string]string{}
			l.document(f, d, "t", true, want)
			a := Audit{Vectors: heap{ids: c.ids}}
			require.NoError(t, a.vectors(t.Context(), f, "b", want))
			require.NoError(t, a.strays(t.Context(), f, "b", l))
			if c.want == "" {
				require.Empty(t, f.problems)
				return
			}
			require.Contains(t, strings.Join(f.problems, "\n"), c.want)
		})
	}
}

func TestOutcomesFindLostDoubledAndWrongTasks(t *testing.T) {
	t.Parallel()
	rows := []taskRow{{id: "a", file: "a.txt", status: succeeded}, {id: "b", file: "b.txt", status: dead}}
	load := &Record{Accepted: map[string]Doc{"a": {Name: "a.txt"}, "b": {Name: "b.txt"}}, Other: map[int]int{}}
	judge := func(a Audit, rows []taskRow) string {
		f := &finding{}
		a.outcomes(f, rows)
		return strings.Join(f.problems, "\n")
	}
	require.Empty(t, judge(Audit{Load: load, Want: map[string]taskstate.Status{"b": dead}}, rows))
	require.Contains(t, judge(Audit{Load: load}, rows), "is DEAD, not SUCCEEDED")
	require.Contains(t, judge(Audit{Load: load}, rows[:1]), "LOST: task b")
	twin := append(rows[:1:1], taskRow{id: "c", file: "a.txt", status: succeeded})
	require.Contains(t, judge(Audit{Load: &Record{Accepted: map[string]Doc{"a": {Name: "a.txt"}}}}, twin), "became 2 tasks")
	require.Contains(t, judge(Audit{Load: &Record{Maybe: []Doc{{Name: "a.txt"}}}}, twin), "became 2 tasks")
	require.Contains(t, judge(Audit{Load: &Record{Other: map[int]int{500: 3}}}, rows[:1]), "3 uploads were answered with 500")
}
