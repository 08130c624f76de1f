package bulk

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/tasks/filter"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed sql/*.sql
var statements embed.FS

// Workflow is the id of the workflow that runs operations. Its payload is empty: the row of its task's id says what is asked.
const Workflow = "tasks.bulk"

// Limits of an operation.
const (
	MaxReason = 500    // characters
	MaxRate   = 10_000 // tasks a second
)

// Action is what is done to each task.
type Action string

// The actions.
const (
	Retry   Action = "retry"   // RETRYING becomes due, DEAD and CANCELLED start over
	Replay  Action = "replay"  // DEAD and CANCELLED start over
	Cancel  Action = "cancel"  // withdraw what has not ended
	Suspend Action = "suspend" // operators
	Resume  Action = "resume"  // operators
	Delete  Action = "delete"  // the task's document, with all its versions
	Reindex Action = "reindex" // ingest the task's document again
)

// Actions are all of them.
func Actions() []Action { return []Action{Retry, Replay, Cancel, Suspend, Resume, Delete, Reindex} }

// Errors of Ask.
var (
	ErrForbidden = errors.New("suspend and resume are for operators")
	ErrNotFound  = errors.New("bulk operation not found")
)

// InputError says which field of a request is wrong, and how.
type InputError struct{ Field, Problem string }

func (e *InputError) Error() string { return e.Field + ": " + e.Problem }

// Request asks for an operation.
type Request struct {
	Action    Action
	Filter    filter.Filter // with the id of its base in Query
	Reason    string        // in the caller's own words; may be empty
	PerSecond int           // tasks a second; 0: as fast as they go
}

// check returns the first problem.
func (r Request) check(s taskstate.Scope) error {
	switch {
	case !slices.Contains(Actions(), r.Action):
		return &InputError{"action", fmt.Sprintf("%q is none of %v", r.Action, Actions())}
	case r.Filter.Text == "":
		return &InputError{"filter", "is empty; an operation on every task has to say so, for instance by age>0s"}
	case r.PerSecond < 0 || r.PerSecond > MaxRate:
		return &InputError{"ratePerSecond", fmt.Sprintf("is %d, allowed is 0 (no limit) to %d", r.PerSecond, MaxRate)}
	case (r.Action == Suspend || r.Action == Resume) && !s.All():
		return ErrForbidden
	}
	return nil
}

// Operation is what was asked, and how far it is.
type Operation struct {
	ID        string // of its task
	Scope     taskstate.Scope
	Action    Action
	Filter    string
	Base      string // the id of the filter's knowledge base; empty: any
	Reason    string
	PerSecond int
	Matched   int64            // tasks that fitted the filter when it began; -1: not counted yet
	Done      int64            // changed
	Failed    int64            // that could not be written
	Skipped   map[string]int64 // by reason
	CreatedAt time.Time
	UpdatedAt time.Time
	Task      taskstate.Task // as it is now

	after taskstate.Cursor // the last task that was looked at
}

// Skips are the skipped tasks of all reasons.
func (op Operation) Skips() (n int64) {
	for _, k := range op.Skipped {
		n += k
	}
	return n
}

// Door is what operations ask of the tasks' door; *tasks.Service is one.
type Door interface {
	Submit(ctx context.Context, c tasks.Caller, requests ...tasks.Request) ([]tasks.Submitted, []error)
	OperateAlso(ctx context.Context, c tasks.Caller, ids []string, wish tasks.Wish, also tasks.AlsoFunc) ([]taskstate.Outcome, error)
	Refusals(ctx context.Context, s taskstate.Scope, ids []string) (map[string]error, error)
}

// Deps are what operations work with.
type Deps struct {
	Store taskstate.Database
	Door  Door
	// Reason names the refusal of a replay; empty: it is a failure.
	Reason func(error) string
	// Delete deletes a document; gone: there is none.
	Delete func(ctx context.Context, c tasks.Caller, documentID string) (gone bool, err error)
	// Reindex is the request that ingests a document again, under a key.
	Reindex func(documentID, key string) tasks.Request
	Now     func() time.Time                                     // nil: time.Now
	Wait    func(ctx context.Context, d time.Duration) (on bool) // nil: pause.For
}

// Operations keeps operations and runs them. It is safe for concurrent use.
type Operations struct {
	d Deps
	q sqldb.Queries
}

// New makes Operations.
func New(d Deps) *Operations {
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Wait == nil {
		d.Wait = pause.For
	}
	return &Operations{d: d, q: sqldb.MustLoad(statements, "sql", d.Store.Dialect())}
}

// Ask makes an operation; c's note is written with its row. key is an idempotency key, empty: none; the same key gives the same operation.
// Errors: *InputError, ErrForbidden, those of tasks.Service.Submit.
func (o *Operations) Ask(ctx context.Context, c tasks.Caller, r Request, key string) (Operation, error) {
	if err := r.check(c.Scope); err != nil {
		return Operation{}, err
	}
	id := tasks.NewID()
	err := o.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, o.q.Get("Add"), id, c.Scope.UserID, string(c.Scope.Role), string(r.Action), r.Filter.Text, r.Filter.Query.KnowledgeBase,
			r.Reason, r.PerSecond, beginning, m.Now, m.Now)
		if err != nil {
			return fmt.Errorf("write bulk operation: %w", err)
		}
		return c.WriteNote(ctx, tx, m)
	})
	if err != nil {
		return Operation{}, err
	}
	c.Note = nil
	got, errs := o.d.Door.Submit(ctx, c, tasks.Request{
		ID: id, Type: "workflow.execute", WorkflowID: Workflow, ChatID: "bulk", Payload: json.RawMessage(`{"payload":{}}`), MaxAttempts: attempts,
		IdempotencyKey: key, Hash: hashOf(r),
	})
	if err := errs[0]; err != nil || got[0].Task.ID != id {
		if !errors.Is(err, taskstate.ErrOutcomeUnknown) { // nobody works for the row
			removed := o.exec(ctx, "Remove", id)
			err = errors.Join(err, removed)
		}
		if err != nil {
			return Operation{}, err
		}
	}
	return o.Get(ctx, c.Scope, got[0].Task.ID)
}

// attempts is how often an operation is tried in a row; each goes on where the one before ended.
const attempts = 10

// exec runs one statement in a transaction of its own.
func (o *Operations) exec(ctx context.Context, name string, args ...any) error {
	return o.d.Store.InTx(ctx, func(ctx context.Context, tx taskstate.Tx, _ taskstate.DBClock) error {
		_, err := tx.ExecContext(ctx, o.q.Get(name), args...)
		return err
	})
}

// scope is the owner's predicate.
func (o *Operations) scope(s taskstate.Scope) sqldb.Part {
	if s.All() {
		return sqldb.Part{}
	}
	return o.q.Part("OfUser", s.UserID)
}

// Get reads an operation with its task. ErrNotFound.
func (o *Operations) Get(ctx context.Context, s taskstate.Scope, id string) (Operation, error) {
	if !sqldb.ASCII(id) {
		return Operation{}, ErrNotFound
	}
	query := o.q.Bind("Get", sqldb.Parts{"scope": o.scope(s)}, id)
	found, err := o.read(ctx, s, query)
	if err == nil && len(found) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Operation{}, err
	}
	return found[0], nil
}

// List reads a page of operations, the newest first, after a place (nil: from the newest on).
func (o *Operations) List(ctx context.Context, s taskstate.Scope, after *taskstate.Cursor, limit int) ([]Operation, error) {
	if after == nil {
		after = &taskstate.Cursor{At: end, ID: ""}
	}
	at := after.At.UTC().Truncate(time.Microsecond)
	return o.read(ctx, s, o.q.Bind("List", sqldb.Parts{"scope": o.scope(s)}, at, at, after.ID, limit))
}

var (
	beginning = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	end       = time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC)
)

// read reads operations with their tasks; one without a task is none.
func (o *Operations) read(ctx context.Context, s taskstate.Scope, query sqldb.Part) ([]Operation, error) {
	all, err := sqldb.ReadAll(ctx, o.d.Store, "read bulk operations", query.Text, query.Args, scan)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	ids := make([]string, len(all))
	for i, op := range all {
		ids[i] = op.ID
	}
	found, err := o.d.Store.GetMany(ctx, s, ids)
	if err != nil {
		return nil, err
	}
	byID := map[string]taskstate.Task{}
	for _, t := range found {
		byID[t.ID] = t
	}
	for i := range all {
		all[i].Task = byID[all[i].ID]
	}
	return slices.DeleteFunc(all, func(op Operation) bool { return op.Task.ID == "" }), nil
}

// scan reads a row of Columns.
func scan(rows *sql.Rows) (op Operation, err error) {
	var skipped string
	var after, created, updated taskstate.DBTime
	err = rows.Scan(&op.ID, &op.Scope.UserID, &op.Scope.Role, &op.Action, &op.Filter, &op.Base, &op.Reason, &op.PerSecond, &op.Matched, &op.Done, &op.Failed,
		&skipped, &after, &op.after.ID, &created, &updated)
	if err != nil {
		return op, err
	}
	op.after.At, op.CreatedAt, op.UpdatedAt = after.Time, created.Time, updated.Time
	if err := json.Unmarshal([]byte(skipped), &op.Skipped); err != nil {
		return op, fmt.Errorf("bulk operation %s: %w", op.ID, err)
	}
	return op, nil
}

// Preview is what an operation would do.
type Preview struct {
	Matched  int64
	Eligible int64            // by their states; some may be refused for what only their own row says
	Skipped  map[string]int64 // by reason
	Looked   int              // eligible tasks that were judged one by one, the oldest
	Refused  map[string]int64 // of them, by reason
	Sample   []taskstate.Task // the first ones, eligible or not
}

const (
	sampleTasks = 5
	judgedTasks = 100
)

// Preview counts what an operation would do and changes nothing. Errors: as Ask.
func (o *Operations) Preview(ctx context.Context, c tasks.Caller, r Request) (Preview, error) {
	p := Preview{Skipped: map[string]int64{}, Refused: map[string]int64{}}
	if err := r.check(c.Scope); err != nil {
		return p, err
	}
	q := r.Filter.Query
	q.Sort, q.Limit = taskstate.SortCreated, sampleTasks
	counts, err := o.d.Store.Count(ctx, c.Scope, q)
	if err != nil {
		return p, err
	}
	m, err := o.d.Store.Moment(ctx)
	if err != nil {
		return p, err
	}
	var statuses []taskstate.Status
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		p.Matched += counts[status]
		if why := o.refusal(r.Action, m, taskstate.Task{Status: status, DocumentID: "some"}); why != "" {
			p.Skipped[why] += counts[status]
			continue
		}
		p.Eligible += counts[status]
		statuses = append(statuses, status)
	}
	page, err := o.d.Store.List(ctx, c.Scope, q)
	if err != nil {
		return p, err
	}
	p.Sample = page.Tasks
	if len(statuses) == 0 || r.Action != Retry && r.Action != Replay {
		return p, nil
	}
	q.Statuses, q.Limit = []taskstate.Status{taskstate.StatusDead, taskstate.StatusCancelled}, judgedTasks
	if len(r.Filter.Query.Statuses) > 0 {
		q.Statuses = slices.DeleteFunc(q.Statuses, func(s taskstate.Status) bool { return !slices.Contains(r.Filter.Query.Statuses, s) })
	}
	if len(q.Statuses) == 0 {
		return p, nil
	}
	if page, err = o.d.Store.List(ctx, c.Scope, q); err != nil {
		return p, err
	}
	ids := make([]string, len(page.Tasks))
	for i, t := range page.Tasks {
		ids[i] = t.ID
	}
	if p.Looked = len(ids); p.Looked == 0 {
		return p, nil
	}
	refused, err := o.d.Door.Refusals(ctx, c.Scope, ids)
	for _, why := range refused {
		p.Refused[o.reasonOf(why)]++
	}
	return p, err
}

// refusal is why an action leaves a task alone by its state; empty: it does not.
func (o *Operations) refusal(a Action, m taskstate.DBClock, t taskstate.Task) string {
	switch {
	case a == Delete || a == Reindex:
		if t.DocumentID == "" {
			return string(skipNoDocument)
		}
		return ""
	case t.WorkflowID == Workflow:
		return string(skipOperation)
	}
	return o.reasonOf(wish(a, m, t, taskstate.Actor{}, "").Err)
}

// wish decides on a task.
func wish(a Action, m taskstate.DBClock, t taskstate.Task, by taskstate.Actor, why string) taskstate.Decision {
	switch a {
	case Retry:
		d := taskstate.Retry(m, t, by)
		if d.Change != nil {
			d.Change.Message = taskstate.Shorten(why, taskstate.MaxErrorChars)
		}
		return d
	case Replay:
		return taskstate.Replay(m, t, by, why)
	case Cancel:
		return taskstate.Cancel(m, t, by, taskstate.ReasonCancelled, why)
	case Suspend:
		return taskstate.Suspend(m, t, by, why)
	case Resume:
		return taskstate.Resume(m, t, by, why)
	case Delete, Reindex: // of documents
	}
	return taskstate.Decision{TaskID: t.ID, Answer: taskstate.AnswerKept}
}

// skip is a reason of our own to leave a task alone, as Operation.Skipped counts it (contract §4).
type skip string

const (
	skipChanged    skip = "CHANGED"        // it does not fit the filter any more
	skipOperation  skip = "BULK_OPERATION" // operations do nothing to operations
	skipGone       skip = "GONE"
	skipNoDocument skip = "NO_DOCUMENT"
	skipSame       skip = "SAME_DOCUMENT" // another task of it came first
)

// Error is the reason.
func (s skip) Error() string { return string(s) }

// reasonOf names why a task was skipped.
func (o *Operations) reasonOf(err error) string {
	var refused *taskstate.RefusedError
	var skipped skip
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Code
	case errors.As(err, &skipped):
		return string(skipped)
	}
	if why := o.d.Reason(err); why != "" {
		return why
	}
	return "REFUSED"
}

// fits reports whether what may change of a task still fits an expression.
func fits(q taskstate.Query, t taskstate.Task) bool {
	switch {
	case len(q.Statuses) > 0 && !slices.Contains(q.Statuses, t.Status):
	case q.Stage != "" && q.Stage != t.Progress.Stage:
	case q.Code != "" && q.Code != t.ErrorCode:
	case q.Error != "" && !strings.Contains(strings.ToLower(t.LastError), strings.ToLower(q.Error)):
	case q.FailureGroup != "" && (!t.Fails() || taskstate.CauseOf(t.ErrorCode, t.LastError).Group() != q.FailureGroup):
	case t.AttemptCount < q.AttemptsFrom || q.AttemptsBelow > 0 && t.AttemptCount >= q.AttemptsBelow:
	case !q.UpdatedBefore.IsZero() && !t.UpdatedAt.Before(q.UpdatedBefore):
	default:
		return true
	}
	return false
}
