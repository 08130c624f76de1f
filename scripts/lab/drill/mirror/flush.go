package mirror

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	flushEnded     = 5000 // tasks at least, and as many open ones
	flushRounds    = 23   // of asking; the last three are for what a worker ends on its way to its stop
	flushDocuments = 250  // of a round
	flushRuns      = 250  // of a round, of a workflow: they are quicker, and some must be left when flushEnded tasks have ended
	flushBytes     = 500  // of a document: it is their number that counts here
	flushClients   = 16
	flushSettle    = 4 * time.Minute
)

// RedisFlush empties Redis while half of many tasks have ended, documents and workflows, and all of them have copies: a rehydrator
// gives the open ones a delivery, and what has ended is never run again.
func RedisFlush(ctx context.Context, s *stage.Stage) (saw string, err error) {
	workflow, err := world.ServeWorkflow("counted")
	if err != nil {
		return "", err
	}
	defer workflow.Close()
	opts := world.Options{Env: []string{"HTTP_ADDR=" + world.FreeAddr(), workflow.Env, "TASK_STREAM_MAXLEN=10000"}}
	c, err := s.NewCluster(ctx, opts, "ingest-api", "stream-mirror")
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer func() { err = c.Blame(err) }()
	c.Settle = flushSettle
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	load, all, err := askAndCopy(ctx, c, workflow)
	if err != nil {
		return "", err
	}
	mirror := c.Of("stream-mirror")[0]
	mirror.Kill() // what ends now keeps its copy
	c.Drop(mirror)
	if _, err := copied(ctx, c, all); err != nil {
		return "", err
	}
	if err := workHalf(ctx, c); err != nil {
		return "", err
	}
	before, err := ends(ctx, c)
	if err != nil {
		return "", err
	}
	var open []string
	runs := 0 // that have ended
	for _, id := range all {
		if _, done := before["task "+id]; !done {
			open = append(open, id)
		}
		if _, done := before["run "+id]; done {
			runs++
		}
	}
	done := len(all) - len(open)
	if done < flushEnded || len(open) < flushEnded || runs == 0 || runs == flushRounds*flushRuns {
		return "", fmt.Errorf("before the flush %d tasks are open and %d have ended, %d of these workflows", len(open), done, runs)
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
	if err := ended(ctx, c, load, "stream-mirror", "stream-worker", "stream-worker", "reclaimer"); err != nil {
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
	return fmt.Sprintf("%d open tasks had a delivery again in %.1f s, none of the %d ended ones; %d workflows, %d of them ended before, called their service %d times, "+
		"never after their end; %s", len(open), took.Seconds(), done, flushRounds*flushRuns, runs, calls, stage.Summary(load)), nil
}

// askAndCopy asks for all tasks, round after round, so that workflows are among those that end first, and waits for their copies.
func askAndCopy(ctx context.Context, c *stage.Cluster, workflow *world.Workflow) (load *apiclient.Record, tasks []string, err error) {
	load = &apiclient.Record{Accepted: map[string]apiclient.Doc{}, Other: map[int]int{}}
	for round := range flushRounds {
		some, runs, err := ask(ctx, c, workflow, round)
		if err != nil {
			return nil, nil, err
		}
		tasks = append(tasks, runs...)
		for id := range some.Accepted {
			tasks = append(tasks, id)
		}
		if load.Add(some); round > 0 {
			continue
		}
		if err := said(ctx, c, len(tasks)); err != nil {
			return nil, nil, err
		}
		if err := c.Look(ctx); err != nil { // in the end no copy may be left to judge
			return nil, nil, err
		}
	}
	if want := flushRounds * (flushDocuments + flushRuns); len(tasks) != want {
		return nil, nil, fmt.Errorf("%d of %d tasks were accepted", len(tasks), want)
	}
	return load, tasks, said(ctx, c, len(tasks))
}

// said waits until the mirror says that so many tasks have a copy. It would make a second one of each that somebody else looks at.
func said(ctx context.Context, c *stage.Cluster, tasks int) error {
	return await.Until(ctx, copiedLimit, every, func(ctx context.Context) error {
		n, err := figure(ctx, c, "mirror_copies")
		if err == nil && n < tasks {
			err = fmt.Errorf("%d of %d tasks have a copy", n, tasks)
		}
		return err
	})
}

// ask uploads the documents of a round and asks for its workflows, beside each other.
func ask(ctx context.Context, c *stage.Cluster, workflow *world.Workflow, round int) (load *apiclient.Record, runs []string, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1 + flushClients)
	group.Go(func() error {
		load = apiclient.Load{Target: c.Client, Clients: flushClients, First: round * flushDocuments, Count: flushDocuments, Bytes: flushBytes}.Run(ctx)
		return nil
	})
	runs = make([]string, flushRuns)
	for i := range runs {
		group.Go(func() error {
			run, err := c.Client.Apply(ctx, workflow.ID, fmt.Sprint(round*flushRuns+i), false)
			runs[i] = run.TaskID
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, fmt.Errorf("ask for a workflow: %w", err)
	}
	return load, runs, nil
}

// workHalf lets a worker run until half of the tasks have ended, and stops it: what it was at is handed back.
func workHalf(ctx context.Context, c *stage.Cluster) error {
	worker, err := c.Add("stream-worker", "INGEST_WORKER_CONCURRENCY=64") // few are under way at the stop
	if err != nil {
		return err
	}
	if err := await.Until(ctx, c.Settle, every, func(ctx context.Context) error {
		counts, err := tables.CountStatus(ctx, c.DB.Reader())
		if err == nil && counts[taskstate.StatusSucceeded] < flushEnded {
			err = fmt.Errorf("tasks are %v", counts)
		}
		return err
	}); err != nil {
		return err
	}
	c.Drop(worker)
	if code, err := worker.Stop(ctx, stage.StopLimit); err != nil || code != 0 {
		return fmt.Errorf("stream-worker: exit code %d at its stop (%w)", code, err)
	}
	return nil
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
	if err == nil && counts[taskstate.StatusQueued] != len(open) {
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
	if asked := flushRounds * flushRuns; len(runs) != asked || len(calls) != asked {
		return 0, fmt.Errorf("%d rows of workflow_runs and calls for %d tasks, %d workflows were asked for", len(runs), len(calls), asked)
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
