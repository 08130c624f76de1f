package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/ingest/extract/child"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
)

func TestMain(m *testing.M) {
	if child.Is(os.Args) {
		os.Exit(child.Main())
	}
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) }) // for its longest wait
}

// output collects what the process prints and hands out its first "ready" line.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	ready chan string
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(b)
	if line, _, ok := strings.Cut(o.buf.String(), "\n"); ok && o.ready != nil {
		o.ready <- strings.TrimPrefix(line, "ready ")
		o.ready = nil
	}
	return len(b), nil
}

// start runs the all-in-one over a data folder until the returned stop, which returns its exit code.
func start(t *testing.T, data string) (url string, stop func() int) {
	t.Helper()
	for _, name := range []string{"UPLOAD_DIR", "VECTOR_DIR", "VECTOR_STORE", "AUTH_MODE", "DATABASE_URL", "REDIS_URL", "INGEST_QUEUE", "KAFKA_BOOTSTRAP_SERVERS", "HTTP_ADDR", "OPERATOR_ADDR"} {
		t.Setenv(name, "") // restores it after the test
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, logs := &output{ready: make(chan string, 1)}, &output{}
	ready := out.ready
	code := make(chan int, 1)
	go func() {
		code <- Run(ctx, []string{"--data", data, "--addr=127.0.0.1:0", "--queue", "redis"}, out, logs)
	}()
	select {
	case url = <-ready:
	case c := <-code:
		t.Fatalf("ended with %d before it was ready: %s", c, logs.buf.String())
	case <-time.After(time.Minute):
		t.Fatal("not ready in a minute")
	}
	stopped := false
	stop = func() int {
		if stopped {
			return 0
		}
		stopped = true
		cancel()
		return <-code
	}
	t.Cleanup(func() { stop() })
	return url, stop
}

// call sends a request and decodes the answer.
func call(t *testing.T, method, url, contentType string, body io.Reader, out any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	if out != nil {
		require.NoError(t, json.NewDecoder(res.Body).Decode(out))
	}
	return res.StatusCode
}

// upload sends one document and waits for its end.
func upload(t *testing.T, url, name, text string) (status string) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", name)
	require.NoError(t, err)
	_, err = io.WriteString(part, text)
	require.NoError(t, err)
	require.NoError(t, form.Close())
	var task struct {
		Status string `json:"status"`
	}
	code := call(t, http.MethodPost, url+"/api/knowledge/documents/upload?waitSeconds=120", form.FormDataContentType(), &body, &task)
	require.Equal(t, http.StatusOK, code)
	return task.Status
}

// find returns the titles of a search's hits.
func find(t *testing.T, url, query string) (titles []string) {
	t.Helper()
	var answer struct {
		Hits []struct {
			Title string `json:"title"`
		} `json:"hits"`
	}
	body := strings.NewReader(fmt.Sprintf(`{"query":%q,"topK":3}`, query))
	require.Equal(t, http.StatusOK, call(t, http.MethodPost, url+"/api/knowledge/search", "application/json", body, &answer))
	for _, h := range answer.Hits {
		titles = append(titles, h.Title)
	}
	return titles
}

// Not parallel, like all tests here: the verb sets environment variables.
func TestDocumentIsFoundAndSurvivesARestart(t *testing.T) {
	data := t.TempDir()
	url, stop := start(t, data)
	require.Equal(t, "SUCCEEDED", upload(t, url, "otters.txt", "Otters hold hands while they sleep on the water."))
	require.Equal(t, "SUCCEEDED", upload(t, url, "bees.md", "# Bees\n\nBees dance to tell where flowers are."))
	require.Equal(t, "otters.txt", find(t, url, "otters hold hands")[0])
	require.Eventually(t, func() bool { // a part that stands still for two seconds is missing for that time
		return call(t, http.MethodGet, url+"/readyz", "", nil, nil) == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, process.ExitOK, stop())

	url, stop = start(t, data)
	require.Equal(t, "Bees", find(t, url, "where flowers are, bees dance")[0])
	var stats struct {
		Counts map[string]int `json:"counts"`
	}
	require.Equal(t, http.StatusOK, call(t, http.MethodGet, url+"/internal/tasks/stats", "", nil, &stats))
	require.Equal(t, 2, stats.Counts["SUCCEEDED"])
	require.Equal(t, process.ExitOK, stop())
}

func TestTwoOverOneDataFolderAreRefused(t *testing.T) {
	data := t.TempDir()
	_, _ = start(t, data)
	var logs bytes.Buffer
	require.Equal(t, process.ExitFailed, Run(t.Context(), []string{"--data", data, "--addr=127.0.0.1:0"}, io.Discard, &logs))
	require.Contains(t, logs.String(), "VECTOR_DIR")
}

func TestBadFlagsAndSettingsAreExit2(t *testing.T) {
	for _, args := range [][]string{{"--data"}, {"--queue", "rabbit"}, {"--env-file"}, {"--env-file", "/no/such/file"}, {"--nonsense"}} {
		var logs bytes.Buffer
		require.Equal(t, process.ExitUsage, Run(t.Context(), append([]string{"--data", t.TempDir()}, args...), io.Discard, &logs), "%v", args)
		require.NotEmpty(t, logs.String())
	}
	t.Setenv("INGEST_LEASE_MS", "1")
	var logs bytes.Buffer
	require.Equal(t, process.ExitUsage, Run(t.Context(), []string{"--data", t.TempDir()}, io.Discard, &logs))
	require.Contains(t, logs.String(), "INGEST_LEASE_MS")
	var help bytes.Buffer
	require.Equal(t, process.ExitOK, Run(t.Context(), []string{"--help-env"}, &help, io.Discard))
	require.Contains(t, help.String(), "INGEST_WORKER_CONCURRENCY")
}

// What stands in no file before comes from a later one; what does, does not.
func TestTheFirstOfSeveralEnvFilesWins(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	require.NoError(t, os.WriteFile(good, []byte("INGEST_MAX_CRASHES=3\nDATABASE_URL=sqlite:"+filepath.Join(dir, "a.db")+"\n"), 0o600))
	require.NoError(t, os.WriteFile(bad, []byte("INGEST_MAX_CRASHES=1\n"), 0o600))
	for _, c := range []struct {
		files []string
		want  int
	}{
		{[]string{"--env-file", good, "--env-file=" + bad}, process.ExitOK},
		{[]string{"--env-file=" + bad, "-env-file", good}, process.ExitUsage},
		{[]string{"--env-file=", "--env-file", good}, process.ExitUsage}, // the first has no name
	} {
		for _, name := range []string{"INGEST_MAX_CRASHES", "DATABASE_URL", "MYSQL_DSN", "UPLOAD_DIR", "VECTOR_DIR", "VECTOR_STORE", "AUTH_MODE", "REDIS_URL", "INGEST_QUEUE"} {
			t.Setenv(name, "") // restores it after the test
			require.NoError(t, os.Unsetenv(name))
		}
		var out, logs bytes.Buffer
		args := append([]string{"--data", filepath.Join(dir, "data"), "--check-config"}, c.files...)
		require.Equal(t, c.want, Run(t.Context(), args, &out, &logs), "%v: %s", c.files, logs.String())
		require.Equal(t, c.want == process.ExitOK, strings.Contains(out.String(), "settings are good"), "%v", c.files)
	}
}

func TestEnvFileWinsOverEmbeddedDefaults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("INGEST_MAX_CRASHES=1\n"), 0o600))
	t.Setenv("INGEST_MAX_CRASHES", "")
	require.NoError(t, os.Unsetenv("INGEST_MAX_CRASHES"))
	var logs bytes.Buffer
	require.Equal(t, process.ExitUsage, Run(t.Context(), []string{"--env-file=" + file, "--data", t.TempDir()}, io.Discard, &logs))
	require.Contains(t, logs.String(), "INGEST_MAX_CRASHES")
}

// What is set decides where vectors are kept (design D16).
func TestVectorStoreIsChosenByItsAddress(t *testing.T) {
	for name, c := range map[string]struct {
		set  map[string]string
		want string
	}{
		"nothing":         {nil, "embedded"},
		"chroma":          {map[string]string{"CHROMA_BASE_URL": "http://h:8000"}, ""}, // the services' own default
		"pgvector":        {map[string]string{"PGVECTOR_URL": "postgres://h/db"}, "pgvector"},
		"qdrant":          {map[string]string{"QDRANT_URL": "http://h:6333"}, "qdrant"},
		"both":            {map[string]string{"PGVECTOR_URL": "postgres://h/db", "CHROMA_BASE_URL": "http://h:8000"}, ""},
		"said by name":    {map[string]string{"PGVECTOR_URL": "postgres://h/db", "VECTOR_STORE": "embedded"}, "embedded"},
		"of the database": {map[string]string{"DATABASE_URL": "postgres://h/db", "VECTOR_STORE": "pgvector"}, "pgvector"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"UPLOAD_DIR", "VECTOR_DIR", "VECTOR_STORE", "AUTH_MODE", "DATABASE_URL", "MYSQL_DSN", "INGEST_QUEUE", "HTTP_ADDR", "CHROMA_BASE_URL", "PGVECTOR_URL", "QDRANT_URL"} {
				t.Setenv(name, c.set[name])
			}
			t.Setenv("REDIS_URL", "redis://h") // or one is started
			stop, err := defaults(options{data: t.TempDir()})
			require.NoError(t, err)
			stop()
			require.Equal(t, c.want, os.Getenv("VECTOR_STORE"))
		})
	}
}
