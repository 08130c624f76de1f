package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
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

// always are the rules that every drill must have judged.
var always = []string{"I1", "I2", "I3", "I4", "I5", "I7", "I8", "I11", "I12", "I23", "I36", "L1"}

// loaded are those that a drill with a load and an echo must have judged besides.
var loaded = []string{"I13", "I14", "I15", "I17", "I20", "I24", "I25", "I26", "I27", "I28", "I29", "I30", "I34", "I35", "L4", "L5"}

// onOutbox are those of its events, onKafka those of a drill on Kafka alone besides.
var (
	onOutbox = []string{"I16", "L3"}
	onKafka  = append([]string{"I15", "I21", "L5"}, onOutbox...)
)

// onTopic are those of a drill on partitions; the all-in-one has its Redis inside, where nobody can look.
var (
	onTopic   = []string{"I31", "I32", "I33"}
	noOutside = []string{"streammq-kill9-dev"}
)

// must are the rules that a drill is made for.
var must = map[string][]string{
	"main-reproduction":            {"I9", "I18"},
	"main-kill9-worker":            append(loaded, "I6"),
	"main-kill9-postgres":          append(loaded, "I6"),
	"main-kill9-dev":               {"I6", "I14", "I25"},
	"main-kill9-each":              append(loaded, "I6"),
	"main-kill9-all":               append(loaded, "I6"),
	"main-stop-worker":             append(loaded, "I6"),
	"main-stop-reclaimer":          append(loaded, "I9", "I10"),
	"main-zombie":                  {"I6"},
	"main-poison":                  {"I6", "I18"},
	"main-commit-unknown":          loaded,
	"main-defaults":                append(loaded, "I6"),
	"main-full-load":               {"I6", "I13", "I15", "I17", "I25", "L4", "L5"},
	"kafka-defaults":               append([]string{"I6", "I25"}, onKafka...),
	"kafka-full-load":              append([]string{"I6", "I25"}, onKafka...),
	"main-redis-loss":              {"I15", "I25", "L5", "L6"},
	"main-redis-flush":             {"I15", "I25", "L5", "L6"},
	"main-embed-faults":            append(loaded, "I9", "I10"),
	"main-sse":                     append(loaded, "I9", "I10"),
	"main-chroma-faults":           append(loaded, "I9", "I10"),
	"main-db-restart":              {"I25", "L5"},
	"main-commit-unknown-postgres": loaded,
	"kafka-reproduction":           onKafka,
	"kafka-broker":                 append([]string{"I25"}, onKafka...),
	"kafka-kill9":                  append([]string{"I6", "I25"}, onKafka...),
	"kafka-two-relays":             onKafka,
	"kafka-rebalance":              append([]string{"I25"}, onKafka...),
	"kafka-loss":                   append([]string{"I25"}, onKafka...),
	"kafka-switch":                 onOutbox,
}

// notebook keeps what the checker said. It is safe for concurrent use.
type notebook struct {
	mu      sync.Mutex
	reports []history.Report
}

// add keeps one look's report.
func (n *notebook) add(r history.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports = append(n.reports, r)
}

// sum is all that was said.
func (n *notebook) sum() history.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fsck.Merge(n.reports...)
}

// proved returns an error that names the rules of a drill that judged nothing; a drill that failed has said why.
func (n *notebook) proved(drill string, passed bool) error {
	sum := n.sum()
	if !passed {
		return nil
	}
	if len(sum) == 0 {
		return errors.New("the checker was not asked")
	}
	scene, wanted := drill, slices.Clone(always)
	if same, ok := strings.CutPrefix(drill, "streammq-"); ok {
		scene = "main-" + same
		if !slices.Contains(noOutside, drill) {
			wanted = append(wanted, onTopic...)
		}
	}
	return sum.RequireJudged(append(wanted, must[scene]...)...)
}

// summarize prints how many events each rule judged over all drills; every applicable one must have judged something.
func (n *notebook) summarize(out io.Writer) error {
	var words []string
	sum := n.sum()
	for _, id := range append(fsck.Applicable(), onTopic...) {
		words = append(words, fmt.Sprintf("%s %d", id, sum.Rule(id).Judged))
	}
	_, _ = fmt.Fprintf(out, "RULES judged, all drills together: %s\n", strings.Join(words, " · "))
	return sum.RequireJudged(fsck.Applicable()...)
}

// audit is the judge of this world.
func (c *cluster) audit(load *apiclient.Record, want map[string]taskstate.Status) judge.Audit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return judge.Audit{
		DB: c.DB.Reader(), Vectors: c.Vectors, Stream: c.Stream, Load: load, Want: want,
		World: c.World, Gateway: c.client, Journal: append([]fsck.ClientRecord{}, c.journal...), Whole: true,
		RepliesLost: c.Net != nil || c.cut,
	}
}

// note keeps what a client saw.
func (c *cluster) note(r fsck.ClientRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.journal = append(c.journal, r)
}

// look judges what must hold at any moment, while work is under way.
func (c *cluster) look(ctx context.Context) error {
	a := c.audit(nil, nil)
	a.Moving, a.Whole, a.Gateway = true, false, nil
	report, err := a.Judge(ctx)
	if err != nil {
		return fmt.Errorf("a look under way: %w", err)
	}
	c.said.add(report)
	return nil
}

// echo uploads some documents of the load once more, to another base and without any fault, watches them to their ends,
// and deletes one: so the checker has a clean run to compare with, a watcher's account and a deletion.
func (c *cluster) echo(ctx context.Context, load *apiclient.Record) error {
	ctx, cancel := context.WithTimeoutCause(ctx, echoLimit, errors.New("the documents that were sent once more took too long"))
	defer cancel()
	if err := c.client.CreateBase(ctx, echoBase); err != nil {
		return fmt.Errorf("make base %s: %w", echoBase, err)
	}
	left, deleted := echoes, ""
	for _, d := range load.Accepted {
		if left--; left < 0 {
			break
		}
		d.Base, d.Key = echoBase, d.Key+"-echo"
		task, err := c.client.Upload(ctx, d)
		if err != nil {
			return fmt.Errorf("echo of %s: %w", d.Name, err)
		}
		if err := c.follow(ctx, task.TaskID); err != nil {
			return fmt.Errorf("echo of %s: %w", d.Name, err)
		}
		if deleted == "" {
			deleted = task.DocumentID
			if _, err := c.client.Search(ctx, echoBase, string(d.Body[:min(len(d.Body), queryBytes)]), 3); err != nil {
				return err
			}
		}
	}
	if deleted == "" {
		return nil
	}
	if err := c.client.Delete(ctx, deleted); err != nil {
		return fmt.Errorf("delete an echo: %w", err)
	}
	for _, d := range load.Accepted {
		if _, err := c.client.Search(ctx, echoBase, string(d.Body[:min(len(d.Body), queryBytes)]), 10); err != nil {
			return err
		}
		break
	}
	return c.swept(ctx, deleted)
}

// follow watches a task to its end and keeps what it was shown.
func (c *cluster) follow(ctx context.Context, task string) error {
	for last, over := int64(0), false; !over; {
		var err error
		over, err = c.client.Watch(ctx, task, last, func(e apiclient.Event) bool {
			last, over = e.ID, e.Status.Terminal()
			c.note(e.Record(watcher+" "+task, ""))
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
func (c *cluster) swept(ctx context.Context, document string) error {
	return await.Until(ctx, goneLimit, 100*time.Millisecond, func(ctx context.Context) error {
		passes := 0
		err := c.DB.Reader().QueryRowContext(ctx, `SELECT sweep_pass FROM knowledge_document WHERE id = ?`, document).Scan(&passes)
		if err == nil && passes == 0 {
			err = errors.New("the sweep has not passed over the deleted document")
		}
		return err
	})
}
