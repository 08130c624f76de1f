package wasm

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest/extract/formats"
)

// What the engine reads, package extract's tests see: it is compiled in children only.
func TestTheProgramIsAReaderOfPDFs(t *testing.T) {
	t.Parallel()
	p, ok := formats.LinkedPDF()
	require.True(t, ok)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := p.Compile(file, 256)
	require.ErrorContains(t, err, "open the cache of the pdf reader")
}

func TestAFileIsReadInBlocks(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcde"), 10_000)
	b := &blockReader{src: bytes.NewReader(data), size: int64(len(data))}
	require.NoError(t, iotest.TestReader(b, data))
	at, err := b.Seek(-5, io.SeekEnd)
	require.NoError(t, err)
	require.Equal(t, int64(len(data)-5), at)
	_, err = b.Seek(-1, io.SeekStart)
	require.Error(t, err)
	short := &blockReader{src: bytes.NewReader(data[:100]), size: 200} // cut off since
	_, err = io.ReadAll(short)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestGuestMemoryGrowsInPlaceUpToItsLimit(t *testing.T) {
	t.Parallel()
	m := newGuestMemory(0, 1<<20)
	first := m.Reallocate(4096)
	require.Len(t, first, 4096)
	first[0] = 7
	grown := m.Reallocate(1 << 20)
	require.Len(t, grown, 1<<20)
	require.Equal(t, &first[0], &grown[0])
	require.Nil(t, m.Reallocate(1<<20+1))
	m.Free()
	m.Free()
}

// A guest that grows leaves room for what the host copies out of it: where Go's heap is refused memory the whole child ends. (A file of
// 31 MB that a PDF carried, read while the machine was busy, brought one there.)
func TestAGuestLeavesRoomForTheHeap(t *testing.T) {
	t.Parallel()
	const limited, roomMB = "MILLWEIR_TEST_LIMITED", 96
	if os.Getenv(limited) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run", "^TestAGuestLeavesRoomForTheHeap$")
		cmd.Env = append(os.Environ(), limited+"=1")
		out, _ := cmd.CombinedOutput()
		require.Contains(t, string(out[:min(len(out), 2000)]), "--- PASS")
		return
	}
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(statm))[5])
	require.NoError(t, err)
	limit := uint64(pages*os.Getpagesize() + roomMB<<20)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: limit, Max: limit}))
	m := newGuestMemory(0, 128<<20)
	require.Len(t, m.Reallocate(40<<20), 40<<20)
	require.Empty(t, m.Reallocate(80<<20), "half of it would have no room")
	require.Len(t, bytes.Clone(m.Reallocate(40 << 20)[:20<<20]), 20<<20)
	m.Free()
}
