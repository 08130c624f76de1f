package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoadRepeatsWhatBrokeOffAndRemembersWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	keys := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		keys <- r.Header.Get("Idempotency-Key")
		switch calls.Add(1) {
		case 1:
			w.Header().Set("Retry-After", "0.01")
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable) // rude
		case 3:
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"taskId":"t1"}`)
		case 4:
			w.WriteHeader(http.StatusConflict)
		default:
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	r := Load{Target: NewClient(server.URL), Clients: 1, Count: 3, First: 7, Bytes: 100}.Run(t.Context())
	require.Equal(t, []string{"lab-7", "lab-7", "lab-7"}, []string{<-keys, <-keys, <-keys})
	require.Len(t, r.Accepted, 1)
	require.Equal(t, "report-7.txt", r.Accepted["t1"].Name)
	require.Equal(t, []int{2, 1, 1, 1, 0}, []int{r.Busy, r.Rude, r.Conflicts, len(r.Maybe), r.Unknown})
	require.Equal(t, map[int]int{http.StatusTeapot: 1}, r.Other)
}

func TestLoadWithoutAnAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	target := NewClient("http://"+FreeAddr()).As("", "", func(Call) { cancel() }) // after its first request
	l := Load{Target: target, Clients: 1, Bytes: 100}
	r := l.Run(ctx)
	require.Empty(t, r.Accepted)
	require.Len(t, r.Maybe, 1)
	require.Positive(t, r.Unknown)
}

func TestTextsDiffer(t *testing.T) {
	t.Parallel()
	a, b := Text(1, 10_000), Text(2, 10_000)
	require.Equal(t, a, Text(1, 10_000))
	require.NotEqual(t, a.Body, b.Body)
	require.Contains(t, string(a.Body), a.Mark)
	require.NotContains(t, string(b.Body), a.Mark)
	require.InDelta(t, 10_000, len(a.Body), 200)
}

func TestUntilTellsTheLastReason(t *testing.T) {
	t.Parallel()
	reason := errors.New("not yet")
	err := Until(t.Context(), 20*time.Millisecond, time.Millisecond, func(context.Context) error { return reason })
	require.ErrorIs(t, err, ErrTimeout)
	require.ErrorIs(t, err, reason)
	require.NoError(t, Until(t.Context(), time.Second, time.Millisecond, func(context.Context) error { return nil }))
}

// onlyChild waits until a process has one child.
func onlyChild(t *testing.T, p *Proc) (pid int) {
	t.Helper()
	require.NoError(t, Until(t.Context(), time.Minute, time.Millisecond, func(context.Context) error {
		all := Children(p.PID)
		if len(all) != 1 {
			return fmt.Errorf("%d children", len(all))
		}
		pid = all[0]
		return nil
	}))
	return pid
}

func TestProcessesAreSeenKilledAndStopped(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "p.log")
	p, err := spawn("sleeper", "/bin/sh", []string{"-c", "echo hello; sleep 60 & wait"}, os.Environ(), dir, log)
	require.NoError(t, err)
	child := onlyChild(t, p)
	require.Equal(t, "hello", p.Tail(1), "said before the child was made")
	require.Positive(t, p.Memory().Sum())
	require.Len(t, p.Memory().Children, 1)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	p.Kill()
	require.True(t, p.Exited())
	require.ErrorIs(t, p.Signal(syscall.SIGTERM), ErrExited)
	require.ErrorIs(t, p.AwaitReady(t.Context(), time.Second), ErrExited)
	q, err := spawn("polite", "/bin/sh", []string{"-c", "trap 'exit 3' TERM; while :; do sleep 0.01; done"}, os.Environ(), dir, log)
	require.NoError(t, err)
	code, err := q.Stop(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Contains(t, []int{3, -1}, code) // -1: the signal came before the trap
}

// A process that is just being forked belongs to its parent; one whose parent has died belongs to nobody.
func TestStraysAreChildrenThatOutlivedTheirParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log := filepath.Join(dir, "p.log")
	forks, err := spawn("forks", "/bin/sh", []string{"-c", "while :; do (:); done"}, os.Environ(), dir, log)
	require.NoError(t, err)
	t.Cleanup(forks.Kill)
	w := &World{Dir: dir, procs: []*Proc{forks}}
	for range 100 {
		require.Empty(t, w.strays())
	}
	leaves, err := spawn("leaves", "/bin/sh", []string{"-c", "sleep 600 & wait"}, os.Environ(), dir, log)
	require.NoError(t, err)
	w.procs = append(w.procs, leaves)
	child := onlyChild(t, leaves)
	kill := sync.OnceFunc(func() { _ = syscall.Kill(child, syscall.SIGKILL) }) // later the pid may be another's
	t.Cleanup(kill)
	require.NoError(t, w.NoStrays(t.Context()))
	leaves.Kill()
	found := w.strays()
	require.Len(t, found, 1)
	require.Contains(t, found[0], "sleep 600")
	kill()
	require.NoError(t, w.NoStrays(t.Context()), "the kernel needs a moment to bury it")
}
