// Package bench measures the product's own binaries on real servers and prints each figure beside the one asked for.
//
//	lab bench [-name PREFIX,…] [-list] [-report] [-out FILE] [-cpuprofile FILE]     BENCH=prefix,… in the environment does as -name
//
// BENCH_ROWS=10000000 adds the largest table to "scale" (it takes long to fill), BENCH_MINUTES=n shortens "steady".
// The table goes to the screen and, with all details, as JSON to FILE (.run/bench.json). A figure that missed
// what was asked is marked, the last lines name all of them, and the exit code is then 1: -report makes it 0. It is 1 in any
// case when something could not be measured.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/lab/bench/document"
	"github.com/millweir/millweir/scripts/lab/bench/engine"
	"github.com/millweir/millweir/scripts/lab/bench/figure"
	"github.com/millweir/millweir/scripts/lab/bench/installation"
	"github.com/millweir/millweir/scripts/lab/bench/mq"
	"github.com/millweir/millweir/scripts/lab/bench/reading"
	"github.com/millweir/millweir/scripts/lab/bench/searchquality"
	"github.com/millweir/millweir/scripts/lab/bench/searchscale"
	"github.com/millweir/millweir/scripts/lab/verb"
	"github.com/millweir/millweir/scripts/lab/world"
)

// report is what is written to the file.
type report struct {
	At      time.Time       `json:"at"`
	CPUs    int             `json:"cpus"`
	Load    string          `json:"loadAverage"` // before the first benchmark: figures of a busy machine are worth less
	Seconds float64         `json:"seconds"`
	Figures []figure.Figure `json:"figures"`
}

// bench is one measurement; it returns its figures.
type bench struct {
	name  string
	what  string
	limit time.Duration
	run   func(ctx context.Context, b *world.Bench) ([]figure.Figure, error)
}

// inProcess run the product's code in this process and need none of its binaries.
var inProcess = []bench{
	{"noop-mysql", "tasks that do nothing on MariaDB and Redis (everysec): submit, drain, latency", 5 * time.Minute, engine.NoopOn(labserver.KindMariaDB)},
	{"noop-mysql-always", "the same with Redis that syncs every write", 5 * time.Minute, engine.NoopOn(labserver.KindMariaDB, "--appendfsync", "always")},
	{"noop-postgres", "the same on Postgres and Redis (everysec)", 5 * time.Minute, engine.NoopOn(labserver.KindPostgres)},
	{"noop-sqlite", "the same on SQLite and the Redis in process, as `millweir dev` has them", 5 * time.Minute, engine.NoopOn("")},
	{"noop-kafka", "the same over outbox, relay and Kafka, and its drain against that of the Redis transport", 6 * time.Minute, engine.NoopKafka},
	{"counters", "what a task costs the servers, in counts that carry no noise", 3 * time.Minute, engine.Counters},
	{"relay", "the outbox's relay on MariaDB and a stand-in broker, beside the raw loop; how long events wait", 5 * time.Minute, engine.Relay},
	{"streammq", "the partitioned queue on Redis: beside raw commands, latency, retries' lateness, takeover", 6 * time.Minute, mq.StreamMQ},
	{"text-index", "200 real documents end to end with the full-text index and without it, by turns", 20 * time.Minute, document.TextIndex},
	{"search-scale", "text searches of 10 and 100 thousand segments on each database (BENCH_ROWS=1000000: and of 1 million)", 2 * time.Hour, searchscale.Scale},
	{"capacity", "runs of 1, 2 and 4 workers against what the capacity model predicts", 10 * time.Minute, engine.Capacity},
	{"failures", "groups, pages and dry runs over a million DEAD tasks", time.Hour, engine.Failures},
	{"scale", "claims, sweeps and lists on 10 thousand finished tasks against 1 million (BENCH_ROWS=10000000: and 10 million)", 2 * time.Hour, engine.Scale},
}

// benches are all of them.
var benches = append(inProcess[:len(inProcess):len(inProcess)], []bench{
	{"latency", "upload of a 10 KB text until it is searchable, all-in-one, idle", time.Minute, installation.Latency},
	{"lateness", "start of 1,000 due retries after their nextRetryAt", 3 * time.Minute, installation.Lateness},
	{"takeover", "kill -9 of a worker with 20 running tasks until all run again", time.Minute, installation.Takeover},
	{"flushall", "FLUSHALL with 10,000 queued tasks until all are back and done", 6 * time.Minute, installation.Flushall},
	{"backlog", "100,000 queued tasks and no worker: how many are added again in 60 s", 3 * time.Minute, installation.Backlog},
	{"memory", "resident memory of a worker, idle and over the corpus", 3 * time.Minute, document.Memory},
	{"pdf", "pages and files per second of a resident reader", time.Minute, document.Pdf},
	{"reading", "words of documents that nobody here wrote, found by our readers, Tika, kreuzberg and markitdown, and what it cost", 30 * time.Minute, reading.Reading},
	{"documents", "200 real documents end to end against the unavoidable parts of the work alone", 10 * time.Minute, document.Documents},
	{"paid", "embeddings paid twice when the worker of a document is killed ten times", 3 * time.Minute, installation.Paid},
	{"edit", "texts embedded and vectors written when a sentence is put into a document of 300 pages", 5 * time.Minute, installation.Edit},
	{"budget", "requests of two workers with one budget, to a service that refuses half of them, against the budget", 5 * time.Minute, installation.Budget},
	{"mirror", "copies in RabbitMQ beside the broker alone, and tasks with the mirror beside tasks without", 20 * time.Minute, engine.Mirror},
	{"upload", "10 KB uploads of 64 clients, beside handlers that commit each or only fsync", 3 * time.Minute, installation.Upload},
	{"upload-search", "the same uploads with 200 searches a second beside them and without, by turns", 5 * time.Minute, installation.UploadBesideSearches},
	{"search-quality", "1,922 questions with known answers in six languages, by mode, beside rank_bm25 and FTS5, and with real models", 30 * time.Minute, searchquality.Quality},
	{"mirror-redis-away", "start of tasks out of their copies while Redis is away", 3 * time.Minute, installation.RedisAway},
	{"workflows", "no-op workflows with their results, 100 a second", 2 * time.Minute, installation.Workflows},
	{"events", "statements per second of 1,000 idle event streams", 2 * time.Minute, installation.Events},
	{"console", "server time of each screen of the console over a million tasks and documents (BENCH_ROWS)", time.Hour, engine.Console},
	{"steady", "memory of the services over 30 minutes of even load (BENCH_MINUTES)", installation.SteadyTime() + 15*time.Minute, installation.Steady},
}...)

// Run is the verb bench.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return run(ctx, benches, args, stdout, stderr)
}

// run is Run over some benchmarks.
func run(ctx context.Context, benches []bench, args []string, stdout, stderr io.Writer) int {
	f := verb.Flags{Names: os.Getenv("BENCH")}
	var out, profile string
	var tell bool
	if code, ok := verb.Parse("bench", args, stderr, &f, func(set *flag.FlagSet) {
		set.StringVar(&out, "out", "", "file for the figures as JSON")
		set.BoolVar(&tell, "report", false, "exit with 0 although figures missed what was asked")
		set.StringVar(&profile, "cpuprofile", "", "file for a CPU profile of this process")
	}); !ok {
		return code
	}
	chosen, err := verb.Choose(f.Names, benches, nameOf)
	if err != nil {
		return verb.Fail(stderr, "bench", process.ExitUsage, err)
	}
	if f.List {
		return verb.List(stdout, chosen, func(b bench) (string, string) { return b.name, b.what })
	}
	var lb *world.Bench
	if slices.ContainsFunc(chosen, needsBinaries) {
		lb, err = world.Prepare(ctx, "bench")
	}
	if err == nil {
		err = profiled(profile, func() error { return measure(ctx, lb, chosen, out, tell, stdout) })
	}
	if err != nil {
		return verb.Fail(stderr, "bench", process.ExitFailed, err)
	}
	return process.ExitOK
}

func nameOf(b bench) string { return b.name }

// profiled runs f with a CPU profile of this process, if one is wanted.
func profiled(path string, f func() error) error {
	if path == "" {
		return f()
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return errors.Join(err, file.Close())
	}
	err = f()
	pprof.StopCPUProfile()
	return errors.Join(err, file.Close())
}

// needsBinaries tells whether a benchmark starts the product's services.
func needsBinaries(b bench) bool {
	return !slices.ContainsFunc(inProcess, func(other bench) bool { return other.name == b.name })
}

// errMissed says that figures are not what was asked for.
var errMissed = errors.New("figures missed what was asked")

// measure runs benchmarks one after the other, prints each row as it is known, sums up and writes the file.
// Errors: what could not be measured; errMissed, unless the figures are only to be told.
func measure(ctx context.Context, lb *world.Bench, chosen []bench, out string, tell bool, stdout io.Writer) error {
	started := time.Now()
	r := report{At: started.UTC(), CPUs: runtime.NumCPU(), Load: loadAverage()}
	_, _ = fmt.Fprintf(stdout, "%-17s %-60s %12s %14s\n", "", fmt.Sprintf("%d CPUs, load %s", r.CPUs, r.Load), "asked", "measured")
	var failed error
	for _, b := range chosen {
		if ctx.Err() != nil {
			break
		}
		for _, f := range b.figures(ctx, lb) {
			r.Figures = append(r.Figures, f)
			row(stdout, f)
			if f.Error != "" {
				failed = fmt.Errorf("%s could not be measured", f.Bench)
			}
		}
	}
	r.Seconds = time.Since(started).Seconds()
	if missed := r.summary(stdout); missed > 0 && !tell {
		failed = errors.Join(failed, fmt.Errorf("%d %w; -report tells them and exits with 0", missed, errMissed))
	}
	if ctx.Err() != nil {
		failed = errors.Join(failed, context.Cause(ctx))
	}
	if out == "" {
		return failed
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(out), 0o755)
	}
	if err == nil {
		err = os.WriteFile(out, append(text, '\n'), 0o644)
	}
	return errors.Join(failed, err)
}

// summary prints how many figures met what was asked, and names those that did not.
func (r report) summary(w io.Writer) (missed int) {
	asked, unknown := 0, 0
	var names strings.Builder
	for _, f := range r.Figures {
		switch {
		case f.Error != "":
			unknown++
		case f.Relation == "":
			continue
		default:
			asked++
		}
		if f.Error == "" && !f.Met {
			missed++
			_, _ = fmt.Fprintf(&names, "  missed: %s, %s: %.4g %s, asked %s %g\n", f.Bench, f.Name, f.Measured, f.Unit, f.Relation, f.Asked)
		}
	}
	_, _ = fmt.Fprintf(w, "%d figures asked for: %d met, %d missed; %d could not be measured\n%s", asked, asked-missed, missed, unknown, names.String())
	return missed
}

// figures runs one benchmark within its limit.
func (b bench) figures(ctx context.Context, lb *world.Bench) []figure.Figure {
	ctx, cancel := context.WithTimeoutCause(ctx, b.limit, fmt.Errorf("longer than %s", b.limit))
	defer cancel()
	out, err := b.run(ctx, lb)
	for i := range out {
		f := &out[i]
		f.Bench = b.name
		f.Met = f.Relation == "" || (f.Relation == "≤" && f.Measured <= f.Asked) || (f.Relation == "≥" && f.Measured >= f.Asked)
	}
	if err != nil {
		out = append(out, figure.Figure{Bench: b.name, Name: b.what, Error: err.Error()})
	}
	return out
}

// row writes one row of the table.
func row(w io.Writer, f figure.Figure) {
	if f.Error != "" {
		_, _ = fmt.Fprintf(w, "%-17s %-60s FAILED: %s\n", f.Bench, f.Name, f.Error)
		return
	}
	asked, mark := "", ""
	if f.Relation != "" {
		asked = fmt.Sprintf("%s %g %s", f.Relation, f.Asked, f.Unit)
	}
	if !f.Met {
		mark = "  MISSED"
	}
	_, _ = fmt.Fprintf(w, "%-17s %-60s %12s %14s%s  %s\n", f.Bench, f.Name, asked, fmt.Sprintf("%.4g %s", f.Measured, f.Unit), mark, f.Note)
}

// loadAverage is the kernel's, of one minute.
func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(b), " ")
	return first
}
