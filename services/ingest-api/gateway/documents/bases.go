package documents

import (
	"context"
	"fmt"
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

func (g *Handler) listBases(c *gin.Context) error {
	p := web.ParamsOf(c)
	counts := p.Bool("counts")
	if err := p.Err(); err != nil {
		return err
	}
	read := func(ctx context.Context, caller ingest.Caller, q ingest.ListQuery) ([]ingest.Base, error) {
		q.Counts = counts
		return g.Svc.Bases(ctx, caller, q)
	}
	return list(c, g, "bases:", taskstate.SortCreatedDesc, read, views.Base,
		func(b ingest.Base) (id string, created, updated time.Time) { return b.ID, b.CreatedAt, b.UpdatedAt })
}

func (g *Handler) createBase(c *gin.Context) error {
	var body wire.BaseRequest
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
	settings := ingest.BaseSettings{}
	if settings.SearchMode, err = searchMode("searchMode", body.SearchMode); err != nil {
		return err
	}
	if body.Chunking != nil {
		if settings.Chunking, err = chunking(*body.Chunking); err != nil {
			return err
		}
	}
	if body.MetadataSchema != nil {
		if settings.MetadataSchema, err = metadataSchema(*body.MetadataSchema); err != nil {
			return err
		}
	}
	b, err := g.Svc.CreateBase(c.Request.Context(), web.Caller(c), name, settings)
	if err != nil {
		return err
	}
	v := views.Base(b)
	web.Locate(c, "/api/knowledge/bases/"+url.PathEscape(b.ID))
	c.Writer.Header().Set("ETag", web.ETag(v))
	return web.JSON(c, http.StatusCreated, v)
}

func (g *Handler) getBase(c *gin.Context, name string) error {
	return web.ShowTagged(c, views.Base)(g.Svc.Base(c.Request.Context(), web.Caller(c), name))
}

func (g *Handler) changeBase(c *gin.Context, name string) error {
	var body wire.BaseChange
	if err := web.ReadJSON(c, &body, false); err != nil {
		return err
	}
	settings := ingest.BaseSettings{}
	var err error
	if settings.SearchMode, err = searchMode("searchMode", body.SearchMode); err != nil {
		return err
	}
	var detail []string
	if settings.SearchMode != "" {
		detail = append(detail, "searchMode "+string(settings.SearchMode))
	}
	switch {
	case body.Chunking.Value != nil:
		if settings.Chunking, err = chunking(*body.Chunking.Value); err != nil {
			return err
		}
		detail = append(detail, fmt.Sprintf("chunking %s", settings.Chunking.Column()))
	case body.Chunking.Set:
		settings.Chunking = &ingest.Chunking{}
		detail = append(detail, "chunking of the operator")
	}
	switch {
	case body.MetadataSchema.Value != nil:
		if settings.MetadataSchema, err = metadataSchema(*body.MetadataSchema.Value); err != nil {
			return err
		}
		detail = append(detail, fmt.Sprintf("metadataSchema %s", settings.MetadataSchema.Column()))
	case body.MetadataSchema.Set:
		settings.MetadataSchema = &ingest.MetadataSchema{Additional: true}
		detail = append(detail, "no metadataSchema")
	}
	if len(detail) == 0 {
		return web.Errorf(web.CodeInvalidField, "nothing is changed; send searchMode, chunking or metadataSchema").About("searchMode")
	}
	who := g.Trail.Acting(c, audit.BaseChange, name, strings.Join(detail, ", "))
	who.Guard = views.IfMatch(c)
	b, err := g.Svc.ChangeBase(c.Request.Context(), who, name, settings)
	if err != nil {
		return err
	}
	v := views.Base(b)
	c.Writer.Header().Set("ETag", web.ETag(v))
	return web.JSON(c, http.StatusOK, v)
}

// chunking reads what a client says of how documents are cut.
func chunking(w wire.Chunking) (*ingest.Chunking, error) {
	c, err := views.ChunkOptions(w).Chunking("chunking.")
	return &c, err
}

// metadataSchema reads what a client says of metadata.
func metadataSchema(w wire.MetadataSchema) (*ingest.MetadataSchema, error) {
	s, err := views.MetadataSchema(w).Check("metadataSchema.")
	return &s, err
}

func (g *Handler) deleteBase(c *gin.Context, name string) error {
	p := web.ParamsOf(c)
	cascade := p.Bool("cascade")
	if p.Err() != nil {
		return p.Err()
	}
	detail := ""
	if cascade {
		detail = "with its documents"
	}
	who := g.Trail.Acting(c, audit.BaseDelete, name, detail)
	who.Guard = views.IfMatch(c)
	return web.NoContent(c, g.Svc.DeleteBase(c.Request.Context(), who, name, cascade))
}

func (g *Handler) baseSummary(c *gin.Context, name string) error {
	return web.Show(c, views.Summary)(g.Svc.BaseSummary(c.Request.Context(), web.Caller(c), name))
}
