// Package checker runs checks of the installation: it is the workflow of package checks, for processes that link package fsck.
package checker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/fsck"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

const schema = `{"type": "object"}`

// Bounds of what a result keeps: with all of them it stays within workflow.MaxResult.
const (
	maxItems   = 50  // of each kind of what is mended
	maxText    = 300 // characters of a problem or an item
	maxHistory = 2000
	maxResult  = workflow.MaxResult - 4<<10
)

// waitForOther is how long a check rests while another one runs. Ask makes none beside another; one that was retried by hand may be.
const waitForOther = 10 * time.Second

// Database is what a check needs of the database; *taskstore.Store is one.
type Database interface {
	taskstate.Database
	Reader() taskstate.Tx
}

// Tools are what checks work with in a process that runs them.
type Tools struct {
	Store     Database
	Evidence  fsck.Evidence // but DB, which is Store
	Embedders []ingest.Embedder
	Policy    taskstate.Policy
	DLQ       bool             // fsck.Options.DLQ
	Now       func() time.Time // nil: time.Now
}

// Workflow is the workflow of installation.check.
func (t Tools) Workflow() workflow.Workflow {
	if t.Now == nil {
		t.Now = time.Now
	}
	return workflow.Workflow{ID: checks.Workflow, Schema: json.RawMessage(schema), Run: t.run}
}

func (t Tools) run(ctx context.Context, r workflow.Run) (json.RawMessage, error) {
	if r.Task.UserID != checks.Owner().UserID {
		return nil, workflow.Permanent(workflow.CodeRefused, "Checks are for operators: POST /internal/fsck.", "user %q asked for a check past the operators' door", r.Task.UserID)
	}
	var asked checks.Request
	if err := json.Unmarshal(r.Payload, &asked); err != nil {
		return nil, &workflow.PayloadError{Problem: err.Error()}
	}
	if err := t.alone(ctx, r.Task); err != nil {
		return nil, err
	}
	out, err := t.check(ctx, asked, r.Report)
	if err != nil {
		return nil, err
	}
	return fit(out)
}

// alone returns a failure that waits while another check runs that began before this one.
func (t Tools) alone(ctx context.Context, me taskstate.Task) error {
	open, err := checks.New(t.Store, nil).Running(ctx)
	if err != nil {
		return err
	}
	mine, err := t.began(ctx, me.ID)
	if err != nil {
		return err
	}
	for _, other := range open {
		theirs, err := t.began(ctx, other.Task.ID)
		if err != nil {
			return err
		}
		if theirs < mine || theirs == mine && other.Task.ID < me.ID {
			return &workflow.Failure{
				Code: workflow.CodeThrottle, Throttled: true, RetryAfter: waitForOther, Cause: "check " + other.Task.ID + " runs", Message: "Another check is running.",
			}
		}
	}
	return nil
}

// began is the number of the call that claimed a running check: its last change. Numbers grow with time.
func (t Tools) began(ctx context.Context, id string) (call int64, err error) {
	for {
		log, err := t.Store.Transitions(ctx, checks.Owner(), id, call, 0)
		if err != nil || len(log) == 0 {
			return call, err
		}
		call = log[len(log)-1].ID
	}
}

// check judges, and mends or lists what would be mended.
func (t Tools) check(ctx context.Context, asked checks.Request, report func(taskstate.Progress)) (checks.Result, error) {
	out := checks.Result{BeganAt: t.Now().UTC()}
	last := taskstate.Progress{Stage: taskstate.StageRun}
	moves := func() { report(last) }
	e := t.Evidence
	e.DB = moving{t.Store, moves}
	found, err := fsck.Check(ctx, e, fsck.Options{
		History: asked.History, Deep: asked.Deep, Policy: &t.Policy, DLQ: t.DLQ,
		Progress: func(done, steps int) {
			last.Processed, last.Total, last.Percent = done, steps, min(99, 100*done/max(1, steps))
			moves()
		},
	})
	if err != nil {
		return out, err
	}
	out.Violations, out.Young, out.Uncompared = found.Report.Violations(), found.Young, found.Uncompared
	if out.Rules, err = t.rules(ctx, found); err != nil {
		return out, err
	}
	if asked.Repair {
		out.Repair = wouldMend(found)
		if !asked.DryRun {
			moves()
			done, err := fsck.Repair(ctx, e, found, t.Embedders...)
			if err != nil {
				return out, fmt.Errorf("repair: %w", err)
			}
			out.Repair = mended(found, done)
		}
	}
	out.EndedAt = t.Now().UTC()
	return out, nil
}

// rules are the words of all rules, with what their examples are about.
func (t Tools) rules(ctx context.Context, found fsck.Findings) ([]checks.Rule, error) {
	about := map[string]bool{}
	for _, r := range found.Report {
		for _, e := range r.Examples {
			about[e.Task] = true
		}
	}
	kinds, err := fsck.Kinds(ctx, t.Store, slices.Sorted(maps.Keys(about)))
	if err != nil {
		return nil, fmt.Errorf("look at what is wrong: %w", err)
	}
	out := make([]checks.Rule, len(found.Report))
	for i, r := range found.Report {
		out[i] = checks.Rule{Rule: r.Rule, Sentence: r.Sentence, Judged: r.Judged, Violations: r.Violations, NotJudged: r.NotJudged, Examples: []checks.Example{}}
		for _, e := range r.Examples {
			out[i].Examples = append(out[i].Examples, checks.Example{
				About: taskstate.Shorten(e.Task, maxText), Kind: kinds[e.Task], Problem: taskstate.Shorten(e.Problem, maxText), History: taskstate.Shorten(e.History, maxHistory),
			})
		}
	}
	return out, nil
}

// wouldMend lists what a repair of findings would do.
func wouldMend(found fsck.Findings) *checks.Repair {
	out := &checks.Repair{DryRun: true, Mends: []checks.Mend{}, Left: []string{}, Rest: found.Report.Violations()}
	add(out, checks.DeleteVectors, "I25", found.Strays, func(s fsck.Stray) string { return s.Collection + "/" + s.ID })
	add(out, checks.WriteVectors, "I25", found.Missing, func(m fsck.Missing) string { return "document " + m.Document + ", vector " + m.ID })
	add(out, checks.MendRows, "", found.Suspects, func(s fsck.Suspect) string { return "document " + s.Document })
	add(out, checks.MendIndex, "I37", found.Unindexed, func(u fsck.Unindexed) string { return "knowledge base " + u.Base })
	add(out, checks.WakeTasks, "I38", found.Asleep, func(id string) string { return "task " + id })
	add(out, checks.CountFailures, "I40", found.Counted, func(id string) string { return "task " + id })
	add(out, checks.CountDocuments, "I42", found.Miscounted, func(m fsck.Miscounted) string { return "knowledge base " + m.Base + ", " + m.Status })
	add(out, checks.RemoveFiles, "I12", found.Orphans, func(name string) string { return name })
	for _, l := range found.Lost {
		leave(out, "document "+l.Document+": "+l.Reason)
	}
	return out
}

// add lists what is mended of one sort, if there is anything.
func add[T any](r *checks.Repair, what, rule string, all []T, name func(T) string) {
	if len(all) == 0 {
		return
	}
	m := checks.Mend{What: what, Rule: rule, Count: int64(len(all)), Items: []string{}}
	for _, one := range all[:min(len(all), maxItems)] {
		m.Items = append(m.Items, taskstate.Shorten(name(one), maxText))
	}
	r.Mends = append(r.Mends, m)
}

// leave notes what cannot be mended.
func leave(r *checks.Repair, why string) {
	if r.LeftAll++; len(r.Left) < maxItems {
		r.Left = append(r.Left, taskstate.Shorten(why, maxText))
	}
}

// mended is what a repair did.
func mended(found fsck.Findings, did fsck.Repaired) *checks.Repair {
	out := &checks.Repair{Mends: []checks.Mend{}, Left: []string{}}
	for _, m := range []checks.Mend{
		{What: checks.DeleteVectors, Rule: "I25", Count: int64(did.Deleted)}, {What: checks.WriteVectors, Rule: "I25", Count: int64(did.Written)},
		{What: checks.EmbedVectors, Rule: "I25", Count: int64(did.Paid)}, {What: checks.MendRows, Count: int64(did.Rows)}, {What: checks.MendIndex, Rule: "I37", Count: int64(did.Indexes)},
		{What: checks.WakeTasks, Rule: "I38", Count: int64(did.Tasks)}, {What: checks.CountFailures, Rule: "I40", Count: int64(did.Failures)},
		{What: checks.CountDocuments, Rule: "I42", Count: int64(did.Counts)}, {What: checks.RemoveFiles, Rule: "I12", Count: int64(did.Files)},
	} {
		if m.Count > 0 {
			m.Items = []string{}
			out.Mends = append(out.Mends, m)
		}
	}
	for _, left := range did.Left {
		leave(out, left)
	}
	out.Rest = max(0, found.Report.Violations()-int64(did.Deleted+did.Written+did.Files)-did.Mended)
	return out
}

// fit is the JSON of a result that can be kept: what is too much leaves the histories first, then all examples but one of a rule.
func fit(r checks.Result) (json.RawMessage, error) {
	for _, shorten := range []func(*checks.Rule){nil, func(r *checks.Rule) {
		for i := range r.Examples {
			r.Examples[i].History = ""
		}
	}, func(r *checks.Rule) { r.Examples = r.Examples[:min(1, len(r.Examples))] }} {
		if shorten != nil {
			r.Shortened = true
			for i := range r.Rules {
				shorten(&r.Rules[i])
			}
		}
		text, err := json.Marshal(r)
		if err != nil || len(text) <= maxResult {
			return text, err
		}
	}
	return nil, errors.New("the result is too large to be kept")
}

// moving is a database whose reads prove that the work moves: a check is no standstill while it asks.
type moving struct {
	Database
	moves func()
}

// Reader implements Database.
func (m moving) Reader() taskstate.Tx { return movingTx{m.Database.Reader(), m.moves} }

type movingTx struct {
	taskstate.Tx
	moves func()
}

// QueryContext implements taskstate.Tx.
func (m movingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	m.moves()
	return m.Tx.QueryContext(ctx, query, args...)
}

// QueryRowContext implements taskstate.Tx.
func (m movingTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	m.moves()
	return m.Tx.QueryRowContext(ctx, query, args...)
}
