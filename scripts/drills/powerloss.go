package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/scripts/lab"
	"github.com/millweir/millweir/scripts/lab/lostfs"
)

// powerLoss kills all services and takes from the upload folder what nobody has flushed, again and again.
// The database keeps what it committed: a row whose file is gone would be a document lost.
func powerLoss(ctx context.Context, s *stage) (saw string, err error) {
	dir, err := os.MkdirTemp("", "millweir-power-")
	if err != nil {
		return "", err
	}
	defer os.Remove(dir) //nolint:errcheck // an empty folder
	uploads, err := lostfs.Mount(dir)
	if err != nil {
		return "", fmt.Errorf("the power cut needs /dev/fuse and the right to mount: %w", err)
	}
	defer func() { err = errors.Join(err, uploads.Close()) }()
	api := lab.FreeAddr()
	names := []string{"ingest-api", "stream-worker", "stream-worker"}
	c, err := s.newCluster(ctx, lab.Options{
		Embedder: slowEmbedder(), Env: append([]string{"HTTP_ADDR=" + api, "UPLOAD_DIR=" + dir}, patient...),
	}, names...)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: embedTime})
	stop := background(ctx, lab.Load{Target: lab.NewClient("http://" + api), Clients: 4, Bytes: docBytes, Every: 100 * time.Millisecond})
	cuts := 0
	for end := time.Now().Add(s.load); time.Now().Before(end) && ctx.Err() == nil; cuts++ {
		lab.Pause(ctx, time.Duration(1000+s.random.IntN(4000))*time.Millisecond)
		for _, name := range []string{"ingest-api", "stream-worker"} {
			for _, p := range c.of(name) {
				p.Kill()
				c.drop(p)
			}
		}
		if err := uploads.Cut(); err != nil {
			return "", err
		}
		for _, name := range names {
			if _, err := c.add(name); err != nil {
				return "", err
			}
		}
		if err := c.allReady(ctx, liveLimit); err != nil {
			return "", err
		}
	}
	load := stop()
	if err := c.verify(ctx, load, nil); err != nil {
		return "", err
	}
	if len(load.Accepted) < 50 {
		return "", fmt.Errorf("only %d documents were accepted: the cuts met no load", len(load.Accepted))
	}
	return fmt.Sprintf("%d power cuts; %s", cuts, summary(load)), nil
}
