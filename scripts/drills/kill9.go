package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingest/vector/embedded"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// embedTime is how long the embedding service takes, so that most kills meet tasks in the middle of their work.
const embedTime = 150 * time.Millisecond

// patient are settings under which crashes alone never end a task, and takeovers come soon.
var patient = []string{"INGEST_MAX_CRASHES=1000", "INGEST_LEASE_MS=2000"}

// kill9Workers kills any of the separate services at random moments under load and starts it again.
func kill9Workers(ctx context.Context, s *stage) (string, error) { return kill9Services(ctx, s, false) }

// kill9Postgres is the same on Postgres.
func kill9Postgres(ctx context.Context, s *stage) (string, error) { return kill9Services(ctx, s, true) }

func kill9Services(ctx context.Context, s *stage, postgres bool) (string, error) {
	api := world.FreeAddr()
	c, err := s.newCluster(ctx, world.Options{Postgres: postgres, Embedder: slowEmbedder(), Env: append([]string{"HTTP_ADDR=" + api}, patient...)},
		"ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	stop := background(ctx, apiclient.Load{Target: apiclient.NewClient("http://" + api), Clients: 3, Bytes: docBytes, Every: 250 * time.Millisecond})
	kills, err := s.killAtRandom(ctx, c, 100, 1500, "stream-worker", "stream-worker", "stream-worker", "reclaimer", "ingest-api")
	if err != nil {
		return "", err
	}
	if err := c.look(ctx); err != nil {
		return "", err
	}
	load := stop()
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	if err := c.echo(ctx, load); err != nil {
		return "", err
	}
	if err := c.verify(ctx, load, nil); err != nil {
		return "", err
	}
	taken, err := takeovers(ctx, c.DB.Reader())
	if err != nil {
		return "", err
	}
	return s.hit(kills, taken, load)
}

// killAtRandom kills a process of one of the services, a name as often as it stands there, and starts another in its place, again
// and again while the load lasts; between two kills it waits least ms and up to more ms longer. It returns how many it killed.
func (s *stage) killAtRandom(ctx context.Context, c *cluster, least, more int, names ...string) (kills int, err error) {
	for end := time.Now().Add(s.load); time.Now().Before(end) && ctx.Err() == nil; kills++ {
		await.Pause(ctx, time.Duration(least+s.random.IntN(more))*time.Millisecond)
		name := names[s.random.IntN(len(names))]
		running := c.of(name)
		victim := running[s.random.IntN(len(running))]
		victim.Kill()
		c.drop(victim)
		if _, err := c.add(name); err != nil {
			return kills, err
		}
	}
	return kills, nil
}

// hit returns what the kills met; kills that met no work prove nothing.
func (s *stage) hit(kills, taken int, load *apiclient.Record) (string, error) {
	if len(load.Accepted) < s.least() || taken == 0 {
		return "", fmt.Errorf("%d documents were accepted and %d tasks taken over: %d kills met no load", len(load.Accepted), taken, kills)
	}
	return fmt.Sprintf("%d kills, %d takeovers; %s", kills, taken, summary(load)), nil
}

// kill9Dev kills the all-in-one at random moments under load and starts it again on the same data.
func kill9Dev(ctx context.Context, s *stage) (string, error) {
	w, err := world.New(ctx, s.bench, world.Options{Name: s.name, Partitions: s.partitions, Alone: true, Evidence: true, Embedder: slowEmbedder(), Env: patient})
	if err != nil {
		return "", err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	addr := world.FreeAddr()
	p, err := w.StartDev(ctx, addr)
	if err != nil {
		return "", err
	}
	client := apiclient.NewClient(p.HTTP)
	stop := background(ctx, apiclient.Load{Target: client, Clients: 3, Bytes: docBytes, Every: 250 * time.Millisecond})
	kills := 0
	for end := time.Now().Add(s.load); time.Now().Before(end) && ctx.Err() == nil; kills++ {
		await.Pause(ctx, time.Duration(100+s.random.IntN(2500))*time.Millisecond)
		p.Kill()
		if p, err = w.StartDev(ctx, addr); err != nil {
			return "", fmt.Errorf("start after kill %d: %w", kills+1, err)
		}
	}
	load := stop()
	taken, err := s.verifyDev(ctx, w, p, client, load)
	if err != nil {
		return "", err
	}
	return s.hit(kills, taken, load)
}

// verifyDev waits for rest, searches, stops the all-in-one and judges its SQLite file and vector files.
// It returns how many tasks were taken over.
func (s *stage) verifyDev(ctx context.Context, w *world.World, p *proc.Proc, client *apiclient.Client, load *apiclient.Record) (int, error) {
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(w.Data(), "millweir.db")})
	if err != nil {
		return 0, err
	}
	defer db.Close() //nolint:errcheck // only read
	a := judge.Audit{DB: db.Reader(), Load: load, World: w}
	if err := a.Settled(ctx, settleLimit); err != nil {
		return 0, fmt.Errorf("no rest: %w", err)
	}
	if err := findSome(ctx, client, load); err != nil {
		return 0, err
	}
	if err := w.NoStrays(ctx); err != nil {
		return 0, err
	}
	if code, err := p.Stop(ctx, stopLimit); err != nil || code != 0 {
		return 0, fmt.Errorf("exit code after SIGTERM: %d, %w; end of %s:\n%s", code, err, p.Log, p.Tail(12))
	}
	vectors, err := embedded.Open(filepath.Join(w.Data(), "vectors"), embedded.Options{})
	if err != nil {
		return 0, err
	}
	defer vectors.Close() //nolint:errcheck // only read
	a.Vectors = vectors
	report, err := a.Judge(ctx)
	s.said.add(report)
	if err != nil {
		return 0, err
	}
	return takeovers(ctx, db.Reader())
}
