// Package installation measures the product's services as they are installed.
package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	uploadClients = 64
	uploadBytes   = 10 * figure.Kilobyte
	uploadRounds  = 5
	uploadRound   = 4 * time.Second
	uploadWarm    = time.Second
)

// uploaded is what one round of load came to, as its process tells it.
type uploaded struct {
	Answered int     `json:"answered"` // 2xx
	Failed   int     `json:"failed"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50"` // ms
	P99      float64 `json:"p99"`
	Error    string  `json:"error,omitempty"` // the first failure
}

func (u uploaded) rate() float64 { return float64(u.Answered) / u.Seconds }

// Upload compares the gateway with two handlers that a person might write instead, each in a process of its own
// and under the same load from another one, round by round.
func Upload(ctx context.Context, b *world.Bench) ([]figure.Figure, error) {
	w, _, procs, err := figure.NewWorld(ctx, b, world.Options{Name: "upload"}, "ingest-api")
	if err != nil {
		return nil, err
	}
	defer w.Close()
	plain, stop, err := startPlainHandlers(ctx, w)
	if err != nil {
		return nil, err
	}
	defer stop()
	ours := procs[0]
	targets := []string{ours.HTTP + "/api/knowledge/documents/upload-async", plain + "/rows", plain + "/file"}
	for i, url := range targets { // connections, caches and the default base
		if _, err := loadOnce(ctx, url, i, uploadWarm, false); err != nil {
			return nil, err
		}
	}
	rounds := make([][]uploaded, len(targets))
	cost := uploadCost{w: w, pid: ours.PID}
	for n := range uploadRounds {
		for i, url := range targets {
			if i == 0 {
				err = cost.of(ctx, func() (uploaded, error) { return loadOnce(ctx, url, 10+n, uploadRound, false) }, &rounds[i])
			} else {
				var u uploaded
				u, err = loadOnce(ctx, url, 10+n, uploadRound, false)
				rounds[i] = append(rounds[i], u)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	keyed := uploadCost{w: w, pid: ours.PID}
	var keyedRounds []uploaded
	if err := keyed.of(ctx, func() (uploaded, error) { return loadOnce(ctx, targets[0], 1000, uploadRound, true) }, &keyedRounds); err != nil {
		return nil, err
	}
	told := keyed.figures(", each with a key")
	for i := range told {
		told[i].Asked, told[i].Relation = 0, "" // a claim and a release more; nothing was asked of them
	}
	return slices.Concat(uploadRates(rounds), cost.figures(""), told), nil
}

// uploadRates compares the rounds pairwise: a busy moment of the machine hits neighbours alike.
func uploadRates(rounds [][]uploaded) []figure.Figure {
	ratio := func(other int) float64 {
		var all []float64
		for n, u := range rounds[0] {
			all = append(all, u.rate()/rounds[other][n].rate())
		}
		return figure.Median(all)
	}
	note := func(of int) string {
		var rates []string
		for _, u := range rounds[of] {
			rates = append(rates, fmt.Sprintf("%.0f", u.rate()))
		}
		return strings.Join(rates, " ") + " /s"
	}
	latest := rounds[0][len(rounds[0])-1]
	return []figure.Figure{
		{Name: "uploads against a handler that commits each", Measured: ratio(1), Unit: "×", Asked: 1.5, Relation: "≥", Note: note(0) + " against " + note(1)},
		{Name: "uploads against a handler that only fsyncs", Measured: ratio(2), Unit: "×", Asked: 0.6, Relation: "≥", Note: "against " + note(2)},
		{Name: "upload answered, p50", Measured: latest.P50, Unit: "ms", Note: fmt.Sprintf("%d clients, p99 %.1f ms", uploadClients, latest.P99)},
	}
}

// uploadCost adds up what uploads cost the servers and the gateway.
type uploadCost struct {
	w       *world.World
	pid     int
	n       int
	SQL     []labserver.Counters
	Redis   []labserver.Counters
	gateway float64 // CPU seconds
}

// of runs one round between two looks at the counters.
func (c *uploadCost) of(ctx context.Context, round func() (uploaded, error), rounds *[]uploaded) error {
	look := func() error {
		sql, err := c.w.SQL.Counters(ctx)
		if err != nil {
			return err
		}
		redis, err := c.w.Redis.Counters(ctx)
		c.SQL, c.Redis = append(c.SQL, sql), append(c.Redis, redis)
		return err
	}
	if err := look(); err != nil {
		return err
	}
	cpu := proc.CPUSeconds(c.pid)
	u, err := round()
	if err != nil {
		return err
	}
	c.gateway += proc.CPUSeconds(c.pid) - cpu
	c.n += u.Answered
	*rounds = append(*rounds, u)
	return look()
}

// figures are the costs of one upload.
func (c *uploadCost) figures(how string) []figure.Figure {
	sum := func(looks []labserver.Counters, f func(labserver.Counters) float64) float64 {
		all := 0.0
		for i := 0; i+1 < len(looks); i += 2 {
			all += f(looks[i+1].Sub(looks[i]))
		}
		return all / float64(c.n)
	}
	name := func(what string) string { return fmt.Sprintf("upload (%d clients%s): %s", uploadClients, how, what) }
	return []figure.Figure{
		{Name: name("SQL statements"), Measured: sum(c.SQL, func(c labserver.Counters) float64 { return c.Statements }), Asked: 0.5, Relation: "≤", Note: fmt.Sprintf("MariaDB, flush=1, %d uploads of 10 KB", c.n)},
		{Name: name("commits"), Measured: sum(c.SQL, func(c labserver.Counters) float64 { return c.Commits }), Asked: 0.1, Relation: "≤"},
		{Name: name("fsyncs of the database"), Measured: sum(c.SQL, func(c labserver.Counters) float64 { return c.Fsyncs })},
		{Name: name("redo"), Measured: sum(c.SQL, func(c labserver.Counters) float64 { return c.RedoBytes }), Unit: "B"},
		{Name: name("Redis round trips"), Measured: sum(c.Redis, func(c labserver.Counters) float64 { return c.Reads })},
		{Name: name("CPU of the gateway"), Measured: 1e6 * c.gateway / float64(c.n), Unit: "µs"},
		{Name: name("CPU of the database"), Measured: 1e6 * sum(c.SQL, func(c labserver.Counters) float64 { return c.CPU }), Unit: "µs"},
	}
}

// uploadRole is the argument that makes this program a part of the benchmark; what follows is the part's own.
const uploadRole = "upload-part"

// IsUploadPart reports whether the arguments name a part.
func IsUploadPart(args []string) bool { return len(args) > 2 && args[1] == uploadRole }

// RunUploadPart runs the part that the arguments name; it returns the exit code.
func RunUploadPart(args []string, stdout, stderr io.Writer) int {
	part := map[string]func(args []string, stdout io.Writer) error{"load": uploadLoad, "plain": plainHandlers, "search": searchLoad}[args[2]]
	if part == nil {
		return process.ExitUsage
	}
	if err := part(args[3:], stdout); err != nil {
		_, _ = fmt.Fprintln(stderr, "bench:", err)
		return process.ExitFailed
	}
	return process.ExitOK
}

// loadOnce puts the load of one round on url, from a process of its own; number makes its documents unlike those of other rounds.
func loadOnce(ctx context.Context, url string, number int, limit time.Duration, keys bool) (uploaded, error) {
	var u uploaded
	out, err := selfCommand(ctx, "load", url, strconv.Itoa(number), limit.String(), strconv.FormatBool(keys)).Output()
	if err == nil {
		err = json.Unmarshal(out, &u)
	}
	switch {
	case err != nil:
		return u, fmt.Errorf("load %s: %w", url, err)
	case u.Failed > 0 || u.Answered == 0:
		return u, fmt.Errorf("load %s: %d answered, %d failed: %s", url, u.Answered, u.Failed, u.Error)
	}
	return u, nil
}

// selfCommand is this program as a part of the benchmark.
func selfCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{uploadRole}, args...)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// startPlainHandlers starts the handlers to compare with; they end when stop closes their input.
func startPlainHandlers(ctx context.Context, w *world.World) (url string, stop func(), err error) {
	dir := filepath.Join(w.Dir, "plain")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	cmd := selfCommand(ctx, "plain", dir, w.SQL.DSN(""), w.Redis.URL("1"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { _ = errors.Join(stdin.Close(), cmd.Wait()) }
	line := make([]byte, 64)
	n, err := stdout.Read(line)
	if err != nil && !errors.Is(err, io.EOF) || n == 0 {
		stop()
		return "", nil, fmt.Errorf("the plain handlers did not start: %w", err)
	}
	return strings.TrimSpace(string(line[:n])), stop, nil
}
