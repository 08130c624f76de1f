package proc

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/labserver/child"
	"github.com/millweir/millweir/scripts/lab/await"
)

// clockTick is the unit of CPU times in /proc, per second (USER_HZ, the same on every Linux platform that Go runs on).
const clockTick = 100

// Memory is what a process and its children hold, bytes of resident memory.
type Memory struct {
	Self     int64
	Children []int64
}

// Sum is the process with its children.
func (m Memory) Sum() int64 {
	sum := m.Self
	for _, c := range m.Children {
		sum += c
	}
	return sum
}

// Memory reads the resident memory of the process and of its children now; a process that is gone counts 0.
func (p *Proc) Memory() Memory {
	m := Memory{Self: Resident(p.PID)}
	for _, pid := range Children(p.PID) {
		m.Children = append(m.Children, Resident(pid))
	}
	return m
}

// Resident is how much memory a process holds now, bytes.
func Resident(pid int) int64 { return statusBytes(pid, "VmRSS:") }

// Peak is the largest memory that a process has held, bytes. Nobody has to watch it for that.
func Peak(pid int) int64 { return statusBytes(pid, "VmHWM:") }

// statusBytes is a size of /proc/<pid>/status; 0 when the process is gone.
func statusBytes(pid int, name string) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// Children are the pids of the direct and indirect children of a process.
func Children(pid int) []int {
	parents := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		id, err := strconv.Atoi(filepath.Base(d))
		if f := child.StatFields(id); err == nil && len(f) > 1 && f[0] != "Z" {
			parent, _ := strconv.Atoi(f[1])
			parents[parent] = append(parents[parent], id)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, parents[all[i]]...)
	}
	return all[1:]
}

// CPUSeconds is the user and system time that a process has used so far.
func CPUSeconds(pid int) float64 {
	f := child.StatFields(pid)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / clockTick
}

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
		if f := child.StatFields(pid); len(f) > 1 && f[0] != "Z" {
			out = append(out, fmt.Sprintf("pid %d: %s", pid, strings.ReplaceAll(strings.TrimRight(string(command), "\x00"), "\x00", " ")))
		}
	}
	return out
}

// descends tells whether a process is one of the roots or was started by one, directly or not.
func descends(pid int, roots map[int]bool) bool {
	for pid > 1 && !roots[pid] {
		f := child.StatFields(pid)
		if len(f) < 2 {
			return false
		}
		pid, _ = strconv.Atoi(f[1])
	}
	return roots[pid]
}
