package stage

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/millweir/millweir/pkg/labserver/child"
)

const (
	clockTick = 100 // of CPU times in /proc, per second: USER_HZ
	// postgresLag is for sessions that have just ended to hand in their figures.
	postgresLag = 300 * time.Millisecond
)

// Counters are what servers and processes have done so far. They carry next to no noise of the machine.
type Counters struct {
	Statements    float64 `json:"statements,omitempty"`
	Commits       float64 `json:"commits,omitempty"`
	Fsyncs        float64 `json:"fsyncs,omitempty"`        // of the database; Redis does not count its own
	RedoBytes     float64 `json:"redoBytes,omitempty"`     // or of the write-ahead log
	RedisCommands float64 `json:"redisCommands,omitempty"` // with those inside scripts
	RedisReads    float64 `json:"redisReads,omitempty"`    // of sockets: close to round trips
	ClientMicros  float64 `json:"clientMicros,omitempty"`  // CPU of the system's processes
	ServerMicros  float64 `json:"serverMicros,omitempty"`  // CPU of the servers that it uses
}

// fields are the counters in one order.
func (c *Counters) fields() []*float64 {
	return []*float64{
		&c.Statements, &c.Commits, &c.Fsyncs, &c.RedoBytes, &c.RedisCommands, &c.RedisReads, &c.ClientMicros, &c.ServerMicros,
	}
}

// PerTask is what was added since before, for each of n tasks.
func (c Counters) PerTask(before Counters, n int) Counters {
	was := before.fields()
	for i, f := range c.fields() {
		*f = (*f - *was[i]) / float64(max(1, n))
	}
	return c
}

// Median is that of each counter for itself.
func Median(all []Counters) Counters {
	var out Counters
	for i, f := range out.fields() {
		values := make([]float64, len(all))
		for j := range all {
			values[j] = *all[j].fields()[i]
		}
		*f = MedianOf(values)
	}
	return out
}

// MedianOf is the middle of the values, or between the two in the middle; none: 0.
func MedianOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Read reads the counters of some servers and of a process with its children.
func (s Servers) Read(ctx context.Context, which []Server, pid int) (Counters, error) {
	c := Counters{ClientMicros: cpuMicros(pid)}
	for _, name := range which {
		if name == Postgres {
			select {
			case <-time.After(postgresLag):
			case <-ctx.Done():
				return c, context.Cause(ctx)
			}
		}
		now, err := s[name].Counters(ctx)
		if err != nil {
			return c, err
		}
		c.Statements += now.Statements
		c.Commits += now.Commits
		c.Fsyncs += now.Fsyncs
		c.RedoBytes += now.RedoBytes
		c.RedisCommands += now.Commands
		c.RedisReads += now.Reads
		c.ServerMicros += cpuMicros(s[name].PID())
	}
	return c, nil
}

// cpuMicros is the CPU time of a process, of its children, and of those that they have waited for: a session of
// Postgres or a worker of taskiq that has ended meanwhile counts too.
func cpuMicros(pid int) float64 {
	children := map[int][]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		id, err := strconv.Atoi(filepath.Base(d))
		if f := child.StatFields(id); err == nil && len(f) > 1 {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], id)
		}
	}
	ticks := 0.0
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
		if f := child.StatFields(all[i]); len(f) > 14 {
			for _, v := range f[11:15] { // utime, stime, cutime, cstime
				n, _ := strconv.ParseFloat(v, 64)
				ticks += n
			}
		}
	}
	return ticks * 1e6 / clockTick
}
