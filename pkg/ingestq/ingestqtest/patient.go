package ingestqtest

import (
	"context"
	"errors"
	"time"

	"github.com/millweir/millweir/pkg/ingestq"
)

// patient repeats what can be done twice when a server or this process was held up for longer than a call may take.
type patient struct{ ingestq.Consumer }

// patiently wraps what a bench makes, and unwraps what it is given back.
func (b Bench) patiently() Bench {
	member, kill, rest := b.Member, b.Kill, b.Rest
	b.Member = func() ingestq.Consumer { return patient{member()} }
	b.Kill = func(m ingestq.Consumer) { kill(m.(patient).Consumer) }
	if rest != nil {
		b.Rest = func(m ingestq.Consumer) { rest(m.(patient).Consumer) }
	}
	return b
}

func again(ctx context.Context, call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if !errors.Is(err, ingestq.ErrUnavailable) || ctx.Err() != nil || time.Since(began) > patience {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (p patient) Ack(ctx context.Context, ids ...string) error {
	return again(ctx, func() error { return p.Consumer.Ack(ctx, ids...) })
}

func (p patient) Adopt(ctx context.Context, ids ...string) (found map[string]bool, err error) {
	err = again(ctx, func() (err error) { found, err = p.Consumer.Adopt(ctx, ids...); return err })
	return found, err
}

func (p patient) Pending(ctx context.Context, minIdle time.Duration, after string, n int) (page []ingestq.Pending, err error) {
	err = again(ctx, func() (err error) { page, err = p.Consumer.Pending(ctx, minIdle, after, n); return err })
	return page, err
}

func (p patient) Quarantine(ctx context.Context, d ingestq.Delivery) error {
	return again(ctx, func() error { return p.Consumer.Quarantine(ctx, d) })
}

func (p patient) LetGo(ctx context.Context, idle time.Duration, ids ...string) error {
	return again(ctx, func() error { return p.Consumer.LetGo(ctx, idle, ids...) })
}

func (p patient) Horizon(ctx context.Context) (h ingestq.Horizon, err error) {
	err = again(ctx, func() (err error) { h, err = p.Consumer.Horizon(ctx); return err })
	return h, err
}

func (p patient) Stats(ctx context.Context) (s ingestq.Stats, err error) {
	err = again(ctx, func() (err error) { s, err = p.Consumer.Stats(ctx); return err })
	return s, err
}

func (p patient) Ping(ctx context.Context) error {
	return again(ctx, func() error { return p.Consumer.Ping(ctx) })
}
