// Package child starts programs that end with this process, and ends them with all that they started.
package child

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/pause"
)

const (
	// StopTimeout is after how long an end becomes a kill.
	StopTimeout  = 30 * time.Second
	pollInterval = 10 * time.Millisecond
)

// Command is one program to start.
type Command struct {
	Path string
	Args []string
	Env  []string // beside a small fixed environment
	Dir  string
	User string // system user to run as when we are root; empty: ourselves
}

// Process is a program that runs, known by pid and start time so that a reused pid is never signalled.
type Process struct {
	PID   int
	Start string // field 22 of /proc/<pid>/stat, clock ticks since boot
}

// spawner runs every fork on one OS thread that lives as long as the process:
// Pdeathsig is sent when the *thread* that forked ends, and Go ends threads at will.
var spawner = sync.OnceValue(func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked
		for job := range jobs {
			job()
		}
	}()
	return jobs
})

// StartTied is cmd.Start on that thread: a Pdeathsig of cmd comes when this process ends, and not before.
func StartTied(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	spawner() <- func() { done <- cmd.Start() }
	return <-done
}

// Start runs the command with its output appended to logFile.
// Unless detached it gets SIGKILL from the kernel when this process ends, in whatever way.
func (c Command) Start(logFile string, detached bool) (*Process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, append(baseEnv(), c.Env...)
	cmd.Stdout, cmd.Stderr = out, out
	// Setsid, so that ^C in a terminal reaches the tests and not the servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.SysProcAttr.Credential, err = credential(c.User); err != nil {
		return nil, err
	}
	if !detached {
		// Go sets it after the change of user, which would clear it: so the servers must not change user themselves.
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := StartTied(cmd); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.Path, err)
	}
	p := &Process{PID: cmd.Process.Pid}
	p.Start, _ = procStat(p.PID)
	go func() { _ = cmd.Wait() }() // reaps it; ends with the child, which dies with us
	return p, nil
}

// Run executes the command to its end; the error tells the end of its output.
func (c Command) Run(ctx context.Context) error {
	_, err := c.Output(ctx)
	return err
}

// Output is Run, and returns all that the command wrote.
func (c Command) Output(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	cmd.Dir, cmd.Env = c.Dir, append(baseEnv(), c.Env...)
	cred, err := credential(c.User)
	if err != nil {
		return "", err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", filepath.Base(c.Path), err, lastLines(string(out), 5))
	}
	return string(out), nil
}

// Exited tells whether the process is gone (a zombie counts as gone).
func (p *Process) Exited() bool {
	start, state := procStat(p.PID)
	return start == "" || start != p.Start || state == 'Z' || state == 'X'
}

// End signals the process and waits for its end; after StopTimeout, or when ctx ends, it and its children are killed.
func (p *Process) End(ctx context.Context, sig syscall.Signal) error {
	if p.Exited() {
		return nil
	}
	tree := p.Tree()
	if sig == syscall.SIGKILL {
		killAll(tree)
	} else if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal pid %d: %w", p.PID, err)
	} else if err := p.SignalTree(syscall.SIGCONT); err != nil { // a paused server would not hear it
		return err
	}
	soft, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	for !p.Exited() {
		if !pause.For(soft, pollInterval) {
			killAll(tree)
			break
		}
	}
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopTimeout)
	defer cancel()
	for _, q := range tree {
		for !q.Exited() {
			if !pause.For(hard, pollInterval) {
				return fmt.Errorf("pid %d does not end", q.PID)
			}
		}
	}
	return nil
}

func killAll(tree []*Process) {
	for _, q := range tree {
		if !q.Exited() {
			_ = syscall.Kill(q.PID, syscall.SIGKILL) // gone meanwhile is as good
		}
	}
}

// SignalTree signals the process and all that it started.
func (p *Process) SignalTree(sig syscall.Signal) error {
	for _, q := range p.Tree() {
		if err := syscall.Kill(q.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal pid %d: %w", q.PID, err)
		}
	}
	return nil
}

// StopTree stops the process and all that it started (SIGSTOP), and returns when each of their threads stands. A process goes on
// until the thread that was chosen for the signal runs, which on a busy machine is long enough to serve a request.
func (p *Process) StopTree(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	for {
		if err := p.SignalTree(syscall.SIGSTOP); err != nil {
			return err
		}
		i := slices.IndexFunc(p.Tree(), func(q *Process) bool { return !q.Exited() && !Stands(q.PID) })
		if i < 0 {
			return nil
		}
		if !pause.For(ctx, pollInterval) {
			return fmt.Errorf("pid %d and what it started do not stop", p.PID)
		}
	}
}

// Stands tells whether each thread of a process is stopped.
func Stands(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/stat", pid))
	return !slices.ContainsFunc(threads, func(stat string) bool {
		f := statFields(stat)
		return f != nil && !strings.Contains("TtZX", f[0]) // a thread that has ended does nothing either
	})
}

// Tree is the process and its descendants, parents first.
// Groups and sessions do not serve here: each Postgres back end makes a session of its own.
func (p *Process) Tree() []*Process {
	children := map[int][]*Process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if f := StatFields(pid); len(f) > 19 {
			ppid, _ := strconv.Atoi(f[1])
			children[ppid] = append(children[ppid], &Process{PID: pid, Start: f[19]})
		}
	}
	all := []*Process{p}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].PID]...)
	}
	return all
}

// StatFields are the fields of /proc/<pid>/stat after the name: [0] state, [1] ppid, [11] utime to [14] cstime, [19] start time.
func StatFields(pid int) []string { return statFields(fmt.Sprintf("/proc/%d/stat", pid)) }

// statFields returns nil when the process or thread is gone.
func statFields(file string) []string {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
}

func procStat(pid int) (start string, state byte) {
	f := StatFields(pid)
	if len(f) < 20 {
		return "", 0
	}
	return f[19], f[0][0]
}

// credential looks the system user up; nil when we are not root and run everything as ourselves.
func credential(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 || name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w: no system user %s (%w)", installed.ErrMissing, name, err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("ids of user %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// GiveTo makes the tree under dir the system user's own, when we are root.
func GiveTo(dir, name string) error {
	cred, err := credential(name)
	if err != nil || cred == nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(cred.Uid), int(cred.Gid))
	})
}

func baseEnv() []string {
	return []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C.UTF-8", "TZ=UTC", "TMPDIR=" + os.TempDir()}
}

// WritePIDs records "pid starttime", one line a process.
func WritePIDs(path string, procs []*Process) error {
	var b strings.Builder
	for _, p := range procs {
		fmt.Fprintf(&b, "%d %s\n", p.PID, p.Start)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// ReadPIDs are the processes that such a file tells of; none without a file.
func ReadPIDs(path string) []*Process {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	var procs []*Process
	for line := range strings.Lines(string(b)) {
		var p Process
		if n, _ := fmt.Sscan(line, &p.PID, &p.Start); n == 2 {
			procs = append(procs, &p)
		}
	}
	return procs
}

// Tail is the end of a file, or why it cannot be read.
func Tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(b), lines)
}

func lastLines(s string, n int) string {
	all := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
