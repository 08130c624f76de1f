package child

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

func TestWhoIsAChild(t *testing.T) {
	t.Parallel()
	require.True(t, Is([]string{"millweir", "extract-child"}))
	require.True(t, Is([]string{"millweir", "extract-compile", "/cache"}))
	for _, args := range [][]string{
		nil, {"millweir"}, {"extract-child"}, {"millweir", "dev"}, {"millweir", "extract-child", "x"}, {"millweir", "extract-compile"},
		{"millweir", "--x", "extract-child"},
	} {
		require.False(t, Is(args), "%q", args)
	}
}

// On systems where its parent cannot see a child's memory the child ends by itself, and says why.
func TestAnOvergrownChildEnds(t *testing.T) {
	t.Parallel()
	if os.Getenv("WATCH_SELF") != "" {
		watchSelf(1, os.Getppid())
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAnOvergrownChildEnds$")
	cmd.Env = append(os.Environ(), "WATCH_SELF=1")
	out, err := cmd.CombinedOutput()
	require.ErrorContains(t, err, "signal: killed")
	require.Equal(t, "extract child: the reader took more than 0 MiB of memory\n", string(out))
}

func TestAVerdictSaysHowItEnded(t *testing.T) {
	t.Parallel()
	v := verdictOf(ingest.Extraction{Pages: 3}, nil, true)
	require.Equal(t, 3, v.Extraction.Pages)
	require.Empty(t, v.Code)
	require.True(t, v.Recycle)

	v = verdictOf(ingest.Extraction{}, document.Corrupt("read %s: %w", strings.Repeat("x", 10_000), io.ErrUnexpectedEOF), false)
	require.Equal(t, ingest.CodeCorrupt, v.Code)
	require.True(t, v.Permanent)
	require.NotEmpty(t, v.Remedy)
	require.LessOrEqual(t, len(v.Error), 2000)
	require.False(t, v.Recycle)

	v = verdictOf(ingest.Extraction{}, errors.New("something else"), false)
	require.NotEmpty(t, v.Code)
	require.False(t, v.Permanent)

	_, err := formats.ReadGuarded(t.Context(), &document.Input{MediaType: document.TypeText, Size: 5}, nil) // no file: it panics
	v = verdictOf(ingest.Extraction{}, err, false)
	require.Equal(t, ingest.CodeExtractCrashed, v.Code)
	require.True(t, v.Recycle, "a process that crashed reads no other document")
	require.NotEmpty(t, v.Stack)
	require.LessOrEqual(t, len(v.Stack), 2000)
}

func TestExactlyOneFileComesWithAJob(t *testing.T) {
	t.Parallel()
	file, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	fd := int(file.Fd())
	dup := func() int {
		n, err := unix.Dup(fd)
		require.NoError(t, err)
		return n
	}
	got, err := passedFile(unix.UnixRights(dup()))
	require.NoError(t, err)
	require.NoError(t, got.Close())
	two := []int{dup(), dup()}
	defer func() {
		for _, n := range two {
			require.NoError(t, unix.Close(n))
		}
	}()
	for _, oob := range [][]byte{nil, {1, 2, 3}, unix.UnixRights(two...)} {
		_, err := passedFile(oob)
		require.ErrorContains(t, err, "a job without a file")
	}
}
