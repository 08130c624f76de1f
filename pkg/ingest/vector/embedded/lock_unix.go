//go:build unix

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the record lock; ErrInUse: another process has it.
func lockFile(lock *os.File) error {
	err := syscall.FcntlFlock(lock.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK})
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return ErrInUse
	}
	return err
}
