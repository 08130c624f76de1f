package stage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/judge"
	"github.com/millweir/millweir/scripts/lab/proc"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	SettleLimit = 90 * time.Second // for all work to end after the last fault, on two busy cores
	DocBytes    = 10_000
	searches    = 10 // documents of a load that are looked for in the end
	mayMiss     = 1
	queryBytes  = 800
	LiveLimit   = 30 * time.Second
)

// reconciling puts deliveries in order that their readers left behind soon, and not after ten minutes.
var settling = []string{"INGEST_REDIS_RECLAIM_IDLE_MS=2000", "INGEST_REDIS_RECLAIM_INTERVAL_MS=1000"}

// Cluster is the separate services in a world of their own.
type Cluster struct {
	*world.World
	Client *apiclient.Client
	Said   *Notebook
	Cut    bool          // answers of the embedding service were not waited for
	Settle time.Duration // for all work to end

	mu      sync.Mutex
	Procs   []*proc.Proc // those that should be running
	Journal []fsck.ClientRecord
}

// NewCluster starts servers and services. Close it.
func (s *Stage) NewCluster(ctx context.Context, opts world.Options, names ...string) (*Cluster, error) {
	opts.Name, opts.Evidence, opts.Partitions, opts.Postgres, opts.Kafka, opts.RabbitMQ = s.Name, true, s.Partitions, s.Postgres, s.Kafka, s.RabbitMQ
	if !s.Defaults {
		opts.Env = append(slices.Clone(settling), opts.Env...)
	}
	w, err := world.New(ctx, s.Bench, opts)
	if err != nil {
		return nil, err
	}
	c := &Cluster{World: w, Said: s.Said, Settle: SettleLimit}
	for _, name := range names {
		if _, err := c.Add(name); err != nil {
			w.Close()
			return nil, err
		}
	}
	for _, p := range c.Procs {
		if err := p.AwaitAlive(ctx, LiveLimit); err != nil {
			w.Close()
			return nil, err
		}
	}
	return c, nil
}

// Add starts one more process of a service without waiting for it.
func (c *Cluster) Add(service string, env ...string) (*proc.Proc, error) {
	p, err := c.Start(service, env...)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Procs = append(c.Procs, p)
	if p.HTTP != "" && c.Client == nil {
		c.Client = apiclient.NewClient(p.HTTP).As("local", "", func(one apiclient.Call) { c.Note(one.Record()) })
	}
	return p, nil
}

// Adopt puts a process on the list of those that should be running.
func (c *Cluster) Adopt(p *proc.Proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Procs = append(c.Procs, p)
}

// Drop takes a process off the list of those that should be running.
func (c *Cluster) Drop(p *proc.Proc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, q := range c.Procs {
		if q == p {
			c.Procs = append(c.Procs[:i:i], c.Procs[i+1:]...)
			return
		}
	}
}

// Of lists the running processes of a service.
func (c *Cluster) Of(service string) []*proc.Proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*proc.Proc
	for _, p := range c.Procs {
		if strings.HasPrefix(p.Name, service) {
			out = append(out, p)
		}
	}
	return out
}

// AllRun returns an error that names a process which ended although nobody ended it.
func (c *Cluster) AllRun() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.Procs {
		if p.Exited() {
			return fmt.Errorf("%s ended by itself; end of %s:\n%s", p.Name, p.Log, p.Tail(12))
		}
	}
	return nil
}

// AllReady waits until every process says that it is ready.
func (c *Cluster) AllReady(ctx context.Context, limit time.Duration) error {
	for _, p := range c.Procs {
		if err := p.AwaitReady(ctx, limit); err != nil {
			return err
		}
	}
	return nil
}

// Verify waits for rest and judges: tasks, logs, versions, segments, vectors, queue, and a search as a user would.
func (c *Cluster) Verify(ctx context.Context, load *apiclient.Record, want map[string]taskstate.Status) error {
	a := c.Audit(load, want)
	if err := a.Rest(ctx, c.Settle); err != nil {
		return err
	}
	a = c.Audit(load, want) // with what clients have seen meanwhile
	report, err := a.Judge(ctx)
	c.Said.Add(report)
	if err != nil {
		var bad *judge.AuditError
		if errors.As(err, &bad) && bad.Guilty != "" {
			if words, explainErr := c.Client.Explain(ctx, bad.Guilty); explainErr == nil {
				return fmt.Errorf("%w  explain: %s", err, words)
			}
		}
		return err
	}
	if err := c.NoStrays(ctx); err != nil {
		return err
	}
	if err := c.AllRun(); err != nil || load == nil {
		return err
	}
	return FindSome(ctx, c.Client, load)
}

// FindSome searches for the first sentences of some accepted documents: the first hit must be that very document.
// The vector store's index is approximate and misses some that it holds (1 of 500 in 2,500 vectors, where an exact search
// misses none): mayMiss of them. That every vector is there is the checker's to prove.
func FindSome(ctx context.Context, client *apiclient.Client, load *apiclient.Record) error {
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

// Summary tells what a load met.
func Summary(r *apiclient.Record) string {
	return fmt.Sprintf("%d documents accepted, each visible once; %d requests broke off, %d answered 503, %d of unknown outcome",
		len(r.Accepted), r.Unknown, r.Busy, len(r.Maybe))
}

// Background runs a load until the returned function is called, which returns its record, each time the same.
func Background(ctx context.Context, l apiclient.Load) (stop func() *apiclient.Record) {
	var r *apiclient.Record
	end := await.Beside(ctx, func(ctx context.Context) error { r = l.Run(ctx); return nil })
	return func() *apiclient.Record {
		_ = end()
		return r
	}
}
