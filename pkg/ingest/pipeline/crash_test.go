package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
)

func TestFaultAtEveryEffectOfANewDocument(t *testing.T) {
	t.Parallel()
	for _, mode := range []ingesttest.FaultMode{ingesttest.ErrorBefore, ingesttest.ErrorAfter, ingesttest.CrashBefore, ingesttest.CrashAfter, ingesttest.LostCommit, ingesttest.Undone} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			w.Calm()
			ingesttest.Every(t, mode, func(t *testing.T, n int, f *ingesttest.Faults) {
				text := ingesttest.Lines(450, uint64(n)) // three batches of vectors
				w.Embed.Batch = 200
				a := w.Accept(ingest.Upload{File: w.Receive(fmt.Sprintf("%d.txt", n), text)})
				w.RunWith(a.Task.ID, f)
				w.CheckInvariants()
				require.Equal(t, taskstate.StatusSucceeded, w.Recover(a.Task.ID).Status)
				require.Equal(t, ingesttest.SplitLines(text), w.Text(a.Document.ID))
				w.CheckInvariants()
			})
			w.SweepAll()
			require.Equal(t, w.Number(`SELECT COUNT(*) FROM knowledge_segment s JOIN document_version v ON v.id = s.version_id WHERE v.state = 'VISIBLE'`), w.VectorCount())
			require.Zero(t, w.Number(`SELECT COUNT(*) FROM vector_garbage`))
		})
	}
}

func TestFaultAtEveryEffectOfANewVersion(t *testing.T) {
	t.Parallel()
	for _, mode := range []ingesttest.FaultMode{ingesttest.ErrorBefore, ingesttest.ErrorAfter, ingesttest.CrashBefore, ingesttest.CrashAfter, ingesttest.LostCommit, ingesttest.Undone} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			newVersionWithFaults(t, ingesttest.NewWorld(t, ingesttest.Options{}), mode)
		})
	}
}

func TestCrashAtEveryEffectOnEachDatabase(t *testing.T) {
	t.Parallel()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) { newVersionWithFaults(t, w, ingesttest.CrashAfter) })
}

// newVersionWithFaults takes a second version in for each effect that a fault can meet, and recovers.
func newVersionWithFaults(t *testing.T, w *ingesttest.World, mode ingesttest.FaultMode) {
	t.Helper()
	w.Calm()
	ingesttest.Every(t, mode, func(t *testing.T, n int, f *ingesttest.Faults) {
		before, after := ingesttest.TwoVersions(n)
		a := w.Accept(ingest.Upload{File: w.Receive("a.txt", before)})
		w.Process(a.Task.ID)
		b := w.Accept(ingest.Upload{File: w.Receive("a.txt", after), DocumentID: a.Document.ID})
		w.RunWith(b.Task.ID, f)
		w.CheckInvariants()
		require.Contains(t, [][]string{ingesttest.SplitLines(before), ingesttest.SplitLines(after)}, w.Text(a.Document.ID), "one version whole")
		require.Equal(t, taskstate.StatusSucceeded, w.Recover(b.Task.ID).Status)
		require.Equal(t, ingesttest.SplitLines(after), w.Text(a.Document.ID))
		w.CheckInvariants()
	})
	w.SweepAll()
	require.Equal(t, w.Number(`SELECT COUNT(*) FROM knowledge_segment`), w.VectorCount())
}

// TestSomethingElseAtEveryEffect lets other things happen at every step of a run of a second version, which then goes on as a zombie or not.
func TestSomethingElseAtEveryEffect(t *testing.T) {
	t.Parallel()
	type scene struct {
		w      *ingesttest.World
		n      int
		a, b   ingest.Accepted // first and second upload
		third  ingest.Accepted
		before []string
		after  []string
	}
	cases := map[string]struct {
		meanwhile func(s *scene)
		want      func(t *testing.T, s *scene)
	}{
		"takeover that ends first": {
			func(s *scene) { s.w.Advance(time.Hour); s.w.Process(s.b.Task.ID) },
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.Text(s.a.Document.ID)) },
		},
		"takeover with another splitter": {
			func(s *scene) {
				s.w.Advance(time.Hour)
				s.w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) { d.Splitter = ingesttest.BlockSplitter{Version: "+"} }})
				s.w.Process(s.b.Task.ID)
				s.w.Calm()
			},
			func(t *testing.T, s *scene) {
				for i, line := range s.w.Text(s.a.Document.ID) {
					require.Equal(t, s.after[i]+"+", line)
				}
			},
		},
		"deletion": {
			func(s *scene) {
				require.NoError(s.w.T, s.w.App.DeleteDocument(s.w.T.Context(), s.w.Caller, s.a.Document.ID))
			},
			func(t *testing.T, s *scene) {
				require.Equal(t, taskstate.StatusCancelled, s.w.Task(s.b.Task.ID).Status)
				require.Empty(t, s.w.Text(s.a.Document.ID))
			},
		},
		"deletion and its first sweep": {
			func(s *scene) {
				require.NoError(s.w.T, s.w.App.DeleteDocument(s.w.T.Context(), s.w.Caller, s.a.Document.ID))
				_, err := s.w.App.Sweep(s.w.T.Context())
				require.NoError(s.w.T, err)
			},
			func(t *testing.T, s *scene) { require.Empty(t, s.w.Text(s.a.Document.ID)) },
		},
		"cancel": {
			func(s *scene) {
				_, err := s.w.App.Cancel(s.w.T.Context(), s.w.Caller, s.b.Task.ID)
				require.NoError(s.w.T, err)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.before, s.w.Text(s.a.Document.ID)) },
		},
		"cancel and replay": {
			func(s *scene) {
				_, err := s.w.App.Cancel(s.w.T.Context(), s.w.Caller, s.b.Task.ID)
				require.NoError(s.w.T, err)
				_, err = s.w.App.Retry(s.w.T.Context(), s.w.Caller, s.b.Task.ID)
				require.NoError(s.w.T, err)
				s.w.Process(s.b.Task.ID)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.Text(s.a.Document.ID)) },
		},
		"an older upload becomes visible": {
			func(s *scene) {
				s.w.Process(s.third.Task.ID)
				s.w.Advance(2 * time.Minute)
				_, err := s.w.App.Sweep(s.w.T.Context())
				require.NoError(s.w.T, err)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.Text(s.a.Document.ID)) },
		},
		"an older upload becomes visible twice": {
			func(s *scene) {
				s.w.Process(s.third.Task.ID)
				s.w.Advance(2 * time.Minute)
				_, err := s.w.App.Sweep(s.w.T.Context())
				require.NoError(s.w.T, err)
				s.w.Advance(20 * time.Minute)
				_, err = s.w.App.Sweep(s.w.T.Context())
				require.NoError(s.w.T, err)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.Text(s.a.Document.ID)) },
		},
		"a third upload becomes visible": {
			func(s *scene) {
				text := fmt.Sprintf("beta %d\nzeta %d\nalpha %d\n", s.n, s.n, s.n)
				s.third = s.w.Accept(ingest.Upload{File: s.w.Receive("a.txt", text), DocumentID: s.a.Document.ID})
				s.w.Process(s.third.Task.ID)
				s.w.Advance(2 * time.Minute)
				_, err := s.w.App.Sweep(s.w.T.Context())
				require.NoError(s.w.T, err)
			},
			func(t *testing.T, s *scene) {
				require.Equal(t, "zeta "+fmt.Sprint(s.n), s.w.Text(s.a.Document.ID)[1])
				require.Equal(t, taskstate.StatusCancelled, s.w.Task(s.b.Task.ID).Status)
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{})
			w.Calm()
			ingesttest.Every(t, ingesttest.Interrupted, func(t *testing.T, n int, f *ingesttest.Faults) {
				before, after := ingesttest.TwoVersions(n)
				s := &scene{w: w, n: n, before: ingesttest.SplitLines(before), after: ingesttest.SplitLines(after)}
				s.a = w.Accept(ingest.Upload{File: w.Receive("a.txt", before)})
				w.Process(s.a.Task.ID)
				if strings.HasPrefix(name, "an older") { // it shares no line with the first
					s.third = w.Accept(ingest.Upload{File: w.Receive("o.txt", fmt.Sprintf("older %d\n", n)), DocumentID: s.a.Document.ID})
				}
				s.b = w.Accept(ingest.Upload{File: w.Receive("a.txt", after), DocumentID: s.a.Document.ID})
				f.Hook = func() { c.meanwhile(s) }
				w.RunWith(s.b.Task.ID, f)
				if !f.Hit {
					return
				}
				w.CheckInvariants()
				w.Recover(s.b.Task.ID)
				c.want(t, s)
				w.CheckInvariants()
			})
			w.SweepAll()
			require.Equal(t, w.Number(`SELECT COUNT(*) FROM knowledge_segment`), w.VectorCount())
			require.Zero(t, w.Number(`SELECT COUNT(*) FROM vector_garbage`))
		})
	}
}
