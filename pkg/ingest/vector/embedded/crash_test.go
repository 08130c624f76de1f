package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
)

// childDir, when set, makes this test binary the process that is killed.
const childDir = "MILLWEIR_TEST_VECTOR_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		work := writeUntilKilled
		if os.Getenv(childDir+"_CHILD") != "" {
			work = leaveAChild
		}
		if err := work(dir); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	crashBase    = "crash"
	crashBatch   = 7
	crashWorkers = 4
)

// writeUntilKilled writes batch after batch in four goroutines, deletes every third again, and says on stdout what was
// acknowledged: "put <first row>" or "del <first row>".
func writeUntilKilled(dir string) error {
	store, err := embedded.Open(dir, embedded.Options{CompactBytes: 20_000})
	if err != nil {
		return err
	}
	from, _ := strconv.Atoi(os.Getenv(childDir + "_FROM"))
	var group sync.WaitGroup
	errs := make(chan error, crashWorkers)
	for worker := range crashWorkers {
		group.Go(func() {
			for n := from + worker; ; n += crashWorkers {
				rows := vectortest.RandomRows(n*crashBatch, (n+1)*crashBatch, 16, "v1")
				if err := store.Upsert(context.Background(), crashBase, rows); err != nil {
					errs <- err
					return
				}
				fmt.Println("put", n)
				if n%3 != 0 {
					continue
				}
				fmt.Println("deleting", n)
				if err := store.Delete(context.Background(), crashBase, ids(rows)); err != nil {
					errs <- err
					return
				}
				fmt.Println("del", n)
			}
		})
	}
	group.Wait()
	return <-errs
}

func ids(rows []ingest.Vector) []string {
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = row.ID
	}
	return out
}

// The promise of the package: what was acknowledged is there after kill -9, each call as a whole or not at all.
func TestKill9KeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	state := map[int]string{} // batch → last word about it
	for round := range 8 {
		killOne(t, dir, round*100_000, time.Duration(20+35*round)*time.Millisecond, state)
		store, err := embedded.Open(dir, embedded.Options{})
		require.NoError(t, err)
		for n, word := range state {
			rows := vectortest.RandomRows(n*crashBatch, (n+1)*crashBatch, 16, "v1")
			present, err := store.Get(t.Context(), crashBase, ids(rows), false)
			require.NoError(t, err)
			require.Contains(t, []int{0, crashBatch}, len(present), "batch %d is torn", n)
			switch word {
			case "put":
				require.Len(t, present, crashBatch, "batch %d was acknowledged and is lost", n)
			case "del":
				require.Empty(t, present, "batch %d was deleted and is back", n)
			}
		}
		require.NoError(t, store.Close())
	}
	require.Greater(t, len(state), 20, "the child must have got somewhere")
}

// killOne runs a child, kills it after it has worked for a while, and notes what it said.
func killOne(t *testing.T, dir string, from int, work time.Duration, state map[int]string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, childDir+"_FROM="+strconv.Itoa(from))
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	var kill *time.Timer
	for said := 1; lines.Scan(); said++ {
		if kill == nil && said == 10 { // it has got somewhere, also on a machine that stalls
			kill = time.AfterFunc(work, func() { _ = child.Process.Kill() })
		}
		var word string
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "%s %d", &word, &n); err == nil {
			state[n] = word
		} else {
			require.NotContains(t, lines.Text(), "error")
		}
	}
	require.NotNil(t, kill, "the child ended by itself")
	require.Error(t, child.Wait(), "it must have been killed")
}

// One record is torn at every byte: the calls before it are there, it is not, and the store writes on.
func TestTornTailIsCutAtEveryByte(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(dir, embedded.Options{})
	require.NoError(t, err)
	rows := vectortest.RandomRows(0, 6, 3, "v1")
	require.NoError(t, store.Upsert(t.Context(), "b1", rows[:3]))
	path := filepath.Join(dir, vector.CollectionName("b1")+".vec")
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, store.Upsert(t.Context(), "b1", rows[3:]))
	require.NoError(t, store.Close())
	both, err := os.ReadFile(path)
	require.NoError(t, err)

	for size := len(whole); size < len(both); size++ {
		for name, tail := range map[string][]byte{
			"short":   both[:size],
			"zeroed":  append(slices.Clone(both[:size]), make([]byte, len(both)-size)...),
			"longer":  append(slices.Clone(both[:size]), make([]byte, 5000)...),
			"garbage": append(slices.Clone(both[:size]), 0xff, 0x7f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13),
		} {
			require.NoError(t, os.WriteFile(path, tail, 0o600))
			store, err := embedded.Open(dir, embedded.Options{})
			require.NoError(t, err)
			listed, err := store.List(t.Context(), "b1", 0, 10)
			require.NoError(t, err, "%s at %d", name, size)
			// The last values may be zero bytes themselves: then nothing was torn.
			require.Contains(t, []int{3, 6}, len(listed), "%s at %d", name, size)
			require.NoError(t, store.Upsert(t.Context(), "b1", rows[5:]))
			require.NoError(t, store.Close())
			store, err = embedded.Open(dir, embedded.Options{})
			require.NoError(t, err)
			present, err := store.Get(t.Context(), "b1", ids(rows[5:]), false)
			require.NoError(t, err)
			require.Len(t, present, 1, "%s at %d: written after the cut", name, size)
			require.NoError(t, store.Close())
		}
	}
}

// A damaged record with whole ones behind it is no crash: nothing may be thrown away in silence.
func TestDamageInTheMiddleIsReported(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(dir, embedded.Options{})
	require.NoError(t, err)
	for n := range 5 {
		require.NoError(t, store.Upsert(t.Context(), "b1", vectortest.RandomRows(n, n+1, 3, "v1")))
	}
	require.NoError(t, store.Close())
	path := filepath.Join(dir, vector.CollectionName("b1")+".vec")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, at := range []int{3, 14, 16, 21, 25, 40, len(content) / 2} {
		broken := slices.Clone(content)
		broken[at] ^= 0x10
		require.NoError(t, os.WriteFile(path, broken, 0o600))
		store, err := embedded.Open(dir, embedded.Options{})
		require.NoError(t, err)
		_, err = store.List(t.Context(), "b1", 0, 10)
		require.ErrorIs(t, err, embedded.ErrDamaged, "byte %d", at)
		require.NotEmpty(t, ingest.AsFailure(err).Remedy)
		onDisk, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, broken, onDisk, "evidence is kept")
		require.NoError(t, store.Upsert(t.Context(), "other", vectortest.RandomRows(0, 1, 3, "v1")), "other bases go on")
		require.NoError(t, store.Drop(t.Context(), "b1"))
		require.NoError(t, store.Upsert(t.Context(), "b1", vectortest.RandomRows(0, 1, 3, "v1")), "it can be made anew")
		require.NoError(t, store.Close())
	}
}

func TestCompactionBoundsTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(dir, embedded.Options{CompactBytes: 10_000})
	require.NoError(t, err)
	rows := vectortest.RandomRows(0, 100, 16, "v1")
	query := vectortest.RandomRows(7, 8, 16, "q")[0].Values
	var want []ingest.Hit
	for range 60 {
		require.NoError(t, store.Upsert(t.Context(), "b1", rows))
		require.NoError(t, store.Delete(t.Context(), "b1", ids(rows[50:])))
		hits, err := store.Query(t.Context(), "b1", query, 100, nil)
		require.NoError(t, err)
		if want == nil {
			want = hits
		}
		require.Equal(t, want, hits, "a rewrite changes no value")
	}
	path := filepath.Join(dir, vector.CollectionName("b1")+".vec")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(4*100*(64+64+7+80)), "60 rounds must not leave 60 rounds of bytes")
	require.NoError(t, store.Close())
	_, err = os.Stat(path + ".tmp")
	require.ErrorIs(t, err, os.ErrNotExist)

	// A crash in the middle of a rewrite leaves a temporary file; the old one counts.
	require.NoError(t, os.WriteFile(path+".tmp", []byte("half"), 0o600))
	store, err = embedded.Open(dir, embedded.Options{})
	require.NoError(t, err)
	hits, err := store.Query(t.Context(), "b1", query, 100, nil)
	require.NoError(t, err)
	require.Equal(t, want, hits)
	_, err = os.Stat(path + ".tmp")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, store.Close())
}

func TestOneProcessAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := embedded.Open(dir, embedded.Options{})
	require.NoError(t, err)
	_, err = embedded.Open(dir, embedded.Options{})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.NoError(t, store.Close())
	require.NoError(t, store.Close(), "twice is fine")
	again, err := embedded.Open(dir, embedded.Options{})
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.ErrorIs(t, again.Ping(t.Context()), embedded.ErrClosed)
	err = again.Upsert(t.Context(), "b", vectortest.RandomRows(0, 1, 3, "v"))
	require.ErrorIs(t, err, embedded.ErrClosed)
	require.Equal(t, ingest.CodeVector, ingest.AsFailure(err).Code)
}

// kept is what leaveAChild must not lose: a file that is collected is closed, and the lock goes with it.
var kept struct {
	store *embedded.Store
	child *exec.Cmd
}

// leaveAChild opens the store, starts a process that has its files, as one has that is between fork and exec, and waits to be killed.
func leaveAChild(dir string) error {
	var err error
	if kept.store, err = embedded.Open(dir, embedded.Options{}); err != nil {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	child := exec.Command("cat")
	child.Stdin = os.Stdin
	for _, e := range entries {
		n, _ := strconv.Atoi(e.Name())
		if path, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(path, dir) {
			child.ExtraFiles = append(child.ExtraFiles, os.NewFile(uintptr(n), path))
		}
	}
	if len(child.ExtraFiles) == 0 {
		return errors.New("it has no file open")
	}
	if err := child.Start(); err != nil {
		return err
	}
	kept.child = child
	runtime.GC()
	runtime.GC() // runs what the first has found
	fmt.Println("put 0")
	// Not a select without cases: Go ends a process of which all goroutines wait.
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// The lock goes with its process, also when a child of it lives on with its files.
func TestTheLockGoesWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir, childDir+"_CHILD=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe() // it and its child end with it
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	require.Equal(t, "put 0", lines.Text())
	_, err = embedded.Open(dir, embedded.Options{})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.NoError(t, child.Process.Kill())
	_, err = child.Process.Wait()
	require.NoError(t, err)
	store, err := embedded.Open(dir, embedded.Options{})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.NoError(t, in.Close())
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.TempDir(), embedded.Options{MaxBytes: 4 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	for n := 0; ; n += 100 {
		require.Less(t, n, 20_000, "the limit was never met")
		if err = store.Upsert(t.Context(), "b", vectortest.RandomRows(n, n+100, 64, "v")); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, embedded.ErrFull)
	require.Contains(t, ingest.AsFailure(err).Remedy, "VECTOR_STORE=chroma")
	// Room that is given back can be used.
	require.NoError(t, store.Drop(t.Context(), "b"))
	require.NoError(t, store.Upsert(t.Context(), "b", vectortest.RandomRows(0, 100, 64, "v")))
}

// A writer that gives up must not leave the store or the others waiting.
func TestCallerThatGivesUp(t *testing.T) {
	t.Parallel()
	store, err := embedded.Open(t.TempDir(), embedded.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	var group sync.WaitGroup
	for n := range 40 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*20*time.Microsecond)
			defer cancel()
			err := store.Upsert(ctx, "b", vectortest.RandomRows(10*n, 10*n+10, 8, "v"))
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	require.NoError(t, store.Upsert(t.Context(), "b", vectortest.RandomRows(9000, 9001, 8, "v")))
	listed, err := store.List(t.Context(), "b", 0, 1000)
	require.NoError(t, err)
	require.Equal(t, 1, len(listed)%10, "each call as a whole or not at all")
}

func BenchmarkQuery20k384(b *testing.B) {
	store, err := embedded.Open(b.TempDir(), embedded.Options{})
	require.NoError(b, err)
	rows := vectortest.RandomRows(0, 20_000, 384, "v")
	for part := range slices.Chunk(rows, 1000) {
		require.NoError(b, store.Upsert(b.Context(), "b", part))
	}
	query := rows[77].Values
	for b.Loop() {
		hits, err := store.Query(b.Context(), "b", query, 10, nil)
		require.NoError(b, err)
		require.Len(b, hits, 10)
	}
	b.StopTimer()
	require.NoError(b, store.Close())
}

func BenchmarkUpsert(b *testing.B) {
	store, err := embedded.Open(b.TempDir(), embedded.Options{})
	require.NoError(b, err)
	rows := vectortest.RandomRows(0, 64, 384, "v")
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			require.NoError(b, store.Upsert(b.Context(), "b", rows))
		}
	})
	b.ReportMetric(float64(b.N)*64/b.Elapsed().Seconds(), "rows/s")
	require.NoError(b, store.Close())
}
