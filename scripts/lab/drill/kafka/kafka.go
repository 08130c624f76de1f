// Package kafka has the scenes of the Kafka transport.
package kafka

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	brokerAway   = 20 * time.Second
	sentGoal     = 2 * time.Second // first event sent after the broker answers again
	reviveLimit  = 40 * time.Second
	outboxTries  = 4
	outboxBase   = 400 * time.Millisecond
	outboxMost   = 1 * time.Second
	outboxPoll   = 10 * time.Millisecond
	outboxCommit = 100 * time.Millisecond // from a statement's time to the moment its row is seen
	kafkaVictims = 2                      // documents of the reproduction
)

// Reproduction is contract §7 for Kafka: without a broker events go RETRYING with growing next_retry_at, exactly by the
// formula, then DEAD; the task stays QUEUED and says so; when the broker answers, they are revived and all succeeds.
func Reproduction(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Env: []string{
		fmt.Sprintf("INGEST_KAFKA_MAX_ATTEMPTS=%d", outboxTries),
		fmt.Sprintf("INGEST_KAFKA_RETRY_BASE_BACKOFF_MS=%d", outboxBase.Milliseconds()),
		fmt.Sprintf("INGEST_KAFKA_RETRY_MAX_BACKOFF_MS=%d", outboxMost.Milliseconds()),
	}}, "ingest-api")
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.Kafka.Kill(ctx); err != nil {
		return "", err
	}
	if _, err := c.Add("outbox-relay"); err != nil { // must not need a broker to start
		return "", err
	}
	load := apiclient.Load{Target: c.Client, Clients: 1, Count: kafkaVictims, Bytes: stage.DocBytes}.Run(ctx)
	if len(load.Accepted) != kafkaVictims {
		return "", fmt.Errorf("%d of %d uploads accepted without a broker", len(load.Accepted), kafkaVictims)
	}
	steps, err := watchOutbox(ctx, c)
	if err != nil {
		return "", err
	}
	if err := queuedAndExplained(ctx, c, load); err != nil {
		return "", err
	}
	if err := c.Kafka.Restart(ctx); err != nil {
		return "", err
	}
	back := time.Now()
	if err := c.OutboxSent(ctx, reviveLimit); err != nil {
		return "", err
	}
	revived := time.Since(back)
	if _, err := c.Add("kafka-consumer"); err != nil {
		return "", err
	}
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, DEAD; revived and sent %.1f s after the broker's start; %s", steps, revived.Seconds(), stage.Summary(load)), nil
}

// watchOutbox follows the first event to its death and checks each attempt's wait.
func watchOutbox(ctx context.Context, c *stage.Cluster) (string, error) {
	var seen tables.OutboxEvent
	var words []string
	looked := time.Now().UTC()
	watching, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	err := await.Until(watching, stage.DrainLimit, outboxPoll, func(ctx context.Context) error {
		before := looked
		events, err := tables.Outbox(ctx, c.DB.Reader())
		looked = time.Now().UTC()
		if err != nil || len(events) < kafkaVictims {
			return fmt.Errorf("%d events (%w)", len(events), err)
		}
		e := events[0]
		if e.Attempts > seen.Attempts+1 {
			stop(fmt.Errorf("attempt %d was not seen", seen.Attempts+1)) // no waiting mends it
		}
		if e.Attempts > seen.Attempts && e.Status == "RETRYING" {
			wait := min(outboxBase<<(e.Attempts-1), outboxMost)
			if e.NextRetryAt.Before(before.Add(wait-outboxCommit)) || e.NextRetryAt.After(looked.Add(wait)) {
				stop(fmt.Errorf("attempt %d: next retry at %s, must be between %s and %s", e.Attempts, e.NextRetryAt, before.Add(wait-outboxCommit), looked.Add(wait)))
			}
			words = append(words, fmt.Sprintf("RETRYING/%d +%d ms", e.Attempts, wait.Milliseconds()))
		}
		seen = e
		for _, one := range events {
			if one.Status != "DEAD" {
				return fmt.Errorf("event %d is %s after %d attempts: %s", one.Seq, one.Status, one.Attempts, one.LastError)
			}
			if one.Attempts != outboxTries || one.Cause != "BROKER_UNAVAILABLE" || one.LastError == "" || !one.NextRetryAt.IsZero() {
				return fmt.Errorf("a dead event is %+v", one)
			}
		}
		return nil
	})
	if err == nil {
		err = context.Cause(watching)
	}
	if err == nil && len(words) != outboxTries-1 {
		err = fmt.Errorf("waits seen: %v, must be %d", words, outboxTries-1)
	}
	return strings.Join(words, ", "), err
}

// queuedAndExplained: without their events the tasks are QUEUED, and the gateway says why.
func queuedAndExplained(ctx context.Context, c *stage.Cluster, load *apiclient.Record) error {
	counts, err := tables.CountStatus(ctx, c.DB.Reader())
	if err != nil || counts[taskstate.StatusQueued] != len(load.Accepted) {
		return fmt.Errorf("tasks are %v (%w), all must be QUEUED", counts, err)
	}
	for id := range load.Accepted {
		words, err := c.Client.Explain(ctx, id)
		if err != nil {
			return err
		}
		if !strings.Contains(words, "BROKER_UNAVAILABLE") {
			return fmt.Errorf("explain says %q and nothing of its event", words)
		}
	}
	return nil
}

// Broker kills the broker under load for 20 s: uploads go on, nothing is lost, and the first event is sent soon after its return.
func Broker(ctx context.Context, s *stage.Stage) (string, error) {
	var first time.Duration
	return stage.Storm{
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			calm := max(5*time.Second, (s.Load-brokerAway)/2)
			await.Pause(ctx, calm)
			if err := c.Kafka.Kill(ctx); err != nil {
				return err
			}
			await.Pause(ctx, brokerAway)
			if err := c.AllRun(); err != nil {
				return fmt.Errorf("without a broker: %w", err)
			}
			first, err = firstSent(ctx, c)
			await.Pause(ctx, calm)
			return err
		},
		Judge: func(_ context.Context, _ *stage.Cluster, load *apiclient.Record) (string, error) {
			return fmt.Sprintf("broker away for %.0f s; first event sent %.1f s after it was back (goal %.1f s)",
				brokerAway.Seconds(), first.Seconds(), sentGoal.Seconds()), stage.Undisturbed(load)
		},
	}.Run(ctx, s)
}

// firstSent starts the broker and returns how long after it answers the first event is sent.
func firstSent(ctx context.Context, c *stage.Cluster) (time.Duration, error) {
	if err := c.Kafka.Restart(ctx); err != nil {
		return 0, err
	}
	back := time.Now().UTC()
	var took time.Duration
	err := await.Until(ctx, stage.LiveLimit, outboxPoll, func(ctx context.Context) error {
		n := 0
		var last taskstate.DBTime
		err := c.DB.Reader().QueryRowContext(ctx, `SELECT COUNT(*), MIN(sent_at) FROM outbox_event WHERE status = 'SENT' AND sent_at >= ?`,
			back.Add(-brokerStart)).Scan(&n, &last)
		if err == nil && n == 0 {
			err = fmt.Errorf("nothing was sent since the broker answered")
		}
		took = max(0, last.Time.Sub(back))
		return err
	})
	if err == nil && took > sentGoal {
		err = fmt.Errorf("the first event was sent %.1f s after the broker answered, the goal is %.1f s", took.Seconds(), sentGoal.Seconds())
	}
	return took, err
}

// brokerStart is how long before the broker counts as ready it may have taken records.
const brokerStart = 3 * time.Second

// Rebalance lets consumers join and leave every 5 s while tasks run longer than a session may be silent.
func Rebalance(ctx context.Context, s *stage.Stage) (string, error) {
	const taskTime = 12 * time.Second // above the session time-out of 10 s
	changes := 0
	return stage.Storm{
		Opts: world.Options{Env: []string{"INGEST_STOP_GRACE_MS=1000"}}, Clients: 2, Every: time.Second,
		Embedder: []embedtest.Fault{{Kind: embedtest.Delay, For: taskTime}},
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			c.Cut = true // the batches that a stopped consumer waited for
			changes, err = s.Rounds(ctx, func(round int) (err error) {
				await.Pause(ctx, 5*time.Second)
				if round%2 == 0 {
					_, err = c.Add("kafka-consumer")
					return err
				}
				old := c.Of("kafka-consumer")[0]
				c.Drop(old)
				_, err = old.Stop(ctx, stage.StopLimit)
				return err
			})
			return err
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			return fmt.Sprintf("%d joins and leaves, tasks of %.0f s; no attempt and no crash counted", changes, taskTime.Seconds()), stage.Uncounted(ctx, c, "a stop")
		},
	}.Run(ctx, s)
}
