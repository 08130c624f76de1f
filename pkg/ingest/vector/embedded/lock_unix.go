//go:build unix

package embedded

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the directory for this process; the kernel gives it back when the process ends, however it ends.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// unlockFile gives the lock back at once: closing alone would leave it with a child that is between fork and exec.
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }
