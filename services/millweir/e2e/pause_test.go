package e2e

import (
	"net/http"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore"
)

// pausedLease is long enough for a busy machine to wake two processes within half of it.
const pausedLease = 6 * time.Second

// paused is a gateway with workers, one of which holds a task that waits for the embedding service for longer than a lease.
type paused struct {
	*client
	env    []string
	embed  *embedtest.Server
	store  *taskstore.Store
	holder *program
	id     string
}

// pausable starts them.
func pausable(t *testing.T) *paused {
	t.Helper()
	dsn := labserver.MySQLDatabase(t)
	migrate(t, "MYSQL_DSN="+dsn)
	embed := embedtest.Start(t, embedtest.Options{})
	p := &paused{embed: embed, env: []string{
		"MYSQL_DSN=" + dsn, "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""),
		"EMBEDDING_BASE_URL=" + embed.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai", "INGEST_LEASE_MS=" + strconv.FormatInt(pausedLease.Milliseconds(), 10), "AUTH_MODE=none",
		"HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads"), "INGEST_STOP_GRACE_MS=100",
	}}
	var err error
	p.store, err = taskstore.Open(t.Context(), taskstore.Config{MySQLDSN: dsn})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.store.Close()) })
	api := start(t, "ingest-api", p.env)
	p.client = newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
	p.holder = start(t, "stream-worker", p.env)
	embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: pausedLease + 4*time.Second})
	p.id = p.accepted("a.txt", prose("obsidian", 1)).TaskID
	eventually(t, "the worker has it", func() bool { row, _ := p.row(); return row.Status == taskstate.StatusRunning })
	return p
}

// row is the task's row and whether its lease is over, by the database's clock.
func (p *paused) row() (row taskstate.Task, expired bool) {
	p.t.Helper()
	m, err := p.store.Moment(p.t.Context())
	require.NoError(p.t, err)
	row, err = p.store.Get(p.t.Context(), taskstate.System(), p.id)
	require.NoError(p.t, err)
	return row, row.Status == taskstate.StatusRunning && !row.LeaseExpiresAt().After(m.Now)
}

// stand stops processes until the task's lease is over, and wakes them in that order.
func (p *paused) stand(all ...*program) {
	p.t.Helper()
	for _, one := range all {
		require.NoError(p.t, one.cmd.Process.Signal(syscall.SIGSTOP))
	}
	eventually(p.t, "the lease is over", func() bool { _, expired := p.row(); return expired })
	for _, one := range all {
		require.NoError(p.t, one.cmd.Process.Signal(syscall.SIGCONT))
	}
}

// ends lets the task come to its end and looks at what it cost.
func (p *paused) ends(fence int64, crashes int) {
	p.t.Helper()
	require.Equal(p.t, "SUCCEEDED", p.ended(p.id).Status)
	p.embed.Clear()
	row, _ := p.row()
	require.Equal(p.t, []any{fence, crashes, 0}, []any{row.Fence, row.CrashCount, row.AttemptCount}, "fence, crashes, attempts")
	var log struct {
		Items []struct {
			Reason string `json:"reason"`
		} `json:"items"`
	}
	p.get(tasks+"/"+p.id+"/transitions").into(p.t, http.StatusOK, &log)
	taken := 0
	for _, tr := range log.Items {
		if tr.Reason == "TAKEOVER" {
			taken++
		}
	}
	require.Equal(p.t, crashes, taken)
}

// Design D6: a worker that stood still for longer than its lease asks whether it still holds its task, and goes on: no crash.
func TestAPausedWorkerGoesOn(t *testing.T) {
	t.Parallel()
	p := pausable(t)
	p.stand(p.holder)
	eventually(t, "the lease is revived", func() bool { _, expired := p.row(); return !expired })
	p.ends(1, 0)
	require.Contains(t, p.holder.printed(`"(runner: the process stood still[^"]*)"`), "asks")
}

// A laptop sleeps: all workers stand still, and one that holds nothing is awake first. Nobody takes anything over.
func TestWorkersThatSleptTogetherTakeNothingOver(t *testing.T) {
	t.Parallel()
	p := pausable(t)
	other := start(t, "stream-worker", p.env)
	other.printed(`"(runner: started)"`)
	p.stand(other, p.holder)
	eventually(t, "the lease is revived", func() bool { _, expired := p.row(); return !expired })
	p.ends(1, 0)
}

// One of two workers stands still: the other one takes its task over, which is one crash. The woken one changes nothing and works on.
func TestAPausedWorkerBesideAnotherStops(t *testing.T) {
	t.Parallel()
	p := pausable(t)
	other := start(t, "stream-worker", p.env)
	other.printed(`"(runner: started)"`)
	require.NoError(t, p.holder.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(t, "the other worker has it", func() bool { row, _ := p.row(); return row.Fence == 2 })
	require.NoError(t, p.holder.cmd.Process.Signal(syscall.SIGCONT))
	p.holder.printed(`"(runner: the process stood still[^"]*)"`)
	p.ends(2, 1)
	other.stop()
	require.Equal(t, "SUCCEEDED", p.ended(p.accepted("b.txt", prose("gneiss", 1)).TaskID).Status, "it works on")
}
