package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

// everyService is one of each, and a second worker.
var everyService = []string{"ingest-api", "stream-worker", "stream-worker", "reclaimer"}

// stormPause is how long one of a storm's three clients waits between two documents.
const stormPause = 250 * time.Millisecond

// serverLog is how much of the log of a dead server is shown, bytes.
const serverLog = 4000

// leastAccepted is how many documents a second of load must bring in, or the faults met nothing.
const leastAccepted = 1

// storm is a steady load with faults in it, and the judgement after it.
type storm struct {
	opts world.Options // the embedder is added
	// services are started; nil: everyService.
	services []string
	// want are tasks that must not end in SUCCEEDED; faults may fill it.
	want map[string]taskstate.Status
	// embedder says how the embedding service behaves in fair weather; nil: it takes embedTime.
	embedder []embedtest.Fault
	// settle is how long all may take to end; 0: settleLimit.
	settle time.Duration
	// faults breaks things and mends them again, for as long as the stage's load lasts.
	faults func(ctx context.Context, c *cluster) error
	// last breaks what takes longer to find out than a load may wait: it comes when no more is sent, with work still under way; nil: nothing.
	last func(ctx context.Context, c *cluster) error
	// forgive takes out of the record what this storm wanted; nil: nothing.
	forgive func(load *apiclient.Record)
	// judge looks at what is left after the usual verification and returns what it saw.
	judge func(ctx context.Context, c *cluster, load *apiclient.Record) (string, error)
}

// run starts the services with a gateway whose address outlives it.
func (st storm) run(ctx context.Context, s *stage) (saw string, err error) {
	api := world.FreeAddr()
	opts := st.opts
	opts.Embedder, opts.Env = slowEmbedder(), append([]string{"HTTP_ADDR=" + api}, opts.Env...)
	if st.services == nil {
		st.services = everyService
	}
	c, err := s.newCluster(ctx, opts, st.services...)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer func() { err = c.blame(err) }()
	if st.settle > 0 {
		c.settle = st.settle
	}
	if st.embedder == nil {
		st.embedder = []embedtest.Fault{{Kind: embedtest.Delay, For: embedTime}}
	}
	c.Embed.Set(st.embedder...)
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	stop := background(ctx, apiclient.Load{Target: c.client, Clients: 3, Bytes: docBytes, Every: stormPause})
	defer stop()
	if err := st.faults(ctx, c); err != nil {
		return "", err
	}
	if err := c.look(ctx); err != nil {
		return "", err
	}
	load := stop()
	if st.last != nil {
		if err := st.last(ctx, c); err != nil {
			return "", err
		}
	}
	c.Embed.Clear() // searches want it too
	if err := c.allReady(ctx, liveLimit); err != nil {
		return "", err
	}
	if st.forgive != nil {
		st.forgive(load)
	}
	if err := c.audit(load, st.want).Settled(ctx, c.settle); err != nil { // the echo comes in its turn, after all of this
		return "", fmt.Errorf("no rest: %w%s", err, c.explain(ctx))
	}
	if err := c.echo(ctx, load); err != nil {
		return "", err
	}
	if err := c.verify(ctx, load, st.want); err != nil {
		return "", err
	}
	if n := len(load.Accepted); n < s.least() {
		return "", fmt.Errorf("%d documents were accepted, fewer than %d: the faults met no load", n, s.least())
	}
	saw, err = st.judge(ctx, c, load)
	return saw + "; " + summary(load), err
}

// blame adds to an error that a server is not running, with the end of its log: MariaDB was seen to die of itself.
func (c *cluster) blame(err error) error {
	if err == nil {
		return nil
	}
	for _, s := range []*labserver.Server{c.SQL, c.Redis, c.Kafka, c.Chroma} {
		if s == nil || s.Running() {
			continue
		}
		log, readErr := os.ReadFile(s.LogFile())
		err = fmt.Errorf("%w\n  %s is not running; end of its log:\n%s", errors.Join(err, readErr), s.Kind, log[max(0, len(log)-serverLog):])
	}
	return err
}

// least is how many documents the stage's load must bring in.
func (s *stage) least() int { return int(s.load.Seconds()) * leastAccepted }

// rounds repeats a fault until the stage's load is over; it answers how often.
func (s *stage) rounds(ctx context.Context, fault func(round int) error) (n int, err error) {
	for end := time.Now().Add(s.load); time.Now().Before(end) && ctx.Err() == nil && err == nil; n++ {
		err = fault(n)
	}
	return n, err
}

// between pauses for a random time.
func (s *stage) between(ctx context.Context, least, most time.Duration) {
	await.Pause(ctx, least+time.Duration(s.random.Int64N(int64(most-least)+1)))
}

// one picks a running process of a service.
func (s *stage) one(c *cluster, service string) *proc.Proc {
	running := c.of(service)
	return running[s.random.IntN(len(running))]
}
