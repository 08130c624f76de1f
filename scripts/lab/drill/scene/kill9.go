package scene

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
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// Kill9Workers kills any of the separate services at random moments under load and starts it again.
func Kill9Workers(ctx context.Context, s *stage.Stage) (string, error) {
	return kill9Services(ctx, s, false)
}

// Kill9Postgres is the same on Postgres.
func Kill9Postgres(ctx context.Context, s *stage.Stage) (string, error) {
	return kill9Services(ctx, s, true)
}

func kill9Services(ctx context.Context, s *stage.Stage, postgres bool) (string, error) {
	api := world.FreeAddr()
	c, err := s.NewCluster(ctx, world.Options{Postgres: postgres, Embedder: stage.SlowEmbedder(), Env: append([]string{"HTTP_ADDR=" + api}, stage.Patient...)},
		"ingest-api", "stream-worker", "stream-worker", "reclaimer")
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	stop := stage.Background(ctx, apiclient.Load{Target: apiclient.NewClient("http://" + api), Clients: 3, Bytes: stage.DocBytes, Every: 250 * time.Millisecond})
	kills, err := s.KillAtRandom(ctx, c, 100, 1500, "stream-worker", "stream-worker", "stream-worker", "reclaimer", "ingest-api")
	if err != nil {
		return "", err
	}
	if err := c.Look(ctx); err != nil {
		return "", err
	}
	load := stop()
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	if err := c.Echo(ctx, load); err != nil {
		return "", err
	}
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	taken, err := stage.Takeovers(ctx, c.DB.Reader())
	if err != nil {
		return "", err
	}
	return s.Hit(kills, taken, load)
}

// Kill9Dev kills the all-in-one at random moments under load and starts it again on the same data.
func Kill9Dev(ctx context.Context, s *stage.Stage) (string, error) {
	w, err := world.New(ctx, s.Bench, world.Options{Name: s.Name, Partitions: s.Partitions, Alone: true, Evidence: true, Embedder: stage.SlowEmbedder(), Env: stage.Patient})
	if err != nil {
		return "", err
	}
	defer w.Close()
	w.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	addr := world.FreeAddr()
	p, err := w.StartDev(ctx, addr)
	if err != nil {
		return "", err
	}
	client := apiclient.NewClient(p.HTTP)
	stop := stage.Background(ctx, apiclient.Load{Target: client, Clients: 3, Bytes: stage.DocBytes, Every: 250 * time.Millisecond})
	kills := 0
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil; kills++ {
		await.Pause(ctx, time.Duration(100+s.Random.IntN(2500))*time.Millisecond)
		p.Kill()
		if p, err = w.StartDev(ctx, addr); err != nil {
			return "", fmt.Errorf("start after kill %d: %w", kills+1, err)
		}
	}
	load := stop()
	taken, err := verifyDev(ctx, s, w, p, client, load)
	if err != nil {
		return "", err
	}
	return s.Hit(kills, taken, load)
}

// verifyDev waits for rest, searches, stops the all-in-one and judges its SQLite file and vector files.
// It returns how many tasks were taken over.
func verifyDev(ctx context.Context, s *stage.Stage, w *world.World, p *proc.Proc, client *apiclient.Client, load *apiclient.Record) (int, error) {
	db, err := taskstore.Open(ctx, taskstore.Config{DatabaseURL: "sqlite:" + filepath.Join(w.Data(), "millweir.db")})
	if err != nil {
		return 0, err
	}
	defer db.Close() //nolint:errcheck // only read
	a := judge.Audit{DB: db.Reader(), Load: load, World: w}
	if err := a.Settled(ctx, stage.SettleLimit); err != nil {
		return 0, fmt.Errorf("no rest: %w", err)
	}
	if err := stage.FindSome(ctx, client, load); err != nil {
		return 0, err
	}
	if err := w.NoStrays(ctx); err != nil {
		return 0, err
	}
	if code, err := p.Stop(ctx, stage.StopLimit); err != nil || code != 0 {
		return 0, fmt.Errorf("exit code after SIGTERM: %d, %w; end of %s:\n%s", code, err, p.Log, p.Tail(12))
	}
	vectors, err := embedded.Open(filepath.Join(w.Data(), "vectors"), embedded.Options{})
	if err != nil {
		return 0, err
	}
	defer vectors.Close() //nolint:errcheck // only read
	a.Vectors = vectors
	report, err := a.Judge(ctx)
	s.Said.Add(report)
	if err != nil {
		return 0, err
	}
	return stage.Takeovers(ctx, db.Reader())
}
