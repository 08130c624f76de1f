package extract

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/ingest/extract/sandbox"
)

const (
	// watchEvery is how often a working child is looked at.
	watchEvery = 50 * time.Millisecond
	// maxThreads is more than Go's runtime makes for one document on any machine; RLIMIT_NPROC could not tell
	// a child's from others'.
	maxThreads = 512
)

// verdicts of the watchdog.
const (
	killedNot = iota
	killedCanceled
	killedDeadline
	killedMemory
	killedThreads
)

// watchdog watches one job of one child and kills it over a limit.
type watchdog struct {
	w        *worker
	deadline time.Duration
	memory   int64 // bytes of resident size

	emitting atomic.Bool // the receiver works, not the child: its time does not count
	reason   atomic.Int32
	peak     atomic.Int64
	stop     chan struct{}
	wg       sync.WaitGroup
}

// watch starts watching; end must be called.
func watch(ctx context.Context, w *worker, deadline time.Duration, memoryMB int) *watchdog {
	d := &watchdog{w: w, deadline: deadline, memory: sandbox.MaxResident(memoryMB), stop: make(chan struct{})}
	d.wg.Go(func() { d.run(ctx) })
	return d
}

func (d *watchdog) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last, spent := time.Now(), time.Duration(0)
	for {
		select {
		case <-d.stop:
			return
		case <-ctx.Done():
			d.kill(killedCanceled)
			return
		case now := <-tick.C:
			if !d.emitting.Load() {
				spent += now.Sub(last)
			}
			last = now
			rss, threads := processSize(d.w.cmd.Process.Pid)
			d.note(rss)
			switch {
			case threads > maxThreads:
				d.kill(killedThreads)
				return
			case d.peak.Load() > d.memory:
				d.kill(killedMemory)
				return
			case spent > d.deadline:
				d.kill(killedDeadline)
				return
			}
		}
	}
}

func (d *watchdog) kill(reason int32) {
	d.reason.Store(reason)
	d.w.signal()
}

func (d *watchdog) note(rss int64) {
	if rss > d.peak.Load() {
		d.peak.Store(rss)
	}
}

// end stops watching and returns the child's peak resident size in bytes.
func (d *watchdog) end() int64 {
	close(d.stop)
	d.wg.Wait()
	d.note(peakBytes(d.w.cmd.Process.Pid))
	return d.peak.Load()
}

// explain says why the child was killed; empty when it was not.
func (d *watchdog) explain() string {
	switch d.reason.Load() {
	case killedDeadline:
		return fmt.Sprintf("the reader took longer than %s", d.deadline)
	case killedMemory:
		return fmt.Sprintf("the reader took more than %d MiB of memory", d.memory>>20)
	case killedThreads:
		return fmt.Sprintf("the reader made more than %d threads", maxThreads)
	}
	return ""
}

// residentBytes is a process's resident size; 0 when it is gone.
func residentBytes(pid int) int64 {
	rss, _ := processSize(pid)
	return rss
}

// Fields of /proc/PID/stat behind the command's name, which may hold anything: proc(5) numbers them from 3
// on.
const (
	statThreads = 20 - 3
	statPages   = 24 - 3
)

// processSize is a process's resident size in bytes and the number of its threads; 0 when it is gone.
func processSize(pid int) (rss, threads int64) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) <= statPages {
		return 0, 0
	}
	pages, pagesErr := strconv.ParseInt(string(fields[statPages]), 10, 64)
	threads, threadsErr := strconv.ParseInt(string(fields[statThreads]), 10, 64)
	if pagesErr != nil || threadsErr != nil {
		return 0, 0
	}
	return pages * int64(os.Getpagesize()), threads
}

// peakBytes is the kernel's own record of a living process's largest resident size; 0 when it is gone.
func peakBytes(pid int) int64 {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	_, after, ok := bytes.Cut(raw, []byte("VmHWM:"))
	if !ok {
		return 0
	}
	fields := bytes.Fields(after[:min(len(after), 64)])
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
