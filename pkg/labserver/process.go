package labserver

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
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/millweir/millweir/pkg/labserver/installed"
	"github.com/millweir/millweir/pkg/pause"
)

// command is one program to start.
type command struct {
	path string
	args []string
	env  []string // beside a small fixed environment
	dir  string
	user string // system user to run as when we are root; empty: ourselves
}

// process is a program that runs, known by pid and start time so that a reused pid is never signalled.
type process struct {
	pid   int
	start string // field 22 of /proc/<pid>/stat, clock ticks since boot
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

// start runs the command with its output appended to logFile.
// Unless detached it gets SIGKILL from the kernel when this process ends, in whatever way.
func (c command) start(logFile string, detached bool) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir, cmd.Env = c.dir, append(baseEnv(), c.env...)
	cmd.Stdout, cmd.Stderr = out, out
	// Setsid, so that ^C in a terminal reaches the tests and not the servers.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cmd.SysProcAttr.Credential, err = credential(c.user); err != nil {
		return nil, err
	}
	if !detached {
		// Go sets it after the change of user, which would clear it: so the servers must not change user themselves.
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := StartTied(cmd); err != nil {
		return nil, fmt.Errorf("run %s: %w", c.path, err)
	}
	p := &process{pid: cmd.Process.Pid}
	p.start, _ = procStat(p.pid)
	go func() { _ = cmd.Wait() }() // reaps it; ends with the child, which dies with us
	return p, nil
}

// run executes the command to its end; the error tells the end of its output.
func (c command) run(ctx context.Context) error {
	_, err := c.output(ctx)
	return err
}

// output is run, and returns all that the command wrote.
func (c command) output(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Dir, cmd.Env = c.dir, append(baseEnv(), c.env...)
	cred, err := credential(c.user)
	if err != nil {
		return "", err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", filepath.Base(c.path), err, lastLines(string(out), 5))
	}
	return string(out), nil
}

// exited tells whether the process is gone (a zombie counts as gone).
func (p *process) exited() bool {
	start, state := procStat(p.pid)
	return start == "" || start != p.start || state == 'Z' || state == 'X'
}

// end signals the process and waits for its end; after stopTimeout, or when ctx ends, it and its children are killed.
func (p *process) end(ctx context.Context, sig syscall.Signal) error {
	if p.exited() {
		return nil
	}
	tree := p.tree()
	if sig == syscall.SIGKILL {
		killAll(tree)
	} else if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal pid %d: %w", p.pid, err)
	} else if err := p.signalTree(syscall.SIGCONT); err != nil { // a paused server would not hear it
		return err
	}
	soft, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for !p.exited() {
		if !pause.For(soft, pollInterval) {
			killAll(tree)
			break
		}
	}
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, q := range tree {
		for !q.exited() {
			if !pause.For(hard, pollInterval) {
				return fmt.Errorf("pid %d does not end", q.pid)
			}
		}
	}
	return nil
}

func killAll(tree []*process) {
	for _, q := range tree {
		if !q.exited() {
			_ = syscall.Kill(q.pid, syscall.SIGKILL) // gone meanwhile is as good
		}
	}
}

// signalTree signals the process and all that it started.
func (p *process) signalTree(sig syscall.Signal) error {
	for _, q := range p.tree() {
		if err := syscall.Kill(q.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal pid %d: %w", q.pid, err)
		}
	}
	return nil
}

// tree is the process and its descendants, parents first.
// Groups and sessions do not serve here: each Postgres back end makes a session of its own.
func (p *process) tree() []*process {
	children := map[int][]*process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if f := StatFields(pid); len(f) > 19 {
			ppid, _ := strconv.Atoi(f[1])
			children[ppid] = append(children[ppid], &process{pid: pid, start: f[19]})
		}
	}
	all := []*process{p}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all
}

// StatFields are the fields of /proc/<pid>/stat after the name: [0] state, [1] ppid, [11] utime to [14] cstime, [19] start time.
func StatFields(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
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

// giveTo makes the tree under dir the system user's own, when we are root.
func giveTo(dir, name string) error {
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
