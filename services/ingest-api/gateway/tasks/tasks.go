// Package tasks has the routes of tasks, for their users and for operators, and streams a task's life.
package tasks

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/tasks"
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
	const list = "/api/knowledge/tasks"
	const one = list + "/:taskId"
	const all = "/internal/tasks"
	const any = all + "/:taskId"
	return []web.Route{
		web.On(http.MethodGet, list, web.AccessRead, taskListParams(), g.listTasks).In(web.BaseOfQuery),
		web.On(http.MethodGet, one, web.AccessRead, nil, web.Of(taskID, g.getTask)).In(web.BaseOfTask),
		web.On(http.MethodGet, one+"/events", web.AccessRead, nil, web.Of(taskID, g.taskEvents)).In(web.BaseOfTask),
		web.On(http.MethodGet, one+"/transitions", web.AccessRead, []string{"cursor", "limit"}, web.Of(taskID, g.listTransitions)).In(web.BaseOfTask),
		web.On(http.MethodGet, one+"/explain", web.AccessRead, nil, web.Of(taskID, g.explainTask)).In(web.BaseOfTask),
		web.On(http.MethodPost, one+"/retry", web.AccessWrite, nil, g.step(audit.TaskRetry, g.Svc.Retry)).In(web.BaseOfTask),
		web.On(http.MethodPost, one+"/cancel", web.AccessWrite, nil, g.step(audit.TaskCancel, g.Svc.Cancel)).In(web.BaseOfTask),
		web.On(http.MethodGet, all+"/stats", web.AccessInspect, nil, g.taskStats),
		web.On(http.MethodGet, all+"/suspended", web.AccessInspect, []string{"cursor", "limit"}, g.suspendedTasks),
		web.On(http.MethodGet, any, web.AccessInspect, nil, web.Of(taskID, g.inspectTask)),
		web.On(http.MethodDelete, any, web.AccessOperate, nil, web.Of(taskID, g.dropTask)),
		web.On(http.MethodPost, any+"/suspend", web.AccessOperate, nil, held(g, audit.TaskSuspend, g.Svc.Suspend, views.Inspection)),
		web.On(http.MethodPost, any+"/resume", web.AccessOperate, nil, held(g, audit.TaskResume, g.Svc.Resume, func(t taskstate.Task) wire.TaskStep {
			return wire.TaskStep{Status: "queued", TaskID: t.ID}
		})),
	}
}

func taskListParams() []string {
	return append([]string{"status", "knowledgeBase", "documentId", "stage", "q", "sort", "cursor", "limit"}, web.TimeFilters...)
}

// taskID finds the task of the path.
var taskID = web.ID("taskId", taskstate.ErrNotFound)

func (g *Handler) getTask(c *gin.Context, id string) error {
	return web.ShowTagged(c, views.Task)(g.Svc.Task(c.Request.Context(), web.Caller(c), id))
}

func (g *Handler) listTasks(c *gin.Context) error {
	q, err := g.taskQuery(c)
	if err != nil {
		return err
	}
	name, p := "tasks:"+string(q.Sort), web.ParamsOf(c)
	limit, after := p.Page(name)
	if p.Err() != nil {
		return p.Err()
	}
	q.After, q.Limit = after.Key(), limit+1
	found, err := g.Svc.Tasks(c.Request.Context(), web.Caller(c), q)
	if err != nil {
		return err
	}
	page := web.PageOf(name, found.Tasks, limit, views.Task, func(t taskstate.Task) web.Cursor {
		return web.TimeCursor(web.SortedAt(q.Sort, t.CreatedAt, t.UpdatedAt), t.ID)
	})
	if !page.HasMore && found.More != nil { // a search that ended before the list
		web.GoesOn(&page, name, web.TimeCursor(found.More.At, found.More.ID))
	}
	return web.JSON(c, http.StatusOK, page)
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

func (g *Handler) listTransitions(c *gin.Context, id string) error {
	return web.List(c, "transitions", func(after *web.Cursor, most int) ([]taskstate.Transition, error) {
		return g.Svc.Transitions(c.Request.Context(), web.Caller(c), id, after.Number(0), most)
	}, views.Transition, func(t taskstate.Transition) web.Cursor { return web.Cursor{At: t.ID} })
}

func (g *Handler) explainTask(c *gin.Context, id string) error {
	return web.Show(c, views.Explanation)(g.Svc.Explain(c.Request.Context(), web.Caller(c), id))
}

// step is a route that takes one step of a task and shows the task afterwards.
func (g *Handler) step(action audit.Action, act func(context.Context, ingest.Caller, string) (taskstate.Task, error)) web.HandlerFunc {
	return web.Of(taskID, func(c *gin.Context, id string) error {
		who := g.Trail.Acting(c, action, id, "")
		who.Guard = views.IfMatch(c)
		t, err := act(c.Request.Context(), who, id)
		if err != nil {
			return err
		}
		v := views.Task(t)
		c.Writer.Header().Set("ETag", web.ETag(v))
		return web.JSON(c, http.StatusOK, v)
	})
}

func (g *Handler) taskStats(c *gin.Context) error {
	return web.Show(c, views.Stats)(g.Svc.Stats(c.Request.Context(), web.Caller(c)))
}

// suspendedTasks lists the tasks that a person has to look at: SUSPENDED ones, and those of which RabbitMQ has no copy.
func (g *Handler) suspendedTasks(c *gin.Context) error {
	q := taskstate.Query{Statuses: []taskstate.Status{taskstate.StatusSuspended}, Sort: taskstate.SortUpdatedDesc}
	p := web.ParamsOf(c)
	limit, after := p.Page("suspended")
	if p.Err() != nil {
		return p.Err()
	}
	if _, given := c.GetQuery("limit"); !given {
		limit = web.MaxPage
	}
	q.After, q.Limit = after.Key(), limit+1
	ctx, who := c.Request.Context(), web.Caller(c)
	found, err := g.Svc.Tasks(ctx, who, q)
	if err != nil {
		return err
	}
	uncopied, err := g.Svc.Uncopied(ctx, who, q.After, q.Limit)
	if err != nil {
		return err
	}
	rows := make([]waiting, 0, len(found.Tasks)+len(uncopied))
	for _, t := range found.Tasks {
		rows = append(rows, waiting{Uncopied: tasks.Uncopied{Task: t, At: t.UpdatedAt}})
	}
	for _, u := range uncopied {
		rows = append(rows, waiting{Uncopied: u, shown: wire.SuspendedTask{Reason: wire.MirrorFailed, MirrorError: wire.NullText(u.Reason)}})
	}
	slices.SortFunc(rows, func(a, b waiting) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Task.ID, a.Task.ID))
	})
	rows = rows[:min(len(rows), q.Limit)]
	for i := range rows[:min(len(rows), limit)] {
		w := &rows[i]
		if w.shown.InspectedTask = views.Inspection(w.Task); w.shown.Reason != "" {
			continue
		}
		if w.shown.Reason, err = g.suspensionOf(ctx, who, w.Task); err != nil {
			return err
		}
	}
	view := func(w waiting) wire.SuspendedTask { return w.shown }
	place := func(w waiting) web.Cursor { return web.TimeCursor(w.At, w.Task.ID) }
	return web.JSON(c, http.StatusOK, web.PageOf("suspended", rows, limit, view, place))
}

// waiting is a task that a person has to look at: At is when it was suspended, or when its copy was last tried.
type waiting struct {
	tasks.Uncopied
	shown wire.SuspendedTask
}

// suspensionOf says why a task waits for a person: the words of its last change to SUSPENDED, else the row's error.
func (g *Handler) suspensionOf(ctx context.Context, who ingest.Caller, t taskstate.Task) (string, error) {
	if t.ErrorCode != "" {
		return t.ErrorCode, nil
	}
	e, err := g.Svc.Explain(ctx, who, t.ID)
	switch {
	case errors.Is(err, taskstate.ErrNotFound):
		return t.LastError, nil // it went while we looked
	case err != nil:
		return "", err
	}
	for _, change := range slices.Backward(e.LastChanges) {
		if change.To == taskstate.StatusSuspended && change.Message != "" {
			return change.Message, nil
		}
	}
	return t.LastError, nil
}

func (g *Handler) inspectTask(c *gin.Context, id string) error {
	return web.ShowTagged(c, views.Inspection)(g.Svc.Task(c.Request.Context(), web.Caller(c), id))
}

// dropTask withdraws a task for an operator; its row and its log stay, and one that is withdrawn already is no error.
func (g *Handler) dropTask(c *gin.Context, id string) error {
	_, err := g.Svc.Cancel(c.Request.Context(), g.Trail.Acting(c, audit.TaskDrop, id, ""), id)
	var refused *taskstate.RefusedError
	if err != nil && (!errors.As(err, &refused) || refused.Status != taskstate.StatusCancelled) {
		return err
	}
	return web.JSON(c, http.StatusOK, wire.TaskStep{Status: "deleted", TaskID: id})
}

// held is a route of an operator's step with a reason in the operator's own words. It shows the task afterwards.
func held[V any](
	g *Handler, action audit.Action, act func(context.Context, ingest.Caller, string, string) (taskstate.Task, error), view func(taskstate.Task) V,
) web.HandlerFunc {
	return web.Of(taskID, func(c *gin.Context, id string) error {
		var body wire.Reason
		if err := web.ReadJSON(c, &body, true); err != nil {
			return err
		}
		if err := ingest.CheckText("reason", body.Reason, maxReason); err != nil {
			return err
		}
		why := strings.TrimSpace(body.Reason)
		return web.Show(c, view)(act(c.Request.Context(), g.Trail.Acting(c, action, id, why), id, why))
	})
}
