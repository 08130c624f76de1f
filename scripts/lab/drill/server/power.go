package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/lostfs"
	"github.com/millweir/millweir/scripts/lab/world"
)

// PowerLoss kills all services and takes from the upload folder what nobody has flushed, again and again.
// The database keeps what it committed: a row whose file is gone would be a document lost.
func PowerLoss(ctx context.Context, s *stage.Stage) (saw string, err error) {
	api := world.FreeAddr()
	c, err := s.NewCluster(ctx, world.Options{Embedder: stage.SlowEmbedder(), Env: append([]string{"HTTP_ADDR=" + api}, stage.Patient...)})
	if err != nil {
		return "", err
	}
	uploads, err := mountUploads(c)
	defer func() {
		c.Close() // its processes keep the folder busy
		if uploads != nil {
			err = errors.Join(err, uploads.Close())
		}
	}()
	if err != nil {
		return "", err
	}
	names := []string{"ingest-api", "stream-worker", "stream-worker"}
	for _, name := range names {
		if _, err := c.Add(name); err != nil {
			return "", err
		}
	}
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	stop := stage.Background(ctx, apiclient.Load{Target: apiclient.NewClient("http://" + api), Clients: 4, Bytes: stage.DocBytes, Every: 100 * time.Millisecond})
	cuts := 0
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil; cuts++ {
		await.Pause(ctx, time.Duration(1000+s.Random.IntN(4000))*time.Millisecond)
		for _, name := range []string{"ingest-api", "stream-worker"} {
			for _, p := range c.Of(name) {
				p.Kill()
				c.Drop(p)
			}
		}
		if err := uploads.Cut(); err != nil {
			return "", err
		}
		for _, name := range names {
			if _, err := c.Add(name); err != nil {
				return "", err
			}
		}
		if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
			return "", err
		}
	}
	load := stop()
	if err := c.Verify(ctx, load, nil); err != nil {
		return "", err
	}
	if len(load.Accepted) < 50 {
		return "", fmt.Errorf("only %d documents were accepted: the cuts met no load", len(load.Accepted))
	}
	return fmt.Sprintf("%d power cuts; %s", cuts, stage.Summary(load)), nil
}

// mountUploads puts the file system that forgets where the services look for their uploads.
func mountUploads(c *stage.Cluster) (*lostfs.FS, error) {
	dir := c.Uploads()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	uploads, err := lostfs.Mount(dir)
	if err != nil {
		return nil, fmt.Errorf("the power cut needs /dev/fuse and the right to mount: %w", err)
	}
	return uploads, nil
}
