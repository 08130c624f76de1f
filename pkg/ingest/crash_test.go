package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// splitLines are the lines of a text.
func splitLines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }

// afflicted makes the world's application one whose n-th effect meets a fault; calm makes it whole again.
func (w *world) afflicted(f *faults) {
	w.build(worldOptions{
		config: func(c *Config) { c.EmbedParallel, c.MaxAttempts = 1, 1000 },
		deps: func(d *Deps) {
			d.Store, d.Vectors, d.Embedder = faultyStore{w.store, f}, faultyVectors{w.vectors, f}, faultyEmbedder{w.embed, f}
		},
	})
}

func (w *world) calm() {
	w.build(worldOptions{config: func(c *Config) { c.MaxAttempts = 1000 }})
}

// runWith runs a task once in an application with a fault, up to its finish.
func (w *world) runWith(id string, f *faults) {
	w.t.Helper()
	job, answer := w.claim(id)
	require.Equal(w.t, taskstate.AnswerClaimed, answer)
	w.afflicted(f)
	kind, app := w.handler, w.app
	w.calm()
	res := kind.Run(w.t.Context(), job)
	raw, whole := w.store, w.handler
	w.handler = kind
	_ = f.effect(func() error { _, err := w.finish(w.t.Context(), job, res); return err })
	w.store, w.handler = raw, whole
	_ = app
}

// recover brings a task to its end as the recovery loop would, whatever state a fault left it in.
func (w *world) recover(id string) taskstate.Task {
	w.t.Helper()
	for range 10 {
		task := w.task(id)
		if task.Status.Terminal() {
			return task
		}
		w.advance(time.Hour / 2)
		w.process(id)
	}
	w.t.Fatalf("task %s does not end: %+v", id, w.task(id))
	return taskstate.Task{}
}

// every runs a test for each effect of a run, until there is no n-th one, and tells how many there were.
func every(t *testing.T, mode faultMode, one func(t *testing.T, n int, f *faults)) {
	t.Helper()
	for n := 1; ; n++ {
		f := &faults{at: n, mode: mode}
		one(t, n, f)
		if t.Failed() {
			t.Fatalf("%s, effect %d", mode, n)
		}
		if !f.hit {
			require.GreaterOrEqual(t, n, 6, "embed, ledger, rows, vectors, finish")
			return
		}
	}
}

func TestFaultAtEveryEffectOfANewDocument(t *testing.T) {
	t.Parallel()
	for _, mode := range []faultMode{errorBefore, errorAfter, crashBefore, crashAfter, lostCommit, undone} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.calm()
			every(t, mode, func(t *testing.T, n int, f *faults) {
				text := lines(450, uint64(n)) // three batches of vectors
				w.embed.batch = 200
				a := w.accept(Upload{File: w.receive(fmt.Sprintf("%d.txt", n), text)})
				w.runWith(a.Task.ID, f)
				w.checkInvariants()
				require.Equal(t, taskstate.StatusSucceeded, w.recover(a.Task.ID).Status)
				require.Equal(t, splitLines(text), w.text(a.Document.ID))
				w.checkInvariants()
			})
			w.sweepAll()
			require.Equal(t, w.number(`SELECT COUNT(*) FROM knowledge_segment s JOIN document_version v ON v.id = s.version_id WHERE v.state = 'VISIBLE'`), w.vectorCount())
			require.Zero(t, w.number(`SELECT COUNT(*) FROM vector_garbage`))
		})
	}
}

func TestFaultAtEveryEffectOfANewVersion(t *testing.T) {
	t.Parallel()
	for _, mode := range []faultMode{errorBefore, errorAfter, crashBefore, crashAfter, lostCommit, undone} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			newVersionWithFaults(t, newWorld(t, worldOptions{}), mode)
		})
	}
}

func TestCrashAtEveryEffectOnEachDatabase(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) { newVersionWithFaults(t, w, crashAfter) })
}

// newVersionWithFaults takes a second version in for each effect that a fault can meet, and recovers.
func newVersionWithFaults(t *testing.T, w *world, mode faultMode) {
	t.Helper()
	w.calm()
	every(t, mode, func(t *testing.T, n int, f *faults) {
		before, after := w.twoVersions(n)
		a := w.accept(Upload{File: w.receive("a.txt", before)})
		w.process(a.Task.ID)
		b := w.accept(Upload{File: w.receive("a.txt", after), DocumentID: a.Document.ID})
		w.runWith(b.Task.ID, f)
		w.checkInvariants()
		require.Contains(t, [][]string{splitLines(before), splitLines(after)}, w.text(a.Document.ID), "one version whole")
		require.Equal(t, taskstate.StatusSucceeded, w.recover(b.Task.ID).Status)
		require.Equal(t, splitLines(after), w.text(a.Document.ID))
		w.checkInvariants()
	})
	w.sweepAll()
	require.Equal(t, w.number(`SELECT COUNT(*) FROM knowledge_segment`), w.vectorCount())
}

// twoVersions are texts that share lines, with repeats.
func (w *world) twoVersions(n int) (before, after string) {
	before = fmt.Sprintf("alpha %d\nbeta %d\ngamma %d\nalpha %d\n", n, n, n, n)
	after = fmt.Sprintf("alpha %d\ndelta %d\nalpha %d\nalpha %d\ngamma %d\nepsilon %d\n", n, n, n, n, n, n)
	return before, after
}

// TestSomethingElseAtEveryEffect lets other things happen at every step of a run of a second version, which then goes on as a zombie or not.
func TestSomethingElseAtEveryEffect(t *testing.T) {
	t.Parallel()
	type scene struct {
		w      *world
		n      int
		a, b   Accepted // first and second upload
		third  Accepted
		before []string
		after  []string
	}
	cases := map[string]struct {
		meanwhile func(s *scene)
		want      func(t *testing.T, s *scene)
	}{
		"takeover that ends first": {
			func(s *scene) { s.w.advance(time.Hour); s.w.process(s.b.Task.ID) },
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.text(s.a.Document.ID)) },
		},
		"takeover with another splitter": {
			func(s *scene) {
				s.w.advance(time.Hour)
				s.w.build(worldOptions{deps: func(d *Deps) { d.Splitter = blockSplitter{version: "+"} }})
				s.w.process(s.b.Task.ID)
				s.w.calm()
			},
			func(t *testing.T, s *scene) {
				for i, line := range s.w.text(s.a.Document.ID) {
					require.Equal(t, s.after[i]+"+", line)
				}
			},
		},
		"deletion": {
			func(s *scene) {
				require.NoError(s.w.t, s.w.app.DeleteDocument(s.w.t.Context(), s.w.caller, s.a.Document.ID))
			},
			func(t *testing.T, s *scene) {
				require.Equal(t, taskstate.StatusCancelled, s.w.task(s.b.Task.ID).Status)
				require.Empty(t, s.w.text(s.a.Document.ID))
			},
		},
		"deletion and its first sweep": {
			func(s *scene) {
				require.NoError(s.w.t, s.w.app.DeleteDocument(s.w.t.Context(), s.w.caller, s.a.Document.ID))
				_, err := s.w.app.Sweep(s.w.t.Context())
				require.NoError(s.w.t, err)
			},
			func(t *testing.T, s *scene) { require.Empty(t, s.w.text(s.a.Document.ID)) },
		},
		"cancel": {
			func(s *scene) {
				_, err := s.w.app.Cancel(s.w.t.Context(), s.w.caller, s.b.Task.ID)
				require.NoError(s.w.t, err)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.before, s.w.text(s.a.Document.ID)) },
		},
		"cancel and replay": {
			func(s *scene) {
				_, err := s.w.app.Cancel(s.w.t.Context(), s.w.caller, s.b.Task.ID)
				require.NoError(s.w.t, err)
				_, err = s.w.app.Retry(s.w.t.Context(), s.w.caller, s.b.Task.ID)
				require.NoError(s.w.t, err)
				s.w.process(s.b.Task.ID)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.text(s.a.Document.ID)) },
		},
		"an older upload becomes visible": {
			func(s *scene) {
				s.w.process(s.third.Task.ID)
				s.w.advance(2 * time.Minute)
				_, err := s.w.app.Sweep(s.w.t.Context())
				require.NoError(s.w.t, err)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.text(s.a.Document.ID)) },
		},
		"an older upload becomes visible twice": {
			func(s *scene) {
				s.w.process(s.third.Task.ID)
				s.w.advance(2 * time.Minute)
				_, err := s.w.app.Sweep(s.w.t.Context())
				require.NoError(s.w.t, err)
				s.w.advance(20 * time.Minute)
				_, err = s.w.app.Sweep(s.w.t.Context())
				require.NoError(s.w.t, err)
			},
			func(t *testing.T, s *scene) { require.Equal(t, s.after, s.w.text(s.a.Document.ID)) },
		},
		"a third upload becomes visible": {
			func(s *scene) {
				text := fmt.Sprintf("beta %d\nzeta %d\nalpha %d\n", s.n, s.n, s.n)
				s.third = s.w.accept(Upload{File: s.w.receive("a.txt", text), DocumentID: s.a.Document.ID})
				s.w.process(s.third.Task.ID)
				s.w.advance(2 * time.Minute)
				_, err := s.w.app.Sweep(s.w.t.Context())
				require.NoError(s.w.t, err)
			},
			func(t *testing.T, s *scene) {
				require.Equal(t, "zeta "+fmt.Sprint(s.n), s.w.text(s.a.Document.ID)[1])
				require.Equal(t, taskstate.StatusCancelled, s.w.task(s.b.Task.ID).Status)
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{})
			w.calm()
			every(t, interrupted, func(t *testing.T, n int, f *faults) {
				before, after := w.twoVersions(n)
				s := &scene{w: w, n: n, before: splitLines(before), after: splitLines(after)}
				s.a = w.accept(Upload{File: w.receive("a.txt", before)})
				w.process(s.a.Task.ID)
				if strings.HasPrefix(name, "an older") { // it shares no line with the first
					s.third = w.accept(Upload{File: w.receive("o.txt", fmt.Sprintf("older %d\n", n)), DocumentID: s.a.Document.ID})
				}
				s.b = w.accept(Upload{File: w.receive("a.txt", after), DocumentID: s.a.Document.ID})
				f.hook = func() { c.meanwhile(s) }
				w.runWith(s.b.Task.ID, f)
				if !f.hit {
					return
				}
				w.checkInvariants()
				w.recover(s.b.Task.ID)
				c.want(t, s)
				w.checkInvariants()
			})
			w.sweepAll()
			require.Equal(t, w.number(`SELECT COUNT(*) FROM knowledge_segment`), w.vectorCount())
			require.Zero(t, w.number(`SELECT COUNT(*) FROM vector_garbage`))
		})
	}
}
