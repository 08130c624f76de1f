package extract

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// A child that could not start for want of resources has read nothing: that is the process's fault, until a
// start succeeds.
func TestAStartThatLacksResourcesIsTheProcesssFault(t *testing.T) {
	t.Parallel()
	p, err := NewPool(NewDefaultConfig(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	require.NoError(t, p.Fit(t.Context()), "nothing is known against it")

	set := sandbox.Setup{MemoryMB: p.cfg.MemoryMB, Sandbox: sandbox.Off}
	other := p.startFailure(t.Context(), errors.New("the child did not start: EOF"), set)
	require.NotErrorIs(t, other, ingest.ErrProcess)
	require.Equal(t, ingest.CodeExtractCrashed, ingest.AsFailure(other).Code)

	lack := fmt.Errorf("start the child: %w", &os.SyscallError{Syscall: "fork", Err: syscall.EAGAIN})
	require.ErrorIs(t, p.startFailure(t.Context(), lack, set), ingest.ErrProcess)
	require.NotNil(t, p.failed)
	require.NoError(t, p.Fit(t.Context()), "a start succeeds now")
	require.Nil(t, p.failed)
}

// What a child says after it was given a document is the document's word, whatever it says.
func TestAChildsVerdictIsNeverTheProcesssFault(t *testing.T) {
	t.Parallel()
	for _, code := range []ingest.Code{ingest.CodeExtractCrashed, ingest.CodeInternal, "OUT_OF_RESOURCES"} {
		err := frame.Verdict{Code: code, Error: syscall.EMFILE.Error()}.Failure()
		require.NotErrorIs(t, err, syscall.EMFILE)
		require.NotErrorIs(t, err, ingest.ErrProcess)
	}
}
