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
	"time"

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

// maxWorkerName is more than a process's name has.
const maxWorkerName = 128

// maxReason bounds the words that an operator gives for a step.
const maxReason = 500

// Handler follows and mends tasks, for their users and for operators.
type Handler struct {
	Svc      ingest.Service
	Trail    web.Trail
	Shares   *shares.Shares
	Metrics  *web.Metrics
	Now      func() time.Time
	TraceURL string          // OTEL_UI_URL
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
		web.On(http.MethodGet, "/api/knowledge/failures", web.AccessStatus, []string{"knowledgeBase", "cursor", "limit"}, g.listFailures).In(web.BaseOfQuery),
		web.On(http.MethodGet, list, web.AccessStatus, taskListParams(), g.listTasks).In(web.BaseOfQuery),
		web.On(http.MethodGet, list+"/counts", web.AccessStatus, []string{"knowledgeBase"}, g.countTasks).In(web.BaseOfQuery),
		web.On(http.MethodGet, one, web.AccessStatus, nil, web.Of(taskID, g.getTask)).In(web.BaseOfTask),
		web.On(http.MethodGet, one+"/events", web.AccessStatus, nil, web.Of(taskID, g.taskEvents)).In(web.BaseOfTask),
		web.On(http.MethodGet, one+"/transitions", web.AccessStatus, []string{"cursor", "limit"}, web.Of(taskID, g.listTransitions)).In(web.BaseOfTask),
		web.On(http.MethodGet, one+"/explain", web.AccessStatus, nil, web.Of(taskID, g.explainTask)).In(web.BaseOfTask),
		web.On(http.MethodPost, one+"/retry", web.AccessWrite, nil, g.step(audit.TaskRetry, g.Svc.Retry)).In(web.BaseOfTask),
		web.On(http.MethodPost, one+"/cancel", web.AccessWrite, nil, g.step(audit.TaskCancel, g.Svc.Cancel)).In(web.BaseOfTask),
		web.On(http.MethodGet, all+"/stats", web.AccessWatch, nil, g.taskStats),
		web.On(http.MethodGet, all+"/history", web.AccessWatch, []string{"span"}, g.history),
		web.On(http.MethodGet, all+"/suspended", web.AccessWatch, []string{"cursor", "limit"}, g.suspendedTasks),
		web.On(http.MethodGet, "/internal/workers", web.AccessWatch, nil, g.listWorkers),
		web.On(http.MethodPost, "/internal/workers/:worker/drain", web.AccessOperate, nil, g.drain(false)),
		web.On(http.MethodPost, "/internal/workers/:worker/resume", web.AccessOperate, nil, g.drain(true)),
		web.On(http.MethodGet, any, web.AccessWatch, nil, web.Of(taskID, g.inspectTask)),
		web.On(http.MethodDelete, any, web.AccessOperate, nil, web.Of(taskID, g.dropTask)),
		web.On(http.MethodPost, any+"/suspend", web.AccessOperate, nil, held(g, audit.TaskSuspend, g.Svc.Suspend, views.Inspection)),
		web.On(http.MethodPost, any+"/resume", web.AccessOperate, nil, held(g, audit.TaskResume, g.Svc.Resume, func(t taskstate.Task) wire.TaskStep {
			return wire.TaskStep{Status: "queued", TaskID: t.ID}
		})),
	}
}

func taskListParams() []string {
	return append([]string{"filter", "status", "knowledgeBase", "documentId", "stage", "q", "sort", "cursor", "limit"}, web.TimeFilters...)
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

func (g *Handler) history(c *gin.Context) error {
	p := web.ParamsOf(c)
	span := cmp.Or(web.Word(p, "span", ingest.Spans()), ingest.SpanHour)
	if p.Err() != nil {
		return p.Err()
	}
	return web.Show(c, views.History)(g.Svc.History(c.Request.Context(), span))
}

func (g *Handler) countTasks(c *gin.Context) error {
	base, err := web.BaseFilter(c, g.Svc)
	if err != nil {
		return err
	}
	return web.Show(c, views.TaskCounts)(g.Svc.TaskCounts(c.Request.Context(), web.Caller(c), base))
}

// taskQuery reads the filters of a list of tasks: an expression, or parameters of their own.
func (g *Handler) taskQuery(c *gin.Context) (q taskstate.Query, err error) {
	if text, said := c.GetQuery("filter"); said {
		return g.filterQuery(c, text)
	}
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

// filterQuery reads a filter expression, beside which stand knowledgeBase, order and place only.
func (g *Handler) filterQuery(c *gin.Context, text string) (q taskstate.Query, err error) {
	for _, name := range append([]string{"status", "documentId", "stage", "q"}, web.TimeFilters...) {
		if _, said := c.GetQuery(name); said {
			return q, web.Errorf(web.CodeInvalidParameter, "parameter %s stands beside filter; say it in the expression", name).About(name)
		}
	}
	f, err := web.ReadFilter(c, g.Svc, "filter", text, g.Now())
	if err != nil {
		return q, err
	}
	order := taskstate.SortUpdatedDesc
	if f.Query.FailureGroup != "" {
		order = taskstate.SortCreatedDesc
	}
	of, err := web.ReadFilters(c, taskstate.Statuses(), order)
	if err != nil {
		return q, err
	}
	q = f.Query
	if q.Sort = of.Sort; q.FailureGroup != "" && q.Sort != taskstate.SortCreated && q.Sort != taskstate.SortCreatedDesc {
		return q, web.Errorf(web.CodeInvalidParameter, "a list of a failure group is sorted by createdAt or -createdAt").About("sort")
	}
	if base, err := web.BaseFilter(c, g.Svc); err != nil || base == "" {
		return q, err
	} else if q.KnowledgeBase != "" && q.KnowledgeBase != base {
		return q, web.Errorf(web.CodeInvalidParameter, "kb: and knowledgeBase name two knowledge bases; say one").About("filter")
	} else {
		q.KnowledgeBase = base
	}
	return q, nil
}

// listFailures lists what failures have in common.
func (g *Handler) listFailures(c *gin.Context) error {
	base, err := web.BaseFilter(c, g.Svc)
	if err != nil {
		return err
	}
	return web.List(c, "failures", func(after *web.Cursor, most int) ([]taskstate.FailureGroup, error) {
		return g.Svc.FailureGroups(c.Request.Context(), web.Caller(c), taskstate.GroupQuery{KnowledgeBase: base, After: after.Key(), Limit: most})
	}, views.FailureGroup, func(f taskstate.FailureGroup) web.Cursor { return web.TimeCursor(f.LastAt, f.ID) })
}

func (g *Handler) listTransitions(c *gin.Context, id string) error {
	return web.List(c, "transitions", func(after *web.Cursor, most int) ([]taskstate.Transition, error) {
		return g.Svc.Transitions(c.Request.Context(), web.Caller(c), id, after.Number(0), most)
	}, wire.TransitionOf, func(t taskstate.Transition) web.Cursor { return web.Cursor{At: t.ID} })
}

func (g *Handler) explainTask(c *gin.Context, id string) error {
	return web.Show(c, func(e ingest.Explanation) wire.Explanation { return views.Explanation(e, g.TraceURL) })(g.Svc.Explain(c.Request.Context(), web.Caller(c), id))
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

func (g *Handler) listWorkers(c *gin.Context) error {
	return web.Show(c, web.WholeOf(views.Worker))(g.Svc.Workers(c.Request.Context(), web.Caller(c)))
}

// drain asks a process to take no more tasks, or with off to take some again.
func (g *Handler) drain(off bool) web.HandlerFunc {
	return func(c *gin.Context) error {
		name, action := c.Param("worker"), audit.WorkerDrain
		if off {
			action = audit.WorkerResume
		}
		if ingest.CheckLine("worker", name, maxWorkerName) != nil {
			return web.Errorf(web.CodeWorkerNotFound, "no process has the name %s", web.Shown(name))
		}
		err := g.Svc.Drain(c.Request.Context(), g.Trail.Acting(c, action, name, ""), name, off)
		if errors.Is(err, taskstate.ErrNotFound) {
			return web.Errorf(web.CodeWorkerNotFound, "no process %s has lived in the last hour", web.Shown(name))
		}
		return web.NoContent(c, err)
	}
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
