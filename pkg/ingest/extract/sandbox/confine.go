package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// MaxOpenFiles is enough for the socket, the document and the runtime's own.
	MaxOpenFiles = 64
	// maxChildCPU ends a child that somehow outlives its parent's deadlines, in seconds.
	maxChildCPU = 4 * 3600
	// runtimeBytes makes up for a part of what Go has mapped and does not use, which RLIMIT_DATA counts too (measured: 110 to 125 MiB at the
	// start of a child, with Go 1.26: 32 of them are one buffer of its random numbers). Some of it is used later: the largest child of the
	// hostile files takes 225 MiB with it, and more than 300 with twice as much.
	runtimeBytes = 64 << 20
)

// ErrNotHere is the error of a layer that Linux alone has.
var ErrNotHere = errors.New("only Linux has it")

// Confine shuts the doors of a child: limits, then landlock without any rule, then the system call filter.
// The namespaces are the parent's to make (process.go); they are not asked for by EXTRACT_SANDBOX=require,
// because containers seldom allow them, and what they cut off landlock and seccomp cut off too.
func Confine(s Setup) Hello {
	if s.Warm && s.Sandbox == Off && !s.Native {
		return Hello{}
	}
	if err := limitSelf(s.MemoryMB); err != nil {
		return Hello{Problem: err.Error(), Fatal: true}
	}
	if s.Sandbox == Off && !s.Native {
		return Hello{}
	}
	var h Hello
	var problems []error
	for _, l := range []struct {
		name  Layer
		raise func() error
	}{
		{Landlock, func() (err error) {
			if s.Native {
				h.Landlock, err = enclosed()
			} else {
				h.Landlock, err = restrictFiles()
			}
			return err
		}},
		{Seccomp, func() error { err := filterSyscalls(); h.Seccomp = err == nil; return err }},
	} {
		err := errors.New("left out")
		if !slices.Contains(s.Without, l.name) {
			err = l.raise()
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", l.name, err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		h.Problem = strings.ReplaceAll(err.Error(), "\n", "; ")
		h.Fatal = s.Sandbox == Require || s.Native
	}
	return h
}

// limitSelf sets the kernel's limits. RLIMIT_AS is not among them: Go and WebAssembly reserve far more than
// they use. Nor is RLIMIT_NPROC, which counts all of a user's threads and none of root's: no process can be
// made here (seccomp), and the watchdog counts the threads.
func limitSelf(memoryMB int) error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"DATA", unix.RLIMIT_DATA, uint64(memoryMB)*MemoryFactor<<20 + runtimeBytes},
		{"CPU", unix.RLIMIT_CPU, maxChildCPU},
		{"NOFILE", unix.RLIMIT_NOFILE, MaxOpenFiles},
		{"CORE", unix.RLIMIT_CORE, 0},
		{"FSIZE", unix.RLIMIT_FSIZE, 0},
	} {
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("read the limit %s: %w", l.name, err)
		}
		limit := unix.Rlimit{Cur: min(l.value, now.Max), Max: min(l.value, now.Max)}
		if err := unix.Setrlimit(l.resource, &limit); err != nil {
			return fmt.Errorf("set the limit %s: %w", l.name, err)
		}
	}
	return nil
}
