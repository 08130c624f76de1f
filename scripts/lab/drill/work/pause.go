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
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
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
				pause := func() error { return p.Signal(syscall.SIGSTOP) }
				if holds {
					pause = func() error { return stage.PauseAtWork(ctx, c, p) }
				}
				if err := pause(); err != nil {
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

// zombieDocs are the documents that the zombie holds when it is paused.
const zombieDocs = 8

// Zombie pauses a worker in the middle of its tasks; another one takes them over and finishes them, the first wakes up:
// no row, log or vector that anyone can see changes, and it goes on working as if new.
func Zombie(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Embedder: &embedtest.Options{}, Env: []string{
		"INGEST_LEASE_MS=1500", "INGEST_WORKER_CONCURRENCY=8", "EMBEDDING_BATCH_SIZE=2",
	}}, "ingest-api", "stream-worker")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: 250 * time.Millisecond})
	old := c.Of("stream-worker")[0]
	// Different sizes, so that the pause meets the tasks in different stages.
	all := &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}
	for i := range zombieDocs {
		all.Add(apiclient.Load{Target: c.Client, Clients: 1, Count: 1, First: i, Bytes: 4000 * (i + 1)}.Run(ctx))
	}
	if err := await.Until(ctx, stage.LiveLimit, 5*time.Millisecond, func(ctx context.Context) error {
		held, err := tables.Running(ctx, c.DB.Reader())
		if err == nil && (len(held) < 4 || len(c.Embed.Effects()) < 8) {
			err = fmt.Errorf("%d tasks run, %d batches were answered", len(held), len(c.Embed.Effects()))
		}
		return err
	}); err != nil {
		return "", err
	}
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		return "", err
	}
	held, err := tables.Running(ctx, c.DB.Reader())
	if err != nil {
		return "", err
	}
	return zombieWakes(ctx, c, old, all, held)
}

// zombieWakes lets the second worker finish, wakes the first and compares what can be seen.
func zombieWakes(ctx context.Context, c *stage.Cluster, old *proc.Proc, load *apiclient.Record, held []tables.Held) (string, error) {
	heir, err := c.Add("stream-worker")
	if err != nil {
		return "", err
	}
	// Pending deliveries of the paused worker are settled as the tasks end; that is not what this looks at.
	a := c.Audit(load, nil)
	a.Stream = nil
	if err := a.Settled(ctx, stage.SettleLimit); err != nil {
		return "", fmt.Errorf("no rest after the takeover: %w%s", err, a.Unfinished(ctx))
	}
	before, err := tables.Picture(ctx, c.DB.Reader(), c.Vectors)
	if err != nil {
		return "", err
	}
	paid := len(c.Embed.Effects())
	if err := old.Signal(syscall.SIGCONT); err != nil {
		return "", err
	}
	if code, err := heir.Stop(ctx, stage.StopLimit); err != nil || code != 0 {
		return "", fmt.Errorf("stop the heir: code %d, %w", code, err)
	}
	c.Drop(heir)
	// The zombie now works alone: when a new document is visible, it has had every chance to do harm with the old ones.
	c.Embed.Clear()
	fresh := apiclient.Load{Target: c.Client, Clients: 1, Count: 1, First: 100, Bytes: stage.DocBytes}.Run(ctx)
	if err := a.Settled(ctx, stage.SettleLimit); err != nil {
		return "", fmt.Errorf("the woken worker does not work: %w%s", err, a.Unfinished(ctx))
	}
	await.Pause(ctx, 2*time.Second) // its late calls to embedder and vector store may still be under way
	after, err := tables.Picture(ctx, c.DB.Reader(), c.Vectors)
	if err != nil {
		return "", err
	}
	if diff := before.Lost(after); diff != "" {
		return "", fmt.Errorf("the zombie changed what can be seen: %s", diff)
	}
	load.Add(fresh)
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	taken, err := stage.Takeovers(ctx, c.DB.Reader())
	if err == nil && taken < len(held) {
		err = fmt.Errorf("%d tasks were held by the paused worker, %d were taken over", len(held), taken)
	}
	return fmt.Sprintf("%d tasks held at the pause, %d taken over, nothing changed by the wakening; %d batches asked after it",
		len(held), taken, len(c.Embed.Effects())-paid), err
}
