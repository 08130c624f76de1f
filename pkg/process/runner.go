package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/millweir/millweir/pkg/telemetry"
)

// runner takes one body from its first to its last line.
type runner struct {
	spec        Spec
	std         IO
	shared      common
	operatorSet bool
	settings    []slog.Attr
	unknown     []string
}

func (p *runner) run(ctx context.Context, body func(context.Context, *Env) error) (err error) {
	level, err := telemetry.ParseLevel(p.shared.LogLevel)
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(p.std.Stderr, p.shared.LogFormat, level)
	if err != nil {
		return err
	}
	log = log.With(slog.String("service", p.spec.Name))
	version := Version()
	flush, err := telemetry.Setup(ctx, telemetry.SetupOptions{Service: p.spec.Name, Version: version, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if flushErr := flush(ctx); flushErr != nil {
			log.Warn("process: last traces and metrics are lost", slog.Any("error", flushErr))
		}
	}()
	env := &Env{
		Name: p.spec.Name, Version: version, Log: log, Stdout: p.std.Stdout,
		Metrics: telemetry.NewRegistry(p.spec.Name, version), Ready: NewReady(),
	}
	stopOperator, err := p.startOperator(ctx, env)
	if err != nil {
		return err
	}
	defer stopOperator()
	p.announce(env)
	return p.runBody(ctx, env, body)
}

// runBody marks the process as draining before the body hears of the end, so that /readyz turns first.
func (p *runner) runBody(ctx context.Context, env *Env, body func(context.Context, *Env) error) error {
	bodyCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() {
		env.Ready.Drain()
		env.Log.Info("process: stopping", slog.String("cause", context.Cause(ctx).Error()))
		cancel(context.Cause(ctx))
	})
	defer stop()
	err := body(bodyCtx, env)
	env.Ready.Drain()
	if err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		err = nil // it came to its end because it was told to
	}
	if err != nil {
		env.Log.Error("process: failed", slog.Any("error", err))
		return &loggedError{err}
	}
	env.Log.Info("process: stopped")
	return nil
}

func (p *runner) startOperator(ctx context.Context, env *Env) (stop func(), err error) {
	if p.shared.Operator == "" {
		return func() {}, nil
	}
	srv, err := listenOperator(ctx, p.shared.Operator, p.operatorSet)
	if err != nil {
		return nil, fmt.Errorf("OPERATOR_ADDR=%s: %w", p.shared.Operator, err)
	}
	env.OperatorURL = srv.url()
	wait := srv.serve(AdminHandler(env, srv.loopback()), env.Log)
	return wait, nil
}

// announce is the one line at the start.
func (p *runner) announce(env *Env) {
	if n := LimitMemory(); n > 0 {
		p.settings = append(p.settings, slog.Int64("GOMEMLIMIT", n))
	}
	attrs := []any{slog.String("version", env.Version), slog.String("operator", env.OperatorURL)}
	attrs = append(attrs, slog.Attr{Key: "settings", Value: slog.GroupValue(p.settings...)})
	env.Log.Info("process: started", attrs...)
	if env.OperatorURL != "" {
		_, _ = fmt.Fprintf(p.std.Stdout, "operator %s\n", env.OperatorURL)
	}
	for _, u := range p.unknown {
		env.Log.Warn("process: unknown variable in the environment", slog.String("problem", u))
	}
}

// loggedError was told to the log already.
type loggedError struct{ error }

func (e *loggedError) Unwrap() error { return e.error }
