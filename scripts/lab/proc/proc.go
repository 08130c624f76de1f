// Package proc starts processes of the product, ends them and looks at what they hold.
package proc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
)

// ErrExited is wrapped when a process ended that should be running; the text holds the end of its log.
var ErrExited = errors.New("process ended")

// Proc is one started process of the product. It is safe for concurrent use.
type Proc struct {
	Name string // as the drill calls it
	PID  int
	Log  string // file of its output
	// HTTP and Operator are base URLs; empty: it does not listen there.
	HTTP, Operator string

	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read it after done
}

// Spawn starts a program; its output is appended to log. It is killed by the kernel when this program ends.
func Spawn(name, path string, args, env []string, dir, log string) (*Proc, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the child has its own descriptor
	cmd := exec.Command(path, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := child.StartTied(cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &Proc{Name: name, PID: cmd.Process.Pid, Log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Exited tells whether the process is gone.
func (p *Proc) Exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process itself, not to its children. After SIGSTOP it returns when the process stands.
func (p *Proc) Signal(sig syscall.Signal) error {
	if p.Exited() {
		return fmt.Errorf("signal %s: %w", p.Name, ErrExited)
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	if sig != syscall.SIGSTOP {
		return nil
	}
	return await.Until(context.Background(), child.StopTimeout, time.Millisecond, func(context.Context) error {
		if p.Exited() || child.Stands(p.PID) {
			return nil
		}
		return fmt.Errorf("%s does not stop", p.Name)
	})
}

// Kill is kill -9; it returns when the process is gone.
func (p *Proc) Kill() {
	if !p.Exited() {
		_ = p.cmd.Process.Kill() // gone meanwhile is as good
	}
	<-p.done
}

// Wait returns the exit code once the process has ended; -1 after a signal.
func (p *Proc) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the end of %s: %w", p.Name, context.Cause(ctx))
	}
}

// Stop is SIGTERM; it returns the exit code, or ErrTimeout after limit (the process is then killed).
func (p *Proc) Stop(ctx context.Context, limit time.Duration) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, await.ErrTimeout)
	defer cancel()
	code, err := p.Wait(ctx)
	if err != nil {
		p.Kill()
	}
	return code, err
}

// Readyz returns the status of /readyz.
func (p *Proc) Readyz(ctx context.Context) (int, error) {
	status, _, err := p.get(ctx, "/readyz")
	return status, err
}

// get asks the API's address if there is one, since that is where users see it, else the operator's.
func (p *Proc) get(ctx context.Context, path string) (int, []byte, error) {
	base := p.HTTP
	if base == "" {
		base = p.Operator
	}
	return apiclient.NewClient(base).Get(ctx, path)
}

// AwaitReady waits until /readyz answers 200.
// Errors: ErrExited at once when the process ends before; ErrTimeout.
func (p *Proc) AwaitReady(ctx context.Context, limit time.Duration) error {
	return p.await(ctx, limit, "/readyz")
}

// AwaitAlive waits until /healthz answers 200, whatever is missing around the process. Errors as AwaitReady.
func (p *Proc) AwaitAlive(ctx context.Context, limit time.Duration) error {
	return p.await(ctx, limit, "/healthz")
}

func (p *Proc) await(ctx context.Context, limit time.Duration, path string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := await.Until(ctx, limit, 20*time.Millisecond, func(ctx context.Context) error {
		if p.Exited() {
			err := fmt.Errorf("%s: %w; end of %s:\n%s", p.Name, ErrExited, p.Log, p.Tail(12))
			cancel(err)
			return err
		}
		status, body, err := p.get(ctx, path)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s answers %d: %s", path, status, body)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s (log %s): %w", p.Name, p.Log, err)
	}
	return nil
}

// runnerStarted is the line in which a process names its runner, the first part of its lease owners.
var runnerStarted = regexp.MustCompile(`"msg":"runner: started".*?"process":"([^"]+)"`)

// Owns tells whether a lease owner is this process's: it names its runner in its log when that starts.
func (p *Proc) Owns(owner string) bool {
	log, err := os.ReadFile(p.Log)
	if err != nil {
		return false
	}
	name := runnerStarted.FindSubmatch(log)
	return name != nil && strings.HasPrefix(owner, string(name[1])+"/")
}

// Tail is the end of its log.
func (p *Proc) Tail(lines int) string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
