package views

import (
	"cmp"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Workflow renders a task as the result of a workflow.
func Workflow(c *gin.Context, t taskstate.Task) wire.WorkflowReply {
	run := wire.WorkflowRun{
		TaskID: t.ID, Status: t.Status, Result: t.Result,
		Retry: wire.WorkflowRetry{Count: t.AttemptCount, Max: t.MaxAttempts, NextAttemptAt: wire.MaybeAt(t.NextRetryAt)},
	}
	if len(run.Result) == 0 {
		run.Result = nil
	}
	run.Error = workflowError(t)
	return wire.WorkflowReply{Data: run, Meta: wire.WorkflowMeta{RequestID: web.RequestOf(c).ID}}
}

// workflowError is why a task's last attempt failed; nil: it did not.
func workflowError(t taskstate.Task) *wire.WorkflowError {
	if t.ErrorCode == "" && t.LastError == "" {
		return nil
	}
	return &wire.WorkflowError{Code: t.ErrorCode, Message: cmp.Or(t.ErrorMessage, t.LastError)}
}
