package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/telemetry"
)

// Exit codes of a service. A second signal ends with 128 + its number.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2 // bad settings or arguments
)

// flushTimeout bounds what comes after the body has ended: the last spans, the operator server.
const flushTimeout = 5 * time.Second

// Spec says what a binary is.
type Spec struct {
	// Name is the service's name in logs, traces and --version.
	Name string
	// OperatorAddr is the default of OPERATOR_ADDR; empty: no operator server unless OPERATOR_ADDR is set.
	OperatorAddr string
	// Flags adds what people say on the command line and not in settings; Help has a line for each. nil: nothing.
	Flags func(flags *flag.FlagSet)
	Help  string
}

// Env is what a body gets from its process.
type Env struct {
	Name    string
	Version string
	Log     *slog.Logger
	// Metrics takes the body's collectors; the operator server shows them.
	Metrics *prometheus.Registry
	// Ready takes the body's readiness checks; it is draining from the first signal on.
	Ready *Ready
	// Stdout is for the few lines that people or scripts wait for, such as "ready http://…".
	Stdout io.Writer
	// OperatorURL is where the operator server answers; empty when there is none.
	OperatorURL string
}

// common are the settings of every service; they are read by this package, not by the bodies.
type common struct {
	LogLevel  string `envconfig:"LOG_LEVEL" default:"info" allowed:"debug|info|warn|error" desc:"least level of the log lines"`
	LogFormat string `envconfig:"LOG_FORMAT" default:"auto" allowed:"auto|json|text" desc:"auto is text on a terminal and JSON elsewhere"`
	Operator  string `envconfig:"OPERATOR_ADDR" desc:"address of /healthz, /readyz, /metrics and pprof; port 0 picks a free one"`
}

// IO is the outside of a process, replaced in tests.
type IO struct {
	Args   []string // without the program's name
	Stdout io.Writer
	Stderr io.Writer
}

// Main reads the settings into a T, runs the body until it ends or a signal comes, and exits.
// T is a flat struct with envconfig tags; see Load. It never returns.
func Main[T any](spec Spec, body func(ctx context.Context, env *Env, cfg *T) error) {
	FewerCollections()
	Command(func(ctx context.Context) int {
		return Run(ctx, spec, IO{Args: os.Args[1:], Stdout: os.Stdout, Stderr: os.Stderr}, body)
	})
}

// Command runs a program that has exit codes of its own, such as a command line, under the same rules for signals:
// the first SIGINT or SIGTERM ends ctx (its cause is a StoppedError), the second one ends the process at once.
// It never returns.
func Command(program func(ctx context.Context) int) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(supervise(program, signals, os.Stderr, os.Exit))
}

// StoppedError is the cause of a context that a signal ended.
type StoppedError struct{ Signal os.Signal }

// Error names the signal.
func (e *StoppedError) Error() string { return "stopped by signal: " + e.Signal.String() }

// supervise turns the first signal into the end of the context and the second one into exit.
func supervise(program func(ctx context.Context) int, signals <-chan os.Signal, stderr io.Writer, exit func(int)) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- program(ctx) }()
	stopping := false
	for {
		select {
		case code := <-done:
			return code
		case sig := <-signals:
			if stopping {
				_, _ = fmt.Fprintf(stderr, "second signal (%s): ending at once\n", sig)
				code := 128
				if n, ok := sig.(syscall.Signal); ok {
					code += int(n)
				}
				exit(code)
				return code
			}
			stopping = true
			cancel(&StoppedError{Signal: sig})
		}
	}
}

// Run is Main without signals and exit: it returns the exit code when the body has ended.
// ctx's end asks the body to stop. Tests and the all-in-one call it.
func Run[T any](ctx context.Context, spec Spec, std IO, body func(ctx context.Context, env *Env, cfg *T) error) int {
	var cfg T
	shared := common{Operator: spec.OperatorAddr}
	opts, err := parseArgs(spec, std)
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	if err == nil && opts.envFile != "" {
		err = LoadEnvFile(opts.envFile)
	}
	if err != nil {
		return fail(std, spec, err)
	}
	switch {
	case opts.version:
		_, _ = fmt.Fprintln(std.Stdout, spec.Name, Version())
		return ExitOK
	case opts.helpEnv:
		if err := PrintHelp(std.Stdout, shared, cfg); err != nil {
			return fail(std, spec, err)
		}
		return ExitOK
	}
	if opts.probe {
		err := loadInto(&shared)
		if err == nil {
			err = probe(ctx, std.Stdout, shared.Operator)
		}
		return exitCode(std, spec, err)
	}
	operatorSet := os.Getenv("OPERATOR_ADDR") != ""
	if err := errors.Join(loadInto(&shared), loadInto(&cfg)); err != nil {
		return badSettings(std, spec, err, UnknownVariables(os.Environ(), shared, cfg))
	}
	switch {
	case opts.printEnv:
		return exitCode(std, spec, PrintEnv(std.Stdout, shared, cfg))
	case opts.check:
		_, _ = fmt.Fprintln(std.Stdout, "settings are good")
		return ExitOK
	}
	p := &runner{spec: spec, std: std, shared: shared, operatorSet: operatorSet, settings: changedSettings(shared, cfg)}
	p.unknown = UnknownVariables(os.Environ(), shared, cfg)
	return exitCode(std, spec, p.run(ctx, func(ctx context.Context, env *Env) error { return body(ctx, env, &cfg) }))
}

type options struct {
	envFile                                  string
	version, helpEnv, printEnv, check, probe bool
}

func parseArgs(spec Spec, std IO) (options, error) {
	var o options
	flags := flag.NewFlagSet(spec.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.version, "version", false, "")
	flags.BoolVar(&o.helpEnv, "help-env", false, "")
	flags.BoolVar(&o.printEnv, "print-env", false, "")
	flags.BoolVar(&o.check, "check-config", false, "")
	flags.BoolVar(&o.probe, "probe", false, "")
	flags.StringVar(&o.envFile, "env-file", "", "")
	if spec.Flags != nil {
		spec.Flags(flags)
	}
	err := flags.Parse(std.Args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintf(std.Stdout, usage, spec.Name, spec.Help)
		return o, err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	if err != nil {
		return o, fmt.Errorf("%w (see --help)", err)
	}
	return o, nil
}

const usage = `usage: %s [flags]      settings come from the environment

%s  --help-env         list the settings with defaults and allowed values
  --env-file FILE    read settings from FILE; the real environment wins
  --print-env        print the settings as they would be used, secrets hidden
  --check-config     check the settings and exit (0 good, 2 bad)
  --probe            ask the running service on OPERATOR_ADDR whether it is ready (0 yes, 1 no)
  --version          print the version
`

func fail(std IO, spec Spec, err error) int {
	_, _ = fmt.Fprintf(std.Stderr, "%s: %s\n", spec.Name, telemetry.Redact(err.Error()))
	return ExitUsage
}

// badSettings prints one line for each problem; a misspelt name may be the reason of one.
func badSettings(std IO, spec Spec, err error, unknown []string) int {
	lines := strings.Split(telemetry.Redact(err.Error()), "\n")
	_, _ = fmt.Fprintf(std.Stderr, "%s: %d bad setting(s):\n", spec.Name, len(lines))
	for _, l := range lines {
		_, _ = fmt.Fprintln(std.Stderr, "  "+l)
	}
	for _, u := range unknown {
		_, _ = fmt.Fprintln(std.Stderr, "  "+u)
	}
	_, _ = fmt.Fprintf(std.Stderr, "`%s --help-env` lists all settings\n", spec.Name)
	return ExitUsage
}

func exitCode(std IO, spec Spec, err error) int {
	if err == nil {
		return ExitOK
	}
	var logged *loggedError
	if !errors.As(err, &logged) {
		_, _ = fmt.Fprintf(std.Stderr, "%s: %s\n", spec.Name, telemetry.Redact(err.Error()))
	}
	if errors.Is(err, ErrBadSetting) {
		return ExitUsage
	}
	return ExitFailed
}
