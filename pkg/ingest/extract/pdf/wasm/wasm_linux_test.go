package wasm

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

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
