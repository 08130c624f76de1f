package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/views"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func TestTaskAndItsETag(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.accept(ada, "a.txt", "x").TaskID
	path := "/api/knowledge/tasks/" + id
	w := b.get(ada, path)
	require.Equal(t, http.StatusOK, w.Code)
	tag := w.Header().Get("ETag")
	require.Regexp(t, `^"[0-9a-f]{32}"$`, tag)
	for _, header := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		require.Equal(t, http.StatusNotModified, b.get(ada, path, "If-None-Match", header).Code, header)
	}
	require.Equal(t, http.StatusOK, b.get(ada, path, "If-None-Match", `"x"`).Code)
	b.move(id, taskstate.StatusRunning)
	require.Equal(t, http.StatusOK, b.get(ada, path, "If-None-Match", tag).Code)
	b.refused(b.send(ada, http.MethodPost, path+"/cancel", "", "If-Match", tag), http.StatusPreconditionFailed, web.CodePrecondition)
	b.refused(b.send(ada, http.MethodPost, path+"/cancel", "", "If-Match", "W/"+b.get(ada, path).Header().Get("ETag")), http.StatusPreconditionFailed, web.CodePrecondition)
	w = b.send(ada, http.MethodPost, path+"/cancel", "", "If-Match", b.get(ada, path).Header().Get("ETag"))
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, w.Header().Get("ETag"), b.get(ada, path).Header().Get("ETag"))
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("x", 3600))
	for name, c := range map[string]struct {
		task taskstate.Task
		want *wire.Waiting
	}{
		"queued":    {taskstate.Task{Status: taskstate.StatusQueued}, &wire.Waiting{Reason: wire.WaitQueue}},
		"reserved":  {taskstate.Task{Status: taskstate.StatusQueued, LeaseOwner: "p", WakeAt: at}, &wire.Waiting{Reason: wire.WaitAlone, Until: wire.MaybeAt(at)}},
		"backoff":   {taskstate.Task{Status: taskstate.StatusRetrying, NextRetryAt: at}, &wire.Waiting{Reason: wire.WaitBackoff, Until: wire.MaybeAt(at)}},
		"throttled": {taskstate.Task{Status: taskstate.StatusRetrying, NextRetryAt: at, ThrottleCount: 1}, &wire.Waiting{Reason: wire.WaitThrottle, Until: wire.MaybeAt(at)}},
		"alone":     {taskstate.Task{Status: taskstate.StatusRetrying, LeaseOwner: "p", WakeAt: at}, &wire.Waiting{Reason: wire.WaitAlone, Until: wire.MaybeAt(at)}},
		"suspended": {taskstate.Task{Status: taskstate.StatusSuspended}, &wire.Waiting{Reason: wire.WaitPerson}},
		"running":   {taskstate.Task{Status: taskstate.StatusRunning, LeaseOwner: "p", WakeAt: at}, nil},
		"dead":      {taskstate.Task{Status: taskstate.StatusDead}, nil},
	} {
		require.Equal(t, c.want, views.WaitingOf(c.task), name)
	}
}

func TestStepsOnTasks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.accept(ada, "a.txt", "x").TaskID
	path := "/api/knowledge/tasks/" + id
	p := b.refused(b.send(ada, http.MethodPost, path+"/retry", ""), http.StatusConflict, "TASK_NOT_REPLAYABLE")
	require.Equal(t, taskstate.StatusQueued, p.TaskStatus)
	w := b.send(operator, http.MethodPost, "/internal/tasks/"+id+"/suspend", `{"reason":"look at it"}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	b.refused(b.send(ada, http.MethodPost, path+"/retry", ""), http.StatusConflict, "TASK_SUSPENDED")
	w = b.get(operator, "/internal/tasks/suspended")
	require.Equal(t, "look at it", decode[wire.List[wire.SuspendedTask]](t, w).Items[0].Reason)
	b.exec(t, "UPDATE ingest_task_body SET error_code = 'mirror_failed' WHERE id = ?", id)
	require.Equal(t, "mirror_failed", decode[wire.List[wire.SuspendedTask]](t, b.get(operator, "/internal/tasks/suspended")).Items[0].Reason)
	w = b.do(b.request(operator, http.MethodPost, "/internal/tasks/"+id+"/resume", nil))
	require.Equal(t, http.StatusOK, w.Code)
	require.JSONEq(t, `{"status":"queued","taskId":"`+id+`"}`, w.Body.String())
	require.Equal(t, http.StatusOK, b.send(ada, http.MethodPost, path+"/cancel", "").Code)
	b.refused(b.send(ada, http.MethodPost, path+"/cancel", ""), http.StatusConflict, "TASK_NOT_CANCELLABLE")
	w = b.do(b.request(operator, http.MethodDelete, "/internal/tasks/"+id, nil))
	require.Equal(t, http.StatusOK, w.Code, "one that is withdrawn already is no error")
	require.JSONEq(t, `{"status":"deleted","taskId":"`+id+`"}`, w.Body.String())
	require.Equal(t, http.StatusOK, b.send(ada, http.MethodPost, path+"/retry", "").Code)
	b.move(id, taskstate.StatusRunning)
	b.move(id, taskstate.StatusSucceeded)
	b.refused(b.do(b.request(operator, http.MethodDelete, "/internal/tasks/"+id, nil)), http.StatusConflict, "TASK_NOT_CANCELLABLE")
	log := decode[wire.List[wire.Transition]](t, b.get(ada, path+"/transitions"))
	require.Equal(t, taskstate.StatusQueued, log.Items[0].ToStatus)
	require.Empty(t, log.Items[0].FromStatus)
	require.Equal(t, "user:ada", log.Items[0].Actor)
	require.Equal(t, "operator:operator", log.Items[1].Actor)
	require.Contains(t, decode[wire.Explanation](t, b.get(ada, path+"/explain")).Text, "SUCCEEDED")
	stats := decode[wire.Stats](t, b.get(operator, "/internal/tasks/stats"))
	require.Equal(t, int64(1), stats.Counts[taskstate.StatusSucceeded])
	require.Len(t, stats.Counts, len(taskstate.Statuses()))
	require.Equal(t, ada, decode[wire.InspectedTask](t, b.get(operator, "/internal/tasks/"+id)).UserID)
}

// A task of which RabbitMQ has no copy is listed with those that wait for a person, once, and counted with them; it goes on, and
// whoever resumes it has its copy tried at once.
func TestTasksWithoutACopyAreListed(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, b *site) {
		owner, root := b.secrets["owner"], b.secrets["operator"]
		var ids []string
		for _, text := range []string{"a", "b", "c", "d", "e"} {
			ids = append(ids, b.accept(owner, text+".txt", text).TaskID)
		}
		for _, id := range []string{ids[1], ids[3]} {
			require.Equal(t, http.StatusOK, b.send(root, http.MethodPost, "/internal/tasks/"+id+"/suspend", `{"reason":"look at it"}`).Code)
		}
		require.Equal(t, http.StatusOK, b.send(owner, http.MethodPost, "/api/knowledge/tasks/"+ids[4]+"/cancel", "").Code)
		for i, id := range ids { // the first was tried last
			at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
			if i == 0 {
				at = time.Now().Add(time.Hour)
			}
			b.exec("INSERT INTO mirror_failure (task_id, reason, tries, created_at, updated_at) VALUES (?, 'no confirm within 3s', 3, ?, ?)", id, at, at)
		}
		require.Equal(t, []string{ids[0], ids[3], ids[1], ids[2]}, b.pagesOf(root, "/internal/tasks/suspended?limit=1", "taskId"))
		list := decode[wire.List[wire.SuspendedTask]](t, b.get(root, "/internal/tasks/suspended"))
		require.Len(t, list.Items, 4)
		require.Equal(t, wire.MirrorFailed, list.Items[0].Reason)
		require.EqualValues(t, "no confirm within 3s", list.Items[0].MirrorError)
		require.Equal(t, taskstate.StatusQueued, list.Items[0].Status)
		require.Equal(t, "look at it", list.Items[1].Reason)
		require.Empty(t, list.Items[1].MirrorError)
		stats := decode[wire.Stats](t, b.get(root, "/internal/tasks/stats"))
		require.EqualValues(t, 2, stats.Counts[taskstate.StatusSuspended])
		require.EqualValues(t, 4, stats.SuspendedLength)

		resume := func(id string) *httptest.ResponseRecorder {
			return b.send(root, http.MethodPost, "/internal/tasks/"+id+"/resume", "")
		}
		answer := resume(ids[0])
		require.Equal(t, http.StatusOK, answer.Code, answer.Body.String())
		require.JSONEq(t, `{"status":"queued","taskId":"`+ids[0]+`"}`, answer.Body.String())
		require.Equal(t, []string{ids[3], ids[1], ids[2]}, b.pagesOf(root, "/internal/tasks/suspended?limit=2", "taskId"))
		require.Equal(t, http.StatusConflict, resume(ids[0]).Code, "nothing is left to try")
	})
}

// Uploads are accepted while Redis is away, and say so.
func TestAnUploadSaysThatItWaitsForRedis(t *testing.T) {
	t.Parallel()
	s := newSiteIn(t, world{worlds["sqlite"].store, func(testing.TB) string { return "redis://127.0.0.1:1" }})
	owner := s.secrets["owner"]
	first := s.accept(owner, "a.txt", "a")
	require.Equal(t, wire.WaitingForRedis, first.Delivery)
	require.Equal(t, taskstate.StatusQueued, first.Status)
	require.Equal(t, wire.WaitingForRedis, s.accept(owner, "b.txt", "b").Delivery, "also while Redis is left alone")
	with := newSite(t)
	require.Empty(t, with.accept(with.secrets["owner"], "a.txt", "a").Delivery)
}

// pages pages through a list and returns the ids in their order.
func (b *bench) pages(target, field string) []string {
	b.t.Helper()
	return b.pagesOf(ada, target, field)
}

// pagesOf does it for somebody.
func (b *bench) pagesOf(who, target, field string) (ids []string) {
	b.t.Helper()
	cursor := ""
	for range 20 {
		w := b.get(who, target+"&cursor="+url.QueryEscape(cursor))
		require.Equal(b.t, http.StatusOK, w.Code, w.Body.String())
		page := decode[struct {
			Items      []map[string]any `json:"items"`
			NextCursor *string          `json:"nextCursor"`
			HasMore    bool             `json:"hasMore"`
		}](b.t, w)
		for _, item := range page.Items {
			ids = append(ids, fmt.Sprint(item[field]))
		}
		require.Equal(b.t, page.HasMore, page.NextCursor != nil)
		if !page.HasMore {
			return ids
		}
		cursor = *page.NextCursor
	}
	b.t.Fatal("a list without an end")
	return nil
}

func TestListsPageByCursor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var tasks, docs []string
	for i := range 5 {
		a := b.accept(ada, fmt.Sprintf("%d.txt", i), fmt.Sprint(i))
		tasks, docs = append(tasks, a.TaskID), append(docs, string(a.DocumentID))
		b.accept(bob, fmt.Sprintf("%d.txt", i), fmt.Sprint(i))
		require.Equal(t, http.StatusCreated, b.send(ada, http.MethodPost, "/api/knowledge/bases", fmt.Sprintf(`{"name":"b%d"}`, i)).Code)
	}
	require.Equal(t, tasks, b.pages("/api/knowledge/tasks?limit=2&sort=createdAt", "taskId"))
	back := b.pages("/api/knowledge/tasks?limit=2", "taskId")
	require.Equal(t, tasks[0], back[4])
	require.Len(t, b.pages("/api/knowledge/documents?limit=1", "documentId"), 5)
	require.Equal(t, docs, b.pages("/api/knowledge/documents?limit=3&sort=updatedAt", "documentId"))
	require.Equal(t, []string{"b4", "b3", "b2", "b1", "b0", "default"}, b.pages("/api/knowledge/bases?limit=4", "name"))
	require.Equal(t, []string{"0", "1", "2", "3", "4"}, b.pages("/api/knowledge/documents/"+docs[0]+"/segments?limit=2", "index"))
	for _, to := range []taskstate.Status{"RUNNING", "RETRYING", "RUNNING"} {
		b.move(tasks[0], to)
	}
	require.Len(t, b.pages("/api/knowledge/tasks/"+tasks[0]+"/transitions?limit=1", "id"), 4)
	// A cursor belongs to its list and order; a changed one is refused.
	first := decode[wire.List[wire.Task]](t, b.get(ada, "/api/knowledge/tasks?limit=2"))
	for _, target := range []string{
		"/api/knowledge/tasks?sort=createdAt&cursor=" + string(first.NextCursor), "/api/knowledge/documents?cursor=" + string(first.NextCursor),
		"/api/knowledge/tasks?cursor=" + (string(first.NextCursor))[1:], "/api/knowledge/tasks?cursor=%00", "/api/knowledge/tasks?cursor=" + strings.Repeat("A", 600),
	} {
		b.refused(b.get(ada, target), http.StatusBadRequest, web.CodeBadCursor)
	}
}

// A search among many tasks ends after some of them, says so, and goes on; the id of a task finds it at once.
func TestASearchOfManyTasksGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	needle := b.accept(ada, "needle.txt", "x")
	for range 12 {
		_, err := b.parts.Store.Submit(t.Context(), func(context.Context, taskstate.Tx, taskstate.DBClock) (hay []taskstate.NewTask, _ error) {
			for range 500 {
				hay = append(hay, taskstate.NewTask{Task: taskstate.Task{
					ID: uuid.Must(uuid.NewV7()).String(), UserID: ada, Type: "document", Channel: "http", FilePath: "hay.txt", MaxAttempts: 3,
				}})
			}
			return hay, nil
		})
		require.NoError(t, err)
	}
	for _, sort := range []string{"-updatedAt", "-createdAt"} {
		at := "/api/knowledge/tasks?sort=" + sort + "&q="
		first := decode[wire.List[wire.Task]](t, b.get(ada, at+"needle"))
		require.Empty(t, first.Items, sort)
		require.True(t, first.HasMore, sort)
		require.Equal(t, []string{needle.TaskID}, b.pages(at+"needle", "taskId"), sort)
		require.Empty(t, b.pages(at+"nail", "taskId"), sort)
		whole := decode[wire.List[wire.Task]](t, b.get(ada, at+needle.TaskID))
		require.Len(t, whole.Items, 1, sort)
		require.False(t, whole.HasMore, sort)
	}
}

func TestTaskFilters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	doc := b.accept(ada, "a.txt", "x")
	w := b.get(ada, "/api/knowledge/tasks?status=DEAD,RETRYING&knowledgeBase=default&stage=embed&q=a.txt&documentId="+string(doc.DocumentID)+
		"&createdAfter=2026-01-01T00:00:00Z&updatedBefore=2026-01-01T00:00:00.5+02:00&limit=7")
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	q := b.svc.LastQuery()
	require.Equal(t, []taskstate.Status{"DEAD", "RETRYING"}, q.Statuses)
	require.Equal(t, doc.Document.KnowledgeBaseID, q.KnowledgeBase)
	require.Equal(t, time.Date(2025, 12, 31, 22, 0, 0, 5e8, time.UTC), q.UpdatedBefore)
	require.Equal(t, 8, q.Limit)
	require.EqualValues(t, "embed", q.Stage)
	for query, about := range map[string]string{
		"status=dead": "status", "stage=embed,split": "stage", "limit=0": "limit", "limit=101": "limit", "limit=x": "limit", "sort=name": "sort",
		"createdAfter=yesterday": "createdAfter", "q=" + strings.Repeat("x", 201): "q", "q=%ff": "q", "limit=1&limit=2": "limit", "q=%00": "q",
	} {
		require.Equal(t, about, b.refused(b.get(ada, "/api/knowledge/tasks?"+query), http.StatusBadRequest, web.CodeInvalidParameter).Parameter, query)
	}
	p := b.refused(b.get(ada, "/api/knowledge/tasks?statsu=DEAD"), http.StatusBadRequest, web.CodeUnknownParameter)
	require.Contains(t, p.Message, `"statsu"`)
	b.refused(b.get(ada, "/api/knowledge/tasks?knowledgeBase=none"), http.StatusNotFound, web.CodeBaseNotFound)
	b.refused(b.get(ada, "/api/knowledge/tasks?documentId=1"), http.StatusNotFound, web.CodeDocumentNotFound)
	b.refused(b.get(ada, "/api/knowledge/tasks?a=%zz"), http.StatusBadRequest, web.CodeInvalidParameter)
}

func TestBases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const path = "/api/knowledge/bases"
	w := b.send(ada, http.MethodPost, path, `{"name":" a/b ü "}`)
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	made := decode[wire.Base](t, w)
	require.Equal(t, "a/b ü", made.Name)
	require.Equal(t, path+"/"+made.KnowledgeBaseID, w.Header().Get("Location"))
	require.Equal(t, http.StatusOK, b.get(ada, path+"/"+url.PathEscape("a/b ü")).Code)
	require.Equal(t, http.StatusOK, b.get(ada, path+"/"+made.KnowledgeBaseID+"/summary").Code)
	b.refused(b.send(ada, http.MethodPost, path, `{"name":"a/b ü"}`), http.StatusConflict, web.CodeBaseExists)
	for body, code := range map[string]string{
		`{"name":""}`: web.CodeInvalidField, `{}`: web.CodeInvalidField, `{"name":"0190a6e0-0000-7000-8000-000000000001"}`: web.CodeInvalidField,
		`{"name":"a\u0000b"}`: web.CodeInvalidText, `{"name":"a\nb"}`: web.CodeInvalidText, `{"name":"` + strings.Repeat("x", 129) + `"}`: web.CodeFieldTooLong,
	} {
		b.refused(b.send(ada, http.MethodPost, path, body), http.StatusUnprocessableEntity, code)
	}
	one := path + "/" + made.KnowledgeBaseID
	require.Equal(t, "auto", made.SearchMode)
	seen := w.Header().Get("ETag")
	w = b.send(ada, http.MethodPatch, one, `{"searchMode":"vector"}`, "If-Match", seen)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Equal(t, "vector", decode[wire.Base](t, w).SearchMode)
	require.Equal(t, http.StatusNotModified, b.get(ada, one, "If-None-Match", w.Header().Get("ETag")).Code)
	b.refused(b.send(ada, http.MethodPatch, one, `{"searchMode":"text"}`, "If-Match", seen), http.StatusPreconditionFailed, web.CodePrecondition)
	for _, body := range []string{`{}`, `{"searchMode":""}`, `{"searchMode":"magic"}`} {
		b.refused(b.send(ada, http.MethodPatch, one, body), http.StatusUnprocessableEntity, web.CodeInvalidField)
	}
	b.refused(b.send(ada, http.MethodPatch, one, `{"name":"other"}`), http.StatusBadRequest, web.CodeBadJSON)
	require.Nil(t, made.Chunking)
	w = b.send(ada, http.MethodPatch, one, `{"chunking":{"strategy":"parents","parentSize":512}}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	cut := decode[wire.Base](t, w)
	require.Equal(t, "vector", cut.SearchMode, "it stays")
	require.JSONEq(t, `{"strategy":"parents","unit":"tokens","size":128,"overlap":0,"parentSize":512}`, jsonOf(t, cut.Chunking))
	require.Nil(t, decode[wire.Base](t, b.send(ada, http.MethodPatch, one, `{"chunking":null}`)).Chunking)
	for body, field := range map[string]string{
		`{"chunking":{"strategy":"semantic"}}`: "chunking.strategy", `{"chunking":{"size":1}}`: "chunking.size", `{"chunking":{"window":2}}`: "chunking.window",
	} {
		w = b.send(ada, http.MethodPatch, one, body)
		b.refused(w, http.StatusUnprocessableEntity, web.CodeInvalidField)
		require.Contains(t, w.Body.String(), field)
		b.refused(b.send(ada, http.MethodPost, path, `{"name":"n",`+body[1:]), http.StatusUnprocessableEntity, web.CodeInvalidField)
	}
	for _, body := range []string{`{"chunking":{"strategies":"rows"}}`, `{"chunking":"rows"}`, `{"chunking":{"size":"12"}}`, `{"chunking":[]}`} {
		b.refused(b.send(ada, http.MethodPatch, one, body), http.StatusBadRequest, web.CodeBadJSON)
	}
	b.refused(b.send(bob, http.MethodPatch, one, `{"searchMode":"text"}`), http.StatusNotFound, web.CodeBaseNotFound)
	b.refused(b.send(ada, http.MethodPost, path, `{"name":"n","searchMode":"magic"}`), http.StatusUnprocessableEntity, web.CodeInvalidField)
	w = b.send(ada, http.MethodPost, path, `{"name":"n","searchMode":"hybrid"}`)
	require.Equal(t, "hybrid", decode[wire.Base](t, w).SearchMode, w.Body.String())
	b.upload(ada, asyncPath, nil, file("a.txt", "x"), part{field: "knowledgeBase", body: made.Name})
	b.refused(b.do(b.request(ada, http.MethodDelete, path+"/"+made.KnowledgeBaseID, nil)), http.StatusConflict, web.CodeBaseNotEmpty)
	b.refused(b.do(b.request(ada, http.MethodDelete, path+"/"+made.KnowledgeBaseID+"?cascade=perhaps", nil)), http.StatusBadRequest, web.CodeInvalidParameter)
	require.Equal(t, http.StatusNoContent, b.do(b.request(ada, http.MethodDelete, path+"/"+made.KnowledgeBaseID+"?cascade=true", nil)).Code)
	b.refused(b.get(ada, path+"/"+made.KnowledgeBaseID), http.StatusNotFound, web.CodeBaseNotFound)
}

func TestSearch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const path = "/api/knowledge/search"
	b.accept(ada, "report.txt", "x")
	b.accept(bob, "report.txt", "x")
	w := b.send(ada, http.MethodPost, path, `{"query":"report","topK":50}`)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	got := decode[wire.SearchAnswer](t, w)
	require.Len(t, got.Hits, 1)
	require.True(t, got.Partial)
	require.Equal(t, []string{"A", "B"}, got.Hits[0].HeadingPath)
	require.Equal(t, []wire.NullInt{3, 3, 4, 3}, []wire.NullInt{got.Hits[0].Page, got.Hits[0].PageFrom, got.Hits[0].PageTo, got.Hits[0].Sentence.Page})
	require.Equal(t, [][2]int{{6, 11}}, got.Hits[0].Sentence.Highlights)
	require.JSONEq(t, `{"hits":[],"partial":true,"mode":"text","suggestion":null,"groups":[],"nextCursor":null,"hasMore":false,"reranked":null}`, b.send(ada, http.MethodPost, path, `{"query":"none"}`).Body.String())
	for body, code := range map[string]string{
		`{"query":"x","mode":"magic"}`: web.CodeInvalidField,
		`{"query":" "}`:                web.CodeInvalidField, `{"query":"a","topK":0}`: web.CodeInvalidField, `{"query":"a","topK":51}`: web.CodeInvalidField,
		`{"query":"` + strings.Repeat("x", 8001) + `"}`: web.CodeFieldTooLong, `{"query":"a\u0001"}`: web.CodeInvalidText,
	} {
		b.refused(b.send(ada, http.MethodPost, path, body), http.StatusUnprocessableEntity, code)
	}
	for _, body := range []string{``, `[]`, `{`, `"x"`, `{"query":1}`, `{"qery":"a"}`, `{"query":"a"} {}`, "{\"query\":\"\xff\"}", `{"query":"a","topK":1e99}`, `{"query":"a","topK":1.5}`} {
		b.refused(b.send(ada, http.MethodPost, path, body), http.StatusBadRequest, web.CodeBadJSON)
	}
	require.Equal(t, "query", b.refused(b.send(ada, http.MethodPost, path, `{"query":1}`), 400, web.CodeBadJSON).Parameter)
	require.Equal(t, "qery", b.refused(b.send(ada, http.MethodPost, path, `{"qery":"a"}`), 400, web.CodeBadJSON).Parameter)
	b.refused(b.send(ada, http.MethodPost, path, `{"query":"a"}`, "Content-Type", "text/plain"), http.StatusUnsupportedMediaType, web.CodeUnsupportedMedia)
	b.refused(b.send(ada, http.MethodPost, path, `{"query":"`+strings.Repeat("x", web.MaxJSONBytes)+`"}`), http.StatusRequestEntityTooLarge, web.CodeTooLarge)
	b.svc.Fail("Search", &ingest.Failure{Code: ingest.CodeEmbed, RetryAfter: 2 * time.Second, Err: errors.New("POST http://10.0.0.1: refused")})
	w = b.send(ada, http.MethodPost, path, `{"query":"a"}`)
	b.refused(w, http.StatusServiceUnavailable, string(ingest.CodeEmbed))
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	require.NotContains(t, w.Body.String(), "10.0.0.1")
}

// A cursor is good for the search that it was returned for; filters and groups reach the search as they were sent.
func TestSearchPagesFiltersAndGroups(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const path = "/api/knowledge/search"
	id := b.accept(ada, "report.txt", "x").Document.DocumentID
	ask := func(body string) wire.SearchAnswer {
		w := b.send(ada, http.MethodPost, path, body)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		return decode[wire.SearchAnswer](t, w)
	}
	const filter = `"documentIds":["0190A6E0-0000-7000-8000-000000000002","0190a6e0-0000-7000-8000-000000000001","0190a6e0-0000-7000-8000-000000000002"],` +
		`"mediaTypes":["Text/Plain"],"createdAfter":"2026-01-31T12:00:00+02:00","updatedBefore":"2026-02-01T00:00:00Z"`
	first := ask(`{"query":"report","mode":"text",` + filter + `}`)
	require.True(t, first.HasMore)
	require.Empty(t, first.Groups)
	got := b.svc.LastSearch()
	require.Equal(t, ingest.SearchFilter{
		Documents:  []string{"0190a6e0-0000-7000-8000-000000000001", "0190a6e0-0000-7000-8000-000000000002"},
		MediaTypes: []string{"text/plain"},
		Times: ingest.Times{
			CreatedAfter: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC), UpdatedBefore: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
		},
	}, got.Filter)
	require.Nil(t, got.After)
	cursor := `"cursor":"` + string(first.NextCursor) + `"`
	second := ask(`{"query":" report ","mode":"text","topK":7,` + filter + `,` + cursor + `}`)
	require.False(t, second.HasMore)
	require.Equal(t, &ingest.SearchPlace{Rank: 1, Document: id, Segment: 2}, b.svc.LastSearch().After)
	for _, body := range []string{
		`{"query":"reports","mode":"text",` + filter + `,` + cursor + `}`, `{"query":"report",` + filter + `,` + cursor + `}`,
		`{"query":"report","mode":"text",` + cursor + `}`, `{"query":"report","mode":"text","groupBy":"document",` + filter + `,` + cursor + `}`,
		`{"query":"report","mode":"text","knowledgeBase":"other",` + filter + `,` + cursor + `}`, `{"query":"report","cursor":"x"}`,
	} {
		p := b.refused(b.send(ada, http.MethodPost, path, body), http.StatusBadRequest, web.CodeBadCursor)
		require.Contains(t, p.Message, "not one of this search", body)
		require.Equal(t, "cursor", p.Parameter)
	}
	last := ask(`{"query":"report","topK":50}`)
	p := b.refused(b.send(ada, http.MethodPost, path, `{"query":"report","cursor":"`+string(last.NextCursor)+`"}`), http.StatusUnprocessableEntity, web.CodeInvalidField)
	require.Contains(t, p.Message, "behind 1000 hits")

	grouped := ask(`{"query":"report","groupBy":"document","hitsPerGroup":2}`)
	require.Equal(t, 2, b.svc.LastSearch().PerDocument)
	require.Empty(t, grouped.Hits)
	require.Equal(t, id, grouped.Groups[0].DocumentID)
	require.Equal(t, grouped.Groups[0].Score, grouped.Groups[0].Hits[0].Score)
	ask(`{"query":"report","groupBy":"document"}`)
	require.Equal(t, 3, b.svc.LastSearch().PerDocument)

	many := strings.TrimSuffix(strings.Repeat(`"0190a6e0-0000-7000-8000-000000000001",`, 101), ",")
	for field, body := range map[string]string{
		"groupBy": `"groupBy":"title"`, "hitsPerGroup": `"hitsPerGroup":2`, "documentIds": `"documentIds":["x"]`, "mediaTypes": `"mediaTypes":["é/x"]`,
		"createdAfter": `"createdAfter":"yesterday"`, "updatedBefore": `"updatedBefore":"0001-01-01T00:00:00Z"`,
	} {
		require.Equal(t, field, b.refused(b.send(ada, http.MethodPost, path, `{"query":"x",`+body+`}`), http.StatusUnprocessableEntity, web.CodeInvalidField).Parameter)
	}
	p = b.refused(b.send(ada, http.MethodPost, path, `{"query":"x","documentIds":[`+many+`]}`), http.StatusUnprocessableEntity, web.CodeInvalidField)
	require.Contains(t, p.Message, "allowed are 100")
	b.refused(b.send(ada, http.MethodPost, path, `{"query":"x","groupBy":"document","hitsPerGroup":11}`), http.StatusUnprocessableEntity, web.CodeInvalidField)

	b.svc.Fail("Search", fmt.Errorf("%w: a search took longer", context.DeadlineExceeded))
	p = b.refused(b.send(ada, http.MethodPost, path, `{"query":"x"}`), http.StatusGatewayTimeout, web.CodeTimeout)
	require.Contains(t, p.Message, "fewer words")
}

// TestAFaultOfAServiceIsNotTheCallersFault: whatever a connection to Chroma or the embedding service ends with,
// the searcher is told which service it is and when to come back.
func TestAFaultOfAServiceIsNotTheCallersFault(t *testing.T) {
	t.Parallel()
	for _, code := range []ingest.Code{ingest.CodeVector, ingest.CodeEmbed, ingest.CodeThrottled} {
		for _, cause := range []error{
			io.ErrUnexpectedEOF, io.EOF, os.ErrDeadlineExceeded, context.DeadlineExceeded, context.Canceled, syscall.ECONNREFUSED,
			fmt.Errorf("read: %w", syscall.ECONNRESET),
		} {
			b := newBench(t)
			b.svc.Fail("Search", fmt.Errorf("query vectors: %w", ingest.Transient(code, "POST http://10.0.0.1: %w", cause)))
			w := b.send(ada, http.MethodPost, "/api/knowledge/search", `{"query":"a"}`)
			p := b.refused(w, http.StatusServiceUnavailable, string(code))
			require.NotEmpty(t, w.Header().Get("Retry-After"), "%s: %v", code, cause)
			require.NotContains(t, p.Message, "10.0.0.1")
		}
	}
}

func TestKeysOfOperators(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const path = "/internal/keys"
	w := b.send(operator, http.MethodPost, path, `{"userId":"eve","name":"laptop","role":"operator","ttlDays":2}`)
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	made := decode[wire.CreatedKey](t, w)
	require.Equal(t, "mw_live_secret", made.Secret)
	require.False(t, made.ExpiresAt.Missing())
	require.Equal(t, http.StatusCreated, b.send(operator, http.MethodPost, path, `{"userId":"eve"}`).Code)
	first := decode[wire.List[wire.Key]](t, b.get(operator, path+"?limit=1"))
	require.Equal(t, taskstate.RoleUser, first.Items[0].Role)
	second := decode[wire.List[wire.Key]](t, b.get(operator, path+"?limit=1&cursor="+string(first.NextCursor)))
	require.Equal(t, made.KeyID, second.Items[0].KeyID)
	require.Equal(t, http.StatusNoContent, b.do(b.request(operator, http.MethodDelete, path+"/"+made.KeyID, nil)).Code)
	b.refused(b.do(b.request(operator, http.MethodDelete, path+"/x", nil)), http.StatusNotFound, web.CodeAPIKeyNotFound)
	for body, code := range map[string]string{
		`{}`: web.CodeInvalidField, `{"userId":"e","role":"root"}`: web.CodeInvalidField, `{"userId":"e","ttlDays":-1}`: web.CodeInvalidField,
		`{"userId":"` + strings.Repeat("e", 191) + `"}`: web.CodeFieldTooLong, `{"userId":"eve "}`: web.CodeInvalidField, `{"userId":"e","name":"\u0000"}`: web.CodeInvalidText,
	} {
		b.refused(b.send(operator, http.MethodPost, path, body), http.StatusUnprocessableEntity, code)
	}
	require.NotContains(t, b.log.String(), "mw_live_secret")
	require.Contains(t, b.log.String(), "API key created")
	none := newBench(t, func(_ *Config, d *Deps) { d.Keys = nil })
	none.refused(none.get(operator, path), http.StatusNotFound, web.CodeNotFound)
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
