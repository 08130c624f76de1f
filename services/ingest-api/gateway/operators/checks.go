package operators

import (
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/checks"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// ChecksHandler asks for checks of the whole installation and shows them.
type ChecksHandler struct {
	Checks   *checks.Checks // nil: the routes return 404
	Trail    web.Trail
	Draining <-chan struct{} // closed at a stop
}

// Routes are the addresses. A check is withdrawn as any task is: DELETE /internal/tasks/{taskId}.
func (g *ChecksHandler) Routes() []web.Route {
	routes := []web.Route{
		web.On(http.MethodPost, "/internal/fsck", web.AccessOperate, nil, g.askCheck),
		web.On(http.MethodGet, "/internal/fsck", web.AccessInspect, []string{"cursor", "limit"}, g.listChecks),
		web.On(http.MethodGet, "/internal/fsck/:checkId", web.AccessInspect, nil, web.Of(web.ID("checkId", checks.ErrNotFound), g.getCheck)),
	}
	if g.Checks == nil {
		return web.Without(routes, "this service has no checks")
	}
	return routes
}

// askCheck makes a check, or shows the same one that has not ended.
func (g *ChecksHandler) askCheck(c *gin.Context) error {
	if web.Stopped(g.Draining) {
		return &web.Error{Code: web.CodeStopping}
	}
	var body wire.CheckRequest
	if err := web.ReadJSON(c, &body, true); err != nil {
		return err
	}
	if err := ingest.CheckText("reason", body.Reason, checks.MaxReason); err != nil {
		return err
	}
	r := checks.Request{Deep: body.Deep, History: body.History, Repair: body.Repair, Reason: strings.TrimSpace(body.Reason)}
	r.DryRun = r.Repair && (body.DryRun == nil || *body.DryRun)
	action, target := audit.InstallationCheck, "check"
	switch {
	case body.DryRun != nil && !r.Repair:
		return web.Errorf(web.CodeInvalidField, "dryRun says how to repair; send repair: true beside it, or leave it out").About("dryRun")
	case r.Repair && r.DryRun:
		target = "dry run of a repair"
	case r.Repair && r.Reason == "":
		return web.Errorf(web.CodeInvalidField, "reason is empty; a repair changes rows, files and vectors: say why, in 1 to %d characters", checks.MaxReason).About("reason")
	case r.Repair:
		action, target = audit.InstallationRepair, "repair"
	}
	got, again, err := g.Checks.Ask(c.Request.Context(), g.Trail.Acting(c, action, target, r.Reason), r)
	if errors.Is(err, checks.ErrRunning) {
		return web.Errorf(web.CodeCheckRunning, "%s", err)
	}
	if err != nil {
		return err
	}
	web.Locate(c, "/internal/fsck/"+got.Task.ID)
	if again {
		c.Writer.Header().Set("Idempotency-Replayed", "true")
	}
	return web.JSON(c, http.StatusAccepted, views.CheckReport(got))
}

func (g *ChecksHandler) listChecks(c *gin.Context) error {
	return web.List(c, "checks", func(after *web.Cursor, most int) ([]checks.Check, error) {
		return g.Checks.List(c.Request.Context(), after.Key(), most)
	}, views.Check, func(c checks.Check) web.Cursor { return web.TimeCursor(c.Task.CreatedAt, c.Task.ID) })
}

func (g *ChecksHandler) getCheck(c *gin.Context, id string) error {
	return web.Show(c, views.CheckReport)(g.Checks.Get(c.Request.Context(), id))
}
