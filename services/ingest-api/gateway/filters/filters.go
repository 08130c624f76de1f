// Package filters has the routes of saved views.
package filters

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/tasks/views"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Handler keeps saved views.
type Handler struct {
	Svc   ingest.Service
	Views *views.Views // nil: the routes return 404
	Now   func() time.Time
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	const all = "/api/knowledge/views"
	routes := []web.Route{
		web.On(http.MethodGet, all, web.AccessRead, nil, g.list),
		web.On(http.MethodPost, all, web.AccessWrite, nil, g.save),
		web.On(http.MethodDelete, all+"/:viewId", web.AccessWrite, nil, web.Of(web.ID("viewId", views.ErrNotFound), g.remove)),
	}
	if g.Views == nil {
		return web.Without(routes, "this service has no saved views")
	}
	return routes
}

func (g *Handler) list(c *gin.Context) error {
	return web.Show(c, web.WholeOf(view))(g.Views.List(c.Request.Context(), web.Caller(c).Scope))
}

// save keeps a view; its filter is judged as it is now.
func (g *Handler) save(c *gin.Context) error {
	var body wire.ViewRequest
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	name := strings.TrimSpace(body.Name)
	if err := ingest.CheckLine("name", name, views.MaxName); err != nil {
		return err
	}
	if name == "" {
		return web.Errorf(web.CodeInvalidField, "name is missing: a view has a name of 1 to %d characters", views.MaxName).About("name")
	}
	f, err := web.ReadFilter(c, g.Svc, "filter", body.Filter, g.Now())
	if err != nil {
		return err
	}
	v, err := g.Views.Save(c.Request.Context(), web.Caller(c).Scope, name, f.Text, body.Shared)
	switch {
	case errors.Is(err, views.ErrForbidden):
		return web.Errorf(web.CodeForbidden, "%s", err).About("shared")
	case errors.Is(err, views.ErrTooMany):
		return web.Errorf(web.CodeInvalidField, "%s; delete one first", err).About("name")
	case err != nil:
		return err
	}
	return web.JSON(c, http.StatusOK, view(v))
}

func (g *Handler) remove(c *gin.Context, id string) error {
	if err := g.Views.Delete(c.Request.Context(), web.Caller(c).Scope, id); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// view renders one.
func view(v views.View) wire.View {
	return wire.View{ViewID: v.ID, Name: v.Name, Filter: v.Filter, Shared: v.Shared, UserID: v.UserID, CreatedAt: wire.At(v.CreatedAt)}
}
