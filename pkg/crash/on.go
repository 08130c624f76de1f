//go:build lab

package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled tells whether this is a lab build.
const Enabled = true

// Variables that arm a point.
const (
	variable  = "MILLWEIR_CRASH"
	directory = "MILLWEIR_CRASH_DIR"
)

// everywhere is the name of all points.
const everywhere = "*"

// ErrInjected is what Fault returns at a point armed with error.
var ErrInjected = errors.New("injected by " + variable)

// plan is what the environment asks for.
type plan struct {
	name string
	nth  int
	kind string // kill, stop, error, sleep, jitter
	wait time.Duration
	dir  string // empty: nothing is recorded, and every passage from the nth on acts
}

// state counts passages in this process.
var (
	mu    sync.Mutex
	hits  = map[string]int{}
	armed = sync.OnceValue(func() plan {
		p, err := parse(os.Getenv(variable))
		if err != nil {
			panic(err) // a programmer's mistake in a lab build
		}
		p.dir = os.Getenv(directory)
		return p
	})
)

// parse reads NAME:NTH:KIND; an empty text is no plan.
func parse(text string) (plan, error) {
	if text == "" {
		return plan{}, nil
	}
	name, rest, _ := strings.Cut(text, ":")
	nth, kind, _ := strings.Cut(rest, ":")
	p := plan{name: name, kind: kind}
	var err error
	if p.nth, err = strconv.Atoi(nth); err != nil || p.nth < 1 {
		return p, fmt.Errorf("%s=%q: want NAME:NTH:KIND with NTH ≥ 1", variable, text)
	}
	if name, wait, ok := strings.Cut(kind, "="); ok && (name == "sleep" || name == "jitter") {
		p.kind = name
		if p.wait, err = time.ParseDuration(wait); err != nil {
			return p, fmt.Errorf("%s=%q: %w", variable, text, err)
		}
	}
	switch p.kind {
	case "kill", "stop", "error":
		return p, nil
	case "sleep", "jitter":
		if p.wait > 0 {
			return p, nil
		}
	}
	return p, fmt.Errorf("%s=%q: KIND is kill, stop, error, sleep=DURATION or jitter=DURATION", variable, text)
}

// Point is a moment at which the process may be killed, stopped or held up.
func Point(name string) { _ = Fault(name) }

// Fault is Point where the next effect may fail as well: it returns the error.
func Fault(name string) error {
	p := armed()
	mu.Lock()
	hits[name]++
	n := hits[name]
	mu.Unlock()
	if n == 1 {
		p.record(name)
	}
	if p.name != name && p.name != everywhere || n < p.nth || p.kind != "jitter" && !p.first() {
		return nil
	}
	switch p.kind {
	case "jitter":
		if rand.N(2) == 0 { // the other half goes on at once: what is overtaken matters, not what is slow
			wait(rand.N(p.wait))
		}
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	case "stop":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "sleep":
		wait(p.wait)
	case "error":
		return fmt.Errorf("%s: %w", name, ErrInjected)
	}
	return nil
}

// wait lets real time pass, also where a test's clock stands still: there others go on meanwhile too.
func wait(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for errors.Is(syscall.Nanosleep(&left, &left), syscall.EINTR) { // the scheduler's signals
	}
}

// record notes that a point was passed at all; a folder that is away must not change what is tested.
func (p plan) record(name string) {
	if p.dir == "" {
		return
	}
	if err := os.MkdirAll(filepath.Join(p.dir, "hits"), 0o755); err == nil {
		_ = os.WriteFile(filepath.Join(p.dir, "hits", name), nil, 0o600)
	}
}

// first takes the right to act; the file outlives the process.
func (p plan) first() bool {
	if p.dir == "" {
		return true
	}
	f, err := os.OpenFile(filepath.Join(p.dir, "fired"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_, err = f.WriteString(strconv.Itoa(os.Getpid()))
	return errors.Join(err, f.Close()) == nil
}
