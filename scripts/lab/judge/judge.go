// Package judge waits until a world is at rest and lets pkg/fsck judge it, which owns all rules.
package judge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/history"
	"github.com/millweir/millweir/scripts/lab/apiclient"
	"github.com/millweir/millweir/scripts/lab/await"
	"github.com/millweir/millweir/scripts/lab/tables"
	"github.com/millweir/millweir/scripts/lab/world"
)

// errUnsent is why a world on Kafka is not at rest.
var errUnsent = errors.New("not all are sent")

// Audit says how the world must look at rest and lets package fsck judge it.
type Audit struct {
	DB      taskstate.Tx
	Vectors ingest.VectorStore
	Stream  *world.Stream // nil: the queue was inside the process and is gone
	// Load, when set, is what was accepted: all of it must be there.
	Load *apiclient.Record
	// Want are the tasks that must end otherwise than SUCCEEDED, by id.
	Want map[string]taskstate.Status

	// World has more to judge by: files, effects, acknowledgements, logs, settings; nil: only what stands above.
	World *world.World
	// Gateway is asked for its counts; nil: nobody.
	Gateway *apiclient.Client
	// Journal is what clients saw besides Load; Whole says that no request is in neither.
	Journal []fsck.ClientRecord
	Whole   bool
	// ClientLog, when set, takes the place of Load and Journal: a client log of any length.
	ClientLog io.Reader
	// Operators are users who see everything; Canaries are secrets that may stand nowhere.
	Operators, Canaries []string
	// AnyEnd says that nothing is expected of how tasks end.
	AnyEnd bool
	// Moving says that work is under way: only what holds at any moment is judged.
	Moving bool
	// RepliesLost says that answers of the embedding service may have been lost.
	RepliesLost bool
	// Rules must have judged at least one event.
	Rules []string
}

// AuditError lists what is wrong, with the log of the first guilty task.
type AuditError struct {
	Report history.Report
	Guilty string // id of the first task with a problem; may be empty
	Text   string
}

// Error shows the first violations of each rule.
func (e *AuditError) Error() string { return e.Text }

// Settled waits until every task is terminal (or where Want has it) and its dead letter written, and nothing is pending. limit is for one more
// of them, and for the queue once all are.
func (a Audit) Settled(ctx context.Context, limit time.Duration) error {
	return await.UntilNone(ctx, limit, 100*time.Millisecond, func(ctx context.Context) (int, error) {
		n, err := a.restless(ctx)
		if err == nil {
			err = a.queueAtRest(ctx)
		}
		return n, err
	})
}

// queueAtRest tells why the queue is not, where no task is under way.
func (a Audit) queueAtRest(ctx context.Context) error {
	if a.World != nil && a.World.Kafka != nil { // those that a killed relay has leased are sent again after the lease
		if counts, err := tables.CountOutbox(ctx, a.DB); err != nil || counts["NEW"]+counts["RETRYING"] > 0 {
			return fmt.Errorf("events are %v: %w", counts, errors.Join(err, errUnsent))
		}
	}
	if a.World != nil && a.World.OnKafka() {
		return a.World.Finished(ctx)
	}
	if a.Stream == nil {
		return nil
	}
	n, err := a.Stream.Pending(ctx)
	if err == nil && n > 0 {
		err = fmt.Errorf("XPENDING %s %s is %d", world.StreamKey, world.Group, n)
	}
	if err != nil {
		return err
	}
	// A task that was cancelled at once ends before anybody has read its entry.
	queue, err := a.Stream.Inspector().Look(ctx)
	if err == nil && !queue.Watermark.IsZero() {
		err = fmt.Errorf("an entry of %s was given to nobody yet", queue.Watermark.Format(time.RFC3339Nano))
	}
	return err
}

// restless tells how many tasks are not at rest, and what one of them is.
func (a Audit) restless(ctx context.Context) (n int, first error) {
	rows, err := tables.Tasks(ctx, a.DB)
	if err != nil {
		return math.MaxInt, err
	}
	for _, t := range rows {
		var one error
		switch {
		case !t.Status.Terminal() && a.Want[t.ID] != t.Status:
			one = fmt.Errorf("task %s (%s) is %s, attempt %d, crashes %d, last error %q", t.ID, t.File, t.Status, t.Attempts, t.Crashes, t.LastError)
		case t.DLQ == taskstate.DLQOwed:
			one = fmt.Errorf("task %s still owes its DLQ entry", t.ID)
		default:
			continue
		}
		n, first = n+1, cmp.Or(first, one)
	}
	return n, first
}

// Rest is Settled whose error shows a task that did not come to rest.
func (a Audit) Rest(ctx context.Context, limit time.Duration) error {
	if err := a.Settled(ctx, limit); err != nil {
		return fmt.Errorf("no rest: %w%s", err, a.Unfinished(ctx))
	}
	return nil
}

// Unfinished is the log of a task that did not come to rest, with what the gateway says of it; "" when there is none.
func (a Audit) Unfinished(ctx context.Context) string {
	logs, err := tables.Logs(ctx, a.DB)
	if err != nil {
		return ""
	}
	for id, log := range logs {
		if last := log[len(log)-1].To; last.Terminal() || a.Want[id] == last {
			continue
		}
		text := fmt.Sprintf("\n  log of task %s:\n%s", id, tables.Chain(log))
		if a.Gateway == nil {
			return text
		}
		words, err := a.Gateway.Explain(ctx, id)
		return text + fmt.Sprintf("  explain: %s", errors.Join(errors.New(words), err))
	}
	return ""
}

// Run judges. Errors: *AuditError; rules that judged nothing; what kept it from looking.
func (a Audit) Run(ctx context.Context) error {
	_, err := a.Judge(ctx)
	return err
}

// Judge is Run with every rule's word.
func (a Audit) Judge(ctx context.Context) (history.Report, error) {
	e, o, closers, err := a.evidence()
	defer func() {
		for _, c := range closers {
			_ = c.Close() // only read
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	found, err := fsck.Check(ctx, e, o)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	problems, err := a.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if err := errors.Join(found.Report.Err(), problems); err != nil {
		return found.Report, &AuditError{Report: found.Report, Guilty: guilty(found.Report), Text: err.Error()}
	}
	return found.Report, found.Report.RequireJudged(a.Rules...)
}

// guilty is the first task among the examples.
func guilty(r history.Report) string {
	for _, one := range r {
		for _, e := range one.Examples {
			if e.History != "" {
				return e.Task
			}
		}
	}
	return ""
}

// load judges what only the load knows: one task per file name, accepted or not, and no refusals.
func (a Audit) load(ctx context.Context) (bad, err error) {
	if a.Load == nil || a.Moving {
		return nil, nil
	}
	rows, err := tables.Tasks(ctx, a.DB)
	if err != nil {
		return nil, err
	}
	return problems(a.Load, rows), nil
}

// problems are those of a load's own account.
func problems(r *apiclient.Record, rows []tables.TaskRow) error {
	var bad []error
	for status, n := range r.Other {
		bad = append(bad, fmt.Errorf("%d uploads were answered with %d", n, status))
	}
	sent := map[string]bool{}
	for _, d := range r.Maybe {
		sent[d.Name] = true
	}
	for _, d := range r.Accepted {
		sent[d.Name] = true
	}
	type place struct{ base, file string }
	tasks := map[place]int{}
	for _, t := range rows {
		at := place{t.Base, t.File}
		if tasks[at]++; tasks[at] == 2 && sent[t.File] {
			bad = append(bad, fmt.Errorf("%s was uploaded with one key and became several tasks, one of them %s", t.File, t.ID))
		}
	}
	return errors.Join(bad...)
}

// evidence opens all that there is to judge by; close the closers.
func (a Audit) evidence() (fsck.Evidence, fsck.Options, []io.Closer, error) {
	e := fsck.Evidence{DB: looking{a.DB}, Vectors: a.Vectors, Client: a.clientLog()}
	o := fsck.Options{History: true, Deep: true, Rest: !a.Moving, Want: a.Want, DLQ: true, WholeClient: a.Whole, RepliesLost: a.RepliesLost}
	o.Operators, o.Canaries = a.Operators, a.Canaries
	if o.Want == nil && !a.AnyEnd {
		o.Want = map[string]taskstate.Status{}
	}
	if a.Stream != nil {
		e.Queue, o.Flushes = a.Stream.Inspector(), a.Stream.Losses()
	}
	if a.Gateway != nil {
		e.Stats = a.Gateway.Counts
	}
	if a.World == nil {
		return e, o, nil, nil
	}
	o.Policy, o.Patience = a.World.Policy(), auditPatience
	closers, err := a.World.Evidence(&e)
	return e, o, closers, err
}

// looking is a database on this machine, whose clock is its own.
type looking struct{ tx taskstate.Tx }

func (l looking) Reader() taskstate.Tx { return l.tx }

func (l looking) Dialect() string {
	if d, ok := l.tx.(interface{ Dialect() string }); ok {
		return d.Dialect()
	}
	return "mysql"
}

func (looking) Moment(context.Context) (taskstate.DBClock, error) {
	return taskstate.DBClock{Now: time.Now().UTC()}, nil
}

// auditPatience is what the loops may take on two busy cores.
const auditPatience = 30 * time.Second

// clientLog is the load's account and the journal as a client log; nil when there is neither.
func (a Audit) clientLog() io.Reader {
	if a.ClientLog != nil || a.Load == nil && a.Journal == nil {
		return a.ClientLog
	}
	var b bytes.Buffer
	lines := json.NewEncoder(&b)
	write := func(r fsck.ClientRecord) { _ = lines.Encode(r) } // plain values into memory
	if a.Load != nil {
		for id, d := range a.Load.Accepted {
			write(fsck.ClientRecord{Op: fsck.OpUpload, User: world.Everybody, Outcome: fsck.OutcomeOK, Key: d.Key, BodyHash: d.Hash(), Task: id})
		}
		for _, d := range a.Load.Maybe {
			write(fsck.ClientRecord{Op: fsck.OpUpload, User: world.Everybody, Outcome: fsck.OutcomeMaybe, Key: d.Key, BodyHash: d.Hash()})
		}
	}
	for _, r := range a.Journal {
		write(r)
	}
	return &b
}
