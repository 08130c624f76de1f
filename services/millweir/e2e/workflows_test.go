package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/redisclient"
	"github.com/millweir/millweir/pkg/streammq/stream"
)

const applyPath = "/api/workflows/apply"

// applied is what the API says of a workflow.
type applied struct {
	Data struct {
		TaskID, Status string
		Result         json.RawMessage
		Retry          struct {
			Count, Max    int
			NextAttemptAt time.Time
		}
		Error *struct{ Code, Message string }
	}
}

// summer is somebody's service: it adds numbers, and knows what it did for a key.
type summer struct {
	mu      sync.Mutex
	asked   map[string]int // by Idempotency-Key
	refuses int            // so many requests, with 503
	hold    chan string    // takes each key while the request stands still; nil: none does
}

func (s *summer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.asked[key]++
	s.refuses--
	refuses, hold := s.refuses >= 0, s.hold
	s.mu.Unlock()
	if hold != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		hold <- key
		<-r.Context().Done()
		return
	}
	if refuses {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var e struct {
		Payload struct{ Payload struct{ A, B int } }
	}
	if json.NewDecoder(r.Body).Decode(&e) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintf(w, `{"sum":%d}`, e.Payload.Payload.A+e.Payload.Payload.B)
}

// A service of the user's own does a workflow, over each transport; its process is killed while it waits for the service, and the next
// one asks again with the same key.
func TestAWorkflowSurvivesItsProcess(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"redis", "kafka"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := &summer{asked: map[string]int{}, refuses: 1}
			service := httptest.NewServer(s)
			t.Cleanup(service.Close)
			file := filepath.Join(t.TempDir(), "workflows.yaml")
			require.NoError(t, os.WriteFile(file, []byte("workflows:\n- {id: sum, kind: http, url: '"+service.URL+"', schema: {required: [a, b]}}\n"), 0o600))
			args := []string{"--data", t.TempDir(), "--addr", "127.0.0.1:0", "--queue", queue}
			env := []string{"WORKFLOWS_FILE=" + file, "INGEST_LEASE_MS=1000", "INGEST_SWEEP_INTERVAL_MS=200"}
			p := start(t, "dev", env, args...)
			c := newClient(t, p.printed(`ready (http://\S+)`))

			const ask = `{"workflowId":"sum","chatId":"1","payload":{"a":2,"b":%d},"metadata":{"timestamp":%d},"waitTimeoutSeconds":60}`
			var got, twice applied
			c.json(http.MethodPost, applyPath, fmt.Sprintf(ask, 3, 1)).into(t, http.StatusOK, &got)
			require.Equal(t, "SUCCEEDED", got.Data.Status, "%+v", got)
			require.JSONEq(t, `{"sum":5}`, string(got.Data.Result))
			require.Equal(t, 0, got.Data.Retry.Count, "a service that asks to wait costs no attempt")
			c.json(http.MethodPost, applyPath, fmt.Sprintf(ask, 3, 1)).into(t, http.StatusOK, &twice)
			require.Equal(t, got, twice)
			c.json(http.MethodPost, applyPath, fmt.Sprintf(ask, 4, 1)).refused(t, http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")
			c.json(http.MethodPost, applyPath, `{"workflowId":"sum","chatId":"1","payload":{"a":2}}`).refused(t, http.StatusUnprocessableEntity, "INVALID_FIELD")

			held := make(chan string)
			s.mu.Lock()
			s.hold = held
			s.mu.Unlock()
			var waits applied
			c.json(http.MethodPost, applyPath, `{"workflowId":"sum","chatId":"1","payload":{"a":1,"b":1},"waitForResult":false}`).into(t, http.StatusAccepted, &waits)
			require.Equal(t, waits.Data.TaskID, <-held)
			p.kill()
			s.mu.Lock()
			s.hold = nil
			s.mu.Unlock()
			p = start(t, "dev", env, args...)
			c = newClient(t, p.printed(`ready (http://\S+)`))
			c.reaches(waits.Data.TaskID, "SUCCEEDED")
			c.get("/api/workflows/tasks/"+waits.Data.TaskID).into(t, http.StatusOK, &got)
			require.JSONEq(t, `{"sum":2}`, string(got.Data.Result))
			s.mu.Lock()
			require.Equal(t, map[string]int{twice.Data.TaskID: 2, waits.Data.TaskID: 2}, s.asked)
			s.mu.Unlock()
		})
	}
}

// A file is looked at, by the workers, and nothing of it stays; then its base cuts it as it was shown.
func TestAPreviewIsWhatAnUploadBecomes(t *testing.T) {
	t.Parallel()
	dsn, folder := "MYSQL_DSN="+labserver.MySQLDatabase(t), filepath.Join(t.TempDir(), "uploads")
	migrate(t, dsn)
	c := fleet(t, []string{dsn, "REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "UPLOAD_DIR=" + folder, "EMBEDDING_PRICE=1000000"}, 1)
	type segment struct {
		Text   string
		Tokens int
	}
	var got struct {
		Status  string
		Preview struct {
			Segments         int
			Tokens, NewTexts int
			Cost             float64
			Shown            []segment
		}
		Error *struct{ Code string }
	}
	const chunking = `{"strategy":"headings","size":64}`
	cut := map[string]int{}
	var list page[struct{ DocumentID string }]
	for _, s := range samples(t) {
		if s.File != "md_headings.md" && s.File != "docx_tables.docx" && s.File != "pdf_two_col.pdf" {
			continue
		}
		look := func(fields ...string) {
			body, kind := form(t, s.File, s.content(t), append(fields, "limit", "100")...)
			c.do(http.MethodPost, "/api/knowledge/preview?waitSeconds=60", body, "Content-Type", kind).into(t, http.StatusOK, &got)
			require.Equal(t, "SUCCEEDED", got.Status, "%+v", got.Error)
		}
		look("chunking", chunking)
		require.Equal(t, got.Preview.Segments, got.Preview.NewTexts)
		require.InDelta(t, got.Preview.Tokens, got.Preview.Cost, 0.1)
		c.json(http.MethodPost, bases, `{"name":"`+s.File+`","chunking":`+chunking+`}`).into(t, http.StatusCreated, &struct{}{})
		shown := got.Preview.Shown
		var page page[segment]
		c.get(documents+"/"+c.ingested(s.File, s.content(t), "knowledgeBase", s.File).DocumentID+"/segments?limit=100").into(t, http.StatusOK, &page)
		require.Equal(t, shown, page.Items, s.File)
		cut[s.File] = len(shown)
		look("knowledgeBase", s.File)
		require.Equal(t, shown, got.Preview.Shown)
		require.Zero(t, got.Preview.NewTexts, "it is paid for")
	}
	var page page[segment]
	c.json(http.MethodPatch, bases+"/md_headings.md", `{"chunking":{"strategy":"sentences"}}`).into(t, http.StatusOK, &struct{}{})
	var run applied
	c.json(http.MethodPost, bases+"/md_headings.md/reindex?waitSeconds=60", `{}`).into(t, http.StatusOK, &run)
	require.Equal(t, "SUCCEEDED", run.Data.Status, "%+v", run.Data.Error)
	require.JSONEq(t, `{"documents":1,"outdated":1,"done":1,"failed":0,"skipped":0}`, string(run.Data.Result))
	c.get(documents+"?knowledgeBase=md_headings.md").into(t, http.StatusOK, &list)
	c.get(documents+"/"+list.Items[0].DocumentID+"/segments?limit=100").into(t, http.StatusOK, &page)
	require.Greater(t, len(page.Items), cut["md_headings.md"])

	stored, err := os.ReadDir(folder)
	require.NoError(t, err)
	stored = slices.DeleteFunc(stored, func(e os.DirEntry) bool { return e.Name()[0] == '.' })
	require.Len(t, stored, 3, "those of the documents")
	body, kind := form(t, "scan.pdf", (sample{File: "pdf_scanned.pdf"}).content(t))
	c.do(http.MethodPost, "/api/knowledge/preview?waitSeconds=60", body, "Content-Type", kind).into(t, http.StatusOK, &got)
	require.Equal(t, "DEAD", got.Status)
	require.Equal(t, "NEEDS_OCR", got.Error.Code)
}

// Workflow tasks lie in a stream of their own, which a process may leave to others. At its bound the sweep adds the rest, each task
// runs once, and documents take no notice of all that.
func TestWorkflowsHaveAStreamOfTheirOwn(t *testing.T) {
	t.Parallel()
	dsn, url := "MYSQL_DSN="+labserver.MySQLDatabase(t), labserver.RedisURL(t)
	migrate(t, dsn)
	s := &summer{asked: map[string]int{}}
	service := httptest.NewServer(s)
	t.Cleanup(service.Close)
	file := filepath.Join(t.TempDir(), "workflows.yaml")
	require.NoError(t, os.WriteFile(file, []byte("workflows:\n- {id: sum, kind: http, url: '"+service.URL+"'}\n"), 0o600))
	env := []string{
		dsn, "REDIS_URL=" + url, "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0",
		"UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads"), "WORKFLOWS_FILE=" + file, "INGEST_SWEEP_INTERVAL_MS=100",
		"INGEST_PROMISE_SLACK_MS=200", "TASK_STREAM_MAXLEN=2", "INGEST_WORKER_RECOVERY=false",
	}
	api := start(t, "ingest-api", env)
	c := newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
	start(t, "stream-worker", append(slices.Clone(env), "STREAM_WORKER_ROADS=documents"))
	start(t, "reclaimer", env)

	var ids []string
	for i := range 5 {
		var waits struct {
			Data struct{ TaskID, Delivery string }
		}
		ask := fmt.Sprintf(`{"workflowId":"sum","chatId":"%d","payload":{"a":1,"b":%d},"waitForResult":false}`, i, i)
		c.json(http.MethodPost, applyPath, ask).into(t, http.StatusAccepted, &waits)
		require.Equal(t, i >= 2, waits.Data.Delivery != "", "%d: %s", i, waits.Data.Delivery)
		ids = append(ids, waits.Data.TaskID)
	}
	require.Equal(t, "SUCCEEDED", c.ended(c.accepted("a.txt", prose("gneiss", 3)).TaskID).Status)
	client, err := redisclient.New(url)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	groups, err := stream.Groups(t.Context(), client, "queue:tasks")
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, []any{"persist-workers", int64(2), int64(0)}, []any{groups[0].Name, groups[0].Lag, groups[0].Pending})
	for _, id := range ids {
		var v applied
		c.get("/api/workflows/tasks/"+id).into(t, http.StatusOK, &v)
		require.Equal(t, "QUEUED", v.Data.Status)
	}

	start(t, "stream-worker", append(slices.Clone(env), "STREAM_WORKER_ROADS=workflows"))
	for i, id := range ids {
		c.reaches(id, "SUCCEEDED")
		var v applied
		c.get("/api/workflows/tasks/"+id).into(t, http.StatusOK, &v)
		require.JSONEq(t, fmt.Sprintf(`{"sum":%d}`, i+1), string(v.Data.Result))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(t, s.asked, len(ids))
	for id, n := range s.asked {
		require.Equal(t, 1, n, id)
	}
}

// Who looks at Redis sees which tasks wait for their time and which for a person, as the rows say; what Redis forgets is written again.
func TestViewsShowWhatWaits(t *testing.T) {
	t.Parallel()
	dsn, url := "DATABASE_URL="+labserver.PostgresDatabase(t), labserver.RedisURL(t)
	migrate(t, dsn)
	file := filepath.Join(t.TempDir(), "workflows.yaml")
	require.NoError(t, os.WriteFile(file, []byte("workflows:\n- {id: away, kind: http, url: 'http://127.0.0.1:65530'}\n"), 0o600))
	c := fleet(t, []string{
		dsn, "REDIS_URL=" + url, "CHROMA_BASE_URL=" + labserver.Chroma(t).URL(""), "WORKFLOWS_FILE=" + file, "INGEST_SWEEP_INTERVAL_MS=100",
		"INGEST_REDIS_RETRY_BASE_BACKOFF_MS=3600000", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=3600000",
	}, 1)
	ask := func(workflow, status string) (id string) {
		var got applied
		body := `{"workflowId":"` + workflow + `","chatId":"1","payload":{},"waitForResult":false}`
		c.json(http.MethodPost, applyPath, body).into(t, http.StatusAccepted, &got)
		c.reaches(got.Data.TaskID, status)
		return got.Data.TaskID
	}
	retrying, unknown := ask("away", "RETRYING"), ask("nobody-knows-this", "SUSPENDED")
	client, err := redisclient.New(url)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	shows := func(key string, ids ...string) (scores map[string]float64) {
		require.EventuallyWithT(t, func(ct *assert.CollectT) {
			scores = map[string]float64{}
			zs, err := client.Do(t.Context(), client.B().Zrange().Key(key).Min("0").Max("-1").Withscores().Build()).AsZScores()
			require.NoError(ct, err)
			members := []string{}
			for _, z := range zs {
				scores[z.Member] = z.Score
				members = append(members, z.Member)
			}
			require.ElementsMatch(ct, ids, members)
		}, waitLimit, 20*time.Millisecond, key)
		return scores
	}
	due := shows("queue:retry", retrying)[retrying]
	shows("queue:suspended", unknown)
	var v applied
	c.get("/api/workflows/tasks/"+retrying).into(t, http.StatusOK, &v)
	require.InDelta(t, v.Data.Retry.NextAttemptAt.UnixMilli(), due, 1)
	require.NoError(t, client.Do(t.Context(), client.B().Flushdb().Build()).Error())
	shows("queue:retry", retrying)
	c.json(http.MethodDelete, "/internal/tasks/"+unknown, "").into(t, http.StatusOK, nil)
	shows("queue:suspended")
}

// What is at an address of an allowed network is taken in and found; the same address is forbidden without it.
func TestAnAddressIsFetchedAndFound(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><title>On ambergris</title><p>Ambergris floats.</p></html>")
	}))
	defer site.Close()
	ask := `{"workflowId":"ingest.url","chatId":"1","userText":"` + site.URL + `/ambergris","waitTimeoutSeconds":60}`
	_, c := startDev(t, "INGEST_URL_NETWORKS=127.0.0.0/8")
	var got applied
	c.json(http.MethodPost, applyPath, ask).into(t, http.StatusOK, &got)
	require.Equal(t, "SUCCEEDED", got.Data.Status, "%+v", got)
	var taken struct{ TaskID, DocumentID string }
	require.NoError(t, json.Unmarshal(got.Data.Result, &taken))
	c.reaches(taken.TaskID, "SUCCEEDED")
	require.Equal(t, taken.DocumentID, c.search("ambergris", "", 1)[0].DocumentID)

	_, c = startDev(t)
	c.json(http.MethodPost, applyPath, ask).into(t, http.StatusOK, &got)
	require.Equal(t, []any{"DEAD", "URL_FORBIDDEN"}, []any{got.Data.Status, got.Data.Error.Code})
}
