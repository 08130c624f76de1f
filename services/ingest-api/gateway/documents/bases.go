package documents

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// pathBase is the id or name of the path; what cannot be one answers as an unknown one.
func pathBase(c *gin.Context) (string, error) {
	name, err := ingest.CleanBase("base", c.Param("base"))
	if err != nil || name == "" {
		return "", ingest.ErrBaseNotFound
	}
	return name, nil
}

func (g *Handler) listBases(c *gin.Context) error {
	return list(c, g, "bases:", taskstate.SortCreatedDesc, g.Svc.Bases, views.Base,
		func(b ingest.Base) (id string, created, updated time.Time) { return b.ID, b.CreatedAt, b.UpdatedAt })
}

func (g *Handler) createBase(c *gin.Context) error {
	var body wire.NewBase
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	name, err := ingest.CleanBase("name", body.Name)
	if err != nil {
		return err
	}
	if name == "" {
		return web.Errorf(web.CodeInvalidField, "name is empty").About("name")
	}
	if web.IsUUID(strings.ToLower(name)) {
		return web.Errorf(web.CodeInvalidField, "name looks like an id, and routes take either").About("name")
	}
	b, err := g.Svc.CreateBase(c.Request.Context(), web.Caller(c), name)
	if err != nil {
		return err
	}
	v := views.Base(b)
	c.Writer.Header().Set("Location", "/api/knowledge/bases/"+url.PathEscape(b.ID))
	c.Writer.Header().Set("ETag", web.ETag(v))
	return web.JSON(c, http.StatusCreated, v)
}

func (g *Handler) getBase(c *gin.Context) error {
	name, err := pathBase(c)
	if err != nil {
		return err
	}
	b, err := g.Svc.Base(c.Request.Context(), web.Caller(c), name)
	if err != nil {
		return err
	}
	return web.Tagged(c, views.Base(b))
}

func (g *Handler) deleteBase(c *gin.Context) error {
	name, err := pathBase(c)
	if err != nil {
		return err
	}
	cascade, err := web.Bool(c, "cascade", false)
	if err != nil {
		return err
	}
	detail := ""
	if cascade {
		detail = "with its documents"
	}
	who := g.Trail.Acting(c, audit.BaseDelete, name, detail)
	who.Guard = views.IfMatch(c)
	if err := g.Svc.DeleteBase(c.Request.Context(), who, name, cascade); err != nil {
		return err
	}
	return web.NoContent(c)
}

func (g *Handler) baseSummary(c *gin.Context) error {
	name, err := pathBase(c)
	if err != nil {
		return err
	}
	s, err := g.Svc.BaseSummary(c.Request.Context(), web.Caller(c), name)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, views.Summary(s))
}
