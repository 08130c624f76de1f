package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millweir/millweir/pkg/labserver"
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
		child, err := strconv.Atoi(filepath.Base(d))
		if f := labserver.StatFields(child); err == nil && len(f) > 1 && f[0] != "Z" {
			parent, _ := strconv.Atoi(f[1])
			parents[parent] = append(parents[parent], child)
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
	f := labserver.StatFields(pid)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(f[11], 64)
	system, _ := strconv.ParseFloat(f[12], 64)
	return (user + system) / clockTick
}
