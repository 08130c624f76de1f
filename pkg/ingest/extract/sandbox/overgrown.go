package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Overgrown says why a child that watches itself must end: it has taken more than so many bytes, or the parent that started it has gone.
// Empty: it may go on.
func Overgrown(bytes int64, parent int) string {
	var use unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &use); err != nil {
		return fmt.Sprintf("the reader cannot see its memory: %v", err)
	}
	switch {
	case int64(use.Maxrss)*rssUnit > bytes: //nolint:unconvert // 32 bits on some systems
		return fmt.Sprintf("the reader took more than %d MiB of memory", bytes>>20)
	case os.Getppid() != parent:
		return "the parent has gone"
	}
	return ""
}
