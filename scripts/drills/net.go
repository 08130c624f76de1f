package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/scripts/lab"
)

const (
	slowness = 300 * time.Millisecond // of each answer
	jitter   = 200 * time.Millisecond
	resetOn  = 700 * time.Millisecond // connections break off for so long, and hold for as long
)

// slowNet delays every answer of each server in turn: slow is not wrong, nothing fails.
func slowNet(ctx context.Context, s *stage) (string, error) {
	return s.network(ctx, fmt.Sprintf("%s ± %s on every answer", slowness, jitter), 0, func(ctx context.Context, p *lab.Proxy, turn time.Duration) error {
		if err := p.Slow(slowness, jitter); err != nil {
			return err
		}
		lab.Pause(ctx, turn)
		return nil
	})
}

// halfOpenNet lets nothing through the connections to each server in turn, old or new, and closes none.
func halfOpenNet(ctx context.Context, s *stage) (string, error) {
	return s.network(ctx, "silent connections", anyAttempts, func(ctx context.Context, p *lab.Proxy, turn time.Duration) error {
		if err := p.Silence(); err != nil {
			return err
		}
		lab.Pause(ctx, turn*2/3)
		if err := p.Heal(); err != nil {
			return err
		}
		lab.Pause(ctx, turn/3)
		return nil
	})
}

// resetNet breaks the connections to each server in turn when the server answers, with breaks between.
func resetNet(ctx context.Context, s *stage) (string, error) {
	return s.network(ctx, "connections reset before the answer", anyAttempts, func(ctx context.Context, p *lab.Proxy, turn time.Duration) error {
		for end := time.Now().Add(turn); time.Now().Before(end) && ctx.Err() == nil; {
			if err := p.Cut(); err != nil {
				return err
			}
			lab.Pause(ctx, resetOn)
			if err := p.Heal(); err != nil {
				return err
			}
			lab.Pause(ctx, resetOn)
		}
		return nil
	})
}

// anyAttempts is no limit for what a fault may cost.
const anyAttempts = 1 << 30

// network gives each server's connections the fault for its part of the load; most is how many attempts it may cost.
func (s *stage) network(ctx context.Context, what string, most int, fault func(ctx context.Context, p *lab.Proxy, turn time.Duration) error) (string, error) {
	return storm{
		opts: lab.Options{Proxied: true, Env: append([]string{"INGEST_LEASE_MS=5000", "INGEST_MAX_CRASHES=1000"}, retrying...)},
		faults: func(ctx context.Context, c *cluster) error {
			all := c.Net.All()
			for _, p := range all {
				if err := fault(ctx, p, s.load/time.Duration(len(all))); err != nil {
					return err
				}
				if err := p.Heal(); err != nil {
					return err
				}
				if err := c.allRun(); err != nil {
					return fmt.Errorf("after faults of %s: %w", p.Name, err)
				}
			}
			return nil
		},
		judge: func(ctx context.Context, c *cluster, _ *lab.Record) (string, error) {
			attempts, crashes, err := costs(ctx, c)
			if err == nil && attempts > most {
				err = fmt.Errorf("%d attempts were counted, at most %d are due", attempts, most)
			}
			return fmt.Sprintf("%s, for sql, redis, chroma, embed in turn: %d attempts and %d crashes counted", what, attempts, crashes), err
		},
	}.run(ctx, s)
}
