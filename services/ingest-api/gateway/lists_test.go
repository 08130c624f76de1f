package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Every list takes every limit of its range and refuses the others with the range, and every filter of it
// refuses nonsense by its name; a new list is walked by itself.
func TestEveryListTakesEveryLimit(t *testing.T) {
	t.Parallel()
	q := newQueue(t, 2)
	q.publish(3)
	q.consume(1, func(*streammq.Delivery) streammq.Result { return streammq.Success() })
	a := q.accept(ada, "a.txt", "text")
	lists := 0
	for _, r := range q.g.routes {
		if !slices.Contains(r.Query, "limit") {
			continue
		}
		lists++
		path := strings.NewReplacer(":taskId", a.TaskID, ":documentId", string(a.DocumentID), ":topic", q.topic, ":group", group).Replace(r.Path)
		who := operator
		if strings.HasPrefix(path, "/api/") {
			who = ada
		}
		for _, limit := range []string{"1", "2", "50", "99", "100"} {
			w := q.get(who, path+"?limit="+limit)
			require.Equal(t, http.StatusOK, w.Code, "%s limit %s: %s", path, limit, w.Body.String())
		}
		for _, limit := range []string{"0", "-1", "101", "150", "200", "9999999999999999999", "1e2", "x", "", "%00", "1.5"} {
			p := q.refused(q.get(who, path+"?limit="+limit), http.StatusBadRequest, web.CodeInvalidParameter)
			require.Equal(t, "limit", p.Parameter, "%s limit %s", path, limit)
			require.Contains(t, p.Message, "from 1 to 100", "%s limit %s", path, limit)
		}
		p := q.refused(q.get(who, path+"?limti=1"), http.StatusBadRequest, web.CodeUnknownParameter)
		require.Equal(t, "limti", p.Parameter, path)
		for _, name := range r.Query {
			if slices.Contains([]string{"documentId", "parent", "from", "to"}, name) { // ids: what cannot be one is unknown
				continue
			}
			w := q.get(who, path+"?limit=1&"+name+"=%00")
			if name == "limit" {
				w = q.get(who, path+"?limit=%00")
			}
			require.Equal(t, name, q.problem(w).Parameter, path)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity}, w.Code, "%s %s", path, name)
		}
	}
	require.GreaterOrEqual(t, lists, 12)
}

// The filters of contract §4 on documents and bases, each with a value that selects, one that does not and one that is refused.
func TestDocumentsAndBasesTakeTheFiltersOfTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.accept(ada, "report.txt", "x")
	for path, field := range map[string]string{"/api/knowledge/documents": "documentId", "/api/knowledge/bases": "knowledgeBaseId"} {
		for _, name := range []string{"createdAfter", "updatedAfter", "createdBefore", "updatedBefore"} {
			past, future := time.Unix(1, 0).UTC().Format(time.RFC3339), "9000-01-01T00:00:00Z"
			selects, misses := past, future
			if strings.HasSuffix(name, "Before") {
				selects, misses = future, past
			}
			require.Len(t, b.pages(path+"?"+name+"="+selects, field), 1, "%s %s", path, name)
			require.Empty(t, b.pages(path+"?"+name+"="+misses, field), "%s %s", path, name)
			p := b.refused(b.get(ada, path+"?"+name+"=yesterday"), http.StatusBadRequest, web.CodeInvalidParameter)
			require.Equal(t, name, p.Parameter)
		}
		for _, sort := range []string{"createdAt", "-createdAt", "updatedAt", "-updatedAt"} {
			require.Len(t, b.pages(path+"?sort="+sort, field), 1, "%s %s", path, sort)
		}
		require.Equal(t, "sort", b.refused(b.get(ada, path+"?sort=name"), http.StatusBadRequest, web.CodeInvalidParameter).Parameter)
		require.Empty(t, b.pages(path+"?q=nothing+is+called+so", field), path)
		require.Len(t, b.pages(path+"?knowledgeBase=default", field), 1, path)
		b.refused(b.get(ada, path+"?knowledgeBase=none"), http.StatusNotFound, web.CodeBaseNotFound)
		require.Len(t, b.pages(path+"?status=QUEUED,FAILED", field), 1, path)
		require.Empty(t, b.pages(path+"?status=READY", field), path)
		require.Equal(t, "status", b.refused(b.get(ada, path+"?status=LOST"), http.StatusBadRequest, web.CodeInvalidParameter).Parameter)
		require.Len(t, b.pages(path+"?stage=none", field), 1, path)
		require.Empty(t, b.pages(path+"?stage=embed", field), path)
		require.Equal(t, "stage", b.refused(b.get(ada, path+"?stage=lost"), http.StatusBadRequest, web.CodeInvalidParameter).Parameter)
		require.Equal(t, "stage", b.refused(b.get(ada, path+"?stage=none,embed"), http.StatusBadRequest, web.CodeInvalidParameter).Parameter)
	}
	require.Empty(t, b.pages("/api/knowledge/documents?parent="+ingest.NewID(), "documentId"))
	b.refused(b.get(ada, "/api/knowledge/documents?parent=x"), http.StatusNotFound, web.CodeDocumentNotFound)
	require.Equal(t, "metadata", b.refused(b.get(ada, "/api/knowledge/bases?metadata={}"), http.StatusBadRequest, web.CodeUnknownParameter).Parameter)
	// A cursor belongs to one order.
	for i := range 3 {
		b.send(ada, http.MethodPost, "/api/knowledge/bases", fmt.Sprintf(`{"name":"b%d"}`, i))
	}
	require.Len(t, b.pages("/api/knowledge/bases?sort=createdAt&limit=1", "knowledgeBaseId"), 4)
	page := decode[wire.List[wire.Base]](t, b.get(ada, "/api/knowledge/bases?sort=createdAt&limit=1"))
	b.refused(b.get(ada, "/api/knowledge/bases?sort=-createdAt&cursor="+string(page.NextCursor)), http.StatusBadRequest, web.CodeBadCursor)
}
