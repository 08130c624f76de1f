package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	// patientLease is INGEST_LEASE_MS of patient.
	patientLease = 2 * time.Second
	// takeoverGoal is how long after a kill its tasks run again at the latest.
	takeoverGoal = patientLease + 2*time.Second
)

// orphan is a task whose holder was killed.
type orphan struct {
	task  string
	fence int64
	at    time.Time
}

// mourning notes whom kills left behind.
type mourning struct {
	kills   int
	orphans []orphan
}

// kill ends a process that may hold tasks, and notes them.
func (m *mourning) kill(ctx context.Context, c *cluster, victims ...*proc.Proc) error {
	held, err := tables.Running(ctx, c.DB.Reader())
	if err != nil {
		return err
	}
	for _, p := range victims {
		at := time.Now()
		p.Kill()
		c.drop(p)
		m.kills++
		for _, h := range held {
			if p.Owns(h.Owner) {
				m.orphans = append(m.orphans, orphan{task: h.TaskID, fence: h.Fence, at: at})
			}
		}
	}
	return nil
}

// takenOver looks up how soon each orphan ran again; those that had ended before the kill count for nothing.
func (m *mourning) takenOver(ctx context.Context, c *cluster) (n int, slowest time.Duration, err error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return 0, 0, err
	}
	for _, o := range m.orphans {
		for _, t := range logs[o.task] {
			if t.Fence == o.fence+1 && t.From == "RUNNING" && t.To == "RUNNING" {
				n++
				slowest = max(slowest, t.CreatedAt.Sub(o.at))
			}
		}
	}
	return n, slowest, nil
}

// within words the takeovers, an error when they came too late or there was none.
func (m *mourning) within(ctx context.Context, c *cluster, goal time.Duration) (string, error) {
	n, slowest, err := m.takenOver(ctx, c)
	switch {
	case err != nil:
		return "", err
	case n == 0:
		return "", fmt.Errorf("%d kills met no task at work", m.kills)
	case slowest > goal:
		return "", fmt.Errorf("a killed holder's task ran again after %.1f s, the goal is %.1f s (lease + 2 s)", slowest.Seconds(), goal.Seconds())
	}
	return fmt.Sprintf("%d kills, %d tasks of the killed ran again within %.1f s (goal %.1f s)", m.kills, n, slowest.Seconds(), goal.Seconds()), nil
}

// kill9Each kills gateway, worker and reclaimer in turn; the others go on without it before it comes back.
func kill9Each(ctx context.Context, s *stage) (string, error) {
	var m mourning
	turn := []string{"ingest-api", "stream-worker", "reclaimer"}
	return storm{
		opts: world.Options{Env: patient},
		faults: func(ctx context.Context, c *cluster) error {
			_, err := s.rounds(ctx, func(round int) error {
				s.between(ctx, 500*time.Millisecond, 1500*time.Millisecond)
				name := turn[round%len(turn)]
				if err := m.kill(ctx, c, s.one(c, name)); err != nil {
					return err
				}
				s.between(ctx, time.Second, patientLease+time.Second)
				_, err := c.add(name)
				return err
			})
			return err
		},
		judge: func(ctx context.Context, c *cluster, _ *apiclient.Record) (string, error) {
			return m.within(ctx, c, takeoverGoal)
		},
	}.run(ctx, s)
}

// kill9All kills everything at one moment and starts it in random order. Nobody is there to take over while all are
// dead, so the time counts from the start of the last one.
func kill9All(ctx context.Context, s *stage) (string, error) {
	var m mourning
	return storm{
		opts: world.Options{Env: patient},
		faults: func(ctx context.Context, c *cluster) error {
			_, err := s.rounds(ctx, func(int) error {
				s.between(ctx, time.Second, 4*time.Second)
				first := len(m.orphans)
				if err := m.kill(ctx, c, append([]*proc.Proc(nil), c.procs...)...); err != nil {
					return err
				}
				for _, i := range s.random.Perm(len(everyService)) {
					s.between(ctx, 0, 300*time.Millisecond)
					if _, err := c.add(everyService[i]); err != nil {
						return err
					}
				}
				for i := range m.orphans[first:] {
					m.orphans[first+i].at = time.Now()
				}
				return c.allReady(ctx, liveLimit)
			})
			return err
		},
		judge: func(ctx context.Context, c *cluster, _ *apiclient.Record) (string, error) {
			return m.within(ctx, c, takeoverGoal)
		},
	}.run(ctx, s)
}
