package document

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
)

const (
	quietFor   = 300 * time.Millisecond
	quietTicks = 0.025 // CPU seconds in that time: what an idle server uses
	quietLimit = 20 * time.Second
)

// cost is what a stretch of work took.
type cost struct {
	wall float64            // seconds
	cpu  map[string]float64 // CPU seconds by who used them
}

// total is all CPU time.
func (c cost) total() float64 {
	sum := 0.0
	for _, s := range c.cpu {
		sum += s
	}
	return sum
}

// measured runs f and returns what it took; pids are the processes that count, each with its children.
// Work that a server goes on with after f counts too: it is waited for until all are quiet.
func measured(ctx context.Context, pids map[string]int, f func() error) (cost, error) {
	runtime.GC() // what was before is not to be cleaned up in here
	before, began := cpuOf(pids), time.Now()
	if err := f(); err != nil {
		return cost{}, err
	}
	c := cost{wall: time.Since(began).Seconds(), cpu: map[string]float64{}}
	quiet(ctx, pids)
	for name, s := range cpuOf(pids) {
		c.cpu[name] = s - before[name]
	}
	return c, nil
}

// quiet waits until the processes use hardly any CPU.
func quiet(ctx context.Context, pids map[string]int) {
	deadline := time.Now().Add(quietLimit)
	for last := sumOf(pids); time.Now().Before(deadline) && await.Pause(ctx, quietFor); {
		now := sumOf(pids)
		if now-last <= quietTicks*float64(len(pids)) {
			return
		}
		last = now
	}
}

// cpuOf is the CPU time so far of each process, and of its children that live.
func cpuOf(pids map[string]int) map[string]float64 {
	out := make(map[string]float64, len(pids))
	for name, pid := range pids {
		out[name] = proc.CPUSeconds(pid)
		if pid == os.Getpid() {
			continue // its children have names of their own, or count nowhere
		}
		for _, child := range proc.Children(pid) {
			out[name+"'s children"] += proc.CPUSeconds(child)
		}
	}
	return out
}

// sumOf is that of all together.
func sumOf(pids map[string]int) float64 { return cost{cpu: cpuOf(pids)}.total() }
