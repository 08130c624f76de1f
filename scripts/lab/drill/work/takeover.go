package work

import (
	"context"
	"time"

	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	// patientLease is INGEST_LEASE_MS of patient.
	patientLease = 2 * time.Second
	// takeoverGoal is how long after a kill its tasks run again at the latest.
	takeoverGoal = patientLease + 2*time.Second
)

// Kill9Each kills gateway, worker and reclaimer in turn; the others go on without it before it comes back.
func Kill9Each(ctx context.Context, s *stage.Stage) (string, error) {
	var m stage.Mourning
	turn := []string{"ingest-api", "stream-worker", "reclaimer"}
	return stage.Storm{
		Opts: world.Options{Env: stage.Patient},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			_, err := s.Rounds(ctx, func(round int) error {
				s.Between(ctx, 500*time.Millisecond, 1500*time.Millisecond)
				name := turn[round%len(turn)]
				if err := m.Kill(ctx, c, s.One(c, name)); err != nil {
					return err
				}
				s.Between(ctx, time.Second, patientLease+time.Second)
				_, err := c.Add(name)
				return err
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			return m.Within(ctx, c, takeoverGoal)
		},
	}.Run(ctx, s)
}

// Kill9All kills everything at one moment and starts it in random order. Nobody is there to take over while all are
// dead, so the time counts from the start of the last one.
func Kill9All(ctx context.Context, s *stage.Stage) (string, error) {
	var m stage.Mourning
	return stage.Storm{
		Opts: world.Options{Env: stage.Patient},
		Faults: func(ctx context.Context, c *stage.Cluster) error {
			_, err := s.Rounds(ctx, func(int) error {
				s.Between(ctx, time.Second, 4*time.Second)
				first := len(m.Orphans)
				if err := m.Kill(ctx, c, append([]*proc.Proc(nil), c.Procs...)...); err != nil {
					return err
				}
				for _, i := range s.Random.Perm(len(s.Services)) {
					s.Between(ctx, 0, 300*time.Millisecond)
					if _, err := c.Add(s.Services[i]); err != nil {
						return err
					}
				}
				for i := range m.Orphans[first:] {
					m.Orphans[first+i].At = time.Now()
				}
				return c.AllReady(ctx, stage.LiveLimit)
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			return m.Within(ctx, c, takeoverGoal)
		},
	}.Run(ctx, s)
}
