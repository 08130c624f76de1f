package extract

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
	"github.com/millweir/millweir/pkg/ingest/extract/formats"
	"github.com/millweir/millweir/pkg/ingest/extract/frame"
)

// parentArg makes the test's program a parent whose child never ends by itself.
const parentArg = "extract-parent"

// orphanMaker prints the number of a child that spins, and waits for its own end.
func orphanMaker() int {
	p, err := NewPool(NewDefaultConfig(), slog.New(slog.DiscardHandler))
	if err != nil {
		return 1
	}
	w, err := p.acquire(context.Background(), noPDF)
	if err != nil {
		return 1
	}
	f, err := os.Open(os.Getenv("ORDER"))
	if err != nil {
		return 1
	}
	r, _ := formats.For(typeHostile)
	run := &jobRun{pool: p, worker: w, reader: r, job: frame.Job{MediaType: typeHostile, Size: 4, Limits: p.cfg.limits()},
		emit: func(ingest.Block) error { return nil }}
	_, _ = fmt.Fprintln(os.Stdout, w.cmd.Process.Pid)
	_, _ = run.do(context.Background(), f)
	return 1
}

// TestChildDiesWithItsParent kills a parent whose child is in the middle of a document: nobody else would end
// it.
func TestChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.CommandContext(t.Context(), os.Args[0], parentArg)
	parent.Env = append(os.Environ(), "ORDER="+extracttest.WriteTemp(t, "order", []byte("spin")))
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.Positive(t, residentBytes(child))
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { return residentBytes(child) == 0 }, time.Minute, 20*time.Millisecond)
}
