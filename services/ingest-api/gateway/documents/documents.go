// Package documents has the routes of documents, knowledge bases and searches.
package documents

import (
	"context"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Handler reads, deletes and searches documents and knowledge bases.
type Handler struct {
	Svc   ingest.Service
	Trail web.Trail
}

// Routes are the addresses.
func (g *Handler) Routes() []web.Route {
	const documents = "/api/knowledge/documents"
	const one = documents + "/:documentId"
	const bases = "/api/knowledge/bases"
	const oneBase = bases + "/:base"
	filters := append([]string{"knowledgeBase", "status", "stage", "q", "sort", "cursor", "limit"}, web.TimeFilters...)
	return []web.Route{
		web.On(http.MethodGet, documents, web.AccessStatus, append([]string{"metadata", "parent"}, filters...), g.listDocuments).In(web.BaseOfQuery),
		web.On(http.MethodGet, one, web.AccessStatus, nil, web.Of(web.DocumentID, g.getDocument)).In(web.BaseOfDocument),
		web.On(http.MethodDelete, one, web.AccessWrite, nil, web.Of(web.DocumentID, g.deleteDocument)).In(web.BaseOfDocument),
		web.On(http.MethodGet, one+"/deletion", web.AccessStatus, nil, web.Of(web.DocumentID, g.deletion)).In(web.BaseOfDeletion),
		web.On(http.MethodGet, one+"/versions", web.AccessStatus, []string{"cursor", "limit"}, web.Of(web.DocumentID, g.listVersions)).In(web.BaseOfDocument),
		web.On(http.MethodGet, one+"/file", web.AccessRead, []string{"version"}, web.Of(web.DocumentID, g.file)).In(web.BaseOfDocument),
		web.On(http.MethodGet, one+"/segments", web.AccessRead, []string{"cursor", "limit"}, web.Of(web.DocumentID, g.listSegments)).In(web.BaseOfDocument),
		web.On(http.MethodPost, "/api/knowledge/search", web.AccessSearch, nil, g.search).In(web.BaseOfBody),
		web.On(http.MethodGet, bases, web.AccessStatus, append([]string{"counts"}, filters...), g.listBases).In(web.BaseOfQuery),
		web.On(http.MethodPost, bases, web.AccessWrite, nil, g.createBase),
		web.On(http.MethodGet, oneBase, web.AccessStatus, nil, web.Of(web.BaseName, g.getBase)).In(web.BaseOfPath),
		web.On(http.MethodPatch, oneBase, web.AccessWrite, nil, web.Of(web.BaseName, g.changeBase)).In(web.BaseOfPath),
		web.On(http.MethodDelete, oneBase, web.AccessWrite, []string{"cascade"}, web.Of(web.BaseName, g.deleteBase)).In(web.BaseOfPath),
		web.On(http.MethodGet, oneBase+"/summary", web.AccessStatus, nil, web.Of(web.BaseName, g.baseSummary)).In(web.BaseOfPath),
	}
}

func (g *Handler) getDocument(c *gin.Context, id string) error {
	return web.ShowTagged(c, views.Document)(g.Svc.Document(c.Request.Context(), web.Caller(c), id))
}

func (g *Handler) listDocuments(c *gin.Context) error {
	p, said := web.ParamsOf(c), map[string]any{}
	if p.JSON("metadata", &said); p.Err() != nil {
		return p.Err()
	}
	parent := strings.ToLower(c.Query("parent"))
	if parent != "" && !web.IsUUID(parent) {
		return ingest.ErrDocumentNotFound
	}
	metadata, err := ingest.ParseMetadataRules("metadata", said)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, who ingest.Caller, q ingest.ListQuery) ([]ingest.Document, error) {
		q.Metadata, q.Parent = metadata, parent
		return g.Svc.Documents(ctx, who, q)
	}
	return list(c, g, "documents:", taskstate.SortUpdatedDesc, read, views.Document,
		func(d ingest.Document) (id string, created, updated time.Time) { return d.ID, d.CreatedAt, d.UpdatedAt })
}

// list returns a page of documents or of bases: both take the same filters. key is what a row is sorted by.
func list[R, V any](
	c *gin.Context, g *Handler, name string, order taskstate.Sort,
	read func(context.Context, ingest.Caller, ingest.ListQuery) ([]R, error),
	view func(R) V, key func(R) (id string, created, updated time.Time),
) error {
	f, err := web.ReadFilters(c, views.DocumentStatuses(), order)
	if err != nil {
		return err
	}
	q := ingest.ListQuery{Statuses: f.Statuses, Stage: f.Stage, Sort: f.Sort, Text: f.Text, Times: f.Times}
	return web.List(c, name+string(f.Sort), func(after *web.Cursor, most int) (rows []R, err error) {
		q.After, q.Limit = after.Key(), most
		if q.Base, err = web.BaseFilter(c, g.Svc); err != nil {
			return nil, err
		}
		return read(c.Request.Context(), web.Caller(c), q)
	}, view, func(row R) web.Cursor {
		id, created, updated := key(row)
		return web.TimeCursor(web.SortedAt(f.Sort, created, updated), id)
	})
}

func (g *Handler) deleteDocument(c *gin.Context, id string) error {
	who := g.Trail.Acting(c, audit.DocumentDelete, id, "")
	who.Guard = views.IfMatch(c)
	return web.NoContent(c, g.Svc.DeleteDocument(c.Request.Context(), who, id))
}

func (g *Handler) deletion(c *gin.Context, id string) error {
	return web.Show(c, views.Deletion)(g.Svc.Deletion(c.Request.Context(), web.Caller(c), id))
}

func (g *Handler) listVersions(c *gin.Context, id string) error {
	return web.List(c, "versions", func(after *web.Cursor, most int) ([]ingest.Version, error) {
		return g.Svc.Versions(c.Request.Context(), web.Caller(c), id, after.Number(math.MaxInt64), most)
	}, views.Version, func(v ingest.Version) web.Cursor { return web.Cursor{At: v.No} })
}

func (g *Handler) listSegments(c *gin.Context, id string) error {
	return web.List(c, "segments", func(after *web.Cursor, most int) ([]ingest.Segment, error) {
		return g.Svc.Segments(c.Request.Context(), web.Caller(c), id, int(after.Number(-1)), most)
	}, views.Segment, func(s ingest.Segment) web.Cursor { return web.Cursor{At: int64(s.Index)} })
}
