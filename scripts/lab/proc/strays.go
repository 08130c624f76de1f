package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/scripts/lab/await"
)

// strayLimit bounds the wait for the kernel to end the children of a process that was killed.
const strayLimit = 10 * time.Second

// NoStrays waits until every process whose folder is dir was started by one of procs that runs.
// Errors: what outlived its parent; the context's own.
func NoStrays(ctx context.Context, dir string, procs []*Proc) error {
	return await.Until(ctx, strayLimit, 20*time.Millisecond, func(context.Context) error {
		if strays := strays(dir, procs); len(strays) > 0 {
			return fmt.Errorf("%d processes outlived the one that started them: %v", len(strays), strays)
		}
		return nil
	})
}

// strays lists the processes in a folder that do not descend from one of procs that runs.
func strays(dir string, procs []*Proc) []string {
	roots := map[int]bool{}
	for _, p := range procs {
		if !p.Exited() {
			roots[p.PID] = true
		}
	}
	var out []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		cwd, cwdErr := os.Readlink(filepath.Join(d, "cwd"))
		// Parents are looked up now, and not in a list made before: processes are being started meanwhile.
		if err != nil || cwdErr != nil || cwd != dir || descends(pid, roots) {
			continue
		}
		command, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		if f := labserver.StatFields(pid); len(f) > 1 && f[0] != "Z" {
			out = append(out, fmt.Sprintf("pid %d: %s", pid, strings.ReplaceAll(strings.TrimRight(string(command), "\x00"), "\x00", " ")))
		}
	}
	return out
}

// descends tells whether a process is one of the roots or was started by one, directly or not.
func descends(pid int, roots map[int]bool) bool {
	for pid > 1 && !roots[pid] {
		f := labserver.StatFields(pid)
		if len(f) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(f[1])
	}
	return roots[pid]
}
