package gateway

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

const (
	defaultTopK = 10
	maxTopK     = 50
)

// documents reads, deletes and searches documents and knowledge bases.
type documents struct {
	svc   ingest.Service
	trail trail
}

// routes are the addresses.
func (g *documents) routes() []route {
	const documents = "/api/knowledge/documents"
	const one = documents + "/:documentId"
	const bases = "/api/knowledge/bases"
	const oneBase = bases + "/:base"
	filters := append([]string{"knowledgeBase", "status", "stage", "q", "sort", "cursor", "limit"}, timeFilters...)
	return []route{
		{http.MethodGet, documents, accessRead, filters, g.listDocuments},
		{http.MethodGet, one, accessRead, nil, g.getDocument},
		{http.MethodDelete, one, accessWrite, nil, g.deleteDocument},
		{http.MethodGet, one + "/segments", accessRead, []string{"cursor", "limit"}, g.listSegments},
		{http.MethodPost, "/api/knowledge/search", accessRead, nil, g.search},
		{http.MethodGet, bases, accessRead, filters, g.listBases},
		{http.MethodPost, bases, accessWrite, nil, g.createBase},
		{http.MethodGet, oneBase, accessRead, nil, g.getBase},
		{http.MethodDelete, oneBase, accessWrite, []string{"cascade"}, g.deleteBase},
		{http.MethodGet, oneBase + "/summary", accessRead, nil, g.baseSummary},
	}
}

func (g *documents) getDocument(c *gin.Context) error {
	id, err := documentID(c)
	if err != nil {
		return err
	}
	d, err := g.svc.Document(c.Request.Context(), caller(c), id)
	if err != nil {
		return err
	}
	return writeTagged(c, viewDocument(d))
}

func (g *documents) listDocuments(c *gin.Context) error {
	var q ingest.DocumentQuery
	var err error
	if q.Statuses, err = enumParam(c, "status", documentStatuses()); err != nil {
		return err
	}
	if q.Stage, err = stageParam(c); err != nil {
		return err
	}
	if q.Sort, err = sortParam(c, taskstate.SortUpdatedDesc); err != nil {
		return err
	}
	if q.Text, err = textParam(c, "q"); err != nil {
		return err
	}
	if q.Times, err = timesParam(c); err != nil {
		return err
	}
	name := "documents:" + string(q.Sort)
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
	rows, err := g.svc.Documents(c.Request.Context(), caller(c), q)
	if err != nil {
		return err
	}
	next := func(d ingest.Document) cursor {
		return timeCursor(name, sortedAt(q.Sort, d.CreatedAt, d.UpdatedAt), d.ID)
	}
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewDocument, next))
}

func (g *documents) deleteDocument(c *gin.Context) error {
	id, err := documentID(c)
	if err != nil {
		return err
	}
	who := g.trail.acting(c, audit.DocumentDelete, id, "")
	who.Guard = ifMatch(c)
	if err := g.svc.DeleteDocument(c.Request.Context(), who, id); err != nil {
		return err
	}
	return noContent(c)
}

func (g *documents) listSegments(c *gin.Context) error {
	id, err := documentID(c)
	if err != nil {
		return err
	}
	limit, after, err := pageParams(c, "segments")
	if err != nil {
		return err
	}
	from := -1
	if after != nil {
		from = int(after.at)
	}
	rows, err := g.svc.Segments(c.Request.Context(), caller(c), id, from, limit+1)
	if err != nil {
		return err
	}
	next := func(s ingest.Segment) cursor { return cursor{list: "segments", at: int64(s.Index)} }
	return writeJSON(c, http.StatusOK, pageOf(rows, limit, viewSegment, next))
}

func (g *documents) search(c *gin.Context) error {
	var body wire.SearchRequest
	if err := readJSON(c, &body, false); err != nil {
		return err
	}
	r := ingest.SearchRequest{Query: strings.TrimSpace(body.Query), TopK: defaultTopK}
	if r.Query == "" {
		return problemf(codeInvalidField, "query is empty").about("query")
	}
	if err := checkText("query", r.Query, maxQueryChars, codeInvalidText, codeFieldTooLong); err != nil {
		return err
	}
	if body.TopK != nil {
		r.TopK = *body.TopK
	}
	if r.TopK < 1 || r.TopK > maxTopK {
		return problemf(codeInvalidField, "topK is %d, allowed is 1 to %d", r.TopK, maxTopK).about("topK")
	}
	var err error
	if r.Base, err = baseName("knowledgeBase", body.KnowledgeBase); err != nil {
		return err
	}
	found, err := g.svc.Search(c.Request.Context(), caller(c), r)
	if err != nil {
		return err
	}
	return writeJSON(c, http.StatusOK, wire.SearchAnswer{Hits: views(found.Hits, viewHit), Partial: found.Partial})
}
