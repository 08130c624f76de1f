package embedded

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes the lock of the file's first byte; ErrInUse: another process has it.
func lockFile(lock *os.File) error {
	err := windows.LockFileEx(windows.Handle(lock.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrInUse
	}
	return err
}
