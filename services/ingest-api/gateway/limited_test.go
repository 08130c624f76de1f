package gateway

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// Every way in which a request names a knowledge base is judged, beside those of the paths, which TestRouteWalker has.
func TestAKeyOfABaseReachesNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	key := s.limited("elsewhere")
	owner := s.secrets["owner"]
	home := s.accept(owner, "home.txt", "at home") // in the base default
	elsewhere := decode[wire.Base](t, s.get(owner, "/api/knowledge/bases/elsewhere"))
	const uploads = "/api/knowledge/documents/upload-async"
	refused := func(what string, code int, body string) {
		t.Helper()
		require.Equal(t, http.StatusForbidden, code, what+": "+body)
		require.Contains(t, body, web.CodeScope, what)
		require.Contains(t, body, elsewhere.KnowledgeBaseID, what)
	}
	before := s.hash()
	for _, body := range []string{
		`{"query":"home"}`, `{"query":"home","knowledgeBase":"default"}`, `{"query":"home","knowledgeBase":" default "}`,
		`{"query":"home","knowledgeBase":"` + home.Document.KnowledgeBaseID + `"}`, `{"query":"home","documentIds":["` + string(home.DocumentID) + `"]}`,
	} {
		w := s.send(key, http.MethodPost, "/api/knowledge/search", body)
		refused(body, w.Code, w.Body.String())
	}
	for _, path := range []string{
		"/api/knowledge/documents?knowledgeBase=default", "/api/knowledge/tasks?documentId=" + string(home.DocumentID),
		"/api/knowledge/tasks?knowledgeBase=default", "/api/knowledge/bases?knowledgeBase=default", "/api/knowledge/bases", "/api/knowledge/bases/default",
	} {
		w := s.get(key, path)
		refused(path, w.Code, w.Body.String())
	}
	for name, parts := range map[string][]part{
		"no base": {file("a.txt", "a")}, "the base before the file": {{"knowledgeBase", "", "default"}, file("a.txt", "a")},
		"the base behind the file": {file("a.txt", "a"), {"knowledgeBase", "", "default"}}, "an archive": {file("a.zip", "PK\x05\x06"+string(make([]byte, 18)))},
	} {
		w := s.upload(key, uploads, nil, parts...)
		refused(name, w.Code, w.Body.String())
	}
	// The form's base wins over the query's, and is the one that is judged.
	w := s.upload(key, uploads+"?knowledgeBase=elsewhere", nil, file("a.txt", "a"), part{"knowledgeBase", "", "default"})
	refused("two bases", w.Code, w.Body.String())
	w = s.send(key, http.MethodPost, "/api/knowledge/preview?waitSeconds=0", `{"documentId":"`+string(home.DocumentID)+`"}`)
	refused("a preview of a document", w.Code, w.Body.String())
	w = s.upload(key, "/api/knowledge/preview?waitSeconds=0", nil, file("a.txt", "a"))
	refused("a preview of a file", w.Code, w.Body.String())
	require.Equal(t, before, s.hash(), "who is refused changes nothing")

	// A key that another request of the same user has used gives the task of that one, which may be in another base.
	again := []string{"Idempotency-Key", "k"}
	require.Equal(t, http.StatusAccepted, s.upload(owner, uploads, again, file("k.txt", "kept")).Code)
	w = s.upload(key, uploads+"?knowledgeBase=elsewhere", again, file("k.txt", "kept"))
	refused("a replay", w.Code, w.Body.String())

	w = s.upload(key, uploads, nil, file("a.txt", "a"), part{"knowledgeBase", "", "elsewhere"})
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	mine := decode[wire.AcceptedTask](t, w)
	for _, path := range []string{
		"/api/knowledge/tasks/" + mine.TaskID, "/api/knowledge/documents/" + string(mine.DocumentID), "/api/knowledge/documents?knowledgeBase=elsewhere",
		"/api/knowledge/tasks?knowledgeBase=" + elsewhere.KnowledgeBaseID,
	} {
		require.Equal(t, http.StatusOK, s.get(key, path).Code, path)
	}
	w = s.send(key, http.MethodPost, "/api/knowledge/search", `{"query":"a","knowledgeBase":"elsewhere"}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
}

func TestScopesOfSearchAndUpload(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	limitedTo := func(scope string) string {
		scopes, err := auth.ParseScopes(scope)
		require.NoError(t, err)
		secret, _, err := s.keys.Create(t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, Scopes: scopes})
		require.NoError(t, err)
		return secret
	}
	for scope, open := range map[string][]string{
		"search": {"POST /api/knowledge/search"}, "upload": {"POST /api/knowledge/documents/upload", "POST /api/knowledge/documents/upload-async"},
	} {
		key := limitedTo(scope)
		for _, r := range s.g.routes {
			if r.Access == web.AccessPublic || r.Access.Operator() {
				continue
			}
			may := r.Access.Scope() == auth.Scope(scope)
			require.Equal(t, may, slices.Contains(open, r.Method+" "+r.Path), "%s %s", r.Method, r.Path)
			s.secrets["one"] = key
			if w := s.walk(r, s.belonging(r), "one"); !may {
				require.Equal(t, http.StatusForbidden, w.Code, "%s %s with %s", r.Method, r.Path, scope)
				require.Contains(t, w.Body.String(), "with the scope "+string(r.Access.Scope()))
			} else {
				require.Less(t, w.Code, 300, "%s %s with %s: %s", r.Method, r.Path, scope, w.Body)
			}
		}
	}
}
