package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/world"
)

// A storm's load.
const (
	stormClients = 3
	StormPause   = 250 * time.Millisecond // of one client between two documents
)

// serverLog is how much of the log of a dead server is shown, bytes.
const serverLog = 4000

// leastAccepted is how many documents a second of load must bring in, or the faults met nothing.
const leastAccepted = 1

// Storm is a steady load with faults in it, and the judgement after it.
type Storm struct {
	Opts world.Options // the embedder is added
	// services are started; nil: those of the transport.
	Services []string
	Clients  int           // of the load; 0: stormClients
	Every    time.Duration // one client's pause between two documents; 0: stormPause
	// want are tasks that must not end in SUCCEEDED; faults may fill it.
	Want map[string]taskstate.Status
	// embedder says how the embedding service behaves in fair weather; nil: it takes embedTime.
	Embedder []embedtest.Fault
	// settle is how long all may take to end; 0: settleLimit.
	Settle time.Duration
	// faults breaks things and mends them again, for as long as the stage's load lasts.
	Faults func(ctx context.Context, c *Cluster) error
	// last breaks what takes longer to find out than a load may wait: it comes when no more is sent, with work still under way; nil: nothing.
	Last func(ctx context.Context, c *Cluster) error
	// forgive takes out of the record what this storm wanted; nil: nothing.
	Forgive func(load *apiclient.Record)
	// judge looks at what is left after the usual verification and returns what it saw.
	Judge func(ctx context.Context, c *Cluster, load *apiclient.Record) (string, error)
}

// Run starts the services with a gateway whose address outlives it.
func (st Storm) Run(ctx context.Context, s *Stage) (saw string, err error) {
	api := world.FreeAddr()
	opts := st.Opts
	opts.Embedder, opts.Env = &embedtest.Options{}, append([]string{"HTTP_ADDR=" + api}, opts.Env...)
	if st.Services == nil {
		st.Services = s.Services
	}
	c, err := s.NewCluster(ctx, opts, st.Services...)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer func() { err = c.Blame(err) }()
	if st.Settle > 0 {
		c.Settle = st.Settle
	}
	if st.Embedder == nil {
		st.Embedder = []embedtest.Fault{{Kind: embedtest.Delay, For: EmbedTime}}
	}
	c.Embed.Set(st.Embedder...)
	if err := c.AllReady(ctx, LiveLimit); err != nil {
		return "", err
	}
	stop := Background(ctx, apiclient.Load{Target: c.Client, Clients: cmp.Or(st.Clients, stormClients), Bytes: DocBytes, Every: cmp.Or(st.Every, StormPause)})
	defer stop()
	if err := st.Faults(ctx, c); err != nil {
		return "", err
	}
	if err := c.Look(ctx); err != nil {
		return "", err
	}
	load := stop()
	if st.Last != nil {
		if err := st.Last(ctx, c); err != nil {
			return "", err
		}
	}
	c.Embed.Clear() // searches want it too
	if err := c.AllReady(ctx, LiveLimit); err != nil {
		return "", err
	}
	if st.Forgive != nil {
		st.Forgive(load)
	}
	if s.Transport.Kafka {
		if err := c.OutboxSent(ctx, DrainLimit); err != nil {
			return "", err
		}
	}
	if err := c.Audit(load, st.Want).Rest(ctx, c.Settle); err != nil { // the echo comes in its turn, after all of this
		return "", err
	}
	if err := c.Echo(ctx, load); err != nil {
		return "", err
	}
	if err := c.Verify(ctx, load, st.Want); err != nil {
		return "", err
	}
	if n := len(load.Accepted); n < s.Least() {
		return "", fmt.Errorf("%d documents were accepted, fewer than %d: the faults met no load", n, s.Least())
	}
	saw, err = st.Judge(ctx, c, load)
	return saw + "; " + Summary(load), err
}

// Blame adds to an error that a server is not running, with the end of its log: MariaDB was seen to die of itself.
func (c *Cluster) Blame(err error) error {
	if err == nil {
		return nil
	}
	for _, s := range []*labserver.Server{c.SQL, c.Redis, c.Kafka, c.Rabbit, c.Chroma} {
		if s == nil || s.Running() {
			continue
		}
		log, readErr := os.ReadFile(s.LogFile())
		err = fmt.Errorf("%w\n  %s is not running; end of its log:\n%s", errors.Join(err, readErr), s.Kind, log[max(0, len(log)-serverLog):])
	}
	return err
}
