// Package operations has the routes of bulk operations.
package operations

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/tasks/bulk"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Handler asks for bulk operations and follows them.
type Handler struct {
	Svc        ingest.Service
	Operations *bulk.Operations // nil: the routes return 404
	Trail      web.Trail
	Now        func() time.Time
	Draining   <-chan struct{} // closed at a stop
}

// Routes are the addresses. A user's operations reach the user's own tasks, an operator's everybody's.
func (g *Handler) Routes() []web.Route {
	const all = "/api/knowledge/bulk"
	const one = all + "/:operationId"
	routes := []web.Route{
		web.On(http.MethodPost, all, web.AccessWrite, nil, g.ask),
		web.On(http.MethodGet, all, web.AccessRead, []string{"cursor", "limit"}, g.list),
		web.On(http.MethodGet, one, web.AccessRead, nil, web.Of(operationID, g.get)),
		web.On(http.MethodPost, one+"/pause", web.AccessWrite, nil, web.Of(operationID, g.pause)),
		web.On(http.MethodPost, one+"/resume", web.AccessWrite, nil, web.Of(operationID, g.resume)),
		web.On(http.MethodPost, one+"/stop", web.AccessWrite, nil, web.Of(operationID, g.stop)),
	}
	if g.Operations == nil {
		return web.Without(routes, "this service has no bulk operations")
	}
	return routes
}

// operationID finds the operation of the path.
var operationID = web.ID("operationId", bulk.ErrNotFound)

// ask makes an operation, or with dryRun says what it would do.
func (g *Handler) ask(c *gin.Context) error {
	if web.Stopped(g.Draining) {
		return &web.Error{Code: web.CodeStopping}
	}
	key, err := web.IdempotencyKey(c.Request.Header)
	if err != nil {
		return err
	}
	var body wire.BulkRequest
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	if err := ingest.CheckText("reason", body.Reason, bulk.MaxReason); err != nil {
		return err
	}
	f, err := web.ReadFilter(c, g.Svc, "filter", body.Filter, g.Now())
	if err != nil {
		return err
	}
	r := bulk.Request{Action: bulk.Action(body.Action), Filter: f, Reason: strings.TrimSpace(body.Reason), PerSecond: body.RatePerSecond}
	if body.DryRun {
		return web.Show(c, views.BulkPreview)(g.preview(c, r))
	}
	who := g.Trail.Acting(c, audit.TaskBulk, body.Action, web.Cut(f.Text+" · "+r.Reason, 500))
	op, err := g.Operations.Ask(c.Request.Context(), who, r, key)
	if err != nil {
		return problem(err)
	}
	web.Locate(c, c.FullPath()+"/"+op.ID)
	return web.JSON(c, http.StatusAccepted, views.BulkOperation(op))
}

// preview says what an operation would do.
func (g *Handler) preview(c *gin.Context, r bulk.Request) (bulk.Preview, error) {
	p, err := g.Operations.Preview(c.Request.Context(), web.Caller(c), r)
	return p, problem(err)
}

// problem gives errors of operations their codes.
func problem(err error) error {
	var input *bulk.InputError
	switch {
	case errors.As(err, &input):
		return web.Errorf(web.CodeInvalidField, "%s %s", input.Field, input.Problem).About(input.Field)
	case errors.Is(err, bulk.ErrForbidden):
		return web.Errorf(web.CodeForbidden, "%s", bulk.ErrForbidden).About("action")
	}
	return err
}

func (g *Handler) list(c *gin.Context) error {
	return web.List(c, "bulk", func(after *web.Cursor, most int) ([]bulk.Operation, error) {
		return g.Operations.List(c.Request.Context(), web.Caller(c).Scope, after.Key(), most)
	}, views.BulkOperation, func(op bulk.Operation) web.Cursor { return web.TimeCursor(op.CreatedAt, op.ID) })
}

func (g *Handler) get(c *gin.Context, id string) error {
	return web.Show(c, views.BulkOperation)(g.Operations.Get(c.Request.Context(), web.Caller(c).Scope, id))
}

// step takes one step of an operation's task and shows the operation afterwards; one that is there already is no error.
func (g *Handler) step(c *gin.Context, id string, there taskstate.Status, action audit.Action, act func(who ingest.Caller) (taskstate.Task, error)) error {
	if _, err := g.Operations.Get(c.Request.Context(), web.Caller(c).Scope, id); err != nil {
		return err
	}
	_, err := act(g.Trail.Acting(c, action, id, "bulk operation"))
	var refused *taskstate.RefusedError
	if err != nil && (!errors.As(err, &refused) || refused.Status != there) {
		return err
	}
	return g.get(c, id)
}

func (g *Handler) pause(c *gin.Context, id string) error {
	return g.step(c, id, taskstate.StatusSuspended, audit.TaskSuspend, func(who ingest.Caller) (taskstate.Task, error) {
		return g.Svc.Suspend(c.Request.Context(), who, id, "paused")
	})
}

func (g *Handler) resume(c *gin.Context, id string) error {
	return g.step(c, id, taskstate.StatusRunning, audit.TaskResume, func(who ingest.Caller) (taskstate.Task, error) {
		return g.Svc.Resume(c.Request.Context(), who, id, "goes on")
	})
}

func (g *Handler) stop(c *gin.Context, id string) error {
	return g.step(c, id, taskstate.StatusCancelled, audit.TaskCancel, func(who ingest.Caller) (taskstate.Task, error) {
		return g.Svc.Cancel(c.Request.Context(), who, id)
	})
}
