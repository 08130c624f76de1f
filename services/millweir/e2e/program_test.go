package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitLimit only keeps a broken test from hanging: the tests share two cores with others, and the race detector slows the product.
const waitLimit = 3 * time.Minute

// program is one process of ours.
type program struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *output
	done chan struct{} // closed when the process has ended
	once sync.Once
}

// output keeps what a process prints and tells who waits for more.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // closed and renewed at every write
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(b)
	close(o.more)
	o.more = make(chan struct{})
	return len(b), nil
}

// text is what was printed so far, and a channel that closes when there is more.
func (o *output) text() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String(), o.more
}

// command prepares one of our programs with nothing of this process's environment but what every program needs.
func command(ctx context.Context, name string, env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append([]string{
		roleVariable + "=" + name, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir(),
		"OPERATOR_ADDR=127.0.0.1:0",
	}, env...)
	return cmd
}

// start runs a program until the test ends; it then has to stop in order and with exit code 0 (66 is a data race).
func start(t *testing.T, name string, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, name: name, out: &output{more: make(chan struct{})}, done: make(chan struct{})}
	p.cmd = command(context.WithoutCancel(t.Context()), name, env, args...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the exit code is read from ProcessState
	}()
	t.Cleanup(p.stop)
	return p
}

// stop asks the program to end and checks that it did.
func (p *program) stop() {
	p.once.Do(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(waitLimit):
			_ = p.cmd.Process.Kill()
			<-p.done
			p.t.Errorf("%s did not stop", p.name)
		}
		text, _ := p.out.text()
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			p.t.Errorf("%s ended with %d", p.name, code)
		}
		if p.t.Failed() {
			p.t.Logf("%s printed:\n%s", p.name, text)
		}
	})
}

// kill ends the program as a power cut would.
func (p *program) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
}

// printed waits for a pattern in the output and returns its first group.
func (p *program) printed(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.After(waitLimit)
	for {
		text, more := p.out.text()
		if m := re.FindStringSubmatch(text); m != nil {
			return m[len(m)-1]
		}
		select {
		case <-more:
		case <-p.done:
			p.t.Fatalf("%s ended before it printed %s: %s", p.name, pattern, text)
		case <-late:
			p.t.Fatalf("%s did not print %s: %s", p.name, pattern, text)
		}
	}
}

// peakKB is the most memory that the process had, KiB.
func (p *program) peakKB() int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(p.t, err)
	_, rest, ok := strings.Cut(string(b), "VmHWM:")
	require.True(p.t, ok)
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(p.t, err)
	return n
}

// startDev runs the all-in-one over a new data folder.
func startDev(t *testing.T, env ...string) (*program, *client) {
	t.Helper()
	p := start(t, "dev", env, "--data", t.TempDir(), "--addr", "127.0.0.1:0")
	return p, newClient(t, p.printed(`ready (http://\S+)`))
}

// run ends by itself; it returns exit code and output.
func run(t *testing.T, name string, env []string, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := command(ctx, name, env, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// newKey makes an API key with the millweir command and returns it.
func newKey(t *testing.T, database string, args ...string) string {
	t.Helper()
	code, out := run(t, "millweir", []string{database}, append([]string{"keys", "create"}, args...)...)
	require.Equal(t, 0, code, out)
	key := regexp.MustCompile(`mw_live_\w+`).FindString(out)
	require.NotEmpty(t, key, out)
	return key
}
