package gateway

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/ingestq/redisq/embedded"
	"github.com/millweir/millweir/pkg/labserver"
	"github.com/millweir/millweir/pkg/outbox"
	"github.com/millweir/millweir/pkg/process"
	_ "github.com/millweir/millweir/pkg/sqldb/dialects" // all of them
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/tasks/views"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstore/taskstoretest"
	"github.com/millweir/millweir/pkg/wiring/database"
	wiring "github.com/millweir/millweir/pkg/wiring/gateway"
	wiredredis "github.com/millweir/millweir/pkg/wiring/redis"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// site is a bench over the real application: SQLite, the in-process Redis, vectors and uploads on disk, API keys and audit log.
// Only workers are missing: tasks stay as people move them.
type site struct {
	*bench
	keys  *auth.Keys
	trail *audit.Log
	mq    *streammq.MQ

	planted string // stands in what belonging makes: names, texts and messages
}

// world is a database and a Redis for a site.
type world struct {
	store func(t testing.TB) database.Settings
	redis func(t testing.TB) string
}

// worlds are those that there can be: all in the process, and each server with a real Redis.
var worlds = map[string]world{
	"sqlite": {func(t testing.TB) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(taskstoretest.SQLite(t))}
	}, func(t testing.TB) string {
		url, stop, err := embedded.Start()
		require.NoError(t, err)
		t.Cleanup(stop)
		return url
	}},
	"mariadb": {func(t testing.TB) database.Settings {
		return database.Settings{MySQLDSN: process.NewDSN(labserver.MySQLDatabase(t))}
	}, labserver.RedisURL},
	"postgres": {func(t testing.TB) database.Settings {
		return database.Settings{DatabaseURL: process.NewDSN(labserver.PostgresDatabase(t))}
	}, labserver.RedisURL},
}

// everyWorld runs a test in each of them.
func everyWorld(t *testing.T, test func(t *testing.T, s *site)) {
	t.Helper()
	for name, w := range labserver.Databases(worlds) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newSiteIn(t, w))
		})
	}
}

func newSite(t testing.TB, change ...func(*Config, *Deps)) *site {
	t.Helper()
	return newSiteIn(t, worlds["sqlite"], change...)
}

func newSiteIn(t testing.TB, in world, change ...func(*Config, *Deps)) *site {
	t.Helper()
	at := install(t, in)
	mq, err := wiring.MQ(at.parts)
	require.NoError(t, err)
	s := &site{mq: mq, keys: auth.New(at.parts.Store, at.env.Log, time.Now), trail: audit.New(at.parts.Store, at.env.Log)}
	s.bench = newBench(t, append([]func(*Config, *Deps){func(_ *Config, d *Deps) {
		d.Outbox = outbox.NewStore(at.parts.Store)
		d.Service, d.Auth, d.Keys, d.Sessions, d.Audit, d.DeadLetters, d.MQ = at.app, s.keys, s.keys, s.keys, s.trail, at.deadLetters(), mq
		d.Settings = process.EffectiveSettings(&at.shared)
		d.Metrics, d.Bulk, d.Checks, d.Views = process.MetricsHandler(at.env), at.bulk, at.checks, views.New(at.parts.Store)
	}}, change...)...)
	s.installation, s.people, s.bench.trail = at, nil, nil // there is nothing fake
	s.secrets = map[string]string{"anonymous": nobody, "garbage": auth.NewSecret()}
	for who, key := range map[string]auth.NewKey{
		"owner": {UserID: "ada", Role: taskstate.RoleUser}, "reader": {UserID: "ada", Role: taskstate.RoleUser},
		"other": {UserID: "bob", Role: taskstate.RoleUser}, "operator": {UserID: "root", Role: taskstate.RoleOperator},
		"watcher": {UserID: "root", Role: taskstate.RoleOperator},
		"viewer":  {UserID: "ada", Role: taskstate.RoleUser}, "lookout": {UserID: "root", Role: taskstate.RoleOperator},
	} {
		if who == "viewer" || who == "lookout" {
			key.Scopes, _ = auth.ParseScopes("status")
		}
		if who == "reader" || who == "watcher" {
			key.Scopes, _ = auth.ParseScopes("read")
		}
		s.secrets[who], _, err = s.keys.Create(t.Context(), key)
		require.NoError(t, err)
	}
	// Everybody has a default base, or whose request finds none would tell nothing.
	for _, who := range []string{"owner", "other", "operator"} {
		s.accept(s.secrets[who], "hello.txt", "hello of "+who)
	}
	w := s.send(s.secrets["owner"], http.MethodPost, "/api/knowledge/bases", `{"name":"elsewhere"}`)
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	s.secrets["elsewhere"], s.secrets["inside"] = s.limited("elsewhere"), s.limited("default")
	return s
}

// secretOf makes a key of a user.
func (s *site) secretOf(user string) string {
	s.t.Helper()
	secret, _, err := s.keys.Create(s.t.Context(), auth.NewKey{UserID: user, Role: taskstate.RoleUser})
	require.NoError(s.t, err, "%+q", user)
	return secret
}

// limited makes a key of ada's that is limited to a knowledge base.
func (s *site) limited(base string) string {
	s.t.Helper()
	secret, _, err := s.keys.Create(s.t.Context(), auth.NewKey{UserID: "ada", Role: taskstate.RoleUser, Bases: []string{base}})
	require.NoError(s.t, err)
	return secret
}

// exec changes rows past every check.
func (s *site) exec(query string, args ...any) {
	s.t.Helper()
	s.installation.exec(s.t, query, args...)
}

// rowsOf are all rows of a table, one text each.
func (s *site) rowsOf(table string) []string {
	rows, err := s.parts.Store.Reader().QueryContext(s.t.Context(), "SELECT * FROM "+table)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(s.t, err)
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	var out []string
	for rows.Next() {
		require.NoError(s.t, rows.Scan(into...))
		row := []byte(table)
		for _, value := range values {
			row = strconv.AppendBool(append(strconv.AppendInt(append(row, ' '), int64(len(value)), 10), ' '), value == nil)
			row = append(row, value...)
		}
		out = append(out, string(row))
	}
	require.NoError(s.t, rows.Err())
	return out
}

// rows are all rows that belong to anybody, one text each, and the names of the stored files.
func (s *site) rows() []string {
	s.t.Helper()
	var out []string
	for _, table := range []string{
		"ingest_task", "ingest_task_transition", "knowledge_base", "knowledge_document", "knowledge_segment", "document_version",
		"document_metadata", "stored_file", "vector_garbage", "upload_request", "outbox_event", "mirror_failure",
	} {
		out = append(out, s.rowsOf(table)...)
	}
	require.NoError(s.t, filepath.WalkDir(filepath.Join(s.dir, "uploads"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, "file "+path)
		}
		return err
	}))
	slices.Sort(out)
	return out
}

// queued is what Redis holds of topics and dead letters: each key with its content.
func (s *site) queued() (out []string) {
	s.t.Helper()
	redis := wiredredis.Of(s.parts.Transports).Client
	for _, pattern := range []string{"stream:*", "streaming:mq:topic*", s.shared.Queue.DLQKey} {
		keys, err := redis.Do(s.t.Context(), redis.B().Keys().Pattern(pattern).Build()).AsStrSlice()
		require.NoError(s.t, err)
		for _, key := range keys {
			kind, err := redis.Do(s.t.Context(), redis.B().Type().Key(key).Build()).ToString()
			require.NoError(s.t, err)
			if kind == "stream" {
				n, err := redis.Do(s.t.Context(), redis.B().Xlen().Key(key).Build()).AsInt64()
				require.NoError(s.t, err)
				kind = fmt.Sprint("stream of ", n)
			}
			out = append(out, key+" "+kind)
		}
	}
	slices.Sort(out)
	return out
}

// hash is the content of all rows and files, and of what Redis holds of topics, in short.
func (s *site) hash() string {
	sum := sha256.Sum256([]byte(strings.Join(append(s.rows(), s.queued()...), "\n")))
	return hex.EncodeToString(sum[:])
}

const unknownID = "0190a6e0-0000-7000-8000-999999999999"

// probes are the ways besides the path in which a request names an object: route → each parameter that takes an id.
// ada's object and one that does not exist have to answer bob alike.
func probes() map[string][]func(s *site, o belongings) *http.Request {
	query := func(method, path, name string, id func(belongings) string) func(*site, belongings) *http.Request {
		return func(s *site, o belongings) *http.Request {
			return s.request(s.secrets["other"], method, path+"?"+name+"="+id(o), nil)
		}
	}
	base := func(o belongings) string { return o.base }
	document := func(o belongings) string { return o.document }
	header := func(path, name string, value func(*site, belongings) string) func(*site, belongings) *http.Request {
		return func(s *site, o belongings) *http.Request {
			method, target, _ := strings.Cut(strings.NewReplacer("TASK", o.task, "DOCUMENT", o.document, "BASE", o.base).Replace(path), " ")
			return s.request(s.secrets["other"], method, target, nil, name, value(s, o))
		}
	}
	form := func(target string, inQuery bool) func(*site, belongings) *http.Request {
		return func(s *site, o belongings) *http.Request {
			parts, path := []part{file("p.txt", "probe")}, target
			if inQuery {
				path += "?knowledgeBase=" + o.base
			} else {
				parts = append(parts, part{"knowledgeBase", "", o.base})
			}
			body, kind := form(s.t, parts...)
			return s.request(s.secrets["other"], http.MethodPost, path, body, "Content-Type", kind)
		}
	}
	star := func(*site, belongings) string { return "*" }
	one := func(*site, belongings) string { return "1" }
	return map[string][]func(*site, belongings) *http.Request{
		"GET /api/knowledge/bases":        {query("GET", "/api/knowledge/bases", "knowledgeBase", base)},
		"GET /api/knowledge/documents":    {query("GET", "/api/knowledge/documents", "knowledgeBase", base)},
		"GET /api/knowledge/failures":     {query(http.MethodGet, "/api/knowledge/failures", "knowledgeBase", base)},
		"GET /api/knowledge/tasks/counts": {query(http.MethodGet, "/api/knowledge/tasks/counts", "knowledgeBase", base)},
		"GET /api/knowledge/tasks": {
			query("GET", "/api/knowledge/tasks", "knowledgeBase", base), query("GET", "/api/knowledge/tasks", "documentId", document),
		},
		"POST /api/knowledge/documents/upload":       {form("/api/knowledge/documents/upload", false), form("/api/knowledge/documents/upload", true)},
		"POST /api/knowledge/documents/upload-async": {form(asyncPath, false), form(asyncPath, true)},
		"POST /api/knowledge/search": {func(s *site, o belongings) *http.Request {
			return s.request(s.secrets["other"], "POST", "/api/knowledge/search", strings.NewReader(`{"query":"text","knowledgeBase":"`+o.base+`"}`), "Content-Type", "application/json")
		}},
		"PATCH /api/knowledge/bases/:base": {func(s *site, o belongings) *http.Request {
			return s.request(s.secrets["other"], "PATCH", "/api/knowledge/bases/"+o.base, strings.NewReader(`{"searchMode":"text"}`), "Content-Type", "application/json", "If-Match", "*")
		}},
		"GET /api/knowledge/tasks/:taskId/events":     {header("GET /api/knowledge/tasks/TASK/events", "Last-Event-ID", one)},
		"POST /api/knowledge/tasks/:taskId/cancel":    {header("POST /api/knowledge/tasks/TASK/cancel", "If-Match", star)},
		"POST /api/knowledge/tasks/:taskId/retry":     {header("POST /api/knowledge/tasks/TASK/retry", "If-Match", star)},
		"DELETE /api/knowledge/documents/:documentId": {header("DELETE /api/knowledge/documents/DOCUMENT", "If-Match", star)},
		"DELETE /api/knowledge/bases/:base":           {header("DELETE /api/knowledge/bases/BASE", "If-Match", star)},
		"GET /api/knowledge/tasks/:taskId":            {header("GET /api/knowledge/tasks/TASK", "If-None-Match", star)},
		"GET /api/knowledge/documents/:documentId":    {header("GET /api/knowledge/documents/DOCUMENT", "If-None-Match", star)},
		"GET /api/knowledge/bases/:base":              {header("GET /api/knowledge/bases/BASE", "If-None-Match", star)},
		"PUT /api/knowledge/documents/:documentId":    {header("PUT /api/knowledge/documents/DOCUMENT", "If-Match", star), header("PUT /api/knowledge/documents/DOCUMENT", "Idempotency-Key", one)},
	}
}

// idParams name objects in a query.
var idParams = []string{"knowledgeBase", "documentId", "taskId", "base", "keyId"}

// Unknown and foreign objects answer the same, byte for byte but the request's id (ASVS 8.2.2), wherever they are named,
// and nothing of the owner's is touched.
func TestForeignAndUnknownLookTheSame(t *testing.T) {
	t.Parallel()
	everyWorld(t, foreignLooksUnknown)
}

func foreignLooksUnknown(t *testing.T, s *site) {
	table := probes()
	unknown := belongings{task: unknownID, document: unknownID, base: unknownID, message: unknownID, operation: unknownID, view: unknownID}
	for _, r := range s.g.routes {
		name := r.Method + " " + r.Path
		if !strings.HasPrefix(r.Path, "/api/") {
			continue
		}
		object := s.belonging(r)
		before := s.hash()
		if strings.Contains(r.Path, ":") {
			foreign := s.walk(r, object, "other")
			require.Equal(t, http.StatusNotFound, foreign.Code, name)
			require.Equal(t, s.bare(s.walk(r, unknown, "other")), s.bare(foreign), name)
		}
		need := 0
		for _, p := range r.Query {
			if slices.Contains(idParams, p) {
				need++
			}
		}
		require.GreaterOrEqual(t, len(table[name]), need, "%s takes ids in its query: give it probes", name)
		for i, probe := range table[name] {
			foreign, missing := s.do(probe(s, object)), s.do(probe(s, unknown))
			require.NotContains(t, foreign.Body.String(), object.document, "%s probe %d", name, i)
			require.Equal(t, s.bare(missing), s.bare(foreign), "%s probe %d", name, i)
		}
		require.Equal(t, before, s.hash(), name)
	}
	for name := range table {
		require.True(t, slices.ContainsFunc(s.g.routes, func(r web.Route) bool { return r.Method+" "+r.Path == name }), "no route %s", name)
	}
}

// bare is an answer without what differs from request to request.
func (b *bench) bare(w *httptest.ResponseRecorder) string {
	h := w.Header().Clone()
	id := h.Get("X-Request-Id")
	h.Del("X-Request-Id")
	var head strings.Builder
	require.NoError(b.t, h.Write(&head))
	return fmt.Sprint(w.Code, "\n", head.String(), "\n", strings.ReplaceAll(w.Body.String(), id, "ID"))
}
