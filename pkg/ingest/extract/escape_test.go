package extract

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

// typeHostile is read by a reader that does what its document says, as if an attacker had taken the child
// over.
const typeHostile = "application/x-hostile"

// registerHostile adds it; TestMain does so in the child too, since a child is the same program.
func registerHostile() {
	formats.Registry = append(formats.Registry, formats.Reader{Name: "hostile", Version: 1, Types: []string{typeHostile}, Read: readHostile})
}

// readHostile tries one thing and says how it went: "refused: …" or "done: …".
func readHostile(_ context.Context, in *document.Input, out *document.Sink) (ingest.Extraction, error) {
	order, err := io.ReadAll(in.Stream())
	if err != nil {
		return ingest.Extraction{}, err
	}
	what, arg, _ := strings.Cut(string(order), " ")
	result := "done: " + what
	if err := hostile(what, arg, out); err != nil {
		result = "refused: " + err.Error()
	}
	return ingest.Extraction{}, out.Block(ingest.Block{Kind: ingest.BlockParagraph, Text: result})
}

var ballast [][]byte

func hostile(what, arg string, out *document.Sink) error {
	switch what {
	case "read":
		_, err := os.ReadFile(arg)
		return err
	case "list":
		_, err := os.ReadDir(arg)
		return err
	case "create":
		f, err := os.Create(arg)
		if err == nil {
			_ = f.Close()
		}
		return err
	case "fill":
		return os.WriteFile(arg, []byte("x"), 0o600)
	case "remove":
		return os.Remove(arg)
	case "connect":
		conn, err := net.DialTimeout("tcp", arg, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err
	case "udp":
		_, err := net.Dial("udp", arg)
		return err
	case "unix":
		_, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		return err
	case "exec":
		return exec.Command(arg).Run()
	case "replace":
		return syscall.Exec(arg, []string{arg}, nil)
	case "bomb":
		return forkBomb()
	case "threads":
		crowd()
	case "code":
		_, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		return err
	case "mount":
		return unix.Mount("tmpfs", arg, "tmpfs", 0, "")
	case "owner":
		_, err := unix.FcntlInt(uintptr(childConnection()), unix.F_SETOWN, 1)
		return err
	case "ptrace":
		if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, number(arg), 0, 0, 0, 0); errno != 0 {
			return errno
		}
	case "kill":
		return syscall.Kill(int(number(arg)), 0)
	case "raise":
		return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	case "environment":
		if len(os.Environ()) > 0 {
			return nil
		}
		return errors.New("there is none")
	case "allocate":
		for range 4096 {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			ballast = append(ballast, block)
		}
	case "overflow":
		return fmt.Errorf("%d", overflow(1))
	case "panic":
		panic("as ordered")
	case "sleep":
		<-time.After(time.Hour)
	case "spin":
		for n := 0; ; n++ {
			ballast = ballast[:0]
		}
	case "flood":
		for {
			if err := out.Emit(ingest.Block{Kind: ingest.BlockParagraph, Text: strings.Repeat("x", 60<<10)}); err != nil {
				return err
			}
		}
	case "shout":
		for range 1 << 8 { // a pipe's fill each: each may cost a turn of both processes
			_, _ = os.Stderr.Write(make([]byte, 64<<10))
		}
	case "progress":
		fd := childConnection()
		for n := range 1 << 14 {
			frame := append([]byte{frame.KindProgress, 0, 0, 0, 8}, frame.EncodeProgress(n, 1<<14)...)
			for len(frame) > 0 {
				written, _ := unix.Write(fd, frame) // less, or nothing, while the parent is behind
				frame = frame[max(written, 0):]
			}
		}
	case "garbage":
		_, _ = unix.Write(childConnection(), []byte(strings.Repeat("\xff", 4096)))
		<-time.After(time.Hour)
	case "exit":
		os.Exit(3)
	}
	return nil
}

// forkBomb makes processes until the system refuses.
func forkBomb() error {
	for range 64 {
		if pid, _, errno := unix.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0); errno != 0 {
			return errno
		} else if pid == 0 {
			unix.Exit(0)
		}
	}
	return nil
}

// crowd makes more threads than a child may have, and waits.
func crowd() {
	for range maxThreads + 100 {
		go func() {
			runtime.LockOSThread()
			select {}
		}()
	}
	<-time.After(time.Hour)
}

func number(arg string) uintptr {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	return uintptr(n)
}

func overflow(n int) int { return overflow(n+1) + n } //nolint:staticcheck // the stack overflow is the point

// childConnection finds the descriptor of the socket to the parent.
func childConnection() int {
	for fd := 3; fd < sandbox.MaxOpenFiles; fd++ {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
			return fd
		}
	}
	return -1
}

// order lets a child of the pool do something, and returns what it said.
func order(t *testing.T, p *Pool, what string) (string, error) {
	t.Helper()
	path := extracttest.WriteTemp(t, "order", []byte(what))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, ok := formats.For(typeHostile)
	require.True(t, ok)
	said, reports := "", 0
	run := &jobRun{pool: p, reader: r, job: frame.Job{MediaType: typeHostile, Size: int64(len(what)), Limits: p.cfg.limits()},
		emit: func(b ingest.Block) error { said = b.Text; return nil }, progress: func(int, int) { reports++ }}
	p.slots <- struct{}{}
	defer func() { <-p.slots }()
	run.worker, err = p.acquire(t.Context(), noPDF)
	require.NoError(t, err)
	defer p.busy.Done()
	began := time.Now()
	_, err = run.do(t.Context(), f)
	p.release(run.worker, run)
	require.LessOrEqual(t, reports, 2+int(time.Since(began)/(document.ProgressEvery/2)))
	return said, err
}

func TestFloodEndsAtTheTextLimit(t *testing.T) {
	t.Parallel()
	p := newPool(t, func(c *Config) { c.MaxTextBytes = 1 << 20 })
	_, err := order(t, p, "flood")
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	require.Zero(t, p.Stats().Live)
}

func TestEndOfContextKillsTheChild(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := p.acquire(ctx, noPDF)
	require.NoError(t, err)
	defer p.busy.Done()
	r, _ := formats.For(typeHostile)
	f, err := os.Open(extracttest.WriteTemp(t, "order", []byte("sleep")))
	require.NoError(t, err)
	defer f.Close()
	run := &jobRun{pool: p, worker: w, reader: r, job: frame.Job{MediaType: typeHostile, Size: 5, Limits: p.cfg.limits()}, emit: func(ingest.Block) error { return nil }}
	done := make(chan error, 1)
	go func() {
		_, err := run.do(ctx, f)
		done <- err
	}()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	p.release(w, run)
	s := p.Stats()
	require.Equal(t, []int{0, 1, 1}, []int{s.Live, s.Started, s.Killed})
}

func TestReceiversErrorComesBack(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	f, err := os.Open(extracttest.WriteTemp(t, "a.txt", []byte("some text")))
	require.NoError(t, err)
	defer f.Close()
	mine := errors.New("the receiver is full")
	_, err = p.Extract(t.Context(), ingest.Source{File: f, Name: "a.txt"}, nil, func(ingest.Block) error { return mine })
	require.Equal(t, mine, err)
	require.Zero(t, p.Stats().Live, "a child in mid-document is not used again")
}
