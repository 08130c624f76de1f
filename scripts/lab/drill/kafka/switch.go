package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/world"
)

// Switch moves an installation from Redis to Kafka and back with tasks in flight: each runs once.
func Switch(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{BothTransports: true, Embedder: &embedtest.Options{}})
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	env := func(queue string) []string {
		return append([]string{"INGEST_QUEUE=" + queue, "INGEST_WORKER_CONCURRENCY=8"}, stage.Patient...)
	}
	redis := stage.Turn{Name: "redis", Services: []string{"ingest-api", "reclaimer", "stream-worker"}, Env: env("redis")}
	kafka := stage.Turn{Name: "kafka", Services: []string{"ingest-api", "reclaimer", "kafka-consumer", "outbox-relay"}, Env: env("kafka")}
	_, total, err := s.Switch(ctx, c, 6, redis, kafka, redis)
	if err != nil {
		return "", err
	}
	// Events that the killed relay had not sent are another's (design D18); without any, retention removes them.
	if _, err := c.Add("outbox-relay", append([]string{"HTTP_ADDR=" + world.FreeAddr()}, kafka.Env...)...); err != nil {
		return "", err
	}
	if err := c.Verify(ctx, total, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("redis → kafka → redis, all killed at each switch; %s", stage.Summary(total)), nil
}

// Loss starts the broker with nothing: topics, records and offsets are gone. What was sent and not run is sent again.
func Loss(ctx context.Context, s *stage.Stage) (string, error) {
	waiting := 0
	return stage.Storm{
		Opts: world.Options{Env: []string{"INGEST_WORKER_CONCURRENCY=4"}}, Clients: 4, Every: 100 * time.Millisecond,
		Embedder: []embedtest.Fault{{Kind: embedtest.Delay, For: time.Second}},
		Faults: func(ctx context.Context, c *stage.Cluster) (err error) {
			await.Pause(ctx, max(5*time.Second, s.Load/3)) // a backlog on the broker
			if err := c.Kafka.Kill(ctx); err != nil {
				return err
			}
			if waiting, err = stage.Unfinished(ctx, c); err != nil {
				return err
			}
			if err := errors.Join(os.RemoveAll(filepath.Join(c.Kafka.Dir, "data")), c.Kafka.Restart(ctx)); err != nil {
				return err
			}
			if err := c.InitKafka(ctx); err != nil {
				return err
			}
			c.Embed.Clear()
			c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
			await.Pause(ctx, max(5*time.Second, s.Load/3))
			return nil
		},
		Judge: func(ctx context.Context, c *stage.Cluster, _ *apiclient.Record) (string, error) {
			again := 0
			err := c.DB.Reader().QueryRowContext(ctx, `SELECT COUNT(*) FROM (SELECT message_key FROM outbox_event WHERE topic = ?
				GROUP BY message_key HAVING COUNT(*) > 1) t`, c.Topic()).Scan(&again)
			if err == nil && again == 0 {
				err = errors.New("no task was enqueued again: the loss met no backlog")
			}
			return fmt.Sprintf("broker emptied with %d unfinished tasks, %d sent again", waiting, again), err
		},
	}.Run(ctx, s)
}
