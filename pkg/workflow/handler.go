package workflow

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/taskstate"
)

//go:embed sql/*.sql
var statements embed.FS

// Records keeps the table workflow_runs: a row for each task of this type that has ended, with its end's status and result. It
// implements tasks.Type.
type Records struct{ q sqldb.Queries }

// NewRecords makes one for a database of a dialect.
func NewRecords(dialect string) Records { return Records{sqldb.MustLoad(statements, "sql", dialect)} }

// Describe implements tasks.Type.
func (Records) Describe() taskrun.Description {
	return taskrun.Description{Noun: "workflow", Outside: true}
}

// OnTransition implements tasks.Type.
func (r Records) OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, _ map[string]any) error {
	ended := map[taskstate.Status][]string{}
	var again []string
	for _, d := range changed {
		switch {
		case d.Change.To.Terminal():
			ended[d.Change.To] = append(ended[d.Change.To], d.TaskID)
		case d.Change.From.Terminal():
			again = append(again, d.TaskID)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(ended)) {
		if err := r.exec(ctx, tx, "RunsEnd", ended[status], string(status), m.Now); err != nil {
			return err
		}
	}
	return r.exec(ctx, tx, "RunsAgain", again)
}

// exec runs a statement about tasks, if there are any.
func (r Records) exec(ctx context.Context, tx taskstate.Tx, name string, ids []string, args ...any) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	q := r.q.Bind(name, sqldb.Parts{"list": sqldb.List(ids)}, args...)
	if _, err := tx.ExecContext(ctx, q.Text, q.Args...); err != nil {
		return fmt.Errorf("write runs of workflows: %w", err)
	}
	return nil
}

// Handler runs workflows. It implements taskrun.Handler.
type Handler struct {
	Records
	Workflows *Registry
}

var _ taskrun.Handler = Handler{}

// Handle implements taskrun.Handler.
func (h Handler) Handle(ctx context.Context, job taskrun.Job) taskrun.Result {
	out, err := h.run(ctx, job)
	return taskrun.Result{Output: out, Err: err}
}

func (h Handler) run(ctx context.Context, job taskrun.Job) (json.RawMessage, error) {
	var q Request
	if err := json.Unmarshal(job.Task.Payload, &q); err != nil {
		return nil, &PayloadError{Problem: err.Error()}
	}
	w, payload, err := h.Workflows.find(job.Task.WorkflowID, q)
	if err != nil {
		return nil, err
	}
	job.Report(taskstate.Progress{Stage: taskstate.StageRun})
	out, err := w.Run(ctx, Run{Task: job.Task, Request: q, Payload: payload, Key: job.Task.ID, Report: job.Report})
	switch {
	case err != nil:
		return nil, err
	case len(out) > MaxResult:
		return nil, Permanent(CodeResult, "The workflow's result is too large.", "the result has %d bytes; at most %d are kept", len(out), MaxResult)
	case len(out) > 0 && !json.Valid(out):
		return nil, Permanent(CodeResult, "The workflow's result is not valid.", "the result is no JSON")
	}
	return out, nil
}

// Classify implements taskrun.Handler.
func (Handler) Classify(err error) taskstate.Failure {
	var known *Failure
	var payload *PayloadError
	switch {
	case errors.As(err, &known):
		f := taskstate.Failure(*known)
		f.Cause = err.Error()
		return f
	case errors.Is(err, ErrUnknown):
		return taskstate.Failure{
			Code: CodeUnknown, Suspend: true, Cause: err.Error(),
			Message: "No worker that runs now knows this workflow; an operator resumes the task once one does.",
		}
	case errors.As(err, &payload):
		return taskstate.Failure{Code: CodePayload, Permanent: true, Cause: err.Error(), Message: "The payload does not fit the workflow: " + payload.Error()}
	}
	return taskstate.Failure{Code: CodeFailed, Cause: err.Error(), Message: "The workflow failed."}
}
