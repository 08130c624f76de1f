// Package server has the scenes that break what services depend on: databases, brokers, networks, disks.
package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/proxy"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	slowness = 300 * time.Millisecond // of each answer
	jitter   = 200 * time.Millisecond
	// forgetLimit is longer than each wait for an answer once: 30 s of a transaction, 30 s of Chroma, 10 s of an embedding.
	// To wait a second time, on another connection that is as dead, is the fault that this looks for.
	forgetLimit = 100 * time.Second
	resetOn     = 700 * time.Millisecond // connections break off for so long, and hold for as long
)

// SlowNet delays every answer of each server in turn: slow is not wrong, nothing fails.
func SlowNet(ctx context.Context, s *stage.Stage) (string, error) {
	return network(ctx, s, fmt.Sprintf("%s ± %s on every answer", slowness, jitter), 0, func(ctx context.Context, p *proxy.Proxy, turn time.Duration) error {
		if err := p.Slow(slowness, jitter); err != nil {
			return err
		}
		await.Pause(ctx, turn)
		return nil
	})
}

// HalfOpenNet lets nothing through the connections to each server in turn, old or new, and closes none. In the end all old
// connections to all servers at once are forgotten by the net, for ever: the services have to find out by themselves.
func HalfOpenNet(ctx context.Context, s *stage.Stage) (string, error) {
	var usable, done time.Duration
	saw, err := network(ctx, s, "silent connections", anyAttempts, func(ctx context.Context, p *proxy.Proxy, turn time.Duration) error {
		if err := p.Silence(); err != nil {
			return err
		}
		await.Pause(ctx, turn*2/3)
		if err := p.Heal(); err != nil {
			return err
		}
		await.Pause(ctx, turn/3)
		return nil
	}, func(ctx context.Context, c *stage.Cluster) (err error) {
		usable, done, err = forgotten(ctx, c)
		return err
	})
	return fmt.Sprintf("all open connections forgotten: an upload was accepted after %.1f s and visible after %.1f s (a transaction waits 30 s at most); %s",
		usable.Seconds(), done.Seconds(), saw), err
}

// forgotten is how long after all open connections fell silent an upload is accepted, and done.
func forgotten(ctx context.Context, c *stage.Cluster) (accepted, done time.Duration, err error) {
	started := time.Now()
	for _, p := range c.Net.All() {
		if err := p.Forget(); err != nil {
			return 0, 0, err
		}
	}
	var task apiclient.Task
	if err := await.Until(ctx, forgetLimit, 50*time.Millisecond, func(ctx context.Context) (err error) {
		task, err = c.Client.Upload(ctx, apiclient.Text(1_000_000, stage.DocBytes))
		return err
	}); err != nil {
		return 0, 0, fmt.Errorf("an upload after all connections were forgotten: %w", err)
	}
	accepted = time.Since(started)
	if _, err = c.Client.Await(ctx, task.TaskID, taskstate.StatusSucceeded, forgetLimit, 50*time.Millisecond); err != nil {
		err = fmt.Errorf("after all connections were forgotten: %w", err)
	}
	return accepted, time.Since(started), err
}

// ResetNet breaks the connections to each server in turn when the server answers, with breaks between.
func ResetNet(ctx context.Context, s *stage.Stage) (string, error) {
	return network(ctx, s, "connections reset before the answer", anyAttempts, func(ctx context.Context, p *proxy.Proxy, turn time.Duration) error {
		for end := time.Now().Add(turn); time.Now().Before(end) && ctx.Err() == nil; {
			if err := p.Cut(); err != nil {
				return err
			}
			await.Pause(ctx, resetOn)
			if err := p.Heal(); err != nil {
				return err
			}
			await.Pause(ctx, resetOn)
		}
		return nil
	})
}

// anyAttempts is no limit for what a fault may cost.
const anyAttempts = 1 << 30

// network gives each server's connections the fault for its part of the load; most is how many attempts it may cost.
// last comes when all had their turn and nothing more is sent.
func network(ctx context.Context, s *stage.Stage, what string, most int, fault func(ctx context.Context, p *proxy.Proxy, turn time.Duration) error,
	last ...func(ctx context.Context, c *stage.Cluster) error,
) (string, error) {
	return stage.Storm{
		Opts: world.Options{Proxied: true, Env: append([]string{"INGEST_LEASE_MS=5000", "INGEST_MAX_CRASHES=1000", "CHROMA_TIMEOUT=30s", "EMBEDDING_TIMEOUT=10s"}, stage.Retrying...)},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			all := c.Net.All()
			for _, p := range all {
				if err := fault(ctx, p, s.Load/time.Duration(len(all))); err != nil {
					return err
				}
				if err := p.Heal(); err != nil {
					return err
				}
				if err := c.AllRun(); err != nil {
					return fmt.Errorf("after faults of %s: %w", p.Name, err)
				}
			}
			return c.Net.Heal()
		},
		Last: func(ctx context.Context, c *stage.Cluster) error {
			for _, f := range last {
				if err := errors.Join(f(ctx, c), c.AllRun()); err != nil {
					return err
				}
			}
			return c.Net.Heal()
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			attempts, crashes, err := stage.Costs(ctx, c)
			if err == nil && attempts > most {
				err = fmt.Errorf("%d attempts were counted, at most %d are due", attempts, most)
			}
			return fmt.Sprintf("%s, for sql, redis, chroma, embed in turn: %d attempts and %d crashes counted", what, attempts, crashes), err
		},
	}.Run(ctx, s)
}
