package process

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	memoryShare = 0.9     // the rest is for stacks, mapped files and what the runtime does not count
	memoryNone  = 1 << 50 // cgroup v1 writes a huge number for "no limit"
)

// memoryFiles hold the container's limit: cgroup v2, then v1.
var memoryFiles = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// LimitMemory sets a soft limit of bytes for the Go heap unless GOMEMLIMIT or the container's own limit set one.
// It returns the limit in force, or 0 when there is none. Bodies that know their need call it.
func LimitMemory(bytes int64) int64 {
	if current := debug.SetMemoryLimit(-1); current != math.MaxInt64 {
		return current
	}
	if bytes <= 0 {
		return 0
	}
	debug.SetMemoryLimit(bytes)
	return bytes
}

// setMemoryLimit takes nine tenths of the container's limit, unless GOMEMLIMIT is set; 0: nothing was set.
func setMemoryLimit(files []string) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n <= 0 || n >= memoryNone {
			continue // "max"
		}
		limit := int64(float64(n) * memoryShare)
		debug.SetMemoryLimit(limit)
		return limit
	}
	return 0
}

// ballastBytes count as live heap and are never touched, so no page of them exists. A service's own live heap is a few MB, at
// which the collector would run many times a second under load: measured, it and its write barriers took a third of a
// worker's CPU. With the ballast it waits for as much garbage as this, which is what a process grows by.
const ballastBytes = 32 << 20

var ballast atomic.Pointer[[]byte] // holds it

// FewerCollections makes the garbage collector wait for 32 MB of garbage. Main calls it; programs that measure
// the product's code within themselves do too.
func FewerCollections() {
	if debug.SetMemoryLimit(-1) > 8*ballastBytes { // it counts to the limit
		b := make([]byte, ballastBytes)
		ballast.Store(&b)
	}
}
