package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/taskstore"
)

// parrot returns every request with a refusal that repeats the caller's secrets, in words that no rule of redaction knows.
func parrot(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"error":{"message":"Incorrect key provided, %s is not known here (%s)"},"detail":"%s"}`,
			token, r.Header.Get("X-Chroma-Token")+r.Header.Get("Api-Key"), token)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// tape keeps all that was sent to it.
type tape struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *tape) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body) // what was cut off is not looked at
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(body)
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func (r *tape) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// canary is a secret that looks like nothing.
func canary() string { return "canary" + strings.ToLower(rand.Text()) }

// everyRow is the content of all tables.
func everyRow(t *testing.T, database string) string {
	t.Helper()
	store, err := taskstore.Open(t.Context(), taskstore.Config{DatabaseURL: database})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	var all strings.Builder
	query := func(q string) (out [][]any) {
		rows, err := store.Reader().QueryContext(t.Context(), q)
		require.NoError(t, err, q)
		defer func() { _ = rows.Close() }()
		columns, err := rows.Columns()
		require.NoError(t, err)
		for rows.Next() {
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			require.NoError(t, rows.Scan(into...))
			for i, v := range values {
				if b, isBytes := v.([]byte); isBytes {
					values[i] = string(b)
				}
			}
			out = append(out, values)
		}
		require.NoError(t, rows.Err())
		return out
	}
	tables := query("SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()")
	require.Greater(t, len(tables), 10)
	for _, name := range tables {
		for _, row := range query(fmt.Sprintf("SELECT * FROM %s", name[0])) {
			_, _ = fmt.Fprintln(&all, name[0], row)
		}
	}
	return all.String()
}

// Secrets are in the settings and in the requests, everything that can fail does, and nothing that we write, show or send has them.
func TestCanariesStayHome(t *testing.T) {
	t.Parallel()
	ctx := context.WithoutCancel(t.Context())
	secrets := map[string]string{}
	for _, name := range []string{"database", "embedding", "chroma", "qdrant", "jwt", "oidc", "redis", "spare"} {
		secrets[name] = canary()
	}
	secrets["jwt"] += secrets["jwt"] // as long as the algorithm wants it
	plain := labserver.PostgresDatabase(t)
	migrate(t, "DATABASE_URL="+plain)
	withPassword := func(password string) string {
		u, err := url.Parse(plain)
		require.NoError(t, err)
		u.User = url.UserPassword(u.User.Username(), password)
		return u.String()
	}
	redis := labserver.Private(t, labserver.KindRedis, labserver.Options{})
	ok, err := redis.RedisCommand(ctx, "CONFIG", "SET", "requirepass", secrets["redis"])
	require.NoError(t, err)
	require.Equal(t, "+OK", ok)
	redisURL := strings.Replace(redis.URL(""), "redis://", "redis://:"+secrets["redis"]+"@", 1)
	traces := &tape{}
	otlp := httptest.NewServer(traces)
	t.Cleanup(otlp.Close)
	env := []string{
		"DATABASE_URL=" + withPassword(secrets["database"]), "REDIS_URL=" + redisURL, "UPLOAD_DIR=" + t.TempDir(), "LOG_LEVEL=debug",
		"EMBEDDING_BASE_URL=" + parrot(t, http.StatusUnauthorized) + "/v1", "EMBEDDING_API=openai", "EMBEDDING_MODEL=m", "EMBEDDING_API_KEY=" + secrets["embedding"],
		"CHROMA_BASE_URL=" + parrot(t, http.StatusForbidden), "CHROMA_TOKEN=" + secrets["chroma"],
		"QDRANT_URL=" + parrot(t, http.StatusForbidden), "QDRANT_API_KEY=" + secrets["qdrant"],
		"JWT_SECRET=" + secrets["jwt"], "JWT_ISSUER=i", "JWT_AUDIENCE=a", "OIDC_ISSUER=http://127.0.0.1:1", "OIDC_CLIENT_ID=c",
		"OIDC_CLIENT_SECRET=" + secrets["oidc"], "OIDC_REDIRECT_URL=http://127.0.0.1/console/login/callback", "HTTP_ADDR=127.0.0.1:0", "OTEL_EXPORTER_OTLP_ENDPOINT=" + otlp.URL,
		"INGEST_REDIS_MAX_ATTEMPTS=2", "INGEST_REDIS_RETRY_BASE_BACKOFF_MS=0", "INGEST_REDIS_RETRY_MAX_BACKOFF_MS=0",
	}
	key := func(args ...string) string { return newKey(t, env[0], args...) }
	secrets["user key"], secrets["operator key"] = key("--user", "ada"), key("--user", "root", "--role", "operator")
	said := map[string]string{} // what anybody could see, by where

	api := start(t, "ingest-api", env)
	words := start(t, "stream-worker", env)                                                                            // its embeddings are refused
	vectors := start(t, "stream-worker", append(env[:len(env):len(env)], "EMBEDDING_BASE_URL="))                       // its vectors are
	points := start(t, "stream-worker", append(env[:len(env):len(env)], "EMBEDDING_BASE_URL=", "VECTOR_STORE=qdrant")) // so are these
	lost := start(t, "stream-worker", append(env[:len(env):len(env)], "REDIS_URL=redis://:"+secrets["spare"]+          // a wrong password, and nobody there
		"@127.0.0.1:1", "DATABASE_URL="+withPassword(secrets["spare"])))
	c := newClient(t, "http://"+api.printed(`"gateway: listening".*?"addr":"([^"]+)"`)).as(secrets["user key"])
	for i := range 8 {
		all := c.events(c.accepted(fmt.Sprintf("a%d.txt", i), prose(fmt.Sprint("opal", i), 3)).TaskID, func(v task) bool { return v.Status == "SUSPENDED" })
		require.NotEmpty(t, all)
		v := all[len(all)-1].task
		require.NotEqual(t, "SUCCEEDED", v.Status)
		said["task"] += fmt.Sprint(v)
		said["explain"] += string(c.get("/api/knowledge/tasks/" + v.TaskID + "/explain").body)
	}
	require.Contains(t, said["task"], "***", "the refusal was repeated, without the secret")
	for _, a := range []answer{
		c.get("/api/knowledge/tasks?key=" + secrets["user key"]), c.get("/api/knowledge/tasks/" + secrets["user key"]), c.get("/" + secrets["user key"]),
		c.as(secrets["spare"]).get("/api/knowledge/tasks"), c.as(secrets["user key"] + "x").get("/api/knowledge/tasks"), c.as("a.b." + secrets["spare"]).get("/api/knowledge/tasks"),
		c.json(http.MethodPost, "/api/knowledge/search", `{"query":"opal","mode":"vector"}`), c.get("/readyz"),
	} {
		require.GreaterOrEqual(t, a.status, 400)
		if name := secrets["user key"]; !strings.Contains(string(a.body), name) { // who sent it in a parameter's place may see it again
			said["answers"] += string(a.body)
		}
	}
	root := c.as(secrets["operator key"])
	for _, path := range []string{"/metrics", "/internal/keys", "/internal/audit", "/internal/tasks/stats", "/openapi.json"} {
		a := root.get(path)
		require.Equal(t, http.StatusOK, a.status, path)
		said[path] = string(a.body)
	}
	require.NoError(t, redis.Stop(ctx)) // connection refused, from now on
	c.accepted("b.txt", prose("late", 2))
	said["ready"] = string(c.get("/readyz").body)
	for _, name := range []string{"ingest-api", "stream-worker", "reclaimer"} {
		for _, flag := range []string{"--help-env", "--print-env", "--check-config"} {
			_, said[name+flag] = run(t, name, env, flag)
		}
		_, said[name+" bad"] = run(t, name, append(env[:len(env):len(env)], "DATABASE_URL=postgres://u:"+secrets["spare"]+"@[::1", "REDIS_URL=redis://:"+secrets["spare"]+"@h:port", "JWT_SECRET="+secrets["spare"]), "--check-config")
	}
	for _, p := range []*program{api, words, vectors, points, lost} {
		p.stop()
		log, _ := p.out.text()
		require.NotEmpty(t, log, p.name)
		said["log of "+p.name] += log // several are of one program
	}
	said["rows"], said["traces"] = everyRow(t, plain), traces.String()
	require.Contains(t, said["rows"], "ingest_task_transition")
	require.Contains(t, said["traces"], "embed", "there were spans")
	for where, text := range said {
		require.NotEmpty(t, text, where)
		for name, secret := range secrets {
			for _, form := range []string{secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))} {
				if at := strings.Index(text, form); at >= 0 {
					t.Errorf("the secret %s is in %s: …%.300s…", name, where, text[max(0, at-150):])
				}
			}
		}
	}
}
