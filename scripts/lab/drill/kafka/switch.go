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
	c, err := s.NewCluster(ctx, world.Options{BothTransports: true, Embedder: stage.SlowEmbedder()})
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	api := world.FreeAddr()
	total := &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}
	transports := []struct{ kind, worker string }{{"redis", "stream-worker"}, {"kafka", "kafka-consumer"}, {"redis", "stream-worker"}}
	for i, r := range transports {
		for _, old := range c.All() { // killed, so that work is left on the old transport
			old.Kill()
			c.Drop(old)
		}
		services := []string{"ingest-api", "reclaimer", r.worker}
		if r.kind == "kafka" {
			services = append(services, "outbox-relay")
		}
		for _, name := range services {
			if _, err := c.Add(name, "INGEST_QUEUE="+r.kind, "HTTP_ADDR="+api, "INGEST_MAX_CRASHES=1000", "INGEST_LEASE_MS=2000", "INGEST_WORKER_CONCURRENCY=8"); err != nil {
				return "", err
			}
		}
		if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
			return "", fmt.Errorf("on %s: %w", r.kind, err)
		}
		c.Client = apiclient.NewClient("http://" + api)
		stop := stage.Background(ctx, apiclient.Load{Target: c.Client, Clients: 6, First: (i + 1) * 100_000, Bytes: stage.DocBytes, Every: 200 * time.Millisecond})
		await.Pause(ctx, s.Load/time.Duration(len(transports)))
		total.Add(stop())
		if i < len(transports)-1 {
			waiting, err := stage.Unfinished(ctx, c)
			if err != nil || waiting == 0 {
				return "", fmt.Errorf("%d tasks are left on %s (%w): the switch met no work", waiting, r.kind, err)
			}
		}
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
