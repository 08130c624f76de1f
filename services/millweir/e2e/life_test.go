package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/extract/pdfgen"
)

// prose is text of many segments in which word stands once.
func prose(word string, paragraphs int) []byte {
	var b strings.Builder
	for i := range paragraphs {
		fmt.Fprintf(&b, "Paragraph %d tells how worker %d takes task %d and how its lease of %d seconds ends. ", i, i*7, i*31, i%60)
		b.WriteString(strings.Repeat("The queue only says where to look, the row says what is true. ", 6) + "\n\n")
	}
	return []byte(b.String() + "The word is " + word + ".\n")
}

// topic is a word that stands on one page alone and looks like no other page's.
func topic(page int) string { return fmt.Sprintf("%08x", uint32(page)*2654435761) }

// topics is a PDF whose every page speaks of its topic; pages count from 1.
func topics(pages int) []byte {
	all := make([][]string, pages)
	for i := range all {
		for line := range 40 {
			all[i] = append(all[i], fmt.Sprintf("Line %d has to say that %s is not what %s was before the lease of %d ended.", line, topic(i+1), topic(i+1), i))
		}
	}
	return pdfgen.Pages(all)
}

func TestProgressIsSeenLive(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	v := c.accepted("long.pdf", topics(300), "title", "A long one")
	all := c.events(v.TaskID, func(task) bool { return false })
	stages, last := map[string]bool{}, all[0].task
	for _, e := range all {
		require.NotEmpty(t, e.id)
		require.GreaterOrEqual(t, e.task.Progress, last.Progress, "progress does not fall in one run")
		if e.task.Status == "RUNNING" {
			stages[e.task.Stage] = true
			require.Less(t, e.task.Progress, 100, "not before it is visible")
		}
		last = e.task
	}
	require.Equal(t, "SUCCEEDED", last.Status, "%+v", last)
	require.Equal(t, 100, last.Progress)
	require.GreaterOrEqual(t, len(all), 3)
	require.GreaterOrEqual(t, len(stages), 2, "%v", stages)
	require.Equal(t, http.StatusNoContent, c.get(tasks+"/"+v.TaskID+"/events", "Last-Event-ID", all[len(all)-1].id).status)

	var log page[struct {
		FromStatus string `json:"fromStatus"`
		ToStatus   string `json:"toStatus"`
	}]
	c.get(tasks+"/"+v.TaskID+"/transitions").into(t, http.StatusOK, &log)
	require.Equal(t, "QUEUED", log.Items[0].ToStatus)
	require.Equal(t, "SUCCEEDED", log.Items[len(log.Items)-1].ToStatus)
	hits := c.search(topic(161), "", 5)
	require.Equal(t, "A long one", hits[0].Title)
	require.Contains(t, []int{160, 161}, hits[0].Page, "a segment has the page that it begins on")
}

func TestRetryAndCancelRules(t *testing.T) {
	t.Parallel()
	// A vector store that nobody answers at: tasks stay in RETRYING.
	_, c := startDev(t, "VECTOR_STORE=chroma", "CHROMA_BASE_URL=http://tester:hush@127.0.0.1:65530",
		"INGEST_REDIS_RETRY_BASE_BACKOFF_MS=600000", "INGEST_REDIS_MAX_ATTEMPTS=2")
	v := c.reaches(c.accepted("a.txt", prose("ambergris", 3)).TaskID, "RETRYING")
	require.Equal(t, 1, v.AttemptCount)
	require.Equal(t, "VECTOR_STORE_UNAVAILABLE", v.ErrorCode)
	require.Contains(t, v.LastError, "connection refused")
	require.Contains(t, v.LastError, "127.0.0.1:65530")
	require.NotContains(t, v.LastError+v.ErrorMessage, "hush", "no secret")
	require.NotContains(t, v.LastError+v.ErrorMessage, "goroutine", "no stack")
	require.LessOrEqual(t, len(v.LastError), 2000)
	require.NotEmpty(t, v.NextRetryAt)
	var e struct {
		Text   string `json:"text"`
		NextAt string `json:"nextAt"`
	}
	c.get(tasks+"/"+v.TaskID+"/explain").into(t, http.StatusOK, &e)
	require.Contains(t, e.Text, "connection refused")
	require.Equal(t, v.NextRetryAt, e.NextAt)

	c.do(http.MethodPost, tasks+"/"+v.TaskID+"/retry", nil).into(t, http.StatusOK, nil)
	v = c.ended(v.TaskID)
	require.Equal(t, "DEAD", v.Status)
	require.Equal(t, 2, v.AttemptCount)
	require.Empty(t, v.NextRetryAt)
	p := c.do(http.MethodPost, tasks+"/"+v.TaskID+"/cancel", nil).refused(t, http.StatusConflict, "TASK_NOT_CANCELLABLE")
	require.Equal(t, "DEAD", p.TaskStatus)

	// The same bytes after a death are a new task, and a replay counts from the beginning.
	again := c.reaches(c.accepted("a.txt", prose("ambergris", 3)).TaskID, "RETRYING")
	require.NotEqual(t, v.TaskID, again.TaskID)
	c.do(http.MethodPost, tasks+"/"+again.TaskID+"/cancel", nil).into(t, http.StatusOK, &again)
	require.Equal(t, "CANCELLED", again.Status)
	c.do(http.MethodPost, tasks+"/"+again.TaskID+"/retry", nil).into(t, http.StatusOK, nil)
	again = c.reaches(again.TaskID, "RETRYING")
	require.Equal(t, 1, again.AttemptCount)
	c.do(http.MethodDelete, documents+"/"+again.DocumentID, nil).into(t, http.StatusNoContent, nil)
	require.Equal(t, "CANCELLED", c.ended(again.TaskID).Status)
}

func TestOneUploadIsOneTask(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	key := []string{"Idempotency-Key", "double click"}
	var first, second task
	c.sendWith(key, "a.txt", prose("alabaster", 3)).into(t, http.StatusAccepted, &first)
	a := c.sendWith(key, "a.txt", prose("alabaster", 3))
	a.into(t, http.StatusAccepted, &second)
	require.Equal(t, "true", a.header.Get("Idempotency-Replayed"))
	require.Equal(t, first.TaskID, second.TaskID)
	c.sendWith(key, "a.txt", prose("basalt", 3)).refused(t, http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")
	require.Equal(t, "SUCCEEDED", c.ended(first.TaskID).Status)
	p := c.do(http.MethodPost, tasks+"/"+first.TaskID+"/retry", nil).refused(t, http.StatusConflict, "TASK_NOT_REPLAYABLE")
	require.Equal(t, "SUCCEEDED", p.TaskStatus)

	var same task
	c.send("b.txt", prose("alabaster", 3)).into(t, http.StatusOK, &same)
	require.True(t, same.Duplicate)
	require.Equal(t, first.TaskID, same.TaskID)
	require.Equal(t, first.DocumentID, same.DocumentID)
	forced := c.ingested("b.txt", prose("alabaster", 3), "force", "true")
	require.NotEqual(t, first.TaskID, forced.TaskID)
	require.Equal(t, first.DocumentID, forced.DocumentID, "the same bytes are one document")
	for i, h := range c.search("The word is alabaster", "", 50) {
		require.Equal(t, 2, h.Version, "hit %d: of the forced upload alone", i)
	}
	var stats struct {
		Counts map[string]int `json:"counts"`
	}
	c.get("/internal/tasks/stats").into(t, http.StatusOK, &stats)
	require.Equal(t, 2, stats.Counts["SUCCEEDED"])

	body, kind := form(t, "sync.md", []byte("# Sync\n\nAn obelisk stands here.\n"))
	var done task
	c.do(http.MethodPost, documents+"/upload?waitSeconds=60", body, "Content-Type", kind).into(t, http.StatusOK, &done)
	require.Equal(t, "SUCCEEDED", done.Status)
}

func TestDocumentIsRenewedAndDeleted(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	old := c.ingested("a.txt", prose("cinnabar", 3))
	at := documents + "/" + old.DocumentID
	tag := c.get(at).header.Get("ETag")
	require.NotEmpty(t, tag)
	require.Equal(t, http.StatusNotModified, c.get(at, "If-None-Match", tag).status)

	body, kind := form(t, "a.pdf", pdfgen.Text(60, 9))
	var renewed task
	c.do(http.MethodPut, at, body, "Content-Type", kind, "If-Match", tag).into(t, http.StatusAccepted, &renewed)
	require.Equal(t, old.DocumentID, renewed.DocumentID)
	// At any moment one version is found, the old one until the new one is.
	for ended := false; !ended; {
		ended = c.task(renewed.TaskID).Status == "SUCCEEDED"
		hits := c.search("the word is cinnabar PAGEMARK7X9", "", 50)
		require.NotEmpty(t, hits)
		for _, h := range hits {
			require.Equal(t, hits[0].Version, h.Version)
		}
		if ended {
			require.Greater(t, hits[0].Version, 1)
			require.NotContains(t, hits[0].Text, "cinnabar")
		}
	}
	body, kind = form(t, "a.txt", prose("dolomite", 3))
	c.do(http.MethodPut, at, body, "Content-Type", kind, "If-Match", tag).refused(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	c.do(http.MethodDelete, at, nil, "If-Match", tag).refused(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	c.do(http.MethodDelete, at, nil).into(t, http.StatusNoContent, nil)
	require.Empty(t, c.search("PAGEMARK7X9", "", 50), "gone with the answer")
	c.get(at).refused(t, http.StatusNotFound, "DOCUMENT_NOT_FOUND")
	c.get(at+"/segments").refused(t, http.StatusNotFound, "DOCUMENT_NOT_FOUND")
}

func TestListsArePaged(t *testing.T) {
	t.Parallel()
	_, c := startDev(t)
	id := c.newBase("Größe/1")
	for i := range 5 {
		c.ingested(fmt.Sprintf("%d.txt", i), prose(fmt.Sprint("word", i), 2), "knowledgeBase", "Größe/1")
	}
	for _, list := range []string{tasks, documents} {
		seen := map[string]bool{}
		for cursor := ""; ; {
			var p page[struct {
				TaskID     string `json:"taskId"`
				DocumentID string `json:"documentId"`
			}]
			c.get(list+"?limit=2&knowledgeBase="+id+"&cursor="+cursor).into(t, http.StatusOK, &p)
			require.LessOrEqual(t, len(p.Items), 2)
			for _, x := range p.Items {
				require.False(t, seen[x.DocumentID], "no row twice")
				seen[x.DocumentID] = true
			}
			if cursor = p.NextCursor; !p.HasMore {
				break
			}
		}
		require.Len(t, seen, 5, list)
	}
	var s struct {
		Documents map[string]int `json:"documents"`
		Tasks     map[string]int `json:"tasks"`
		Percent   int            `json:"percent"`
	}
	c.get(bases+"/Gr%C3%B6%C3%9Fe%2F1/summary").into(t, http.StatusOK, &s)
	require.Equal(t, 5, s.Documents["READY"])
	require.Equal(t, 5, s.Tasks["SUCCEEDED"])
	require.Equal(t, 100, s.Percent)
	c.do(http.MethodDelete, bases+"/"+id, nil).refused(t, http.StatusConflict, "KNOWLEDGE_BASE_NOT_EMPTY")
	c.do(http.MethodDelete, bases+"/"+id+"?cascade=true", nil).into(t, http.StatusNoContent, nil)
	c.get(bases+"/"+id).refused(t, http.StatusNotFound, "KNOWLEDGE_BASE_NOT_FOUND")
}

func TestUsersAreIsolated(t *testing.T) {
	t.Parallel()
	p, c := startDev(t, "AUTH_MODE=keys")
	data := p.cmd.Args[2]
	key := func(user string, more ...string) string {
		return newKey(t, "DATABASE_URL=sqlite:"+data+"/millweir.db", append([]string{"--user", user}, more...)...)
	}
	anna, bert := c.as(key("anna")), c.as(key("bert"))
	c.get(tasks).refused(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	c.as("mw_live_wrong").get(tasks).refused(t, http.StatusUnauthorized, "UNAUTHENTICATED")

	v := anna.ingested("a.txt", prose("feldspar", 3))
	other := bert.ingested("a.txt", prose("gypsum", 3))
	require.NotEqual(t, v.DocumentID, other.DocumentID)
	for _, foreign := range []struct{ method, path, code string }{
		{http.MethodGet, tasks + "/" + v.TaskID, "TASK_NOT_FOUND"},
		{http.MethodGet, tasks + "/" + v.TaskID + "/events", "TASK_NOT_FOUND"},
		{http.MethodGet, tasks + "/" + v.TaskID + "/transitions", "TASK_NOT_FOUND"},
		{http.MethodGet, tasks + "/" + v.TaskID + "/explain", "TASK_NOT_FOUND"},
		{http.MethodPost, tasks + "/" + v.TaskID + "/retry", "TASK_NOT_FOUND"},
		{http.MethodPost, tasks + "/" + v.TaskID + "/cancel", "TASK_NOT_FOUND"},
		{http.MethodGet, documents + "/" + v.DocumentID, "DOCUMENT_NOT_FOUND"},
		{http.MethodGet, documents + "/" + v.DocumentID + "/segments", "DOCUMENT_NOT_FOUND"},
		{http.MethodDelete, documents + "/" + v.DocumentID, "DOCUMENT_NOT_FOUND"},
		{http.MethodGet, bases + "/" + v.KnowledgeBaseID, "KNOWLEDGE_BASE_NOT_FOUND"},
	} {
		got := bert.do(foreign.method, foreign.path, nil, "X-Request-Id", "same")
		got.refused(t, http.StatusNotFound, foreign.code)
		unknown := strings.NewReplacer(v.TaskID, unknownID, v.DocumentID, unknownID, v.KnowledgeBaseID, unknownID).Replace(foreign.path)
		require.Equal(t, string(bert.do(foreign.method, unknown, nil, "X-Request-Id", "same").body), string(got.body), "foreign and unknown look the same")
	}
	var list page[task]
	bert.get(tasks).into(t, http.StatusOK, &list)
	require.Len(t, list.Items, 1)
	for _, h := range bert.search("the word is feldspar", "", 50) {
		require.Equal(t, other.DocumentID, h.DocumentID)
	}
	body, err := json.Marshal(map[string]any{"query": "feldspar", "knowledgeBase": v.KnowledgeBaseID})
	require.NoError(t, err)
	bert.json(http.MethodPost, "/api/knowledge/search", string(body)).refused(t, http.StatusNotFound, "KNOWLEDGE_BASE_NOT_FOUND")
	bert.get("/internal/tasks/stats").refused(t, http.StatusForbidden, "FORBIDDEN")
	bert.get("/metrics").refused(t, http.StatusForbidden, "FORBIDDEN")

	root := c.as(key("root", "--role", "operator"))
	root.get("/internal/tasks/"+v.TaskID).into(t, http.StatusOK, nil)
	root.get("/internal/tasks/suspended").into(t, http.StatusOK, &list)
	require.Contains(t, anna.search("the word is feldspar", "", 1)[0].Text, "feldspar")
}
