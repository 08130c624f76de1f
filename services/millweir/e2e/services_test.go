package e2e

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/labserver"
)

// fleet starts the separate services with one environment and returns a client of the gateway.
func fleet(t *testing.T, env []string, workers int) *client {
	t.Helper()
	env = append([]string{"AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + filepath.Join(t.TempDir(), "uploads")}, env...)
	api := start(t, "ingest-api", env)
	for range workers {
		start(t, "stream-worker", env)
	}
	start(t, "reclaimer", env)
	return newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
}

// migrate prepares a database with the command line.
func migrate(t *testing.T, env ...string) {
	t.Helper()
	code, out := run(t, "millweir", env, "migrate", "up")
	require.Equal(t, 0, code, out)
}

// requireWorks takes some samples and a hostile file through a fleet.
func requireWorks(t *testing.T, c *client) {
	t.Helper()
	for _, s := range samples(t) {
		switch s.File {
		case "txt_gb18030.txt", "md_headings.md", "html_gbk_meta.html", "docx_tables.docx", "pdf_libreoffice_cjk.pdf", "pdf_enc_user.pdf":
			if v := requireOutcome(t, c, s, s.content(t)); v.Status == "SUCCEEDED" {
				requireFound(t, c, s, v)
			}
		}
	}
	var stats struct {
		Counts       map[string]int `json:"counts"`
		StreamLength int            `json:"streamLength"`
	}
	c.get("/internal/tasks/stats").into(t, http.StatusOK, &stats)
	require.Equal(t, 5, stats.Counts["SUCCEEDED"])
	require.Equal(t, 1, stats.Counts["DEAD"])
}

func TestServicesOnPostgresSentinelAndChroma(t *testing.T) {
	t.Parallel()
	database := "DATABASE_URL=" + labserver.PostgresDatabase(t)
	migrate(t, database)
	set := labserver.Sentinel(t, 1)
	requireWorks(t, fleet(t, []string{database, "REDIS_URL=" + set.URL(), "CHROMA_BASE_URL=" + labserver.Chroma(t).URL("")}, 2))
}

// One Postgres with pgvector keeps tasks, documents and vectors: VECTOR_STORE=pgvector needs no address of its own.
func TestServicesOnPGVector(t *testing.T) {
	t.Parallel()
	requireSearchesByVector(t, "DATABASE_URL="+labserver.PGVectorDatabase(t), "VECTOR_STORE=pgvector")
}

// Qdrant's engine behind its API, with a key: see labserver's qdrant.py for what that shows.
func TestServicesOnQdrant(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindQdrant, labserver.Options{Args: []string{"--api-key", "k3y"}})
	requireSearchesByVector(t, "DATABASE_URL="+labserver.PostgresDatabase(t), "VECTOR_STORE=qdrant", "QDRANT_URL="+server.URL(""), "QDRANT_API_KEY=k3y")
}

// requireSearchesByVector takes documents in, finds one by its vector alone, checks the installation, and deletes it.
func requireSearchesByVector(t *testing.T, stores ...string) {
	t.Helper()
	embeddings := embedtest.Start(t, embedtest.Options{})
	env := append([]string{
		"REDIS_URL=" + labserver.RedisURL(t), "UPLOAD_DIR=" + t.TempDir(),
		"EMBEDDING_BASE_URL=" + embeddings.URL, "EMBEDDING_MODEL=test", "EMBEDDING_API=openai", "INGEST_SWEEP_INTERVAL_MS=200",
	}, stores...)
	migrate(t, env...)
	c := fleet(t, env, 2)
	requireWorks(t, c)

	nearest := func() []hit {
		var v struct {
			Hits    []hit `json:"hits"`
			Partial bool  `json:"partial"`
		}
		c.json(http.MethodPost, "/api/knowledge/search", `{"query":"opal","mode":"vector","topK":3}`).into(t, http.StatusOK, &v)
		require.False(t, v.Partial)
		return v.Hits
	}
	v := c.ingested("stones.txt", prose("opal", 3))
	require.Equal(t, v.DocumentID, nearest()[0].DocumentID)
	code, out := run(t, "millweir", env, "fsck", "--deep")
	require.Zero(t, code, out)
	c.do(http.MethodDelete, documents+"/"+v.DocumentID, nil).into(t, http.StatusNoContent, nil)
	require.Empty(t, nearest())
}

func TestServicesOnMariaDBOverTLSRedis(t *testing.T) {
	t.Parallel()
	dsn := "MYSQL_DSN=" + labserver.MySQLDatabase(t)
	migrate(t, dsn)
	redis, ca := labserver.RedisTLSURL(t)
	requireWorks(t, fleet(t, []string{dsn, "REDIS_URL=" + redis, "SSL_CERT_FILE=" + ca, "CHROMA_BASE_URL=" + labserver.Chroma(t).URL("")}, 2))
}

// Design D16: a service starts without its servers, says so, and works once they are there.
func TestServicesStartBeforeTheirServers(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	db := labserver.Private(t, labserver.KindPostgres, labserver.Options{})
	require.NoError(t, db.SQL(ctx, "", "CREATE DATABASE late"))
	redis := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	chroma := labserver.Private(t, labserver.KindChroma, labserver.Options{})
	for _, s := range []*labserver.Server{db, redis, chroma} {
		require.NoError(t, s.Stop(ctx))
	}
	database := "DATABASE_URL=" + db.URL("late")
	c := fleet(t, []string{database, "REDIS_URL=" + redis.URL(""), "CHROMA_BASE_URL=" + chroma.URL("")}, 1)
	var ready struct {
		Missing []string `json:"missing"`
	}
	c.get("/readyz").into(t, http.StatusServiceUnavailable, &ready)
	for _, part := range []string{"database", "vectors"} {
		require.Contains(t, fmt.Sprint(ready.Missing), part)
	}
	require.Equal(t, http.StatusOK, c.get("/healthz").status)
	a := c.send("early.txt", []byte("Too early for a database."))
	a.refused(t, http.StatusServiceUnavailable, "UNAVAILABLE")
	require.NotEmpty(t, a.header.Get("Retry-After"))

	require.NoError(t, db.Restart(ctx))
	migrate(t, database)
	v := c.accepted("late.txt", []byte("The database is here; Redis and Chroma are late."))
	require.NoError(t, redis.Restart(ctx))
	require.NoError(t, chroma.Restart(ctx))
	require.Equal(t, "SUCCEEDED", c.ended(v.TaskID).Status)
	c.ready()
	hits := c.search("Redis and Chroma are late", "", 3)
	require.NotEmpty(t, hits)
	require.True(t, strings.HasPrefix(hits[0].Text, "The database is here"))
}

func TestUnreachableEmbeddingsAreNamed(t *testing.T) {
	t.Parallel()
	_, c := startDev(t, "EMBEDDING_BASE_URL=http://127.0.0.1:65531/v1", "EMBEDDING_MODEL=none", "EMBEDDING_API_KEY=sk-hush-hush-hush",
		"EMBEDDING_API=openai", "INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=0", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=0")
	v := c.ended(c.accepted("a.txt", prose("jasper", 3)).TaskID)
	require.Equal(t, "DEAD", v.Status)
	require.Equal(t, 2, v.AttemptCount)
	require.Equal(t, "EMBEDDING_UNAVAILABLE", v.ErrorCode)
	require.Regexp(t, `^embed batch 1/\d+.*127\.0\.0\.1:65531.*connection refused`, v.LastError)
	require.NotContains(t, v.LastError+v.ErrorMessage, "sk-hush")
	a := c.json(http.MethodPost, "/api/knowledge/search", `{"query":"jasper","mode":"vector"}`)
	a.refused(t, http.StatusServiceUnavailable, "EMBEDDING_UNAVAILABLE")
}

// A key that the embedding service refuses, and then another model than the base was made with: documents wait for a person, who
// mends the settings and resumes them.
func TestDocumentsWaitForAUsableModel(t *testing.T) {
	t.Parallel()
	service := embedtest.Start(t, embedtest.Options{APIKey: "right"})
	data := t.TempDir()
	dev := func(key, model string) (*program, *client) {
		p := start(t, "dev", []string{
			"EMBEDDING_BASE_URL=" + service.URL + "/v1", "EMBEDDING_API=openai", "EMBEDDING_MODEL=" + model, "EMBEDDING_API_KEY=" + key, "INGEST_REDIS_MAX_ATTEMPTS=1",
		}, "--data", data, "--addr", "127.0.0.1:0")
		return p, newClient(t, p.printed(`ready (http://\S+)`))
	}
	sound := func() {
		t.Helper()
		code, out := run(t, "millweir", []string{
			"DATABASE_URL=sqlite:" + filepath.Join(data, "millweir.db"), "UPLOAD_DIR=" + filepath.Join(data, "uploads"),
			"VECTOR_STORE=embedded", "VECTOR_DIR=" + filepath.Join(data, "vectors"),
		}, "fsck", "--history")
		require.Zero(t, code, out)
	}
	waits := func(c *client, id, code, remedy string) {
		t.Helper()
		v := c.reaches(id, "SUSPENDED")
		require.Equal(t, code, v.ErrorCode)
		require.Contains(t, v.ErrorMessage, remedy)
		require.Zero(t, v.AttemptCount)
		require.Empty(t, v.NextRetryAt)
		require.Equal(t, v, c.task(id), "the event and the task say the same")
		var listed page[struct{ TaskID, Status, Reason, ErrorMessage string }]
		c.get("/internal/tasks/suspended").into(t, http.StatusOK, &listed)
		require.Len(t, listed.Items, 1)
		require.Equal(t, id, listed.Items[0].TaskID)
		require.Equal(t, code, listed.Items[0].Reason)
		require.Equal(t, v.ErrorMessage, listed.Items[0].ErrorMessage)
		var shown page[struct{ DocumentID, Status string }]
		c.get(documents+"?status=PROCESSING").into(t, http.StatusOK, &shown)
		require.Len(t, shown.Items, 1)
		require.Equal(t, v.DocumentID, shown.Items[0].DocumentID)
		require.Contains(t, string(c.get(tasks+"/"+id+"/explain").body), "nothing until an operator resumes it")
		c.json(http.MethodPost, tasks+"/"+id+"/retry", "").refused(t, http.StatusConflict, "TASK_SUSPENDED")
	}
	mended := func(c *client, id, word string) {
		t.Helper()
		c.json(http.MethodPost, "/internal/tasks/"+id+"/resume", `{"reason":"mended"}`).into(t, http.StatusOK, nil)
		v := c.ended(id)
		require.Equal(t, "SUCCEEDED", v.Status)
		require.Empty(t, v.ErrorCode)
		require.Contains(t, c.search(word, "", 1)[0].Text, word)
	}

	p, c := dev("wrong", "m")
	first := c.accepted("a.txt", prose("jasper", 3)).TaskID
	waits(c, first, "EMBEDDING_MODEL_UNUSABLE", "EMBEDDING_API_KEY")
	c.json(http.MethodPost, "/api/knowledge/search", `{"query":"jasper","mode":"vector"}`).refused(t, http.StatusServiceUnavailable, "EMBEDDING_MODEL_UNUSABLE")
	p.stop()
	sound()
	p, c = dev("right", "m")
	require.Equal(t, "SUSPENDED", c.task(first).Status, "nobody has resumed it")
	mended(c, first, "jasper")
	p.stop()

	p, c = dev("right", "other")
	second := c.accepted("b.txt", prose("opal", 3)).TaskID
	waits(c, second, "DIMENSION_MISMATCH", "EMBEDDING_PREVIOUS_MODEL")
	require.Contains(t, c.search("jasper", "", 1)[0].Text, "jasper", "by its words")
	p.stop()
	sound()
	p, c = dev("right", "m")
	mended(c, second, "opal")
	p.stop()
	sound()
}

func TestFullBacklogNamesAWait(t *testing.T) {
	t.Parallel()
	dsn := "DATABASE_URL=" + labserver.PostgresDatabase(t)
	migrate(t, dsn)
	api := start(t, "ingest-api", []string{
		dsn, "AUTH_MODE=none", "HTTP_ADDR=127.0.0.1:0", "UPLOAD_DIR=" + t.TempDir(), "INGEST_MAX_BACKLOG=2",
		"REDIS_URL=" + labserver.RedisURL(t), "CHROMA_BASE_URL=http://127.0.0.1:65530",
	})
	c := newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`))
	for i := range 2 { // nobody works
		c.accepted("a.txt", prose(fmt.Sprint("marble", i), 1))
	}
	a := c.send("b.txt", prose("marble", 1))
	a.refused(t, http.StatusServiceUnavailable, "BACKLOG_FULL")
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	require.True(t, wait >= 1 && wait < 30, "%d s: by the pace, not the fallback of 30 s", wait)
	var same task
	c.send("a.txt", prose("marble0", 1)).into(t, http.StatusOK, &same)
	require.True(t, same.Duplicate, "duplicates need no room")
}
