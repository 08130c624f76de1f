package extract

import (
	"errors"
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

const (
	// maxOpenFiles is enough for the socket, the document and the runtime's own.
	maxOpenFiles = 64
	// maxChildCPU ends a child that somehow outlives its parent's deadlines, in seconds.
	maxChildCPU = 4 * 3600
)

// confine shuts the doors of a child: limits, then landlock without any rule, then the system call filter.
func confine(s setup) hello {
	if s.Warm && s.Sandbox == SandboxOff {
		return hello{}
	}
	if err := limitSelf(s.MemoryMB); err != nil {
		return hello{Problem: err.Error(), Fatal: true}
	}
	if s.Sandbox == SandboxOff {
		return hello{}
	}
	var h hello
	var problems []error
	if abi, err := llsys.LandlockGetABIVersion(); err != nil || abi < 1 {
		problems = append(problems, fmt.Errorf("landlock: %w", errors.Join(errors.New("not available"), err)))
	} else if err := landlock.V7.BestEffort().Restrict(); err != nil {
		problems = append(problems, fmt.Errorf("landlock: %w", err))
	} else {
		h.Landlock = abi
	}
	if err := filterSyscalls(); err != nil {
		problems = append(problems, fmt.Errorf("seccomp: %w", err))
	} else {
		h.Seccomp = true
	}
	if err := errors.Join(problems...); err != nil {
		h.Problem = err.Error()
		h.Fatal = s.Sandbox == SandboxRequire
	}
	return h
}

// limitSelf sets the kernel's limits. RLIMIT_AS is not among them: Go and WebAssembly reserve far more than they use.
func limitSelf(memoryMB int) error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"DATA", unix.RLIMIT_DATA, uint64(memoryMB) * memoryFactor << 20},
		{"CPU", unix.RLIMIT_CPU, maxChildCPU},
		{"NOFILE", unix.RLIMIT_NOFILE, maxOpenFiles},
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
