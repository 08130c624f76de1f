// Package tasks has the routes of tasks, for their users and for operators, and streams a task's life.
package tasks

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/shares"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// maxReason bounds the words that an operator gives for a step.
const maxReason = 500

// Handler follows and mends tasks, for their users and for operators.
type Handler struct {
	Svc      ingest.Service
	Trail    web.Trail
	Shares   *shares.Shares
	Metrics  *web.Metrics
	Draining <-chan struct{} // closed at a stop: streams end
	streams  atomic.Int64    // open now
	Most     int64           // streams of this process
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	const tasks = "/api/knowledge/tasks"
	const one = tasks + "/:taskId"
	const all = "/internal/tasks"
	const any = all + "/:taskId"
	return []web.Route{
		web.On(http.MethodGet, tasks, web.AccessRead, taskListParams(), g.listTasks),
		web.On(http.MethodGet, one, web.AccessRead, nil, g.getTask),
		web.On(http.MethodGet, one+"/events", web.AccessRead, nil, g.taskEvents),
		web.On(http.MethodGet, one+"/transitions", web.AccessRead, []string{"cursor", "limit"}, g.listTransitions),
		web.On(http.MethodGet, one+"/explain", web.AccessRead, nil, g.explainTask),
		web.On(http.MethodPost, one+"/retry", web.AccessWrite, nil, g.retryTask),
		web.On(http.MethodPost, one+"/cancel", web.AccessWrite, nil, g.cancelTask),
		web.On(http.MethodGet, all+"/stats", web.AccessInspect, nil, g.taskStats),
		web.On(http.MethodGet, all+"/suspended", web.AccessInspect, []string{"cursor", "limit"}, g.suspendedTasks),
		web.On(http.MethodGet, any, web.AccessInspect, nil, g.inspectTask),
		web.On(http.MethodDelete, any, web.AccessOperate, nil, g.dropTask),
		web.On(http.MethodPost, any+"/suspend", web.AccessOperate, nil, g.suspendTask),
		web.On(http.MethodPost, any+"/resume", web.AccessOperate, nil, g.resumeTask),
	}
}

func taskListParams() []string {
	return append([]string{"status", "knowledgeBase", "documentId", "stage", "q", "sort", "cursor", "limit"}, web.TimeFilters...)
}

// taskID is the path's id; what cannot be one answers as an unknown one, without a look-up.
func taskID(c *gin.Context) (string, error) {
	id, ok := web.PathID(c, "taskId")
	if !ok {
		return "", taskstate.ErrNotFound
	}
	return id, nil
}

// taskOf reads the task that the path names.
func (g *Handler) taskOf(c *gin.Context) (taskstate.Task, error) {
	id, err := taskID(c)
	if err != nil {
		return taskstate.Task{}, err
	}
	return g.Svc.Task(c.Request.Context(), web.Caller(c), id)
}

func (g *Handler) getTask(c *gin.Context) error {
	t, err := g.taskOf(c)
	if err != nil {
		return err
	}
	return web.Tagged(c, views.Task(t))
}

func (g *Handler) listTasks(c *gin.Context) error {
	q, err := g.taskQuery(c)
	if err != nil {
		return err
	}
	limit, after, err := web.Page(c, "tasks:"+string(q.Sort))
	if err != nil {
		return err
	}
	q.After, q.Limit = after.Key(), limit+1
	rows, err := g.Svc.Tasks(c.Request.Context(), web.Caller(c), q)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, web.PageOf(rows, limit, views.Task, taskCursor(q.Sort)))
}

// taskCursor makes the cursor of a row in a list of tasks.
func taskCursor(sort taskstate.Sort) func(taskstate.Task) web.Cursor {
	return func(t taskstate.Task) web.Cursor {
		return web.TimeCursor("tasks:"+string(sort), web.SortedAt(sort, t.CreatedAt, t.UpdatedAt), t.ID)
	}
}

// taskQuery reads the filters of a list of tasks.
func (g *Handler) taskQuery(c *gin.Context) (q taskstate.Query, err error) {
	f, err := web.ReadFilters(c, taskstate.Statuses(), taskstate.SortUpdatedDesc)
	if err != nil {
		return q, err
	}
	q = taskstate.Query{
		Statuses: f.Statuses, Stage: f.Stage, Sort: f.Sort, Text: f.Text,
		CreatedAfter: f.Times.CreatedAfter, CreatedBefore: f.Times.CreatedBefore,
		UpdatedAfter: f.Times.UpdatedAfter, UpdatedBefore: f.Times.UpdatedBefore,
	}
	if id := c.Query("documentId"); id != "" {
		if q.DocumentID = strings.ToLower(id); !web.IsUUID(q.DocumentID) {
			return q, ingest.ErrDocumentNotFound
		}
	}
	q.KnowledgeBase, err = web.BaseFilter(c, g.Svc)
	return q, err
}

func (g *Handler) listTransitions(c *gin.Context) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	limit, after, err := web.Page(c, "transitions")
	if err != nil {
		return err
	}
	var from int64
	if after != nil {
		from = after.At
	}
	rows, err := g.Svc.Transitions(c.Request.Context(), web.Caller(c), id, from, limit+1)
	if err != nil {
		return err
	}
	next := func(t taskstate.Transition) web.Cursor { return web.Cursor{List: "transitions", At: t.ID} }
	return web.JSON(c, http.StatusOK, web.PageOf(rows, limit, views.Transition, next))
}

func (g *Handler) explainTask(c *gin.Context) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	e, err := g.Svc.Explain(c.Request.Context(), web.Caller(c), id)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, views.Explanation(e))
}

func (g *Handler) retryTask(c *gin.Context) error {
	return g.actOnTask(c, audit.TaskRetry, g.Svc.Retry)
}

func (g *Handler) cancelTask(c *gin.Context) error {
	return g.actOnTask(c, audit.TaskCancel, g.Svc.Cancel)
}

// actOnTask does one step and returns the task afterwards.
func (g *Handler) actOnTask(c *gin.Context, action audit.Action, act func(context.Context, ingest.Caller, string) (taskstate.Task, error)) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	who := g.Trail.Acting(c, action, id, "")
	who.Guard = views.IfMatch(c)
	t, err := act(c.Request.Context(), who, id)
	if err != nil {
		return err
	}
	v := views.Task(t)
	c.Writer.Header().Set("ETag", web.ETag(v))
	return web.JSON(c, http.StatusOK, v)
}

func (g *Handler) taskStats(c *gin.Context) error {
	s, err := g.Svc.Stats(c.Request.Context(), web.Caller(c))
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, views.Stats(s))
}

func (g *Handler) suspendedTasks(c *gin.Context) error {
	q := taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusSuspended}, Sort: taskstate.SortUpdatedDesc}
	limit, after, err := web.Page(c, "suspended")
	if err != nil {
		return err
	}
	if _, given := c.GetQuery("limit"); !given {
		limit = web.MaxPage
	}
	q.After, q.Limit = after.Key(), limit+1
	ctx, who := c.Request.Context(), web.Caller(c)
	rows, err := g.Svc.Tasks(ctx, who, q)
	if err != nil {
		return err
	}
	reasons := map[string]string{}
	for _, t := range rows[:min(len(rows), limit)] {
		if reasons[t.ID], err = g.suspensionOf(ctx, who, t); err != nil {
			return err
		}
	}
	view := func(t taskstate.Task) wire.SuspendedTask {
		return wire.SuspendedTask{InspectedTask: views.Inspection(t), Reason: reasons[t.ID]}
	}
	next := func(t taskstate.Task) web.Cursor { return web.TimeCursor("suspended", t.UpdatedAt, t.ID) }
	return web.JSON(c, http.StatusOK, web.PageOf(rows, limit, view, next))
}

// suspensionOf says why a task waits for a person: the words of its last change to SUSPENDED, else the row's error.
func (g *Handler) suspensionOf(ctx context.Context, who ingest.Caller, t taskstate.Task) (string, error) {
	if t.ErrorCode != "" {
		return t.ErrorCode, nil
	}
	e, err := g.Svc.Explain(ctx, who, t.ID)
	if err != nil {
		if errors.Is(err, taskstate.ErrNotFound) {
			return t.LastError, nil // it went while we looked
		}
		return "", err
	}
	for i := len(e.LastChanges) - 1; i >= 0; i-- {
		if change := e.LastChanges[i]; change.To == taskstate.StatusSuspended && change.Message != "" {
			return change.Message, nil
		}
	}
	return t.LastError, nil
}

func (g *Handler) inspectTask(c *gin.Context) error {
	t, err := g.taskOf(c)
	if err != nil {
		return err
	}
	return web.Tagged(c, views.Inspection(t))
}

// dropTask withdraws a task for an operator; its row and its log stay, and one that is withdrawn already is no error.
func (g *Handler) dropTask(c *gin.Context) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	_, err = g.Svc.Cancel(c.Request.Context(), g.Trail.Acting(c, audit.TaskDrop, id, ""), id)
	var refused *taskstate.RefusedError
	if err != nil && (!errors.As(err, &refused) || refused.Status != taskstate.StatusCancelled) {
		return err
	}
	return web.JSON(c, http.StatusOK, wire.TaskStep{Status: "deleted", TaskID: id})
}

func (g *Handler) suspendTask(c *gin.Context) error {
	t, err := g.holdTask(c, audit.TaskSuspend, g.Svc.Suspend)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, views.Inspection(t))
}

func (g *Handler) resumeTask(c *gin.Context) error {
	t, err := g.holdTask(c, audit.TaskResume, g.Svc.Resume)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, wire.TaskStep{Status: "queued", TaskID: t.ID})
}

// holdTask is an operator's step with a reason in the operator's own words. It returns the task afterwards.
func (g *Handler) holdTask(c *gin.Context, action audit.Action,
	act func(context.Context, ingest.Caller, string, string) (taskstate.Task, error),
) (t taskstate.Task, err error) {
	id, err := taskID(c)
	if err != nil {
		return t, err
	}
	var body wire.Reason
	if err := web.ReadJSON(c, &body, true); err != nil {
		return t, err
	}
	if err := ingest.CheckText("reason", body.Reason, maxReason); err != nil {
		return t, err
	}
	why := strings.TrimSpace(body.Reason)
	return act(c.Request.Context(), g.Trail.Acting(c, action, id, why), id, why)
}
