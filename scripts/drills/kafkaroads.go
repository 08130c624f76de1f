package main

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
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

// kafkaSwitch moves an installation from Redis to Kafka and back with tasks in flight: each runs once.
func kafkaSwitch(ctx context.Context, s *stage) (string, error) {
	c, err := s.newCluster(ctx, world.Options{Kafka: true, BothTransports: true, Embedder: slowEmbedder()})
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	api := world.FreeAddr()
	total := &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}
	transports := []struct{ kind, worker string }{{"redis", "stream-worker"}, {"kafka", "kafka-consumer"}, {"redis", "stream-worker"}}
	for i, r := range transports {
		for _, old := range c.all() { // killed, so that work is left on the old transport
			old.Kill()
			c.drop(old)
		}
		services := []string{"ingest-api", "reclaimer", r.worker}
		if r.kind == "kafka" {
			services = append(services, "outbox-relay")
		}
		for _, name := range services {
			if _, err := c.add(name, "INGEST_QUEUE="+r.kind, "HTTP_ADDR="+api, "INGEST_MAX_CRASHES=1000", "INGEST_LEASE_MS=2000", "INGEST_WORKER_CONCURRENCY=8"); err != nil {
				return "", err
			}
		}
		if err := c.allReady(ctx, liveLimit); err != nil {
			return "", fmt.Errorf("on %s: %w", r.kind, err)
		}
		c.client = apiclient.NewClient("http://" + api)
		stop := background(ctx, apiclient.Load{Target: c.client, Clients: 6, First: (i + 1) * 100_000, Bytes: docBytes, Every: 200 * time.Millisecond})
		await.Pause(ctx, s.load/time.Duration(len(transports)))
		total.Add(stop())
		if i < len(transports)-1 {
			waiting, err := unfinished(ctx, c)
			if err != nil || waiting == 0 {
				return "", fmt.Errorf("%d tasks are left on %s (%w): the switch met no work", waiting, r.kind, err)
			}
		}
	}
	if err := c.verify(ctx, total, nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("redis → kafka → redis, all killed at each switch; %s", summary(total)), nil
}

// all lists every process that should be running.
func (c *cluster) all() []*proc.Proc { return c.of("") }

// unfinished counts tasks that have not ended.
func unfinished(ctx context.Context, c *cluster) (int, error) {
	counts, err := tables.CountStatus(ctx, c.DB.Reader())
	n := 0
	for status, k := range counts {
		if !status.Terminal() {
			n += k
		}
	}
	return n, err
}

// kafkaLoss starts the broker with nothing: topics, records and offsets are gone. What was sent and not run is sent again.
func kafkaLoss(ctx context.Context, s *stage) (string, error) {
	c, err := s.newCluster(ctx, world.Options{Kafka: true, Embedder: slowEmbedder(), Env: []string{"INGEST_WORKER_CONCURRENCY=4"}}, overKafka...)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: time.Second})
	stop := background(ctx, apiclient.Load{Target: c.client, Clients: 4, Bytes: docBytes, Every: 100 * time.Millisecond})
	defer stop()
	await.Pause(ctx, max(5*time.Second, s.load/3)) // a backlog on the broker
	if err := c.Kafka.Kill(ctx); err != nil {
		return "", err
	}
	waiting, err := unfinished(ctx, c)
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.RemoveAll(filepath.Join(c.Kafka.Dir, "data")), c.Kafka.Restart(ctx)); err != nil {
		return "", err
	}
	if err := c.InitKafka(ctx); err != nil {
		return "", err
	}
	c.Embed.Clear()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	await.Pause(ctx, max(5*time.Second, s.load/3))
	load := stop()
	if err := c.finish(ctx, load); err != nil {
		return "", err
	}
	again := 0
	if err := c.DB.Reader().QueryRowContext(ctx, `SELECT COUNT(*) FROM (SELECT message_key FROM outbox_event WHERE topic = ?
		GROUP BY message_key HAVING COUNT(*) > 1) t`, c.Topic()).Scan(&again); err != nil || again == 0 {
		return "", fmt.Errorf("%d tasks were promised again (%w) of %d unfinished ones: the loss met no backlog", again, err, waiting)
	}
	return fmt.Sprintf("broker emptied with %d unfinished tasks, %d sent again; %s", waiting, again, summary(load)), nil
}
