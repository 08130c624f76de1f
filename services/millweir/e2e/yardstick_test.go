package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// yardstick measures how long the machine itself keeps a small piece of work waiting: a timer of 10 ms and one flushed write.
// What has to be quick is judged against it, in the same seconds: a stall explains lateness in proportion, nothing else does.
type yardstick struct {
	stop chan struct{}
	done chan time.Duration
}

// measure begins to measure.
func measure(t *testing.T) *yardstick {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "yardstick"))
	require.NoError(t, err)
	y := &yardstick{stop: make(chan struct{}), done: make(chan time.Duration, 1)}
	go func() {
		const tick = 10 * time.Millisecond
		var longest time.Duration
		defer func() { _ = f.Close(); y.done <- longest }()
		for {
			began := time.Now()
			<-time.After(tick)
			_, _ = f.WriteAt(make([]byte, 4096), 0) // only its time is asked for
			_ = f.Sync()
			longest = max(longest, time.Since(began)-tick)
			select {
			case <-y.stop:
				return
			default:
			}
		}
	}()
	return y
}

// stall is the longest wait since measure.
func (y *yardstick) stall() time.Duration {
	close(y.stop)
	return <-y.done
}
