//go:build !cgo

package extract

import "golang.org/x/sys/unix"

// ownProcesses gives a child process numbers of its own.
const ownProcesses = unix.CLONE_NEWPID
