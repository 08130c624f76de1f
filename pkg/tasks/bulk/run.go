package bulk

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
)

// ErrGone says that no row tells what the operation is: it was lost, or nobody asked for one.
var ErrGone = errors.New("no bulk operation was asked for with this task")

// pageTasks is the most tasks of one transaction.
const pageTasks = 200

// Result is what an operation has done in the end.
type Result struct {
	Matched int64            `json:"matched"`
	Done    int64            `json:"done"`
	Failed  int64            `json:"failed"`
	Skipped map[string]int64 `json:"skipped"`
}

// hashOf is what an idempotency key stands for.
func hashOf(r Request) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", r.Action, r.Filter.Text, r.Filter.Query.KnowledgeBase, r.Reason, r.PerSecond))
	return hex.EncodeToString(sum[:])
}

// running is one attempt of an operation.
type running struct {
	*Operations
	op     Operation
	task   taskstate.Task // the claim
	epoch  int64
	query  taskstate.Query
	caller tasks.Caller
	why    string
	report func(taskstate.Progress)
}

// Run does the operation of a task that its caller has claimed, from where the attempt before ended.
// Errors: ErrGone, taskstate.ErrLost (another holder goes on), taskstate.ErrUnavailable.
func (o *Operations) Run(ctx context.Context, task taskstate.Task, report func(taskstate.Progress)) (Result, error) {
	op, err := o.Get(ctx, taskstate.System(), task.ID)
	if errors.Is(err, ErrNotFound) {
		return Result{}, ErrGone
	}
	if err != nil {
		return Result{}, err
	}
	f, err := filter.Parse(op.Filter, op.CreatedAt)
	if err != nil {
		return Result{}, fmt.Errorf("%w: its filter: %w", ErrGone, err)
	}
	m, err := o.d.Store.Moment(ctx)
	if err != nil {
		return Result{}, err
	}
	x := &running{
		Operations: o, op: op, task: task, epoch: m.Epoch, query: f.Query, report: report,
		caller: tasks.Caller{Scope: op.Scope, RequestID: task.RequestID, TraceParent: task.TraceParent, Channel: task.Channel},
		why:    "bulk operation " + op.ID,
	}
	if op.Reason != "" {
		x.why += ": " + op.Reason
	}
	x.query.KnowledgeBase, x.query.Sort = op.Base, taskstate.SortCreated
	if bound := op.CreatedAt.Add(time.Microsecond); x.query.CreatedBefore.IsZero() || bound.Before(x.query.CreatedBefore) {
		x.query.CreatedBefore = bound
	}
	err = x.all(ctx)
	return Result{Matched: x.op.Matched, Done: x.op.Done, Failed: x.op.Failed, Skipped: x.op.Skipped}, err
}

// all goes over the tasks page by page.
func (x *running) all(ctx context.Context) error {
	if x.op.Matched < 0 {
		counts, err := x.d.Store.Count(ctx, x.op.Scope, x.query)
		if err != nil {
			return err
		}
		if err := x.saveAlone(ctx, func(op *Operation) {
			op.Matched = 0
			for _, n := range counts {
				op.Matched += n
			}
		}); err != nil {
			return err
		}
	}
	began, looked := x.d.Now(), 0
	for {
		x.progress()
		q := x.query
		q.Limit, q.After = pageTasks, &x.op.after
		if x.op.PerSecond > 0 {
			q.Limit = min(q.Limit, x.op.PerSecond)
		}
		page, err := x.d.Store.List(ctx, x.op.Scope, q)
		if err != nil {
			return err
		}
		if len(page.Tasks) > 0 {
			err = x.page(ctx, page.Tasks)
		} else if page.More != nil {
			err = x.saveAlone(ctx, func(op *Operation) { op.after = *page.More })
		} else {
			return nil
		}
		if err != nil {
			return err
		}
		if looked += len(page.Tasks); x.op.PerSecond > 0 {
			ahead := time.Duration(looked)*time.Second/time.Duration(x.op.PerSecond) - x.d.Now().Sub(began)
			if !x.rest(ctx, ahead) {
				return ctx.Err()
			}
		}
	}
}

// restStep is how often a rest reports, so that it is not taken for a standstill.
const restStep = 10 * time.Second

// rest waits, reporting; false: ctx has ended.
func (x *running) rest(ctx context.Context, d time.Duration) bool {
	for ; d > 0; d -= restStep {
		if x.progress(); !x.d.Wait(ctx, min(d, restStep)) {
			return false
		}
	}
	return true
}

// progress tells how far the operation is.
func (x *running) progress() {
	p := taskstate.Progress{Stage: taskstate.StageRun}
	if x.op.Matched > 0 {
		done := min(x.op.Done+x.op.Failed+x.op.Skips(), x.op.Matched)
		p.Percent = int(min(99, 100*done/x.op.Matched))
		p.Processed, p.Total = int(done), int(x.op.Matched)
	}
	x.report(p)
}

// page does the action to one page of tasks.
func (x *running) page(ctx context.Context, page []taskstate.Task) error {
	if x.op.Action == Delete || x.op.Action == Reindex {
		return x.documents(ctx, page)
	}
	byID := map[string]taskstate.Task{}
	ids := make([]string, len(page))
	for i, t := range page {
		ids[i], byID[t.ID] = t.ID, t
	}
	by := x.op.Scope.Actor()
	// Which call of also spoke of a task last: the page is one transaction, or one a task when a row cannot be written.
	spoke, calls := map[string]int{}, 0
	var saved Operation // by the last of them
	outs, err := x.d.Door.OperateAlso(ctx, x.caller, ids, func(m taskstate.DBClock, t taskstate.Task) taskstate.Decision {
		switch {
		case t.WorkflowID == Workflow:
			return refused(t, skipOperation)
		case !fits(x.query, t):
			return refused(t, skipChanged)
		}
		return wish(x.op.Action, m, t, by, x.why)
	}, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, decided []taskstate.Decision) error {
		calls++
		for _, d := range decided {
			spoke[d.TaskID] = calls
		}
		var err error
		saved, err = x.save(ctx, tx, m, func(op *Operation) {
			for _, d := range decided {
				x.count(op, byID[d.TaskID], d)
			}
		})
		return err
	})
	if err != nil {
		return err
	}
	committed := map[int]bool{}
	for _, o := range outs {
		if o.Err == nil && o.Change != nil {
			committed[spoke[o.TaskID]] = true
		}
	}
	if !slices.ContainsFunc(outs, func(o taskstate.Outcome) bool { return !committed[spoke[o.TaskID]] }) {
		x.op = saved // it has all of them
		return nil
	}
	return x.saveAlone(ctx, func(op *Operation) { // what changed nothing, what was gone, and what could not be written
		for i, o := range outs {
			switch {
			case committed[spoke[o.TaskID]]:
			case o.Err != nil:
				op.Failed++
			case o.Before.ID == "":
				op.Skipped[string(skipGone)]++
			default:
				x.count(op, page[i], o.Decision)
			}
		}
		op.pass(page[len(page)-1])
	})
}

// refused is no to a task.
func refused(t taskstate.Task, err error) taskstate.Decision {
	return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerRefused, Err: err}
}

// count counts what was decided on a task.
func (x *running) count(op *Operation, t taskstate.Task, d taskstate.Decision) {
	op.pass(t)
	switch {
	case d.Change != nil:
		op.Done++
	case d.Err != nil:
		op.Skipped[x.reasonOf(d.Err)]++
	default:
		op.Skipped[string(skipChanged)]++
	}
}

// documents does the action to the documents of a page, one after the other; what was done to one and not counted is done again, and
// changes nothing then.
func (x *running) documents(ctx context.Context, page []taskstate.Task) error {
	for _, t := range page {
		x.progress()
		why, err := x.document(ctx, t)
		if errors.Is(err, taskstate.ErrUnavailable) || errors.Is(err, taskstate.ErrOutcomeUnknown) || errors.Is(err, tasks.ErrBacklogFull) || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if err := x.saveAlone(ctx, func(op *Operation) {
			op.pass(t)
			switch {
			case err != nil:
				op.Failed++
			case why != "":
				op.Skipped[string(why)]++
			default:
				op.Done++
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// document does the action to the document of a task; why: it was skipped.
func (x *running) document(ctx context.Context, t taskstate.Task) (why skip, err error) {
	switch {
	case t.DocumentID == "":
		return skipNoDocument, nil
	case !fits(x.query, t):
		return skipChanged, nil
	}
	if x.op.Action == Delete {
		gone, err := x.d.Delete(ctx, x.caller, t.DocumentID)
		if gone {
			return skipGone, nil
		}
		return "", err
	}
	owner := x.caller
	owner.Scope = taskstate.Scope{UserID: t.UserID, Role: taskstate.RoleUser} // the new version is an upload of its owner's
	got, errs := x.d.Door.Submit(ctx, owner, x.d.Reindex(t.DocumentID, "bulk:"+x.op.ID+":"+t.DocumentID))
	if errs[0] == nil && got[0].Replayed {
		return skipSame, nil
	}
	return "", errs[0]
}

// pass moves the operation's place behind a task.
func (op *Operation) pass(t taskstate.Task) {
	if order := t.CreatedAt.Compare(op.after.At); order > 0 || order == 0 && t.ID > op.after.ID {
		op.after = taskstate.Cursor{At: t.CreatedAt, ID: t.ID}
	}
}

// save changes the operation's row under its claim, and returns the row as it is then. taskstate.ErrLost.
func (x *running) save(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, change func(*Operation)) (op Operation, err error) {
	var fence int64
	if err := tx.QueryRowContext(ctx, x.q.Get("Hold"), x.task.ID, x.task.Fence, x.epoch).Scan(&fence); err != nil {
		return op, fmt.Errorf("bulk operation %s: %w", x.op.ID, lost(err))
	}
	row := x.q.Bind("Get", sqldb.Parts{"scope": sqldb.Part{}}, x.op.ID)
	found, err := sqldb.Collect(ctx, tx, scan, row.Text, row.Args...)
	if err != nil || len(found) == 0 {
		return op, fmt.Errorf("bulk operation %s: %w", x.op.ID, cmp.Or(err, ErrGone))
	}
	op = found[0]
	change(&op)
	skipped, err := json.Marshal(op.Skipped)
	if err != nil {
		return op, err
	}
	_, err = tx.ExecContext(ctx, x.q.Get("Save"), op.Matched, op.Done, op.Failed, string(skipped), op.after.At, op.after.ID, m.Now, op.ID)
	return op, err
}

// lost says that no row means a lost claim.
func lost(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return taskstate.ErrLost
	}
	return err
}

// saveAlone is save in a transaction of its own.
func (x *running) saveAlone(ctx context.Context, change func(*Operation)) error {
	var op Operation
	err := x.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) (err error) {
		op, err = x.save(ctx, tx, m, change)
		return err
	})
	if err == nil {
		x.op = op
	}
	return err
}
