package gateway

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const canary = "canary"

// plant puts the canary wherever a document, its user or what failed with it may have left words.
func (s *site) plant(o belongings) {
	s.t.Helper()
	s.exec("UPDATE ingest_task_body SET last_error = ?, error_message = ?, error_code = 'CORRUPT' WHERE id = ?", canary+" of the error.", canary, o.task)
	s.exec("UPDATE knowledge_document SET title = ?, metadata = ? WHERE id = ?", canary, `{"note":"`+canary+`"}`, o.document)
	s.exec("DELETE FROM failure_group")
	s.exec(`INSERT INTO failure_group (id, group_id, user_id, knowledge_base_id, stage, error_code, pattern, permanent, failures, tasks, task_id, sample, message, first_at, last_at)
		SELECT 'x', '0123456789abcdef', 'ada', ?, 'extract', 'CORRUPT', ?, 1, 1, 1, id, ?, ?, created_at, created_at FROM ingest_task WHERE id = ?`,
		o.base, canary, canary, canary, o.task)
}

// No route shows a key with the scope status a word of what documents, messages and errors say. Every route is called, as the owner
// of the object and as an operator, with a key of that scope, and with one that may look: what the latter is shown was there to see.
func TestNoRouteShowsPayloadToAViewer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.planted = canary + " "
	shown := map[string]bool{}
	answered := 0
	for _, route := range s.g.routes {
		o := s.belonging(route)
		if strings.HasSuffix(route.Path, "/transitions") || strings.HasSuffix(route.Path, "/explain") {
			s.dies(o.task, canary)
		}
		s.plant(o)
		for _, who := range []string{"viewer", "lookout"} {
			w := s.walk(route, o, who)
			require.NotContains(t, w.Body.String(), canary, "%s %s as %s", route.Method, route.Path, who)
			for name, values := range w.Header() {
				require.NotContains(t, strings.Join(values, " "), canary, "%s of %s %s", name, route.Method, route.Path)
			}
			if w.Code < 300 {
				answered++
				require.Equal(t, http.MethodGet, route.Method, "%s: a viewer changes nothing", route.Path)
			} else {
				require.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, w.Code, "%s %s as %s: %s", route.Method, route.Path, who, w.Body)
			}
		}
		if route.Method == http.MethodGet {
			for _, who := range []string{"reader", "watcher"} {
				if strings.Contains(s.walk(route, o, who).Body.String(), canary) {
					shown[route.Path] = true
				}
			}
		}
	}
	require.Greater(t, answered, 40)
	for _, path := range []string{
		"/api/knowledge/tasks", "/api/knowledge/tasks/:taskId", "/api/knowledge/tasks/:taskId/events", "/api/knowledge/tasks/:taskId/explain",
		"/api/knowledge/tasks/:taskId/transitions", "/api/knowledge/documents", "/api/knowledge/documents/:documentId", "/api/knowledge/failures",
		"/internal/tasks/:taskId", "/internal/outbox/events/:eventId", "/internal/mq/topics/:topic/messages",
	} {
		require.True(t, shown[path], "%s shows nothing to those who may look, so nothing was tried", path)
	}
}

// What is left is of use: states, codes, what to do by the code, explanations without the error's words, tags of what is shown.
func TestWhatAViewerSees(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.planted = canary + " "
	o := s.belonging(web.Route{Path: "/"})
	s.dies(o.task, canary)
	s.plant(o)
	viewer := s.secrets["viewer"]
	w := s.get(viewer, "/api/knowledge/tasks/"+o.task)
	task := decode[wire.Task](t, w)
	require.Equal(t, taskstate.StatusDead, task.Status)
	require.EqualValues(t, "CORRUPT", task.ErrorCode)
	require.EqualValues(t, web.Kinds["CORRUPT"].Remedy, task.ErrorMessage)
	require.Empty(t, task.LastError)
	require.NotEqual(t, s.get(s.secrets["reader"], "/api/knowledge/tasks/"+o.task).Header().Get("ETag"), w.Header().Get("ETag"), "a tag tells nothing of what is hidden")
	require.Equal(t, http.StatusNotModified, s.get(viewer, "/api/knowledge/tasks/"+o.task, "If-None-Match", w.Header().Get("ETag")).Code)
	e := decode[wire.Explanation](t, s.get(viewer, "/api/knowledge/tasks/"+o.task+"/explain"))
	require.Contains(t, e.Text, "Last error: (not shown). ")
	require.Contains(t, e.Text, "The task is DEAD")
	require.Len(t, e.Attempts, 1)
	d := decode[wire.Document](t, s.get(viewer, "/api/knowledge/documents/"+o.document))
	require.Equal(t, wire.Document{Metadata: map[string]any{}}, wire.Document{Title: d.Title, FileName: d.FileName, Metadata: d.Metadata})
	require.Equal(t, o.task, string(d.LatestTaskID))
	groups := decode[wire.List[wire.FailureGroup]](t, s.get(viewer, "/api/knowledge/failures")).Items
	require.Len(t, groups, 1)
	require.EqualValues(t, 1, groups[0].Tasks)
	require.EqualValues(t, web.Kinds["CORRUPT"].Remedy, groups[0].Remedy)

	// Nor does a viewer find out by asking for words.
	for _, query := range []string{
		"tasks?q=canary", "documents?q=canary", "bases?q=canary", "documents?metadata=" + url.QueryEscape(`{"note":"canary"}`),
		"tasks?filter=" + url.QueryEscape(`error~"canary"`), "tasks?filter=" + url.QueryEscape(`status:DEAD doc~canary`), "tasks?filter=canary",
	} {
		p := s.refused(s.get(viewer, "/api/knowledge/"+query), http.StatusForbidden, web.CodeScope)
		require.Contains(t, p.Message, "scope status")
	}
	list := decode[wire.List[wire.Task]](t, s.get(viewer, "/api/knowledge/tasks?filter="+url.QueryEscape("status:DEAD code:CORRUPT")))
	require.Len(t, list.Items, 1)
	s.refused(s.send(viewer, http.MethodPost, "/api/knowledge/search", `{"query":"text"}`), http.StatusForbidden, web.CodeScope)
	s.refused(s.get(viewer, "/internal/tasks/stats"), http.StatusForbidden, web.CodeForbidden)
	require.Equal(t, http.StatusOK, s.get(s.secrets["lookout"], "/internal/tasks/stats").Code)

	_, err := auth.ParseScopes("status", "write")
	require.ErrorIs(t, err, auth.ErrInvalidInput)
	w = s.send(s.secrets["operator"], http.MethodPost, "/internal/keys", `{"userId":"ada","scopes":["status","search"]}`)
	s.refused(w, http.StatusUnprocessableEntity, web.CodeInvalidField)
	w = s.send(s.secrets["operator"], http.MethodPost, "/internal/keys", `{"userId":"ada","scopes":["status"]}`)
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
}

// The console shows a viewer every screen that is about states, says what is hidden and why, and no word of it.
func TestConsoleHidesPayloadFromAViewer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	user, operator := s.fill(canary)
	s.exec("UPDATE ingest_task_body SET last_error = ?, error_message = ?, error_code = 'CORRUPT'", canary, canary)
	seen := 0
	for who, paths := range map[string][]string{"viewer": user, "lookout": append(user, operator...)} {
		b := s.as(s.secrets[who])
		for _, path := range paths {
			if strings.Contains(path, canary) { // what somebody has typed is shown again
				continue
			}
			w := b.get(path)
			page := w.Body.String()
			require.NotContains(t, page, canary, "%s %s", who, path)
			require.Contains(t, []int{http.StatusOK, http.StatusForbidden}, w.Code, "%s: %s", path, page)
			require.Contains(t, page, "are hidden here", "%s", path)
			require.Empty(t, forms(page), "%s", path)
			for _, hidden := range []string{"/search", "/bulk", "/audit", "/keys", "/deadletters"} {
				require.NotContains(t, page, `href="/console`+hidden, "%s", path)
			}
			if w.Code == http.StatusOK {
				seen++
			}
		}
	}
	require.Greater(t, seen, 20)
	b := s.as(s.secrets["reader"])
	require.Contains(t, b.page("/console/documents"), canary)
	require.NotContains(t, b.page("/console/documents"), "are hidden here")
}
