package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

// harm damages the stored file of an upload: lost, cut, or other bytes of the same length.
func (w *world) harm(how, name string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	switch how {
	case "lost":
		require.NoError(w.t, os.Remove(path))
	case "cut":
		require.NoError(w.t, os.Truncate(path, 2))
	default:
		bytes, err := os.ReadFile(path)
		require.NoError(w.t, err)
		w.overwrite(name, strings.Repeat("x", len(bytes)))
	}
}

// base makes a knowledge base and returns its name.
func (w *world) base(name string) string {
	w.t.Helper()
	reads, err := NewReads(ReadsDeps{Store: w.store, Embedder: w.embed, Vectors: w.vectors, Log: slog.New(slog.DiscardHandler)})
	require.NoError(w.t, err)
	_, err = reads.CreateBase(w.t.Context(), w.caller, name)
	require.NoError(w.t, err)
	return name
}

// rollingBack is a Store whose next accept transactions do all their work and are then rolled back.
type rollingBack struct {
	taskstate.Store
	times  *int
	failed func(args ...any)
	then   func() error // after each rollback; not in the test's goroutine
}

func (s rollingBack) Submit(ctx context.Context, p taskstate.PrepareFunc) ([]taskstate.Task, error) {
	if *s.times == 0 {
		return s.Store.Submit(ctx, p)
	}
	*s.times--
	_, err := s.Store.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
		tasks, err := p(ctx, tx, m)
		return tasks, errors.Join(err, taskstate.ErrDuplicateKey) // as an accept that raced
	})
	if err := s.then(); err != nil {
		s.failed(err)
	}
	return nil, err
}

// TestAnAcceptThatIsRolledBackAfterTheReplacementLosesNothing lets the sweeper remove the healed row before the next try,
// which then needs the upload's own copy.
func TestAnAcceptThatIsRolledBackAfterTheReplacementLosesNothing(t *testing.T) {
	t.Parallel()
	for _, swept := range []bool{false, true} {
		t.Run(fmt.Sprint("swept=", swept), func(t *testing.T) {
			t.Parallel()
			onEachDatabase(t, func(t *testing.T, w *world) {
				first := w.upload("one\ntwo\n")
				path := w.filePaths()[0]
				w.harm("cut", path)
				require.Equal(t, taskstate.StatusDead, w.process(first.Task.ID).Status)
				times := 1
				w.build(worldOptions{deps: func(d *Deps) {
					d.Store = rollingBack{w.store, &times, t.Error, func() error {
						text, err := os.ReadFile(filepath.Join(w.dir, path))
						if err == nil && string(text) != "one\ntwo\n" {
							err = fmt.Errorf("the old place holds %q after the rollback", text)
						}
						if err != nil || !swept {
							return err
						}
						if err := w.app.DeleteDocument(t.Context(), w.caller, first.Document.ID); err != nil {
							return err
						}
						if _, err := w.app.Sweep(t.Context()); err != nil {
							return err
						}
						if _, err := os.Stat(filepath.Join(w.dir, path)); !errors.Is(err, fs.ErrNotExist) {
							return fmt.Errorf("the deleted document's file is still there: %w", err)
						}
						return nil
					}}
				}})
				again := w.upload("one\ntwo\n")
				require.Zero(t, times)
				require.Equal(t, swept, first.Document.ID != again.Document.ID)
				require.Equal(t, taskstate.StatusSucceeded, w.process(again.Task.ID).Status)
				require.Equal(t, []string{"one", "two"}, w.text(again.Document.ID))
				require.Equal(t, w.filePaths(), w.stored())
				w.checkInvariants()
			})
		})
	}
}

// filePaths are the paths of all rows of stored files.
func (w *world) filePaths() []string {
	w.t.Helper()
	out, err := readColumn(w.t.Context(), w.store, "SELECT path FROM stored_file ORDER BY id")
	require.NoError(w.t, err)
	return out
}

func TestTheSameBytesAreTakenInAgainWhenTheirFileIsDamaged(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"lost", "cut", "overwritten"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			onEachDatabase(t, func(t *testing.T, w *world) {
				first := w.upload("one\ntwo\n")
				w.harm(how, w.filePaths()[0])
				require.Equal(t, taskstate.StatusDead, w.process(first.Task.ID).Status)

				again := w.upload("one\ntwo\n")
				require.False(t, again.Duplicate)
				require.Equal(t, first.Document.ID, again.Document.ID)
				require.Equal(t, taskstate.StatusSucceeded, w.process(again.Task.ID).Status)
				require.Equal(t, []string{"one", "two"}, w.text(first.Document.ID))
				require.Equal(t, w.filePaths(), w.stored(), "one file, under its old name")
				w.checkInvariants()
			})
		})
	}
}

func TestANewUploadHealsOlderVersions(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		failed := w.upload("one\ntwo\n")
		w.harm("overwritten", w.filePaths()[0])
		require.Equal(t, taskstate.StatusDead, w.process(failed.Task.ID).Status)

		elsewhere := w.accept(Upload{File: w.receive("b.txt", "one\ntwo\n"), Base: w.base("elsewhere")})
		require.Equal(t, taskstate.StatusSucceeded, w.process(elsewhere.Task.ID).Status)
		replayed, err := w.app.Retry(t.Context(), w.caller, failed.Task.ID)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSucceeded, w.process(replayed.ID).Status, "the old file is whole again")
		require.Equal(t, []string{"one", "two"}, w.text(failed.Document.ID))
		require.Equal(t, w.filePaths(), w.stored())
	})
}

func TestADuplicateAndAReplayHealALostFile(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.accept(Upload{File: w.receive("a.txt", "one\n"), IdempotencyKey: "k"})
		w.process(first.Task.ID)
		w.harm("lost", w.filePaths()[0])
		require.True(t, w.upload("one\n").Duplicate)
		require.Equal(t, w.filePaths(), w.stored())

		w.harm("cut", w.filePaths()[0])
		require.True(t, w.accept(Upload{File: w.receive("a.txt", "one\n"), IdempotencyKey: "k"}).Replayed)
		require.Equal(t, w.filePaths(), w.stored())
		again := w.accept(Upload{File: w.receive("a.txt", "one\n"), Force: true})
		require.Equal(t, taskstate.StatusSucceeded, w.process(again.Task.ID).Status)
	})
}

func TestAnUploadWhoseOwnCopyIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		swept, kept := w.receive("a.txt", "one\n"), w.receive("b.txt", "two\n")
		w.harm("lost", swept.ID)
		_, errs := w.app.AcceptAll(t.Context(), w.caller, []Upload{{File: swept}, {File: kept}})
		require.ErrorIs(t, errs[0], ErrUploadExpired)
		require.NoError(t, errs[1])
		require.Equal(t, 1, w.number("SELECT COUNT(*) FROM ingest_task"))

		w.harm("lost", kept.ID) // the old one too
		gone := w.receive("b.txt", "two\n")
		w.harm("lost", gone.ID)
		_, err := w.app.Accept(t.Context(), w.caller, Upload{File: gone, Force: true})
		require.ErrorIs(t, err, ErrUploadExpired)
	})
}

// TestParallelUploadsHealOneFile damages the file between rounds of uploads of the same bytes into several bases,
// while a sweeper removes deleted documents that link it.
func TestParallelUploadsHealOneFile(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		const bases, rounds = 4, 6
		for b := range bases {
			w.base(fmt.Sprint("b", b))
		}
		for round := range rounds {
			for _, path := range w.filePaths() {
				w.harm([]string{"lost", "cut"}[round%2], path)
			}
			var uploads []Upload
			for b := range bases {
				uploads = append(uploads, Upload{File: w.receive("a.txt", "the same\n"), Base: fmt.Sprint("b", b), Force: true})
			}
			got, errs := make([]Accepted, bases), make([]error, bases+1)
			var all sync.WaitGroup
			for b := range bases {
				all.Go(func() { got[b], errs[b] = w.app.Accept(t.Context(), w.caller, uploads[b]) })
			}
			all.Go(func() { _, errs[bases] = w.app.Sweep(t.Context()) })
			all.Wait()
			require.NoError(t, errors.Join(errs...))
			for _, a := range got {
				require.Equal(t, taskstate.StatusSucceeded, w.process(a.Task.ID).Status)
				require.Equal(t, []string{"the same"}, w.text(a.Document.ID))
			}
			require.ElementsMatch(t, w.filePaths(), w.stored())
			if round%3 == 2 { // the next round meets the sweeper at the last link
				for _, a := range got {
					require.NoError(t, w.app.DeleteDocument(t.Context(), w.caller, a.Document.ID))
				}
			}
			w.advance(time.Minute)
		}
	})
}

func TestAFileIsReplacedWithoutHardLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	old, good := w.receive("a.txt", "old"), w.receive("b.txt", "good")
	reader, err := w.files.Open(old.ID)
	require.NoError(t, err)
	defer func() { _ = reader.Close() }()
	temp := tempPrefix + newID()
	require.NoError(t, w.files.duplicate(good.ID, temp))
	require.NoError(t, w.files.replace(t.Context(), old.ID, good.ID))
	require.NoError(t, w.files.replace(t.Context(), old.ID, good.ID), "once more: two names of one file")
	for _, name := range []string{old.ID, good.ID, temp} {
		text, err := os.ReadFile(filepath.Join(w.dir, name))
		require.NoError(t, err)
		require.Equal(t, "good", string(text))
	}
	before := make([]byte, 3)
	_, err = reader.Read(before)
	require.NoError(t, err)
	require.Equal(t, "old", string(before), "an open file stays what it was")
	require.Len(t, w.stored(), 3)
}

// refusingReader makes nothing of any file, at once.
type refusingReader struct{ lineExtractor }

func (refusingReader) Extract(context.Context, Source, func(int, int), func(Block) error) (Extraction, error) {
	return Extraction{}, Permanent(CodeCorrupt, "Open and save it again.", "no reader can make sense of it")
}

// A reader gives up long before all of a large file is compared with its sum: the user is told what happened to the stored
// file, not to mend a document that is whole. Of a file with its own bytes the reader's word counts.
func TestDamageOfTheStoredFileIsNoFaultOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{true, false} {
		t.Run(fmt.Sprint("damaged=", damaged), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, worldOptions{deps: func(d *Deps) { d.Extractor = refusingReader{} }})
			first := w.upload(strings.Repeat("a line of text\n", 1<<21))
			want := CodeCorrupt
			if damaged {
				w.flip(w.filePaths()[0])
				want = CodeFileDamaged
			}
			task := w.process(first.Task.ID)
			require.Equal(t, taskstate.StatusDead, task.Status)
			require.Equal(t, string(want), task.ErrorCode, task.LastError)
		})
	}
}

// flip changes one byte in the middle of a stored file.
func (w *world) flip(name string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	text, err := os.ReadFile(path)
	require.NoError(w.t, err)
	text[len(text)/2] ^= 1
	require.NoError(w.t, os.WriteFile(path, text, 0o600))
}
