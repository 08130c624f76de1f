package upload_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/files"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/upload"
)

func TestReceiveKeepsAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	text := strings.Repeat("0123456789", 30_000)
	f, err := w.App.Receive(t.Context(), iotest.OneByteReader(strings.NewReader(text)), "../../etc/pass\x00wd")
	require.NoError(t, err)
	require.Equal(t, "passwd", f.Name)
	require.EqualValues(t, len(text), f.Bytes)
	require.Equal(t, []string{f.ID}, w.Stored())
	h, err := w.Files.Open(f.ID)
	require.NoError(t, err)
	defer func() { _ = h.Close() }()
	got, err := io.ReadAll(h)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func TestReceiveLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{
		Config: func(c *ingest.Config) { c.MaxUploadBytes = 100 },
		Deps: func(d *ingest.Deps) {
			d.Detect = func(head []byte, r io.ReaderAt, size int64, _ string) (string, error) {
				tail := make([]byte, 1)
				if _, err := r.ReadAt(tail, size-1); err != nil {
					return "", err
				}
				if bytes.HasPrefix(head, []byte("MZ")) {
					return "", ingest.Permanent(ingest.CodeUnsupportedType, "Send text.", "a program")
				}
				return "text/plain", nil
			}
		},
	})
	broken := errors.New("connection reset")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		want func(error) bool
	}{
		"too large":  {t.Context(), strings.NewReader(strings.Repeat("x", 101)), func(err error) bool { return errors.Is(err, ingest.ErrTooLarge) }},
		"empty":      {t.Context(), strings.NewReader(""), func(err error) bool { return ingest.AsFailure(err).Code == ingest.CodeEmpty }},
		"broken off": {t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), func(err error) bool { return errors.Is(err, broken) }},
		"program":    {t.Context(), strings.NewReader("MZ..."), func(err error) bool { return ingest.AsFailure(err).Code == ingest.CodeUnsupportedType }},
		"given up":   {ended, strings.NewReader("x"), func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		_, err := w.App.Receive(c.ctx, c.r, "a.txt")
		require.True(t, c.want(err), "%s: %v", name, err)
		require.Empty(t, w.Stored(), name)
	}
	_, err := w.App.Receive(t.Context(), strings.NewReader(strings.Repeat("x", 100)), "a.txt")
	require.NoError(t, err, "exactly the limit")
}

func TestFullDiskIsTold(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, files.SpaceError(syscall.ENOSPC), ingest.ErrDiskFull)
	require.ErrorIs(t, files.SpaceError(syscall.EDQUOT), ingest.ErrDiskFull)
	require.NotErrorIs(t, files.SpaceError(syscall.EIO), ingest.ErrDiskFull)
}

func TestCleanName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"report.pdf": "report.pdf", `C:\docs\report.pdf`: "report.pdf", "/etc/passwd": "passwd", "..": upload.Nameless, "": upload.Nameless, "a/": upload.Nameless,
		"a\x00b\n.txt": "ab.txt", "evil\u202Etxt.exe": "eviltxt.exe", " x ": "x", "\xff.md": "\uFFFD.md", "年報.pdf": "年報.pdf",
	} {
		require.Equal(t, want, upload.CleanName(in), "%q", in)
	}
	long := upload.CleanName(strings.Repeat("長", 400) + ".docx")
	require.Len(t, []rune(long), upload.MaxNameChars)
	require.True(t, strings.HasSuffix(long, ".docx"))
}

func FuzzCleanName(f *testing.F) {
	for _, seed := range []string{"a.txt", "../x", "\x00", "a\\b", strings.Repeat("x", 300), "..", "\u202e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := upload.CleanName(in)
		if out == "" || strings.ContainsAny(out, "/\\\x00\n\r") || len([]rune(out)) > upload.MaxNameChars || strings.Trim(out, ".") == "" {
			t.Fatalf("CleanName(%q) = %q", in, out)
		}
	})
}

func TestForeignNamesAreNotOpened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, ingesttest.Options{})
	for _, name := range []string{"../secret", "/etc/passwd", "", ".", files.TempPrefix + ingest.NewID(), strings.Repeat("g", 36)} {
		_, err := w.Files.Open(name)
		require.Error(t, err, name)
	}
	require.Error(t, w.Files.Remove("../secret"))
	require.NoError(t, w.Files.Writable())
}
