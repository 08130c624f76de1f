package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/taskstate"
)

func TestReceiveKeepsAFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	text := strings.Repeat("0123456789", 30_000)
	f, err := w.app.Receive(t.Context(), iotest.OneByteReader(strings.NewReader(text)), "../../etc/pass\x00wd")
	require.NoError(t, err)
	require.Equal(t, "passwd", f.Name)
	require.EqualValues(t, len(text), f.Bytes)
	require.Equal(t, []string{f.ID}, w.stored())
	h, err := w.files.Open(f.ID)
	require.NoError(t, err)
	defer func() { _ = h.Close() }()
	got, err := io.ReadAll(h)
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}

func TestReceiveLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{
		config: func(c *Config) { c.MaxUploadBytes = 100 },
		deps: func(d *Deps) {
			d.Detect = func(head []byte, r io.ReaderAt, size int64, _ string) (string, error) {
				tail := make([]byte, 1)
				if _, err := r.ReadAt(tail, size-1); err != nil {
					return "", err
				}
				if bytes.HasPrefix(head, []byte("MZ")) {
					return "", Permanent(CodeUnsupportedType, "Send text.", "a program")
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
		"too large":  {t.Context(), strings.NewReader(strings.Repeat("x", 101)), func(err error) bool { return errors.Is(err, ErrTooLarge) }},
		"empty":      {t.Context(), strings.NewReader(""), func(err error) bool { return AsFailure(err).Code == CodeEmpty }},
		"broken off": {t.Context(), io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), func(err error) bool { return errors.Is(err, broken) }},
		"program":    {t.Context(), strings.NewReader("MZ..."), func(err error) bool { return AsFailure(err).Code == CodeUnsupportedType }},
		"given up":   {ended, strings.NewReader("x"), func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		_, err := w.app.Receive(c.ctx, c.r, "a.txt")
		require.True(t, c.want(err), "%s: %v", name, err)
		require.Empty(t, w.stored(), name)
	}
	_, err := w.app.Receive(t.Context(), strings.NewReader(strings.Repeat("x", 100)), "a.txt")
	require.NoError(t, err, "exactly the limit")
}

func TestFullDiskIsTold(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, spaceError(syscall.ENOSPC), ErrDiskFull)
	require.ErrorIs(t, spaceError(syscall.EDQUOT), ErrDiskFull)
	require.NotErrorIs(t, spaceError(syscall.EIO), ErrDiskFull)
}

func TestCleanName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"report.pdf": "report.pdf", `C:\docs\report.pdf`: "report.pdf", "/etc/passwd": "passwd", "..": nameless, "": nameless, "a/": nameless,
		"a\x00b\n.txt": "ab.txt", "evil\u202Etxt.exe": "eviltxt.exe", " x ": "x", "\xff.md": "\uFFFD.md", "年報.pdf": "年報.pdf",
	} {
		require.Equal(t, want, CleanName(in), "%q", in)
	}
	long := CleanName(strings.Repeat("長", 400) + ".docx")
	require.Len(t, []rune(long), maxNameChars)
	require.True(t, strings.HasSuffix(long, ".docx"))
}

func FuzzCleanName(f *testing.F) {
	for _, seed := range []string{"a.txt", "../x", "\x00", "a\\b", strings.Repeat("x", 300), "..", "\u202e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out := CleanName(in)
		if out == "" || strings.ContainsAny(out, "/\\\x00\n\r") || len([]rune(out)) > maxNameChars || strings.Trim(out, ".") == "" {
			t.Fatalf("CleanName(%q) = %q", in, out)
		}
	})
}

func TestForeignNamesAreNotOpened(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	for _, name := range []string{"../secret", "/etc/passwd", "", ".", tempPrefix + newID(), strings.Repeat("g", idLength)} {
		_, err := w.files.Open(name)
		require.Error(t, err, name)
	}
	require.Error(t, w.files.remove("../secret"))
	require.NoError(t, w.files.Writable())
}

func TestKeyIsHeldWhileARequestIsReceived(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		release, err := w.app.BeginKey(t.Context(), w.caller, "k")
		require.NoError(t, err)
		_, err = w.app.BeginKey(t.Context(), w.caller, "k")
		require.ErrorIs(t, err, ErrKeyInUse)
		bob := w.caller
		bob.Scope.UserID = "bob"
		other, err := w.app.BeginKey(t.Context(), bob, "k")
		require.NoError(t, err, "keys belong to users")
		other()
		release()
		release, err = w.app.BeginKey(t.Context(), w.caller, "k")
		require.NoError(t, err)
		release()
		require.Zero(t, w.number("SELECT COUNT(*) FROM upload_request"))
	})
}

func TestKeysThatComeTogetherShareATransaction(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, func(t *testing.T, w *world) {
		of := func(user, key string, claim bool) *keyChange {
			return &keyChange{heldKey: heldKey{a: w.app, user: user, key: key, request: newID()}, claim: claim}
		}
		held, old := of("anna", "held", true), of("anna", "old", true)
		require.Equal(t, []error{nil, nil}, w.app.keys.Do(t.Context(), held, old))
		require.NoError(t, w.store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
			_, err := tx.ExecContext(ctx, "UPDATE upload_request SET expires_at = ? WHERE request_key = 'old'", m.Now)
			return err
		}))
		end := &keyChange{heldKey: held.heldKey}
		stranger := of("anna", "taken", false) // of a request that holds nothing
		changes := []*keyChange{
			of("anna", "new", true), of("anna", "new", true), of("bob", "new", true),
			of("anna", "held", true), of("anna", "old", true), end, stranger,
		}
		for _, err := range w.app.keys.Do(t.Context(), changes...) {
			require.NoError(t, err)
		}
		var got []error
		for _, c := range changes {
			got = append(got, c.err)
		}
		require.Equal(t, []error{nil, ErrKeyInUse, nil, nil, nil, nil, nil}, got)
		require.Equal(t, 4, w.number("SELECT COUNT(*) FROM upload_request"))
		require.ErrorIs(t, of("anna", "held", true).do(t.Context(), true), ErrKeyInUse, "the release let the next one in, and no third")
	})
}

// muteStore commits, and loses the answer of the first so many transactions.
type muteStore struct {
	taskstate.Store
	left atomic.Int64
}

func (s *muteStore) InTx(ctx context.Context, f taskstate.TxFunc) error {
	err := s.Store.InTx(ctx, f)
	if err == nil && s.left.Add(-1) >= 0 {
		return fmt.Errorf("in tx: %w", taskstate.ErrOutcomeUnknown)
	}
	return err
}

// A key whose claim or release got no answer must not stay held: the client's repeat would be told 409 until the lease ends.
func TestKeyOfAnUnknownCommitIsNotLeftHeld(t *testing.T) {
	t.Parallel()
	mute := &muteStore{}
	w := newWorld(t, worldOptions{deps: func(d *Deps) { mute.Store = d.Store; d.Store = mute }})
	mute.left.Store(1)
	release, err := w.app.BeginKey(t.Context(), w.caller, "k")
	require.NoError(t, err, "the claim names its request: it can be done twice")
	_, err = w.app.BeginKey(t.Context(), w.caller, "k")
	require.ErrorIs(t, err, ErrKeyInUse)
	release()

	mute.left.Store(100)
	_, err = w.app.BeginKey(t.Context(), w.caller, "k")
	require.ErrorIs(t, err, taskstate.ErrOutcomeUnknown)
	mute.left.Store(0)
	release, err = w.app.BeginKey(t.Context(), w.caller, "k")
	require.NoError(t, err, "what may have been claimed in vain was released")
	release()
	require.Zero(t, w.number("SELECT COUNT(*) FROM upload_request"))
}

// What was paid for is not paid for again because its COMMIT got no answer: the embedding cache's rows can be written twice.
func TestEmbeddingCacheIsWrittenAgainAfterAnUnknownCommit(t *testing.T) {
	t.Parallel()
	mute := &muteStore{}
	w := newWorld(t, worldOptions{deps: func(d *Deps) { mute.Store = d.Store; d.Store = mute }})
	mute.left.Store(2)
	require.NoError(t, w.app.cacheAdd(t.Context(), "m", []embeddingEntry{{hash: textHash{1}, vector: []float32{1, 2}}}))
	require.EqualValues(t, 1, w.number("SELECT COUNT(*) FROM embedding_ledger"))

	over, cancel := context.WithCancel(t.Context())
	cancel()
	mute.left.Store(1)
	require.ErrorIs(t, w.app.cacheAdd(over, "m", []embeddingEntry{{hash: textHash{2}, vector: []float32{1, 2}}}), taskstate.ErrOutcomeUnknown,
		"a run whose time is over tries once")
}

func TestKeyOfADeadRequestIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{})
	k := heldKey{a: w.app, user: "anna", key: "k", request: newID()}
	require.NoError(t, k.do(t.Context(), true))
	w.clock.advance(keyLease + time.Second)
	other := heldKey{a: w.app, user: "anna", key: "k", request: newID()}
	require.NoError(t, other.do(t.Context(), true))
	require.ErrorIs(t, k.do(t.Context(), true), ErrKeyInUse)
	w.clock.advance(keyLease + time.Second)
	require.NoError(t, w.app.sweepKeys(t.Context()))
	require.Zero(t, w.number("SELECT COUNT(*) FROM upload_request"))
}
