package mirror

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	flushDocuments = 4000 // open, and as many ended ones
	flushRuns      = 1000 // of a workflow, open, and as many ended ones
	flushTasks     = flushDocuments + flushRuns
	flushBytes     = 500 // of a document: it is their number that counts here
	flushClients   = 16
	flushSettle    = 4 * time.Minute
	flushWorkflow  = "counted"
)

// RedisFlush empties Redis while as many tasks wait as have ended, documents and workflows: a rehydrator gives the open ones a
// delivery, and what has ended is never run again.
func RedisFlush(ctx context.Context, s *stage.Stage) (saw string, err error) {
	workflow, err := world.ServeWorkflow(flushWorkflow)
	if err != nil {
		return "", err
	}
	defer workflow.Close()
	opts := world.Options{Env: []string{"HTTP_ADDR=" + world.FreeAddr(), workflow.Env}}
	c, err := s.NewCluster(ctx, opts, "ingest-api", "stream-worker", "stream-mirror")
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer func() { err = c.Blame(err) }()
	c.Settle = flushSettle
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	load, _, err := ask(ctx, c, 0)
	if err != nil {
		return "", err
	}
	if err := c.Audit(load, nil).Rest(ctx, c.Settle); err != nil {
		return "", err
	}
	worker := c.Of("stream-worker")[0]
	worker.Kill()
	c.Drop(worker)
	more, open, err := ask(ctx, c, flushTasks)
	if err != nil {
		return "", err
	}
	load.Add(more)
	if _, err := copied(ctx, c, open); err != nil {
		return "", err
	}
	if err := c.Look(ctx); err != nil { // in the end no copy may be left to judge
		return "", err
	}
	before, err := ends(ctx, c)
	if err != nil {
		return "", err
	}
	if len(before) != flushTasks+flushRuns {
		return "", fmt.Errorf("before the flush %d tasks and runs have ended, %d should have", len(before), flushTasks+flushRuns)
	}
	if err := c.Stream.Do(ctx, "FLUSHALL"); err != nil {
		return "", err
	}
	began := time.Now()
	if err := rehydrated(ctx, c); err != nil {
		return "", err
	}
	took := time.Since(began)
	if err := onlyOpen(ctx, c, open); err != nil {
		return "", err
	}
	if err := ended(ctx, c, load, "stream-worker", "stream-worker", "reclaimer"); err != nil {
		return "", err
	}
	later, err := ends(ctx, c)
	if err != nil {
		return "", err
	}
	if lost := before.Lost(later); lost != "" {
		return "", fmt.Errorf("what had ended before the flush was touched after it: %s", lost)
	}
	calls, err := calledUntilTheirEnd(ctx, c, workflow)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d open tasks (%d of them workflows) had a delivery again in %.1f s, none of the %d ended ones; %d runs of the workflow called its service %d times, "+
		"never after their end; %s", flushTasks, flushRuns, took.Seconds(), flushTasks, 2*flushRuns, calls, stage.Summary(load)), nil
}

// ask uploads documents and asks for workflows, all at once; first is the number of the first. All must be accepted.
func ask(ctx context.Context, c *stage.Cluster, first int) (load *apiclient.Record, tasks []string, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		load = apiclient.Load{Target: c.Client, Clients: flushClients, First: first, Count: flushDocuments, Bytes: flushBytes}.Run(ctx)
		return nil
	})
	runs := make([]string, flushRuns)
	for client := range flushClients {
		group.Go(func() error {
			for i := client; i < flushRuns; i += flushClients {
				run, err := c.Client.Apply(ctx, flushWorkflow, fmt.Sprint(first+i), false)
				if err != nil {
					return fmt.Errorf("ask for workflow %d: %w", first+i, err)
				}
				runs[i] = run.TaskID
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	if len(load.Accepted) != flushDocuments {
		return nil, nil, fmt.Errorf("%d of %d uploads were accepted", len(load.Accepted), flushDocuments)
	}
	for id := range load.Accepted {
		runs = append(runs, id)
	}
	return load, runs, nil
}

// ends are the tasks and the runs of workflows that have ended, each with what another delivery, claim or end of it would change.
func ends(ctx context.Context, c *stage.Cluster) (tables.Pictures, error) {
	rows, err := tables.Query(ctx, c.DB.Reader(), func(r *sql.Rows) (p [2]string, err error) { err = r.Scan(&p[0], &p[1]); return p, err },
		`SELECT CONCAT('task ', id), CONCAT(status, ' fence ', fence, ' delivery ', COALESCE(delivery, ''), ' enqueued again ', promise_count, ' ', updated_at)
			FROM ingest_task WHERE status = 'SUCCEEDED'
		UNION ALL SELECT CONCAT('run ', task_id), CONCAT(status, ' ', created_at, ' ', updated_at) FROM workflow_runs`)
	out := tables.Pictures{}
	for _, r := range rows {
		if _, twice := out[r[0]]; twice {
			return nil, fmt.Errorf("%s is there twice", r[0])
		}
		out[r[0]] = r[1]
	}
	return out, err
}

// onlyOpen judges what a rehydrator has done: each open task has one delivery, and nothing else has any.
func onlyOpen(ctx context.Context, c *stage.Cluster, open []string) error {
	entries, err := c.Stream.Entries(ctx)
	if err != nil {
		return err
	}
	for _, id := range open {
		if entries[id] != 1 {
			return fmt.Errorf("open task %s has %d deliveries", id, entries[id])
		}
		delete(entries, id)
	}
	for id, n := range entries {
		return fmt.Errorf("task %s is not open and has %d deliveries; %d such tasks", id, n, len(entries))
	}
	counts, err := tables.CountStatus(ctx, c.DB.Reader())
	if err == nil && (counts[taskstate.StatusQueued] != flushTasks || counts[taskstate.StatusSucceeded] != flushTasks) {
		err = fmt.Errorf("after the flush the tasks are %v", counts)
	}
	return err
}

// calledUntilTheirEnd counts the calls of a workflow's service: each of its runs was called for, and not after its end.
func calledUntilTheirEnd(ctx context.Context, c *stage.Cluster, workflow *world.Workflow) (n int, err error) {
	type end struct {
		task string
		at   time.Time
	}
	runs, err := tables.Query(ctx, c.DB.Reader(), func(r *sql.Rows) (e end, err error) {
		var at taskstate.DBTime
		err = r.Scan(&e.task, &at)
		e.at = at.Time
		return e, err
	}, `SELECT task_id, updated_at FROM workflow_runs`)
	if err != nil {
		return 0, err
	}
	calls := workflow.Calls()
	if len(runs) != 2*flushRuns || len(calls) != 2*flushRuns {
		return 0, fmt.Errorf("%d rows of workflow_runs and calls for %d tasks, %d workflows were asked for", len(runs), len(calls), 2*flushRuns)
	}
	for _, run := range runs {
		for _, at := range calls[run.task] {
			if n++; at.After(run.at) {
				return n, fmt.Errorf("the service was called for workflow %s at %s, which ended at %s", run.task, at, run.at)
			}
		}
	}
	return n, nil
}
