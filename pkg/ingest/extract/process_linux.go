package extract

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// isolation are the namespaces that a child gets where the system allows them. It keeps no right in any of
// them: the user that it is there is not root.
const isolation = unix.CLONE_NEWUSER | ownProcesses | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNS

// nobody is a child's user and group inside its namespaces; outside they are the parent's.
const nobody = 65534

// ownProgram is the running program itself, even if its file was replaced since.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// plainAttr makes a child the head of its own group, which dies with the parent.
func plainAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// isolatedAttr adds the namespaces.
func isolatedAttr() (*syscall.SysProcAttr, error) {
	attr := plainAttr()
	attr.Cloneflags = isolation
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: nobody, HostID: os.Getegid(), Size: 1}}
	return attr, nil
}

// limitMemory bounds the memory of a process that has just started.
func limitMemory(pid, mb int) error {
	limit := unix.Rlimit{Cur: uint64(mb) << 20, Max: uint64(mb) << 20}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("limit its memory: %w", err)
	}
	return nil
}
