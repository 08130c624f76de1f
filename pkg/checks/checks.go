package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/workflow"
)

// Workflow is the id of the workflow that checks. Only a task that Ask has made runs it.
const Workflow = "installation.check"

const (
	// MaxReason bounds the reason of a repair, in characters.
	MaxReason = 500
	// attempts is how often a check is tried in a row.
	attempts = 3
	// askTries bounds how often Ask looks again when another request came first.
	askTries = 5
)

// Errors of Ask and Get.
var (
	ErrNotFound = errors.New("check not found")
	// ErrRunning says that a check with other options has not ended; the error names it.
	ErrRunning = errors.New("another check has not ended")
)

// Request says what to check, and whether to mend what is found.
type Request struct {
	Deep    bool   `json:"deep"`    // fsck.Options.Deep
	History bool   `json:"history"` // fsck.Options.History
	Repair  bool   `json:"repair"`
	DryRun  bool   `json:"dryRun"` // with Repair: only list what would be mended
	Reason  string `json:"reason"` // of a repair, in the operator's words
	By      string `json:"by"`     // the user that asked
}

// Check is a check that was asked for.
type Check struct {
	Task    taskstate.Task
	Request Request
	Result  *Result // nil: it has not ended well
}

// Door is what checks ask of the tasks' door; *tasks.Service is one.
type Door interface {
	Insert(ctx context.Context, prepare func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, full error) ([]taskstate.NewTask, error)) ([]taskstate.Task, error)
	Announce(ctx context.Context, made []taskstate.Task) (waits bool)
}

// Checks asks for checks and reads them. It is safe for concurrent use.
type Checks struct {
	store taskstate.Database
	door  Door
}

// New makes Checks.
func New(store taskstate.Database, door Door) *Checks { return &Checks{store, door} }

// Owner has all checks, so that one key of idempotency stands for "the check after that one" whoever asks. No caller can be this user
// (contract §4), so no request but Ask's makes a check.
func Owner() taskstate.Scope {
	return taskstate.Scope{UserID: taskstate.System().UserID, Role: taskstate.RoleUser}
}

// Ask makes a check; c's note is written with it. While one has not ended there is no other: the same request gets that one (again),
// a different one gets ErrRunning. Errors too: those of tasks.Service.Insert.
func (s *Checks) Ask(ctx context.Context, c tasks.Caller, r Request) (check Check, again bool, err error) {
	r.By = c.Scope.UserID
	payload, err := json.Marshal(struct {
		Payload Request `json:"payload"`
	}{r})
	if err != nil {
		return Check{}, false, err
	}
	for range askTries {
		// The last one is read first: what another request makes after that has the same key.
		last, err := s.find(ctx, nil, nil, 1)
		if err != nil {
			return Check{}, false, err
		}
		open, err := s.find(ctx, unfinished(), nil, 1)
		if err != nil {
			return Check{}, false, err
		}
		if len(open) > 0 {
			one := open[0]
			same := one.Request
			if same.By = r.By; same != r {
				return Check{}, false, fmt.Errorf("%w: %s, asked for by %s", ErrRunning, one.Task.ID, one.Request.By)
			}
			return one, true, nil
		}
		key := "first check"
		if len(last) > 0 {
			key = "check after " + last[0].Task.ID
		}
		made, err := s.door.Insert(ctx, func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, full error) ([]taskstate.NewTask, error) {
			if full != nil {
				return nil, full
			}
			t := taskstate.NewTask{Actor: c.Scope.Actor(), Task: taskstate.Task{
				ID: tasks.NewID(), UserID: Owner().UserID, Type: workflow.Type, Channel: c.Channel, Payload: payload, WorkflowID: Workflow, ChatID: "check",
				TraceParent: c.TraceParent, RequestID: c.RequestID, MaxAttempts: attempts, IdempotencyKey: key, RequestHash: strings.Repeat("0", 64),
			}}
			return []taskstate.NewTask{t}, c.WriteNote(ctx, tx, m)
		})
		if errors.Is(err, taskstate.ErrDuplicateKey) {
			continue // another request came first
		}
		if err != nil {
			return Check{}, false, err
		}
		s.door.Announce(ctx, made)
		check, err = checkOf(made[0])
		return check, false, err
	}
	return Check{}, false, fmt.Errorf("ask for a check: other requests came first %d times: %w", askTries, taskstate.ErrUnavailable)
}

// unfinished are the statuses of a check that has not ended.
func unfinished() []taskstate.Status {
	return slices.DeleteFunc(taskstate.Statuses(), taskstate.Status.Terminal)
}

// Get reads a check. ErrNotFound.
func (s *Checks) Get(ctx context.Context, id string) (Check, error) {
	t, err := s.store.Get(ctx, Owner(), id)
	if errors.Is(err, taskstate.ErrNotFound) || err == nil && t.WorkflowID != Workflow {
		return Check{}, ErrNotFound
	}
	if err != nil {
		return Check{}, err
	}
	return checkOf(t)
}

// Running are checks that a worker has claimed.
func (s *Checks) Running(ctx context.Context) ([]Check, error) {
	return s.find(ctx, []taskstate.Status{taskstate.StatusRunning}, nil, 10)
}

// List reads a page of checks, the newest first, after a place (nil: from the newest on).
func (s *Checks) List(ctx context.Context, after *taskstate.Cursor, limit int) ([]Check, error) {
	return s.find(ctx, nil, after, limit)
}

// find lists checks in some statuses (nil: all), the newest first.
func (s *Checks) find(ctx context.Context, statuses []taskstate.Status, after *taskstate.Cursor, limit int) ([]Check, error) {
	q := taskstate.Query{Type: workflow.Type, Workflow: Workflow, Statuses: statuses, Sort: taskstate.SortCreatedDesc, After: after, Limit: limit}
	var out []Check
	for len(out) < limit {
		page, err := s.store.List(ctx, Owner(), q)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tasks {
			one, err := checkOf(t)
			if err != nil {
				return nil, err
			}
			out = append(out, one)
		}
		if page.More == nil {
			break
		}
		q.After, q.Limit = page.More, limit-len(out)
	}
	return out, nil
}

// checkOf reads a task of the workflow.
func checkOf(t taskstate.Task) (Check, error) {
	var asked struct {
		Payload Request `json:"payload"`
	}
	if err := json.Unmarshal(t.Payload, &asked); err != nil {
		return Check{}, fmt.Errorf("check %s: its request: %w", t.ID, err)
	}
	c := Check{Task: t, Request: asked.Payload}
	if t.Status == taskstate.StatusSucceeded && len(t.Result) > 0 {
		c.Result = &Result{}
		if err := json.Unmarshal(t.Result, c.Result); err != nil {
			return Check{}, fmt.Errorf("check %s: its result: %w", t.ID, err)
		}
	}
	return c, nil
}
