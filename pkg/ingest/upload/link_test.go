package upload_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// harm damages the stored file of an upload: lost, cut, or other bytes of the same length.
func (w *world) harm(how, name string) {
	w.T.Helper()
	path := filepath.Join(w.Dir, name)
	switch how {
	case "lost":
		require.NoError(w.T, os.Remove(path))
	case "cut":
		require.NoError(w.T, os.Truncate(path, 2))
	default:
		bytes, err := os.ReadFile(path)
		require.NoError(w.T, err)
		w.Overwrite(name, strings.Repeat("x", len(bytes)))
	}
}

// base makes a knowledge base and returns its name.
func (w *world) base(name string) string {
	w.T.Helper()
	_, err := w.App.CreateBase(w.T.Context(), w.Caller, name, ingest.BaseSettings{})
	require.NoError(w.T, err)
	return name
}

// rollingBack is a Store whose next accept transactions do all their work and are then rolled back.
type rollingBack struct {
	taskstate.Database
	times  *int
	failed func(args ...any)
	then   func() error // after each rollback; not in the test's goroutine
}

func (s rollingBack) Submit(ctx context.Context, p taskstate.PrepareFunc) ([]taskstate.Task, error) {
	if *s.times == 0 {
		return s.Database.Submit(ctx, p)
	}
	*s.times--
	_, err := s.Database.Submit(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) ([]taskstate.NewTask, error) {
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
				first := w.Upload("one\ntwo\n")
				path := w.filePaths()[0]
				w.harm("cut", path)
				require.Equal(t, taskstate.StatusDead, w.Process(first.Task.ID).Status)
				times := 1
				w.Build(ingesttest.Options{Deps: func(d *ingest.Deps) {
					d.Store = rollingBack{w.Store, &times, t.Error, func() error {
						text, err := os.ReadFile(filepath.Join(w.Dir, path))
						if err == nil && string(text) != "one\ntwo\n" {
							err = fmt.Errorf("the old place holds %q after the rollback", text)
						}
						if err != nil || !swept {
							return err
						}
						if err := w.App.DeleteDocument(t.Context(), w.Caller, first.Document.ID); err != nil {
							return err
						}
						if _, err := w.App.Sweep(t.Context()); err != nil {
							return err
						}
						if _, err := os.Stat(filepath.Join(w.Dir, path)); !errors.Is(err, fs.ErrNotExist) {
							return fmt.Errorf("the deleted document's file is still there: %w", err)
						}
						return nil
					}}
				}})
				again := w.Upload("one\ntwo\n")
				require.Zero(t, times)
				require.Equal(t, swept, first.Document.ID != again.Document.ID)
				require.Equal(t, taskstate.StatusSucceeded, w.Process(again.Task.ID).Status)
				require.Equal(t, []string{"one", "two"}, w.Text(again.Document.ID))
				require.Equal(t, w.filePaths(), w.Stored())
				w.CheckInvariants()
			})
		})
	}
}

// filePaths are the paths of all rows of stored files.
func (w *world) filePaths() []string {
	w.T.Helper()
	out, err := sqldb.ReadTexts(w.T.Context(), w.Store, "SELECT path FROM stored_file ORDER BY id")
	require.NoError(w.T, err)
	return out
}

func TestTheSameBytesAreTakenInAgainWhenTheirFileIsDamaged(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"lost", "cut", "overwritten"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			onEachDatabase(t, func(t *testing.T, w *world) {
				first := w.Upload("one\ntwo\n")
				w.harm(how, w.filePaths()[0])
				require.Equal(t, taskstate.StatusDead, w.Process(first.Task.ID).Status)

				again := w.Upload("one\ntwo\n")
				require.False(t, again.Duplicate)
				require.Equal(t, first.Document.ID, again.Document.ID)
				require.Equal(t, taskstate.StatusSucceeded, w.Process(again.Task.ID).Status)
				require.Equal(t, []string{"one", "two"}, w.Text(first.Document.ID))
				require.Equal(t, w.filePaths(), w.Stored(), "one file, under its old name")
				w.CheckInvariants()
			})
		})
	}
}

// Two processes that accept the same bytes at the same moment make a row and keep a file each: the next upload heals both.
func TestANewUploadHealsEveryFileOfItsBytes(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		w.Upload("one\ntwo\n")
		twin := w.Receive("twin.txt", "one\ntwo\n").ID
		w.Exec("INSERT INTO stored_file SELECT '" + twin + "', user_id, sha256, bytes, original_name, media_type, '" + twin + "', created_at FROM stored_file")
		require.Len(t, w.filePaths(), 2)
		for _, how := range []string{"lost", "cut"} {
			for _, path := range w.filePaths() {
				w.harm(how, path)
			}
			again := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\ntwo\n"), Force: true})
			require.Equal(t, taskstate.StatusSucceeded, w.Process(again.Task.ID).Status)
			require.ElementsMatch(t, w.filePaths(), w.Stored())
			for _, path := range w.filePaths() {
				content, err := os.ReadFile(filepath.Join(w.Dir, path))
				require.NoError(t, err)
				require.Equal(t, "one\ntwo\n", string(content))
			}
		}
	})
}

func TestANewUploadHealsOlderVersions(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		failed := w.Upload("one\ntwo\n")
		w.harm("overwritten", w.filePaths()[0])
		require.Equal(t, taskstate.StatusDead, w.Process(failed.Task.ID).Status)

		elsewhere := w.Accept(ingest.Upload{File: w.Receive("b.txt", "one\ntwo\n"), Base: w.base("elsewhere")})
		require.Equal(t, taskstate.StatusSucceeded, w.Process(elsewhere.Task.ID).Status)
		replayed, err := w.App.Retry(t.Context(), w.Caller, failed.Task.ID)
		require.NoError(t, err)
		require.Equal(t, taskstate.StatusSucceeded, w.Process(replayed.ID).Status, "the old file is whole again")
		require.Equal(t, []string{"one", "two"}, w.Text(failed.Document.ID))
		require.Equal(t, w.filePaths(), w.Stored())
	})
}

func TestADuplicateAndAReplayHealALostFile(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		first := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), IdempotencyKey: "k"})
		w.Process(first.Task.ID)
		w.harm("lost", w.filePaths()[0])
		require.True(t, w.Upload("one\n").Duplicate)
		require.Equal(t, w.filePaths(), w.Stored())

		w.harm("cut", w.filePaths()[0])
		require.True(t, w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), IdempotencyKey: "k"}).Replayed)
		require.Equal(t, w.filePaths(), w.Stored())
		again := w.Accept(ingest.Upload{File: w.Receive("a.txt", "one\n"), Force: true})
		require.Equal(t, taskstate.StatusSucceeded, w.Process(again.Task.ID).Status)
	})
}

func TestAnUploadWhoseOwnCopyIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		swept, kept := w.Receive("a.txt", "one\n"), w.Receive("b.txt", "two\n")
		w.harm("lost", swept.ID)
		_, errs := w.App.AcceptAll(t.Context(), w.Caller, []ingest.Upload{{File: swept}, {File: kept}})
		require.ErrorIs(t, errs[0], ingest.ErrUploadExpired)
		require.NoError(t, errs[1])
		require.Equal(t, 1, w.Number("SELECT COUNT(*) FROM ingest_task"))

		w.harm("lost", kept.ID) // the old one too
		gone := w.Receive("b.txt", "two\n")
		w.harm("lost", gone.ID)
		_, err := w.App.Accept(t.Context(), w.Caller, ingest.Upload{File: gone, Force: true})
		require.ErrorIs(t, err, ingest.ErrUploadExpired)
	})
}

// TestParallelUploadsHealTheirFiles damages the file, or the files, between rounds of uploads of the same bytes into several bases,
// while a sweeper removes deleted documents that link it.
func TestParallelUploadsHealTheirFiles(t *testing.T) {
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
			var uploads []ingest.Upload
			for b := range bases {
				uploads = append(uploads, ingest.Upload{File: w.Receive("a.txt", "the same\n"), Base: fmt.Sprint("b", b), Force: true})
			}
			got, errs := make([]ingest.Accepted, bases), make([]error, bases+1)
			var all sync.WaitGroup
			for b := range bases {
				all.Go(func() { got[b], errs[b] = w.App.Accept(t.Context(), w.Caller, uploads[b]) })
			}
			all.Go(func() { _, errs[bases] = w.App.Sweep(t.Context()) })
			all.Wait()
			require.NoError(t, errors.Join(errs...))
			for _, a := range got {
				require.Equal(t, taskstate.StatusSucceeded, w.Process(a.Task.ID).Status)
				require.Equal(t, []string{"the same"}, w.Text(a.Document.ID))
			}
			require.ElementsMatch(t, w.filePaths(), w.Stored())
			if round%3 == 2 { // the next round meets the sweeper at the last link
				for _, a := range got {
					require.NoError(t, w.App.DeleteDocument(t.Context(), w.Caller, a.Document.ID))
				}
			}
			w.Advance(time.Minute)
		}
	})
}

// refusingReader makes nothing of any file, at once.
type refusingReader struct{ ingesttest.LineExtractor }

func (refusingReader) Extract(context.Context, ingest.Source, func(int, int), func(ingest.Block) error) (ingest.Extraction, error) {
	return ingest.Extraction{}, ingest.Permanent(ingest.CodeCorrupt, "Open and save it again.", "no reader can make sense of it")
}

// A reader gives up long before all of a large file is compared with its sum: the user is told what happened to the stored
// file, not to mend a document that is whole. Of a file with its own bytes the reader's word counts.
func TestDamageOfTheStoredFileIsNoFaultOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{true, false} {
		t.Run(fmt.Sprint("damaged=", damaged), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) { d.Extractor = refusingReader{} }})
			first := w.Upload(strings.Repeat("a line of text\n", 1<<21))
			want := ingest.CodeCorrupt
			if damaged {
				w.flip(w.filePaths()[0])
				want = ingest.CodeFileDamaged
			}
			task := w.Process(first.Task.ID)
			require.Equal(t, taskstate.StatusDead, task.Status)
			require.Equal(t, string(want), task.ErrorCode, task.LastError)
		})
	}
}

// flip changes one byte in the middle of a stored file.
func (w *world) flip(name string) {
	w.T.Helper()
	path := filepath.Join(w.Dir, name)
	text, err := os.ReadFile(path)
	require.NoError(w.T, err)
	text[len(text)/2] ^= 1
	require.NoError(w.T, os.WriteFile(path, text, 0o600))
}
