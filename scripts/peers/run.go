package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/process"
	"github.com/millweir/millweir/scripts/peers/report"
	"github.com/millweir/millweir/scripts/peers/rival"
	"github.com/millweir/millweir/scripts/peers/stage"
)

// options are the command line's.
type options struct {
	names   string
	reps    int
	tasks   int
	workers int
	rate    int
	seconds int
	dir     string
	out     string
	doc     string
	profile bool
}

// run measures, or writes the page; it returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.names, "names", os.Getenv("NAMES"), "only systems whose names begin with one of these, comma separated (NAMES)")
	flags.IntVar(&o.reps, "reps", variable("REPS", 3), "repetitions (REPS)")
	flags.IntVar(&o.tasks, "n", variable("N", 20_000), "tasks of a bulk; systems below 10,000 a second get a quarter (N)")
	flags.IntVar(&o.workers, "workers", variable("WORKERS", 64), "handlers at a time where a system lets choose, and clients that submit at a time (WORKERS)")
	flags.IntVar(&o.rate, "rate", variable("RATE", 500), "tasks per second of the latency phase (RATE)")
	flags.IntVar(&o.seconds, "seconds", variable("LATENCY_SECONDS", 6), "seconds of the latency phase, after its first one; 0 leaves it out (LATENCY_SECONDS)")
	flags.StringVar(&o.dir, "dir", ".run/peers", "folder for servers' data, logs and installed systems")
	flags.StringVar(&o.out, "out", ".run/peers.json", "file of the results")
	flags.BoolVar(&o.profile, "profile", false, "let the systems in Go write CPU profiles of each phase into the folder")
	flags.StringVar(&o.doc, "doc", "", "measure nothing: put the tables of the last run into this page")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return process.ExitOK
		}
		return process.ExitUsage
	}
	err := o.do(ctx, stdout)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "peers:", err)
		return process.ExitFailed
	}
	return process.ExitOK
}

// do does what the options say.
func (o options) do(ctx context.Context, stdout io.Writer) error {
	if o.doc != "" {
		return o.writePage()
	}
	if o.reps < 1 || o.tasks < 1 || o.workers < 1 || o.rate < 1 || o.seconds < 0 {
		return errors.New("-reps, -n, -workers and -rate must be positive")
	}
	chosen := matching(o.names)
	if len(chosen) == 0 {
		return fmt.Errorf("no system's name begins with %q", o.names)
	}
	return o.measure(ctx, chosen, stdout)
}

// measure starts the servers and measures the chosen systems; what fails is in the report, and in the error.
func (o options) measure(ctx context.Context, chosen []entry, stdout io.Writer) (err error) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return err
	}
	data, unlock, err := freshData(dir)
	if err != nil {
		return err
	}
	defer unlock()
	running, err := stage.Start(ctx, data, servers(chosen))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, running.Stop(context.WithoutCancel(ctx)), os.RemoveAll(data)) }()
	m := measurement{options: o, dir: dir, servers: running, stdout: stdout}
	m.report = report.Report{At: time.Now().UTC(), CPUs: runtime.NumCPU(), Kernel: kernel(), Tasks: o.tasks, Reps: o.reps, Rate: o.rate}
	for rep := range o.reps {
		m.report.Loads = append(m.report.Loads, load())
		for _, e := range chosen {
			m.system(ctx, e, rep)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err := m.save(); err != nil {
				return err
			}
		}
	}
	m.report.Loads = append(m.report.Loads, load())
	if err := m.save(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(stdout, "\n"+m.report.Markdown())
	return m.failed
}

// measurement is a run under way.
type measurement struct {
	options
	dir     string
	servers stage.Servers
	stdout  io.Writer
	report  report.Report
	failed  error
}

// system measures one system once.
func (m *measurement) system(ctx context.Context, e entry, rep int) {
	phase := rival.PhasePrepare
	err := func() error {
		argv, err := e.argv(ctx, m.dir)
		if err != nil {
			return fmt.Errorf("install: %w", err)
		}
		p, err := stage.Launch(argv, append(m.config(e).Environ(), e.env...), filepath.Join(m.dir, e.name+".log"))
		if err != nil {
			return err
		}
		defer p.End()
		for _, phase = range e.phases(m.seconds > 0) {
			if err := m.phase(ctx, p, e, rep, phase); err != nil {
				return err
			}
		}
		return nil
	}()
	if err != nil {
		m.add(report.Result{System: e.name, Keeps: e.keeps, Rep: rep, Phase: phase, Load: load(), Error: err.Error()})
		m.failed = errors.Join(m.failed, fmt.Errorf("%s could not be measured", e.name))
	}
}

// phase measures one phase of a system.
func (m *measurement) phase(ctx context.Context, p *stage.Program, e entry, rep int, phase rival.Phase) error {
	if phase == rival.PhasePrepare {
		_, err := p.Ask(ctx, phase)
		return err
	}
	r := report.Result{System: e.name, Keeps: e.keeps, Rep: rep, Phase: phase, Load: load()}
	before, err := m.servers.Read(ctx, e.uses, p.PID())
	if err != nil {
		return err
	}
	if r.Reply, err = p.Ask(ctx, phase); err != nil {
		return err
	}
	after, err := m.servers.Read(ctx, e.uses, p.PID())
	if err != nil {
		return err
	}
	r.PerTask = after.PerTask(before, r.Reply.Tasks)
	m.add(r)
	return nil
}

// config is what a system is told.
func (m *measurement) config(e entry) rival.Config {
	profile := ""
	if m.profile {
		profile = filepath.Join(m.dir, e.name)
	}
	return rival.Config{
		Profile: profile, Tasks: max(1, m.tasks/e.share), Workers: m.workers, Rate: m.rate, Seconds: max(1, m.seconds),
		Redis: m.servers.Addr(e.redis()), MySQL: m.servers.DSN(stage.MariaDB), Postgres: m.servers.DSN(stage.Postgres),
	}
}

// add keeps a result and prints it in one line.
func (m *measurement) add(r report.Result) {
	m.report.Results = append(m.report.Results, r)
	said := fmt.Sprintf("%.0f/s", float64(r.Reply.Tasks)/r.Reply.Seconds)
	switch {
	case r.Error != "":
		said = "FAILED: " + r.Error
	case r.Phase == rival.PhaseLatency:
		said = fmt.Sprintf("sent → start p50 %.2f p99 %.2f ms, commit → start p50 %.2f p99 %.2f ms",
			r.Reply.SentP50, r.Reply.SentP99, r.Reply.CommitP50, r.Reply.CommitP99)
	}
	_, _ = fmt.Fprintf(m.stdout, "%d/%d  load %-6s %-22s %-8s %s %s\n", r.Rep+1, m.reps, r.Load, r.System, r.Phase, said, r.Reply.Note)
}

// freshData makes an empty folder for the servers' data; unlock lets another run have it.
func freshData(dir string) (data string, unlock func(), err error) {
	data = filepath.Join(dir, "data")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", nil, err
	}
	unlock = func() { _ = lock.Close() }
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		unlock()
		return "", nil, fmt.Errorf("another run uses %s: %w", dir, err)
	}
	if err := errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o755)); err != nil {
		unlock()
		return "", nil, err
	}
	return data, unlock, nil
}

// writePage puts the tables of the last run into the page.
func (o options) writePage() error {
	text, err := os.ReadFile(o.out)
	if err != nil {
		return err
	}
	var r report.Report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", o.out, err)
	}
	r.Judge()
	page, err := os.ReadFile(o.doc)
	if err != nil {
		return err
	}
	filled, err := r.IntoPage(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", o.doc, err)
	}
	return os.WriteFile(o.doc, []byte(filled), 0o644)
}

// save writes what was measured so far, so that a run that is cut off has been of use.
func (m *measurement) save() error {
	m.report.Seconds = time.Since(m.report.At).Seconds()
	m.report.Judge()
	text, err := json.MarshalIndent(m.report, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(m.out), 0o755), os.WriteFile(m.out, append(text, '\n'), 0o644))
}

// variable is a number of the environment, or else its default.
func variable(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// load is the load average of one minute.
func load() string {
	first, _, _ := strings.Cut(file("/proc/loadavg"), " ")
	return cmp.Or(first, "unknown")
}

// kernel is the release of the kernel.
func kernel() string { return cmp.Or(strings.TrimSpace(file("/proc/sys/kernel/osrelease")), "unknown") }

// file is a file's text, empty when it cannot be read.
func file(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
