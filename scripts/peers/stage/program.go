package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millweir/millweir/scripts/peers/rival"
)

const (
	phaseLimit = 5 * time.Minute // of one phase; a system that hangs is killed
	endLimit   = 15 * time.Second
	logTail    = 600 // bytes of a failed system's log in the error
)

// Program is a system that runs in a process of its own and answers phases.
type Program struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan string // closed when the process says no more
	ended   chan struct{}
	end     sync.Once
	log     string
}

// Launch starts a system's process; its own words go to the file log.
func Launch(argv, env []string, log string) (*Program, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close() //nolint:errcheck // the child has a descriptor of its own
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stderr = append(os.Environ(), env...), out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with its own children, to be ended as one
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Program{cmd: cmd, in: in, replies: make(chan string), ended: make(chan struct{}), log: log}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.replies <- lines.Text()
		}
		close(p.replies)
		_ = cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	return p, nil
}

// PID is the process.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Ask has one phase done. The error is what the system says, or why it says nothing.
func (p *Program) Ask(ctx context.Context, phase rival.Phase) (rival.Reply, error) {
	var reply rival.Reply
	if _, err := io.WriteString(p.in, string(phase)+"\n"); err != nil {
		return reply, errors.Join(err, p.lastWords())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, phaseLimit, fmt.Errorf("%s took longer than %s", phase, phaseLimit))
	defer cancel()
	select {
	case <-ctx.Done():
		return reply, context.Cause(ctx)
	case line, ok := <-p.replies:
		if !ok {
			return reply, errors.Join(errors.New("the process ended"), p.lastWords())
		}
		if err := json.Unmarshal([]byte(line), &reply); err != nil {
			return reply, fmt.Errorf("answer %q: %w", line, err)
		}
	}
	if reply.Error != "" {
		return reply, errors.New(reply.Error)
	}
	return reply, nil
}

// End closes the process's input, at which it ends by itself, and kills it with its children when it does not.
func (p *Program) End() { p.end.Do(p.finish) }

func (p *Program) finish() {
	_ = p.in.Close() // it may be gone already
	go func() {
		for range p.replies { // nobody listens any more
		}
	}()
	select {
	case <-p.ended:
	case <-time.After(endLimit):
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // gone meanwhile is as good
		<-p.ended
	}
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL) // children that it left behind
}

// lastWords is the end of the process's log.
func (p *Program) lastWords() error {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	return errors.New(strings.TrimSpace(string(b[max(0, len(b)-logTail):])))
}
