package extract

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millweir/millweir/pkg/ingest/extract/document"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

const (
	// startTimeout is the longest time until a child is ready.
	startTimeout = 60 * time.Second
	// compileTimeout is the same for the one that compiles the PDF reader, which takes 3–6 s of one core's
	// time: a container with a twentieth of a core still gets there.
	compileTimeout = 10 * time.Minute
	// stderrBytes is how much of a child's last words is kept.
	stderrBytes = 4 << 10
)

// starter starts children from one thread that lives as long as it does:
// the kernel ties a child's parent-death signal to the thread that made it, and Go ends idle threads at will.
type starter struct {
	jobs    chan func()
	done    chan struct{}
	native  *nativeProgram        // of PDF_ENGINE=native; nil: there is none
	refused atomic.Pointer[error] // why the system gives no namespaces; nil until it refused
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		for run := range s.jobs {
			run()
		}
	}()
	return s
}

// start runs a start of a child on the starter's thread: with namespaces, or once these were refused,
// without.
func (s *starter) start(set sandbox.Setup, run func(*syscall.SysProcAttr) error) (isolated bool, err error) {
	if set.Sandbox == sandbox.Off || slices.Contains(set.Without, sandbox.Namespaces) || s.refused.Load() != nil {
		return false, s.onThread(run, plainAttr())
	}
	attr, refused := isolatedAttr()
	if refused == nil {
		refused = s.onThread(run, attr)
	}
	if refused == nil {
		return true, nil
	}
	// A start without them tells a lack of rights from one of memory.
	if err := s.onThread(run, plainAttr()); err != nil {
		return false, err
	}
	s.refused.Store(&refused)
	return false, nil
}

func (s *starter) onThread(run func(*syscall.SysProcAttr) error, attr *syscall.SysProcAttr) error {
	result := make(chan error, 1)
	s.jobs <- func() { result <- run(attr) }
	return <-result
}

// stop ends the thread; no start may follow.
func (s *starter) stop() {
	close(s.jobs)
	<-s.done
}

// worker is the parent's side of one child.
type worker struct {
	cmd   *exec.Cmd
	conn  *net.UnixConn
	in    *bufio.Reader
	buf   []byte
	has   engine
	hello sandbox.Hello
	// isolated: it has namespaces of its own.
	isolated bool
	files    int
	idleAt   time.Time
	stderr   *lastWords
	exited   chan struct{} // closed when the process is gone
	state    string        // how it ended; after exited
}

// startWorker starts a child and waits for its greeting, at most until ctx ends.
func startWorker(ctx context.Context, s *starter, set sandbox.Setup) (*worker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	program, err := ownProgram()
	if err != nil {
		return nil, fmt.Errorf("find the own program: %w", err)
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("open a socket to the child: %w", err)
	}
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("open a socket to the child: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_ = theirs.Close()
		return nil, fmt.Errorf("open a socket to the child: %T is no unix socket", conn)
	}
	w := &worker{conn: unixConn, stderr: &lastWords{}, exited: make(chan struct{})}
	argv := []string{program, frame.ChildArg}
	switch {
	case set.Native:
		w.has, argv = nativePDF, []string{s.native.reader, frame.ChildArg, s.native.library}
	case set.PDF:
		w.has = wasmPDF
	}
	w.in = bufio.NewReaderSize(w.conn, frame.BufferBytes)
	w.isolated, err = s.start(set, func(attr *syscall.SysProcAttr) error {
		w.cmd = exec.Command(argv[0], argv[1:]...) //nolint:noctx // the pool ends it, by its group
		w.cmd.Env, w.cmd.Dir, w.cmd.SysProcAttr = []string{}, "/", attr
		w.cmd.Stderr, w.cmd.ExtraFiles = w.stderr, []*os.File{theirs}
		return w.cmd.Start()
	})
	_ = theirs.Close() // or the death of a child that has not greeted would go unseen until the time is up
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start the child: %w", err)
	}
	go func() {
		defer close(w.exited)
		_ = w.cmd.Wait()
		w.state = w.cmd.ProcessState.String()
	}()
	keep := context.AfterFunc(ctx, w.signal) // ends the wait for the greeting
	err = w.greet(set)
	if !keep() {
		err = ctx.Err()
	}
	if err != nil {
		w.kill()
		return nil, err
	}
	return w, nil
}

// socketPair returns the ends of a socket, which no other child inherits.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock() // not every system makes a socket and closes it on exec in one call
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	unix.CloseOnExec(pair[0])
	unix.CloseOnExec(pair[1])
	return os.NewFile(uintptr(pair[0]), "child"), os.NewFile(uintptr(pair[1]), "parent"), nil
}

// greet sends the setup and reads the greeting.
func (w *worker) greet(set sandbox.Setup) error {
	limit := startTimeout
	if set.Warm && set.PDF {
		limit = compileTimeout
	}
	if err := w.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if err := frame.WriteJSON(w.conn, frame.KindSetup, set); err != nil {
		return fmt.Errorf("set the child up: %w", err)
	}
	kind, payload, err := frame.Read(w.in, nil)
	if err != nil {
		w.kill()
		return fmt.Errorf("the child did not start: %w (%s; %s)", err, w.state, w.stderr)
	}
	if err := json.Unmarshal(payload, &w.hello); err != nil || kind != frame.KindHello {
		return fmt.Errorf("the child's greeting: %w", errors.Join(frame.ErrBad, err))
	}
	if w.hello.Fatal {
		var problem error = &startError{w.hello}
		if w.hello.Errno > 0 { // it has read no document yet: its word is the machine's
			return fmt.Errorf("%w (%w)", problem, syscall.Errno(w.hello.Errno))
		}
		return problem
	}
	return w.conn.SetDeadline(time.Time{})
}

// startError is a child that said that it cannot work.
type startError struct{ hello sandbox.Hello }

func (e *startError) Error() string {
	return "the child cannot work: " + frame.Shorten(e.hello.Problem)
}

// send passes a job and the document's descriptor.
func (w *worker) send(j frame.Job, file *os.File) error {
	payload, err := json.Marshal(j)
	if err != nil {
		return err
	}
	frame := append([]byte{frame.KindJob, 0, 0, byte(len(payload) >> 8), byte(len(payload))}, payload...)
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	sendErr := errors.New("the document is closed")
	if err := raw.Control(func(fd uintptr) {
		_, _, sendErr = w.conn.WriteMsgUnix(frame, unix.UnixRights(int(fd)), nil)
	}); err != nil {
		return err
	}
	return sendErr
}

// kill ends the child's whole group and waits until it is gone.
func (w *worker) kill() {
	w.signal()
	_ = w.conn.Close()
	<-w.exited
}

// signal ends the child's group at once; it may be called while another goroutine reads.
func (w *worker) signal() {
	select {
	case <-w.exited:
		// Its number may belong to another process by now.
	default:
		_ = unix.Kill(-w.cmd.Process.Pid, unix.SIGKILL)
	}
}

// lastWords keeps the first and last of what a child wrote to stderr.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer; what exceeds stderrBytes is dropped.
func (l *lastWords) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	room := max(stderrBytes-len(l.text), 0)
	l.text = append(l.text, p[:min(len(p), room)]...)
	return len(p), nil
}

// String is the first line that says something.
func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimSpace(string(l.text)), "\n")
	return document.CleanTitle(line)
}

// cacheFolder makes the folder of the compiled PDF reader. What lies in it is run as code, so a folder that
// others can write to is refused, and without a home a private temporary one is made (own = true).
func cacheFolder(configured string) (dir string, own bool, err error) {
	if configured != "" {
		return configured, false, privateFolder(configured)
	}
	if home, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(home, "millweir", "pdfium")
		if privateFolder(dir) == nil {
			return dir, false, nil
		}
	}
	return temporaryFolder()
}

// temporaryFolder makes one for the pool alone.
func temporaryFolder() (dir string, own bool, err error) {
	dir, err = os.MkdirTemp("", "millweir-pdfium-")
	if err != nil {
		return "", false, fmt.Errorf("EXTRACT_CACHE_DIR: make a folder for the compiled pdf reader: %w", err)
	}
	return dir, true, nil
}

// privateFolder makes a folder, or checks that an existing one is ours alone to write.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("EXTRACT_CACHE_DIR: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("EXTRACT_CACHE_DIR: %w", err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && int(owner.Uid) != os.Geteuid() && owner.Uid != 0:
		return fmt.Errorf("EXTRACT_CACHE_DIR: %s belongs to another user, who could change the program in it", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("EXTRACT_CACHE_DIR: %s can be written by other users (mode %o)", dir, info.Mode().Perm())
	}
	return nil
}
