package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
)

// noDescriptor is a limit under which no further descriptor can be opened: those of the standard streams are.
const noDescriptor = 3

// limitDescriptors changes a running program's soft limit of descriptors, and returns what sets it back.
func limitDescriptors(t *testing.T, p *program, soft uint64) (restore func()) {
	t.Helper()
	set := func(to *syscall.Rlimit) (was syscall.Rlimit) {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(p.cmd.Process.Pid), syscall.RLIMIT_NOFILE,
			uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(&was)), 0, 0)
		require.Zero(t, errno, "prlimit: %s", errno)
		return was
	}
	was := set(nil)
	set(&syscall.Rlimit{Cur: min(soft, was.Max), Max: was.Max})
	return func() { set(&was) }
}

// watched is a client of a program's operator server; its connection stays open.
func watched(t *testing.T, p *program) *client {
	t.Helper()
	c := newClient(t, p.printed(`"operator":"(http://[^"]+)"`))
	c.get("/healthz").into(t, http.StatusOK, nil)
	return c
}

// unready waits until a program says that it is not ready, for this reason.
func (c *client) unready(why string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		a := c.get("/readyz")
		return a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), why)
	}, waitLimit, 50*time.Millisecond, "not ready because of %q", why)
}

// untouched checks that tasks wait with no attempt counted.
func (c *client) untouched(ids []string) {
	c.t.Helper()
	for _, id := range ids {
		v := c.task(id)
		require.Contains(c.t, []string{"QUEUED", "RUNNING"}, v.Status, "%+v", v)
		require.Zero(c.t, v.AttemptCount, "%+v", v)
	}
}

// unharmed checks that tasks succeed with no attempt counted.
func (c *client) unharmed(ids []string) {
	c.t.Helper()
	for _, id := range ids {
		v := c.ended(id)
		require.Equal(c.t, "SUCCEEDED", v.Status, "%+v", v)
		require.Zero(c.t, v.AttemptCount, "%+v", v)
	}
}

// submit uploads n small documents.
func (c *client) submit(n int) (ids []string) {
	c.t.Helper()
	for i := range n {
		ids = append(ids, c.accepted(fmt.Sprintf("%d.txt", i), []byte("a document about "+rand.Text())).TaskID)
	}
	return ids
}

// faultWorld starts a gateway over a new database; env is for the workers of the test.
func faultWorld(t *testing.T) (api *program, c *client, env []string) {
	t.Helper()
	database := "MYSQL_DSN=" + labserver.MySQLDatabase(t)
	migrate(t, database)
	env = []string{
		database, "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "AUTH_MODE=none",
		"HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads"),
	}
	api = start(t, "ingest-api", env)
	return api, newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`)), env
}

// A worker that does not see the upload folder takes nothing, says so, and harms nothing.
func TestAWorkerWithAnotherUploadFolder(t *testing.T) {
	t.Parallel()
	_, c, env := faultWorld(t)
	blind := filepath.Join(t.TempDir(), "elsewhere")
	worker := watched(t, start(t, "stream-worker", append(env, "UPLOAD_DIR="+blind)))
	worker.unready("has no marker")
	ids := c.submit(20)
	worker.unready("holds none of the files that the database names")
	c.untouched(ids)
	// The right folder is mounted under that name: it goes on by itself.
	var right string
	for _, v := range env {
		if dir, ok := strings.CutPrefix(v, "UPLOAD_DIR="); ok {
			right = dir
		}
	}
	require.NoError(t, os.Rename(blind, blind+"-before"))
	require.NoError(t, os.Symlink(right, blind))
	c.unharmed(ids)
	require.Eventually(t, func() bool { return worker.get("/readyz").status == http.StatusOK }, waitLimit, 50*time.Millisecond)
}

// Descriptors that run out are the process's fault, not the documents'.
func TestAWorkerWithoutDescriptors(t *testing.T) {
	t.Parallel()
	_, c, env := faultWorld(t)
	p := start(t, "stream-worker", env)
	worker := watched(t, p)
	c.unharmed(c.submit(2))
	restore := limitDescriptors(t, p, noDescriptor)
	ids := c.submit(30)
	worker.unready("too many open files")
	c.untouched(ids)
	restore()
	c.unharmed(ids)
	require.Eventually(t, func() bool { return worker.get("/readyz").status == http.StatusOK }, waitLimit, 50*time.Millisecond)
}

func TestAGatewayWithoutDescriptors(t *testing.T) {
	t.Parallel()
	api, c, _ := faultWorld(t)
	c.submit(1)
	restore := limitDescriptors(t, api, noDescriptor)
	a := c.send("late.txt", []byte("there is no descriptor for this"))
	a.refused(t, http.StatusServiceUnavailable, "OUT_OF_RESOURCES")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	restore()
	c.submit(1)
}

// A temporary folder without space is the process's fault; a document that alone is too large for it is the document's.
func TestAWorkerWithoutTemporarySpace(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_NODEV|syscall.MS_NOSUID, "size=2097152,mode=0755"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("a small file system needs CAP_SYS_ADMIN: %v", err)
		}
		t.Skipf("a small file system needs CAP_SYS_ADMIN: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	_, c, env := faultWorld(t)
	p := start(t, "stream-worker", append(env, "TMPDIR="+folder, "INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=0"))
	worker := watched(t, p)
	c.unharmed(c.submit(2))
	ballast := filepath.Join(folder, "ballast")
	fill(t, ballast)
	c.unharmed(c.submit(2)) // short ones need no space
	var ids []string
	for i := range 3 {
		ids = append(ids, c.accepted(fmt.Sprintf("long%d.txt", i), prose(fmt.Sprint("long", i), 400)).TaskID)
	}
	worker.unready("no space left")
	c.untouched(ids)
	require.NoError(t, os.Remove(ballast))
	c.unharmed(ids)

	large := c.accepted("large.txt", prose("large", 6000))
	small := c.submit(5)
	c.unharmed(small)
	v := c.ended(large.TaskID)
	require.Equal(t, "DEAD", v.Status)
	require.Equal(t, "LIMIT_EXCEEDED", v.ErrorCode)
	require.Contains(t, v.ErrorMessage, "TMPDIR")
}

// fill writes a file until there is no space left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	require.True(t, errors.Is(err, syscall.ENOSPC), "%v", err)
	require.NoError(t, f.Close())
}

// What is refused while the database is away leaves no file behind, and is not even received once that is known.
func TestUploadsBesideALostDatabase(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	db := labserver.Private(t, labserver.KindPostgres, labserver.Options{})
	require.NoError(t, db.SQL(ctx, "", "CREATE DATABASE lost"))
	database, folder := "DATABASE_URL="+db.URL("lost"), filepath.Join(t.TempDir(), "uploads")
	migrate(t, database)
	api := start(t, "ingest-api", []string{
		database, "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "AUTH_MODE=none",
		"HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + folder,
	})
	c := newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
	c.submit(1)
	require.NoError(t, db.Stop(ctx))
	for range 20 {
		a := c.send("lost.txt", []byte("nobody will have this: "+rand.Text()))
		a.refused(t, http.StatusServiceUnavailable, "UNAVAILABLE")
		require.NotEmpty(t, a.header.Get("Retry-After"))
	}
	require.Len(t, storedFiles(t, folder), 1)
	require.NoError(t, db.Restart(ctx))
	eventually(t, "uploads are taken again", func() bool {
		return c.send("back.txt", []byte("the database is back")).status == http.StatusAccepted
	})
	require.Len(t, storedFiles(t, folder), 2)
}

// storedFiles lists an upload folder without its own files.
func storedFiles(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names
}

// One byte of a stored file changes on disk, its length does not. The next run on it says so and indexes nothing of it, what was
// visible stays, and the next upload of the same bytes takes its place.
func TestAByteThatChangedOnDiskIsHealedByTheSameUpload(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "uploads")
	_, c := startDev(t, "UPLOAD_DIR="+folder)
	content := prose("ambergris", 5)
	first := c.ingested("a.txt", content)
	text := c.segments(first.DocumentID)
	stored := filepath.Join(folder, storedFiles(t, folder)[0])
	damaged := bytes.Replace(content, []byte("ambergris"), []byte("ambergrit"), 1)
	require.NoError(t, os.WriteFile(stored, damaged, 0o600))

	again := c.ended(c.accepted("a.txt", content, "force", "true").TaskID)
	require.Equal(t, "DEAD", again.Status)
	require.Equal(t, "FILE_DAMAGED", again.ErrorCode)
	require.Contains(t, again.ErrorMessage, "Upload the file again.")
	require.Equal(t, text, c.segments(first.DocumentID))

	healed := c.ingested("a.txt", content)
	require.Equal(t, first.DocumentID, healed.DocumentID)
	require.Equal(t, text, c.segments(first.DocumentID))
	onDisk, err := os.ReadFile(stored)
	require.NoError(t, err)
	require.Equal(t, content, onDisk)
	require.Len(t, storedFiles(t, folder), 1)
}
