package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

// StopWorkers pauses one of the two workers beyond its leases: the other takes over, the woken one changes nothing.
func StopWorkers(ctx context.Context, s *stage.Stage) (string, error) {
	return stopped(ctx, s, "stream-worker", true)
}

// StopReclaimer pauses one of two reclaimers; they have work since a quarter of the embeddings fail.
func StopReclaimer(ctx context.Context, s *stage.Stage) (string, error) {
	return stopped(ctx, s, "reclaimer", true)
}

// StopAPI pauses the gateway in the middle of its requests: after a commit and before its XADD, sooner or later.
func StopAPI(ctx context.Context, s *stage.Stage) (string, error) {
	return stopped(ctx, s, "ingest-api", false)
}

func stopped(ctx context.Context, s *stage.Stage, service string, holds bool) (string, error) {
	pauses := 0
	st := stage.Storm{
		Opts: world.Options{Env: append(stage.Retrying, stage.Patient...)},
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			pauses, err = s.Rounds(ctx, func(int) error {
				s.Between(ctx, time.Second, 2*time.Second)
				p := s.One(c, service)
				if holds {
					stage.AwaitWork(ctx, c, p)
				}
				if err := p.Signal(syscall.SIGSTOP); err != nil {
					return err
				}
				await.Pause(ctx, stage.PauseTime)
				return errors.Join(p.Signal(syscall.SIGCONT), c.AllRun())
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			taken, err := stage.Takeovers(ctx, c.DB.Reader())
			if err == nil && holds && taken == 0 {
				err = fmt.Errorf("%d pauses met no task at work", pauses)
			}
			return fmt.Sprintf("%d pauses of %.0f s (lease %.0f s), %d takeovers", pauses, stage.PauseTime.Seconds(), patientLease.Seconds(), taken), err
		},
	}
	if service == "reclaimer" {
		// Two of them do all the recovery: one takes over what the paused one holds.
		st.Services = append(slices.Clone(s.Services), service)
		st.Opts.Env = append(st.Opts.Env, "INGEST_WORKER_RECOVERY=false")
		st.Embedder = []embedtest.Fault{
			{Kind: embedtest.Fail, Match: func(embedtest.Effect) bool { return rand.IntN(4) == 0 }}, //nolint:gosec // which call fails, no secret
			{Kind: embedtest.Delay, For: 2 * stage.EmbedTime},
		}
	}
	return st.Run(ctx, s)
}
