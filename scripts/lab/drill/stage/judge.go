package stage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/fsck/rules"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/judge"
)

const (
	echoes    = 3 // documents that are processed once more after the faults
	echoBase  = "echo"
	echoLimit = 60 * time.Second
	goneLimit = 30 * time.Second // for the sweep to pass over a deleted document
	watcher   = "echo"
)

// Audit is the judge of this world.
func (c *Cluster) Audit(load *apiclient.Record, want map[string]taskstate.Status) judge.Audit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return judge.Audit{
		DB: c.DB.Reader(), Vectors: c.Vectors, Stream: c.Stream, Load: load, Want: want,
		World: c.World, Gateway: c.Client, Journal: append([]fsck.ClientRecord{}, c.Journal...), Whole: true,
		RepliesLost: c.Net != nil || c.Cut,
	}
}

// Note keeps what a client saw.
func (c *Cluster) Note(r fsck.ClientRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Journal = append(c.Journal, r)
}

// Look judges what must hold at any moment, while work is under way.
func (c *Cluster) Look(ctx context.Context) error {
	a := c.Audit(nil, nil)
	a.Moving, a.Whole, a.Gateway = true, false, nil
	report, err := a.Judge(ctx)
	if err != nil {
		return fmt.Errorf("a look under way: %w", err)
	}
	c.Said.Add(report)
	return nil
}

// Echo uploads some documents of the load once more, to another base and without any fault, watches them to their ends,
// and deletes one: so the checker has a clean run to compare with, a watcher's account and a deletion.
func (c *Cluster) Echo(ctx context.Context, load *apiclient.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, echoLimit, errors.New("the documents that were sent once more took too long"))
	defer cancel()
	if err := c.Client.CreateBase(ctx, echoBase); err != nil {
		return fmt.Errorf("make base %s: %w", echoBase, err)
	}
	left, deleted := echoes, ""
	for _, d := range load.Accepted {
		if left--; left < 0 {
			break
		}
		d.Base, d.Key = echoBase, d.Key+"-echo"
		task, err := c.Client.Upload(ctx, d)
		if err != nil {
			return fmt.Errorf("echo of %s: %w", d.Name, err)
		}
		if err := c.Follow(ctx, task.TaskID); err != nil {
			return fmt.Errorf("echo of %s: %w", d.Name, err)
		}
		if deleted == "" {
			deleted = task.DocumentID
			if _, err := c.Client.Search(ctx, echoBase, string(d.Body[:min(len(d.Body), queryBytes)]), 3); err != nil {
				return err
			}
		}
	}
	if deleted == "" {
		return nil
	}
	if err := c.Client.Delete(ctx, deleted); err != nil {
		return fmt.Errorf("delete an echo: %w", err)
	}
	for _, d := range load.Accepted {
		if _, err := c.Client.Search(ctx, echoBase, string(d.Body[:min(len(d.Body), queryBytes)]), 10); err != nil {
			return err
		}
		break
	}
	return c.swept(ctx, deleted)
}

// Follow watches a task to its end and keeps what it was shown.
func (c *Cluster) Follow(ctx context.Context, task string) error {
	for last, over := int64(0), false; !over; {
		var err error
		over, err = c.Client.Watch(ctx, task, last, func(e apiclient.Event) bool {
			last, over = e.ID, e.Status.Terminal()
			c.Note(e.Record(watcher+" "+task, ""))
			return !over
		})
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// swept waits until the sweep has passed over a deleted document.
func (c *Cluster) swept(ctx context.Context, document string) error {
	return await.Until(ctx, goneLimit, 100*time.Millisecond, func(ctx context.Context) error {
		passes := 0
		err := c.DB.Reader().QueryRowContext(ctx, `SELECT sweep_pass FROM knowledge_document WHERE id = ?`, document).Scan(&passes)
		if err == nil && passes == 0 {
			err = errors.New("the sweep has not passed over the deleted document")
		}
		return err
	})
}

// Notebook keeps what the checker said. It is safe for concurrent use.
type Notebook struct {
	mu      sync.Mutex
	reports []history.Report
}

// Add keeps one look's report.
func (n *Notebook) Add(r history.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports = append(n.reports, r)
}

// Sum is all that was said.
func (n *Notebook) Sum() history.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return rules.Merge(n.reports...)
}
