package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskrun"
)

// faultyExtractor fails as it is told.
type faultyExtractor struct {
	ingesttest.LineExtractor
	err error
}

func (e *faultyExtractor) Extract(context.Context, ingest.Source, func(int, int), func(ingest.Block) error) (ingest.Extraction, error) {
	return ingest.Extraction{}, e.err
}

func TestWhoseFaultItIs(t *testing.T) {
	t.Parallel()
	fault := func(errno syscall.Errno) error {
		return ingest.Transient(ingest.CodeEmbed, "call: %w", &os.SyscallError{Syscall: "socket", Err: errno})
	}
	for name, c := range map[string]struct {
		err     error
		alone   bool
		process bool
		code    ingest.Code
	}{
		"no descriptors":            {err: fault(syscall.EMFILE), process: true},
		"none in the system":        {err: fault(syscall.ENFILE), process: true, alone: true},
		"no memory":                 {err: fault(syscall.ENOMEM), process: true},
		"no space":                  {err: fault(syscall.ENOSPC), process: true},
		"no space although alone":   {err: fault(syscall.ENOSPC), alone: true, code: ingest.CodeLimitExceeded},
		"one file that may not be":  {err: fault(syscall.EACCES), code: ingest.CodeEmbed},
		"one file that is damaged":  {err: fault(syscall.EIO), code: ingest.CodeEmbed},
		"a reader's words":          {err: ingest.Transient(ingest.CodeExtractCrashed, "the reader died: too many open files"), code: ingest.CodeExtractCrashed},
		"a document":                {err: ingest.Permanent(ingest.CodeCorrupt, "", "broken"), code: ingest.CodeCorrupt},
		"said by the reader's pool": {err: fmt.Errorf("%w: start", taskrun.ErrProcess), process: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) { d.Extractor = &faultyExtractor{err: c.err} }})
			job, _ := w.Claim(w.Upload("one\n").Task.ID)
			job.Alone = c.alone
			got := w.Handler.Handle(t.Context(), job).Err
			require.Error(t, got)
			require.Equal(t, c.process, errors.Is(got, taskrun.ErrProcess), "%v", got)
			if !c.process {
				require.Equal(t, c.code, ingest.AsFailure(got).Code)
			}
		})
	}
}

// A fault of rights or of the disk is the process's as soon as it does not see its folder at all.
func TestAFaultOfTheWholeFolder(t *testing.T) {
	t.Parallel()
	w := ingesttest.NewWorld(t, ingesttest.Options{Deps: func(d *ingest.Deps) { d.Extractor = &faultyExtractor{err: syscall.EACCES} }})
	job, _ := w.Claim(w.Upload("one\n").Task.ID)
	require.NoError(t, os.Remove(filepath.Join(w.Dir, files.MarkerName)))
	require.NoError(t, os.Mkdir(filepath.Join(w.Dir, files.MarkerName), 0o700), "a marker that cannot be read")
	require.ErrorIs(t, w.Handler.Handle(t.Context(), job).Err, taskrun.ErrProcess)
	require.Error(t, w.Handler.Fit(t.Context()))
}

// Not parallel: it sets a variable.
func TestATemporaryFolderThatIsNotThere(t *testing.T) {
	w := ingesttest.NewWorld(t, ingesttest.Options{})
	w.Upload("one\n")
	t.Setenv("TMPDIR", "/nowhere/at/all")
	require.ErrorContains(t, w.Handler.Fit(t.Context()), "TMPDIR")
}
