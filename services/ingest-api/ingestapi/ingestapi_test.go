package ingestapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wiring/documents"
)

func TestMain(m *testing.M) {
	labserver.Main(m, func() error { return goleak.Find(goleak.IgnoreTopFunction(labserver.Watcher)) })
}

// gatewayOn serves over a MariaDB and a Redis of the test's own, with keys; it returns the URL and a user's and an operator's key.
func gatewayOn(t *testing.T) (url, user, operator string) {
	t.Helper()
	return serve(t, map[string]string{
		"MYSQL_DSN": labserver.MySQLDatabase(t), "REDIS_URL": labserver.RedisURL(t),
		"UPLOAD_RATE_LIMIT": "2", "UPLOAD_MAX_BYTES": "1000", "AUTH_FAIL_LIMIT": "3", "AUTH_FAIL_WINDOW_SECONDS": "86400",
	})
}

// serve is a gateway with these settings beside those of a test.
func serve(t *testing.T, settings map[string]string) (url, user, operator string) {
	t.Helper()
	dir := t.TempDir()
	for k, v := range map[string]string{
		"DATABASE_URL": "", "VECTOR_STORE": "embedded", "UPLOAD_DIR": filepath.Join(dir, "uploads"), "VECTOR_DIR": filepath.Join(dir, "vectors"),
		"HTTP_ADDR": "127.0.0.1:0", "AUTH_MODE": "keys",
	} {
		t.Setenv(k, v)
	}
	for k, v := range settings {
		t.Setenv(k, v)
	}
	cfg, err := process.Load[Config]()
	require.NoError(t, err)
	env := &process.Env{
		Name: "ingest-api", Version: "test", Log: slog.New(slog.DiscardHandler),
		Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
	ctx, cancel := context.WithCancel(context.Background())
	parts, err := documents.Open(ctx, env, cfg.Shared)
	require.NoError(t, err)
	_, err = parts.Store.Migrate(ctx)
	require.NoError(t, err)
	services, addr, err := Services(ctx, parts, &cfg)
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- process.RunAll(ctx, services...) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		parts.Close()
	})
	keys := auth.New(parts.Store, env.Log, time.Now)
	user, _, err = keys.Create(ctx, auth.NewKey{UserID: "anna", Role: taskstate.RoleUser})
	require.NoError(t, err)
	operator, _, err = keys.Create(ctx, auth.NewKey{UserID: "root", Role: taskstate.RoleOperator})
	require.NoError(t, err)
	return "http://" + addr, user, operator
}

// upload sends one file and returns the status and the body.
func upload(t *testing.T, url, key, text string) (int, map[string]any) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "a.txt")
	require.NoError(t, err)
	_, _ = io.WriteString(part, text)
	require.NoError(t, form.Close())
	return ask(t, http.MethodPost, url+"/api/knowledge/documents/upload-async", key, form.FormDataContentType(), &body)
}

// ask sends a request with a key.
func ask(t *testing.T, method, url, key, contentType string, body io.Reader) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	req.Header.Set("Content-Type", contentType)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	var out map[string]any
	_ = json.NewDecoder(res.Body).Decode(&out)
	return res.StatusCode, out
}

// Not parallel: it sets variables.
func TestGatewayOnRealServers(t *testing.T) {
	url, user, operator := gatewayOn(t)
	status, _ := upload(t, url, "", "text")
	require.Equal(t, http.StatusUnauthorized, status)
	status, body := upload(t, url, user, "some text")
	require.Equal(t, http.StatusAccepted, status)
	require.Equal(t, "QUEUED", body["status"])
	task := url + "/api/knowledge/tasks/" + body["taskId"].(string) //nolint:errcheck // a panic is a failure too
	status, _ = ask(t, http.MethodGet, task, user, "", nil)
	require.Equal(t, http.StatusOK, status)
	// The upload waits two seconds for that, and is answered all the same when Redis took longer.
	require.Eventually(t, func() bool {
		status, body := ask(t, http.MethodGet, url+"/internal/tasks/stats", operator, "", nil)
		return status == http.StatusOK && body["streamLength"] == 1.0
	}, time.Minute, 10*time.Millisecond, "the delivery was added after the commit")
	status, _ = ask(t, http.MethodGet, url+"/internal/tasks/stats", user, "", nil)
	require.Equal(t, http.StatusForbidden, status)
	status, body = upload(t, url, user, string(bytes.Repeat([]byte("x"), 2000)))
	require.Equal(t, http.StatusRequestEntityTooLarge, status, "%v", body)
	status, body = upload(t, url, user, "one more")
	require.Equal(t, http.StatusTooManyRequests, status, "%v", body)
	require.Equal(t, "RATE_LIMITED", body["code"])
	require.Eventually(t, func() bool { // a server that stands still for two seconds is missing for that time
		status, _ := ask(t, http.MethodGet, url+"/readyz", "", "", nil)
		return status == http.StatusOK
	}, time.Minute, 50*time.Millisecond)

	// An operator holds the task and lets it go on; both steps and his name stand in the audit log, the refused look too.
	internal := url + "/internal/tasks/" + path.Base(task)
	for _, step := range []string{"/suspend", "/resume"} {
		status, body = ask(t, http.MethodPost, internal+step, operator, "application/json", strings.NewReader(`{"reason":"a look"}`))
		require.Equal(t, http.StatusOK, status, "%v", body)
	}
	require.Equal(t, "queued", body["status"])
	status, body = ask(t, http.MethodGet, url+"/internal/audit?actor=root", operator, "", nil)
	require.Equal(t, http.StatusOK, status)
	items, ok := body["items"].([]any)
	require.True(t, ok)
	require.Len(t, items, 2)
	for i, action := range []string{"task_resume", "task_suspend"} {
		event, ok := items[i].(map[string]any)
		require.True(t, ok)
		require.Equal(t, action, event["action"])
		require.Equal(t, path.Base(task), event["target"])
		require.Equal(t, "a look", event["detail"])
		require.Equal(t, "127.0.0.1", event["ip"])
		require.NotEmpty(t, event["requestId"])
	}
	status, _ = ask(t, http.MethodGet, url+"/internal/audit", user, "", nil)
	require.Equal(t, http.StatusForbidden, status)

	// Three guesses are wrong, further ones are told to wait; the user with a good key goes on.
	codes := map[int]int{}
	for range 6 {
		status, _ = ask(t, http.MethodGet, task, auth.NewSecret(), "", nil)
		codes[status]++
	}
	require.Equal(t, map[int]int{http.StatusUnauthorized: 3, http.StatusTooManyRequests: 3}, codes)
	status, _ = ask(t, http.MethodGet, task, user, "", nil)
	require.Equal(t, http.StatusOK, status)
}

// The X-Request-Id of an upload stands in its row and its delivery, so that a line of a worker leads to the caller's.
// Not parallel: it sets variables.
func TestARequestsIDTravelsWithItsTask(t *testing.T) {
	server := labserver.RedisURL(t)
	url, user, operator := serve(t, map[string]string{"MYSQL_DSN": labserver.MySQLDatabase(t), "REDIS_URL": server})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "a.txt")
	require.NoError(t, err)
	_, _ = io.WriteString(part, "text")
	require.NoError(t, form.Close())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/api/knowledge/documents/upload-async", &body)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+user)
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("X-Request-Id", "callers-own.1")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusAccepted, res.StatusCode)
	require.Equal(t, "callers-own.1", res.Header.Get("X-Request-Id"))
	status, task := ask(t, http.MethodGet, url+"/internal/tasks/"+path.Base(res.Header.Get("Location")), operator, "", nil)
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "callers-own.1", task["requestId"])

	options, err := rueidis.ParseURL(server)
	require.NoError(t, err)
	client, err := rueidis.NewClient(options)
	require.NoError(t, err)
	defer client.Close()
	require.Eventually(t, func() bool { // the upload does not wait longer than two seconds for its delivery
		entries, err := client.Do(t.Context(), client.B().Xrange().Key("ingest:tasks").Start("-").End("+").Build()).AsXRange()
		require.NoError(t, err)
		if len(entries) == 0 {
			return false
		}
		require.Contains(t, entries[0].FieldValues["context"], `"requestId":"callers-own.1"`)
		return true
	}, time.Minute, 10*time.Millisecond)
}

func TestRunEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	for k, v := range map[string]string{
		"DATABASE_URL": "sqlite:" + filepath.Join(dir, "a.db"), "REDIS_URL": "redis://127.0.0.1:1", "VECTOR_STORE": "embedded",
		"UPLOAD_DIR": filepath.Join(dir, "uploads"), "VECTOR_DIR": filepath.Join(dir, "vectors"), "HTTP_ADDR": "127.0.0.1:0", "AUTH_MODE": "none",
	} {
		t.Setenv(k, v)
	}
	cfg, err := process.Load[Config]()
	require.NoError(t, err)
	env := &process.Env{
		Name: "ingest-api", Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Ready: process.NewReady(), Stdout: io.Discard,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, env, &cfg) }()
	require.Eventually(t, func() bool { return len(env.Ready.Check(ctx).Checks) > 0 }, time.Minute, 5*time.Millisecond, "it started")
	cancel()
	require.NoError(t, <-done)
}
