package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// pathBase is the id or name of the path; what cannot be one answers as an unknown one.
func pathBase(c *gin.Context) (string, error) {
	name, err := baseName("base", c.Param("base"))
	if err != nil || name == "" {
		return "", ingest.ErrBaseNotFound
	}
	return name, nil
}

func (g *documents) listBases(c *gin.Context) error {
	var q ingest.BaseQuery
	var err error
	if q.Statuses, err = enumParam(c, "status", documentStatuses()); err != nil {
		return err
	}
	if q.Stage, err = stageParam(c); err != nil {
		return err
	}
	if q.Sort, err = sortParam(c, taskstate.SortCreatedDesc); err != nil {
		return err
	}
	if q.Text, err = textParam(c, "q"); err != nil {
		return err
	}
	if q.Times, err = timesParam(c); err != nil {
		return err
	}
	name := "bases:" + string(q.Sort)
	limit, after, err := pageParams(c, name)
	if err != nil {
		return err
	}
	if q.Base, err = baseFilter(c, g.svc); err != nil {
		return err
	}
	if after != nil {
		q.After = after.key()
	}
	q.Limit = limit + 1
	rows, err := g.svc.Bases(c.Request.Context(), caller(c), q)
	if err != nil {
		return err
	}
	next := func(b ingest.Base) cursor { return timeCursor(name, sortedAt(q.Sort, b.CreatedAt, b.UpdatedAt), b.ID) }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewBase, next))
}

func (g *documents) createBase(c *gin.Context) error {
	var body wire.NewBase
	if err := readJSON(c, &body, false); err != nil {
		return err
	}
	name, err := baseName("name", body.Name)
	if err != nil {
		return err
	}
	if name == "" {
		return problemf(codeInvalidField, "name is empty").about("name")
	}
	if isUUID(strings.ToLower(name)) {
		return problemf(codeInvalidField, "name looks like an id, and routes take either").about("name")
	}
	b, err := g.svc.CreateBase(c.Request.Context(), caller(c), name)
	if err != nil {
		return err
	}
	v := viewBase(b)
	c.Writer.Header().Set("Location", "/api/knowledge/bases/"+url.PathEscape(b.ID))
	c.Writer.Header().Set("ETag", etagOf(v))
	return writeJSON(c, http.StatusCreated, v)
}

func (g *documents) getBase(c *gin.Context) error {
	name, err := pathBase(c)
	if err != nil {
		return err
	}
	b, err := g.svc.Base(c.Request.Context(), caller(c), name)
	if err != nil {
		return err
	}
	return writeTagged(c, viewBase(b))
}

func (g *documents) deleteBase(c *gin.Context) error {
	name, err := pathBase(c)
	if err != nil {
		return err
	}
	cascade, err := boolParam(c, "cascade", false)
	if err != nil {
		return err
	}
	detail := ""
	if cascade {
		detail = "with its documents"
	}
	who := g.trail.acting(c, audit.BaseDelete, name, detail)
	who.Guard = ifMatch(c)
	if err := g.svc.DeleteBase(c.Request.Context(), who, name, cascade); err != nil {
		return err
	}
	return noContent(c)
}

func (g *documents) baseSummary(c *gin.Context) error {
	name, err := pathBase(c)
	if err != nil {
		return err
	}
	s, err := g.svc.BaseSummary(c.Request.Context(), caller(c), name)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, viewSummary(s))
}
