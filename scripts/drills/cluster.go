package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	settleLimit = 90 * time.Second // for all work to end after the last fault, on two busy cores
	docBytes    = 10_000
	searches    = 10 // documents of a load that are looked for in the end
	mayMiss     = 1
	queryBytes  = 800
	liveLimit   = 30 * time.Second
)

// reconciling puts deliveries in order that their readers left behind soon, and not after ten minutes.
var settling = []string{"INGEST_REDIS_RECLAIM_IDLE_MS=2000", "INGEST_REDIS_RECLAIM_INTERVAL_MS=1000"}

// cluster is the separate services in a world of their own.
type cluster struct {
	*world.World
	client *apiclient.Client
	said   *notebook
	cut    bool          // answers of the embedding service were not waited for
	settle time.Duration // for all work to end

	mu      sync.Mutex
	procs   []*proc.Proc // those that should be running
	journal []fsck.ClientRecord
}

// newCluster starts servers and services. Close it.
func (s *stage) newCluster(ctx context.Context, opts world.Options, names ...string) (*cluster, error) {
	opts.Name, opts.Evidence, opts.Partitions = s.name, true, s.partitions
	if !s.defaults {
		opts.Env = append(slices.Clone(settling), opts.Env...)
	}
	w, err := world.New(ctx, s.bench, opts)
	if err != nil {
		return nil, err
	}
	c := &cluster{World: w, said: s.said, settle: settleLimit}
	for _, name := range names {
		if _, err := c.add(name); err != nil {
			w.Close()
			return nil, err
		}
	}
	for _, p := range c.procs {
		if err := p.AwaitAlive(ctx, liveLimit); err != nil {
			w.Close()
			return nil, err
		}
	}
	return c, nil
}

// add starts one more process of a service without waiting for it.
func (c *cluster) add(service string, env ...string) (*proc.Proc, error) {
	p, err := c.Start(service, env...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.procs = append(c.procs, p)
	if p.HTTP != "" && c.client == nil {
		c.client = apiclient.NewClient(p.HTTP).As("local", "", func(one apiclient.Call) { c.note(one.Record()) })
	}
	return p, nil
}

// drop takes a process off the list of those that should be running.
func (c *cluster) drop(p *proc.Proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, q := range c.procs {
		if q == p {
			c.procs = append(c.procs[:i:i], c.procs[i+1:]...)
			return
		}
	}
}

// of lists the running processes of a service.
func (c *cluster) of(service string) []*proc.Proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*proc.Proc
	for _, p := range c.procs {
		if strings.HasPrefix(p.Name, service) {
			out = append(out, p)
		}
	}
	return out
}

// allRun returns an error that names a process which ended although nobody ended it.
func (c *cluster) allRun() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.procs {
		if p.Exited() {
			return fmt.Errorf("%s ended by itself; end of %s:\n%s", p.Name, p.Log, p.Tail(12))
		}
	}
	return nil
}

// allReady waits until every process says that it is ready.
func (c *cluster) allReady(ctx context.Context, limit time.Duration) error {
	for _, p := range c.procs {
		if err := p.AwaitReady(ctx, limit); err != nil {
			return err
		}
	}
	return nil
}

// verify waits for rest and judges: tasks, logs, versions, segments, vectors, queue, and a search as a user would.
func (c *cluster) verify(ctx context.Context, load *apiclient.Record, want map[string]taskstate.Status) error {
	a := c.audit(load, want)
	if err := a.Settled(ctx, c.settle); err != nil {
		return fmt.Errorf("no rest: %w%s", err, c.explain(ctx))
	}
	a = c.audit(load, want) // with what clients have seen meanwhile
	report, err := a.Judge(ctx)
	c.said.add(report)
	if err != nil {
		var bad *judge.AuditError
		if errors.As(err, &bad) && bad.Guilty != "" {
			if words, explainErr := c.client.Explain(ctx, bad.Guilty); explainErr == nil {
				return fmt.Errorf("%w  explain: %s", err, words)
			}
		}
		return err
	}
	if err := c.NoStrays(ctx); err != nil {
		return err
	}
	if err := c.allRun(); err != nil || load == nil {
		return err
	}
	return findSome(ctx, c.client, load)
}

// explain is what the gateway says about the oldest tasks that did not come to rest.
func (c *cluster) explain(ctx context.Context) string {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return ""
	}
	for id, log := range logs {
		if last := log[len(log)-1].To; !last.Terminal() {
			words, err := c.client.Explain(ctx, id)
			if err != nil {
				words = err.Error()
			}
			return fmt.Sprintf("\n  explain %s: %s", id, words)
		}
	}
	return ""
}

// findSome searches for the first sentences of some accepted documents: the first hit must be that very document.
// The vector store's index is approximate and misses some that it holds (1 of 500 in 2,500 vectors, where an exact search
// misses none): mayMiss of them. That every vector is there is the checker's to prove.
func findSome(ctx context.Context, client *apiclient.Client, load *apiclient.Record) error {
	left, missed := searches, 0
	for id, d := range load.Accepted {
		if left--; left < 0 {
			return nil
		}
		hits, err := client.Search(ctx, d.Base, string(d.Body[:min(len(d.Body), queryBytes)]), 3)
		if err != nil {
			return fmt.Errorf("search for %s: %w", d.Name, err)
		}
		if len(hits) == 0 || hits[0].FileName != d.Name {
			if missed++; missed <= mayMiss && len(hits) > 0 {
				continue
			}
			var found []string
			for _, h := range hits {
				found = append(found, fmt.Sprintf("%s %.3f", h.FileName, h.Score))
			}
			return fmt.Errorf("the first sentences of %s (task %s) are found in %v", d.Name, id, found)
		}
	}
	return nil
}

// slowEmbedder is a fake service that is told later how to misbehave.
func slowEmbedder() *embedtest.Options { return &embedtest.Options{} }

// summary tells what a load met.
func summary(r *apiclient.Record) string {
	return fmt.Sprintf("%d documents accepted, each visible once; %d requests broke off, %d answered 503, %d of unknown outcome",
		len(r.Accepted), r.Unknown, r.Busy, len(r.Maybe))
}

// background runs a load until the returned function is called, which answers its record, each time the same.
func background(ctx context.Context, l apiclient.Load) (stop func() *apiclient.Record) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan *apiclient.Record, 1)
	go func() { done <- l.Run(ctx) }()
	return sync.OnceValue(func() *apiclient.Record {
		cancel()
		return <-done
	})
}
