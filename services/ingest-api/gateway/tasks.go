package gateway

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
)

// maxReason bounds the words that an operator gives for a step.
const maxReason = 500

// tasks follows and mends tasks, for their users and for operators.
type tasks struct {
	svc      ingest.Service
	trail    trail
	shares   *shares
	metrics  *metrics
	draining <-chan struct{} // closed at a stop: streams end
	streams  atomic.Int64    // open now
	most     int64           // streams of this process
}

// routes are the addresses.
func (g *tasks) routes() []route {
	const tasks = "/api/knowledge/tasks"
	const one = tasks + "/:taskId"
	const all = "/internal/tasks"
	const any = all + "/:taskId"
	return []route{
		{http.MethodGet, tasks, accessRead, taskListParams(), g.listTasks},
		{http.MethodGet, one, accessRead, nil, g.getTask},
		{http.MethodGet, one + "/events", accessRead, nil, g.taskEvents},
		{http.MethodGet, one + "/transitions", accessRead, []string{"cursor", "limit"}, g.listTransitions},
		{http.MethodGet, one + "/explain", accessRead, nil, g.explainTask},
		{http.MethodPost, one + "/retry", accessWrite, nil, g.retryTask},
		{http.MethodPost, one + "/cancel", accessWrite, nil, g.cancelTask},
		{http.MethodGet, all + "/stats", accessInspect, nil, g.taskStats},
		{http.MethodGet, all + "/suspended", accessInspect, []string{"cursor", "limit"}, g.suspendedTasks},
		{http.MethodGet, any, accessInspect, nil, g.inspectTask},
		{http.MethodDelete, any, accessOperate, nil, g.dropTask},
		{http.MethodPost, any + "/suspend", accessOperate, nil, g.suspendTask},
		{http.MethodPost, any + "/resume", accessOperate, nil, g.resumeTask},
	}
}

func taskListParams() []string {
	return append([]string{"status", "knowledgeBase", "documentId", "stage", "q", "sort", "cursor", "limit"}, timeFilters...)
}

// taskID is the path's id; what cannot be one answers as an unknown one, without a look-up.
func taskID(c *gin.Context) (string, error) {
	id, ok := pathID(c, "taskId")
	if !ok {
		return "", taskstate.ErrNotFound
	}
	return id, nil
}

// taskOf reads the task that the path names.
func (g *tasks) taskOf(c *gin.Context) (taskstate.Task, error) {
	id, err := taskID(c)
	if err != nil {
		return taskstate.Task{}, err
	}
	return g.svc.Task(c.Request.Context(), caller(c), id)
}

func (g *tasks) getTask(c *gin.Context) error {
	t, err := g.taskOf(c)
	if err != nil {
		return err
	}
	return writeTagged(c, viewTask(t))
}

func (g *tasks) listTasks(c *gin.Context) error {
	q, err := g.taskQuery(c)
	if err != nil {
		return err
	}
	limit, after, err := pageParams(c, "tasks:"+string(q.Sort))
	if err != nil {
		return err
	}
	if after != nil {
		q.After = after.key()
	}
	q.Limit = limit + 1
	rows, err := g.svc.Tasks(c.Request.Context(), caller(c), q)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewTask, taskCursor(q.Sort)))
}

// taskCursor makes the cursor of a row in a list of tasks.
func taskCursor(sort taskstate.Sort) func(taskstate.Task) cursor {
	return func(t taskstate.Task) cursor {
		return timeCursor("tasks:"+string(sort), sortedAt(sort, t.CreatedAt, t.UpdatedAt), t.ID)
	}
}

// taskQuery reads the filters of a list of tasks.
func (g *tasks) taskQuery(c *gin.Context) (q taskstate.Query, err error) {
	if q.Statuses, err = enumParam(c, "status", taskstate.Statuses()); err != nil {
		return q, err
	}
	if q.Stage, err = stageParam(c); err != nil {
		return q, err
	}
	if q.Sort, err = sortParam(c, taskstate.SortUpdatedDesc); err != nil {
		return q, err
	}
	if q.Text, err = textParam(c, "q"); err != nil {
		return q, err
	}
	times, err := timesParam(c)
	if err != nil {
		return q, err
	}
	q.CreatedAfter, q.CreatedBefore, q.UpdatedAfter, q.UpdatedBefore = times.CreatedAfter, times.CreatedBefore, times.UpdatedAfter, times.UpdatedBefore
	if id := c.Query("documentId"); id != "" {
		if q.DocumentID = strings.ToLower(id); !isUUID(q.DocumentID) {
			return q, ingest.ErrDocumentNotFound
		}
	}
	q.KnowledgeBase, err = baseFilter(c, g.svc)
	return q, err
}

func (g *tasks) listTransitions(c *gin.Context) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	limit, after, err := pageParams(c, "transitions")
	if err != nil {
		return err
	}
	var from int64
	if after != nil {
		from = after.at
	}
	rows, err := g.svc.Transitions(c.Request.Context(), caller(c), id, from, limit+1)
	if err != nil {
		return err
	}
	next := func(t taskstate.Transition) cursor { return cursor{list: "transitions", at: t.ID} }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewTransition, next))
}

func (g *tasks) explainTask(c *gin.Context) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	e, err := g.svc.Explain(c.Request.Context(), caller(c), id)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewExplanation(e))
}

func (g *tasks) retryTask(c *gin.Context) error {
	return g.actOnTask(c, audit.TaskRetry, g.svc.Retry)
}

func (g *tasks) cancelTask(c *gin.Context) error {
	return g.actOnTask(c, audit.TaskCancel, g.svc.Cancel)
}

// actOnTask does one step and returns the task afterwards.
func (g *tasks) actOnTask(c *gin.Context, action audit.Action, act func(context.Context, ingest.Caller, string) (taskstate.Task, error)) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	who := g.trail.acting(c, action, id, "")
	who.Guard = ifMatch(c)
	t, err := act(c.Request.Context(), who, id)
	if err != nil {
		return err
	}
	v := viewTask(t)
	c.Writer.Header().Set("ETag", etagOf(v))
	return writeJSON(c, http.StatusOK, v)
}

func (g *tasks) taskStats(c *gin.Context) error {
	s, err := g.svc.Stats(c.Request.Context(), caller(c))
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewStats(s))
}

func (g *tasks) suspendedTasks(c *gin.Context) error {
	q := taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusSuspended}, Sort: taskstate.SortUpdatedDesc}
	limit, after, err := pageParams(c, "suspended")
	if err != nil {
		return err
	}
	if _, given := c.GetQuery("limit"); !given {
		limit = maxPage
	}
	if after != nil {
		q.After = after.key()
	}
	q.Limit = limit + 1
	ctx, who := c.Request.Context(), caller(c)
	rows, err := g.svc.Tasks(ctx, who, q)
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
		return wire.SuspendedTask{InspectedTask: viewInspection(t), Reason: reasons[t.ID]}
	}
	next := func(t taskstate.Task) cursor { return timeCursor("suspended", t.UpdatedAt, t.ID) }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, view, next))
}

// suspensionOf says why a task waits for a person: the words of its last change to SUSPENDED, else the row's error.
func (g *tasks) suspensionOf(ctx context.Context, who ingest.Caller, t taskstate.Task) (string, error) {
	if t.ErrorCode != "" {
		return t.ErrorCode, nil
	}
	e, err := g.svc.Explain(ctx, who, t.ID)
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

func (g *tasks) inspectTask(c *gin.Context) error {
	t, err := g.taskOf(c)
	if err != nil {
		return err
	}
	return writeTagged(c, viewInspection(t))
}

// dropTask withdraws a task for an operator; its row and its log stay, and one that is withdrawn already is no error.
func (g *tasks) dropTask(c *gin.Context) error {
	id, err := taskID(c)
	if err != nil {
		return err
	}
	_, err = g.svc.Cancel(c.Request.Context(), g.trail.acting(c, audit.TaskDrop, id, ""), id)
	var refused *taskstate.RefusedError
	if err != nil && (!errors.As(err, &refused) || refused.Status != taskstate.StatusCancelled) {
		return err
	}
	return writeJSON(c, http.StatusOK, wire.TaskStep{Status: "deleted", TaskID: id})
}

func (g *tasks) suspendTask(c *gin.Context) error {
	t, err := g.holdTask(c, audit.TaskSuspend, g.svc.Suspend)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewInspection(t))
}

func (g *tasks) resumeTask(c *gin.Context) error {
	t, err := g.holdTask(c, audit.TaskResume, g.svc.Resume)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, wire.TaskStep{Status: "queued", TaskID: t.ID})
}

// holdTask is an operator's step with a reason in the operator's own words. It returns the task afterwards.
func (g *tasks) holdTask(c *gin.Context, action audit.Action,
	act func(context.Context, ingest.Caller, string, string) (taskstate.Task, error),
) (t taskstate.Task, err error) {
	id, err := taskID(c)
	if err != nil {
		return t, err
	}
	var body wire.Reason
	if err := readJSON(c, &body, true); err != nil {
		return t, err
	}
	if err := checkText("reason", body.Reason, maxReason, codeInvalidText, codeFieldTooLong); err != nil {
		return t, err
	}
	why := strings.TrimSpace(body.Reason)
	return act(c.Request.Context(), g.trail.acting(c, action, id, why), id, why)
}
