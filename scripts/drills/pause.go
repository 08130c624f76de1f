package main

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
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

// pauseTime is longer than the leases of patient, the slack of promises (2 s), and a sweep.
const pauseTime = 5 * time.Second

// retrying are settings under which failures alone never end a task, and retries come soon.
var retrying = []string{"INGEST_REDIS_MAX_ATTEMPTS=1000", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=200", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=1000"}

// stopWorkers pauses one of the two workers beyond its leases: the other takes over, the woken one changes nothing.
func stopWorkers(ctx context.Context, s *stage) (string, error) {
	return stopped(ctx, s, "stream-worker", true)
}

// stopReclaimer pauses one of two reclaimers; they have work since a quarter of the embeddings fail.
func stopReclaimer(ctx context.Context, s *stage) (string, error) {
	return stopped(ctx, s, "reclaimer", true)
}

// stopAPI pauses the gateway in the middle of its requests: after a commit and before its XADD, sooner or later.
func stopAPI(ctx context.Context, s *stage) (string, error) {
	return stopped(ctx, s, "ingest-api", false)
}

func stopped(ctx context.Context, s *stage, service string, holds bool) (string, error) {
	pauses := 0
	st := storm{
		opts: world.Options{Env: append(retrying, patient...)},
		faults: func(ctx context.Context, c *cluster) (err error) {
			pauses, err = s.rounds(ctx, func(int) error {
				s.between(ctx, time.Second, 2*time.Second)
				p := s.one(c, service)
				if holds {
					awaitWork(ctx, c, p)
				}
				if err := p.Signal(syscall.SIGSTOP); err != nil {
					return err
				}
				await.Pause(ctx, pauseTime)
				return errors.Join(p.Signal(syscall.SIGCONT), c.allRun())
			})
			return err
		},
		judge: func(ctx context.Context, c *cluster, _ *apiclient.Record) (string, error) {
			taken, err := takeovers(ctx, c.DB.Reader())
			if err == nil && holds && taken == 0 {
				err = fmt.Errorf("%d pauses met no task at work", pauses)
			}
			return fmt.Sprintf("%d pauses of %.0f s (lease %.0f s), %d takeovers", pauses, pauseTime.Seconds(), patientLease.Seconds(), taken), err
		},
	}
	if service == "reclaimer" {
		// Two of them do all the recovery: one takes over what the paused one holds.
		st.services = append(slices.Clone(everyService), service)
		st.opts.Env = append(st.opts.Env, "INGEST_WORKER_RECOVERY=false")
		st.embedder = []embedtest.Fault{
			{Kind: embedtest.Fail, Match: func(embedtest.Effect) bool { return rand.IntN(4) == 0 }}, //nolint:gosec // which call fails, no secret
			{Kind: embedtest.Delay, For: 2 * embedTime},
		}
	}
	return st.run(ctx, s)
}

// awaitWork waits a little until a process holds a task: a pause that finds none proves nothing.
func awaitWork(ctx context.Context, c *cluster, p *proc.Proc) {
	_ = await.Until(ctx, pauseTime, 5*time.Millisecond, func(ctx context.Context) error {
		held, err := tables.Running(ctx, c.DB.Reader())
		if err == nil && !slices.ContainsFunc(held, func(h tables.Held) bool { return p.Owns(h.Owner) }) {
			err = fmt.Errorf("%s holds nothing", p.Name)
		}
		return err
	}) // in vain is no fault: the next round tries again
}
