package work

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/drill/stage"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

const (
	versionedDocs = 12
	versionPause  = 400 * time.Millisecond // between two versions of one document
	memberPause   = 3 * time.Second        // between two changes of the group
	// laneSlack is how far two claims of one process may pass each other: a worker reads on two lanes.
	laneSlack = time.Second
)

// upload is one version of a document, as the gateway answered it.
type upload struct{ Task, document string }

// PartitionsRebalance lets workers join and leave, orderly and killed, while documents get version after version: the last
// upload is what is seen in the end, and the versions of one document were begun in their order.
func PartitionsRebalance(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Embedder: &embedtest.Options{}, Env: append([]string{"INGEST_STOP_GRACE_MS=500"}, stage.Patient...)}, s.Services...)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: stage.EmbedTime})
	if err := c.AllReady(ctx, stage.LiveLimit); err != nil {
		return "", err
	}
	stop := uploadVersions(ctx, c.Client)
	changes := 0
	for end := time.Now().Add(s.Load); time.Now().Before(end) && ctx.Err() == nil; changes++ {
		await.Pause(ctx, memberPause)
		if changes%2 == 0 {
			_, err = c.Add("stream-worker")
		} else {
			old := c.Of("stream-worker")[0]
			c.Drop(old)
			if changes%4 == 1 {
				_, err = old.Stop(ctx, stage.StopLimit)
			} else {
				old.Kill()
			}
		}
		if err != nil {
			return "", err
		}
	}
	uploads, err := stop()
	if err != nil {
		return "", err
	}
	c.Cut = true // the batches that a stopped worker waited for
	a := c.Audit(nil, nil)
	a.AnyEnd = true // older versions may be superseded before they ran
	if err := a.Rest(ctx, stage.SettleLimit); err != nil {
		return "", err
	}
	a = c.Audit(nil, nil)
	a.AnyEnd = true
	report, err := a.Judge(ctx)
	c.Said.Add(report)
	if err != nil {
		return "", err
	}
	began, used, err := beganInOrder(ctx, c, uploads)
	if err != nil {
		return "", err
	}
	if used < 2 || changes < 2 {
		return "", fmt.Errorf("%d partitions were used and the group changed %d times: that proves nothing", used, changes)
	}
	return fmt.Sprintf("%d joins and leaves; %d versions of %d documents on %d partitions begun in their order, the last of each is seen",
		changes, began, len(uploads), used), c.AllRun()
}

// uploadVersions sends documents and new versions of them, one after another for each, until the returned function is called.
func uploadVersions(ctx context.Context, client *apiclient.Client) (stop func() ([][]upload, error)) {
	ctx, cancel := context.WithCancel(ctx)
	uploads := make([][]upload, versionedDocs)
	errs := make([]error, versionedDocs)
	var wg sync.WaitGroup
	for i := range uploads {
		wg.Go(func() {
			for version := 0; ctx.Err() == nil && errs[i] == nil; version++ {
				uploads[i], errs[i] = uploadNext(context.WithoutCancel(ctx), client, i, uploads[i])
				await.Pause(ctx, versionPause)
			}
		})
	}
	return func() ([][]upload, error) {
		cancel()
		wg.Wait()
		for i, err := range errs {
			if err != nil {
				return nil, fmt.Errorf("version %d of document %d: %w", len(uploads[i]), i, err)
			}
		}
		return uploads, nil
	}
}

// uploadNext sends the next version of document i.
func uploadNext(ctx context.Context, client *apiclient.Client, i int, before []upload) ([]upload, error) {
	ctx, cancel := context.WithTimeout(ctx, stage.LiveLimit)
	defer cancel()
	doc := apiclient.Text(i*100_000+len(before), stage.DocBytes/4)
	var task apiclient.Task
	var err error
	if len(before) == 0 {
		task, err = client.Upload(ctx, doc)
	} else {
		task, err = client.Replace(ctx, before[0].document, doc)
	}
	if err != nil {
		return before, err
	}
	return append(before, upload{task.TaskID, task.DocumentID}), nil
}

// beganInOrder looks at when the tasks of each document were first claimed, and by which delivery. It returns how many were,
// and how many partitions they came by.
func beganInOrder(ctx context.Context, c *stage.Cluster, uploads [][]upload) (began, partitions int, err error) {
	logs, err := tables.Logs(ctx, c.DB.Reader())
	if err != nil {
		return 0, 0, err
	}
	used := map[string]bool{}
	for _, versions := range uploads {
		var last taskstate.Transition
		for n, v := range versions {
			log := logs[v.Task]
			if n == len(versions)-1 && (len(log) == 0 || log[len(log)-1].To != taskstate.StatusSucceeded) {
				return 0, 0, fmt.Errorf("task %s, the last version of document %s, ended as %s", v.Task, v.document, tables.Chain(log))
			}
			first, ok := firstClaim(log)
			if !ok || first.Delivery == "" {
				continue // superseded before it began
			}
			began++
			partition, _, _ := strings.Cut(first.Delivery, ":")
			used[partition] = true
			if last.Delivery != "" {
				if err := inOrder(last, first); err != nil {
					return 0, 0, fmt.Errorf("document %s: %w", v.document, err)
				}
			}
			last = first
		}
	}
	return began, len(used), nil
}

// firstClaim is the transition that began a task.
func firstClaim(log []taskstate.Transition) (taskstate.Transition, bool) {
	for _, t := range log {
		if t.To == taskstate.StatusRunning {
			return t, true
		}
	}
	return taskstate.Transition{}, false
}

// inOrder compares the claims of two versions, older first. One whose delivery was replaced by a copy, at a stop, stands behind
// the newer one in the stream, and may begin after it.
func inOrder(older, newer taskstate.Transition) error {
	op, oid, ok1 := strings.Cut(older.Delivery, ":")
	np, nid, ok2 := strings.Cut(newer.Delivery, ":")
	if !ok1 || !ok2 || op != np {
		return fmt.Errorf("deliveries %q and %q are not of one partition", older.Delivery, newer.Delivery)
	}
	if milliseconds(oid) < milliseconds(nid) && newer.CreatedAt.Add(laneSlack).Before(older.CreatedAt) {
		return fmt.Errorf("task %s of entry %s began at %s, before task %s of entry %s at %s", newer.TaskID, newer.Delivery,
			newer.CreatedAt, older.TaskID, older.Delivery, older.CreatedAt)
	}
	return nil
}

// milliseconds is the time part of an entry's id.
func milliseconds(id string) int64 {
	left, _, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(left, 10, 64) // of a row that the checker has read
	return n
}

// switchEmbed is how long the embedding service takes before the switch: eight slots do less than is uploaded.
const switchEmbed = time.Second

// PartitionsSwitch moves an installation from one stream to partitions with tasks in flight, everything killed: each runs, and
// nothing stays in the old stream.
func PartitionsSwitch(ctx context.Context, s *stage.Stage) (string, error) {
	c, err := s.NewCluster(ctx, world.Options{Embedder: &embedtest.Options{}})
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.Embed.Set(embedtest.Fault{Kind: embedtest.Delay, For: switchEmbed}) // a backlog waits in the old stream
	env := func(partitions int) []string {
		return append([]string{"INGEST_WORKER_CONCURRENCY=4", "INGEST_STREAM_PARTITIONS=" + strconv.Itoa(partitions)}, stage.Patient...)
	}
	left, total, err := s.Switch(ctx, c, 4, stage.Turn{Name: "one stream", Services: s.Services, Env: env(1)},
		stage.Turn{Name: "partitions", Services: s.Services, Env: env(s.Partitions), Begin: func() { c.Embed.Clear() }})
	if err != nil {
		return "", err
	}
	if err := c.Verify(ctx, total, nil); err != nil {
		return "", err
	}
	if err := await.Until(ctx, stage.LiveLimit, 200*time.Millisecond, func(ctx context.Context) error {
		n, err := c.Stream.PendingOf(ctx, world.StreamKey)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d entries of the old stream are pending", n)
		}
		return err
	}); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d tasks in flight at the switch, nothing pending in the old stream; %s", left, stage.Summary(total)), nil
}
