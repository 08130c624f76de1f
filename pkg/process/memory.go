package process

import (
	"math"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare of the container's or the machine's memory is the heap's; the rest is for stacks, mapped files and
// what the runtime does not count.
const memoryShare = 0.9

// LimitMemory sets a soft limit for the Go heap unless GOMEMLIMIT did: nine tenths of what the container may use, or
// else of what the machine has. Caches take their bounds from it (debug.SetMemoryLimit). It returns the limit; 0: none
// was set. Services call it at their start; programs that measure the product's code within themselves do too.
func LimitMemory() int64 {
	return setMemoryLimit(memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem))
}

func setMemoryLimit(memory memlimit.Provider) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit, err := memlimit.ApplyRatio(memory, memoryShare)()
	if err != nil || limit == 0 || limit > math.MaxInt64 {
		return 0 // nobody knows
	}
	debug.SetMemoryLimit(int64(limit))
	return int64(limit)
}

// ballastBytes count as live heap and are never touched, so no page of them exists. A service's own live heap
// is a few MB. At that size the collector runs many times a second under load: measured, it and its write
// barriers took a third of a worker's CPU. With the ballast it waits for as much garbage as this, which is
// what a process grows by.
//
// debug.SetGCPercent cannot say that: its share grows with the live heap. Measured, a process that held 200
// MB peaked at 1,071 MB with 400 %, and at 530 MB with the ballast, where both collected as rarely on a heap
// of a few MB.
const ballastBytes = 32 << 20

var ballast atomic.Pointer[[]byte] // holds it

// FewerCollections makes the garbage collector wait for 32 MB of garbage. Main calls it; programs that
// measure the product's code within themselves do too.
func FewerCollections() {
	if debug.SetMemoryLimit(-1) > 8*ballastBytes { // it counts to the limit
		b := make([]byte, ballastBytes)
		ballast.Store(&b)
	}
}
