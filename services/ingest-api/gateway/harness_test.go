package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/auth"
	"github.com/millweir/millweir/pkg/auth/audit"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
)

// The callers of the tests, by their secret.
const (
	ada      = "ada"      // a user
	bob      = "bob"      // another user
	operator = "operator" // the operator

	adaReads      = "ada-reads"      // ada's key with the scope read only
	operatorReads = "operator-reads" // the operator's

	nobody = "" // no key at all
)

// people is an Authenticator that knows the callers above.
type people struct {
	mu  sync.Mutex
	err error
}

func (p *people) Authenticate(_ context.Context, secret string) (auth.Principal, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil:
		return auth.Principal{}, p.err
	case secret == ada || secret == bob:
		return auth.Principal{UserID: secret, Role: taskstate.RoleUser, Scopes: auth.AllScopes(), KeyID: "k-" + secret}, nil
	case secret == operator:
		return auth.Principal{UserID: operator, Role: taskstate.RoleOperator, Scopes: auth.AllScopes()}, nil
	}
	read, _ := auth.ParseScopes("read")
	switch secret {
	case adaReads:
		return auth.Principal{UserID: ada, Role: taskstate.RoleUser, Scopes: read, KeyID: "k-" + secret}, nil
	case operatorReads:
		return auth.Principal{UserID: operator, Role: taskstate.RoleOperator, Scopes: read}, nil
	}
	return auth.Principal{}, fmt.Errorf("look: %w", auth.ErrInvalidKey)
}

// memoryTrail is an AuditLog in memory.
type memoryTrail struct {
	mu     sync.Mutex
	events []audit.Event // the newest first
}

func (l *memoryTrail) Tried(e audit.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID, e.Times = int64(len(l.events)+1), 1
	l.events = append([]audit.Event{e}, l.events...)
}

func (l *memoryTrail) Note(e audit.Event) taskstate.TxFunc {
	return func(context.Context, taskstate.Tx, taskstate.DBClock) error {
		l.Tried(e)
		return nil
	}
}

func (l *memoryTrail) Write(_ context.Context, e audit.Event) error {
	l.Tried(e)
	return nil
}

func (l *memoryTrail) List(_ context.Context, q audit.Query) (out []audit.Event, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if (q.Before == 0 || e.ID < q.Before) && (q.Action == "" || q.Action == e.Action) && (q.Actor == "" || q.Actor == e.Source.Actor) && len(out) < q.Limit {
			out = append(out, e)
		}
	}
	return out, nil
}

// bench is a gateway over an installation on SQLite, in AUTH_MODE=keys.
type bench struct {
	t             testing.TB
	g             *Gateway
	*installation // nil: the test has a service of its own
	svc           *faulty
	people        *people
	trail         *memoryTrail
	log           *logBuffer
	reg           *prometheus.Registry

	secrets map[string]string // of the walkers
}

// logBuffer keeps log lines.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func testConfig() Config {
	return Config{
		Addr: "127.0.0.1:0", AuthMode: AuthKeys, UploadMaxBytes: 1 << 20, UploadMaxRequestBytes: 4 << 20,
		UploadRateWindow: 60, AuthFailWindow: 60, EventsMaxClients: 100,
		UploadIdleTimeout: time.Minute, UploadMaxDuration: time.Hour, ShutdownGrace: time.Minute, // a test that stands still ends no upload
	}
}

func newBench(t testing.TB, change ...func(*Config, *Deps)) *bench {
	t.Helper()
	b := &bench{
		t: t, people: &people{}, trail: &memoryTrail{}, log: &logBuffer{}, reg: prometheus.NewRegistry(),
		secrets: map[string]string{
			"owner": ada, "other": bob, "anonymous": nobody, "operator": operator, "garbage": "mw_live_x", "reader": adaReads, "watcher": operatorReads,
		},
	}
	cfg := testConfig()
	deps := Deps{
		Auth: b.people, Keys: &keyring{}, Audit: b.trail, Outbox: noEvents{}, DeadLetters: noDeadLetters{}, Registerer: b.reg,
		Logger: slog.New(slog.NewJSONHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&cfg, &deps)
	}
	if deps.Service == nil {
		b.installation = install(t, worlds["sqlite"])
		b.svc = newFaulty(b.app)
		deps.Service, deps.Workflows, deps.Bulk, deps.Checks = b.svc, b.known, b.bulk, b.checks
	}
	var err error
	b.g, err = New(cfg, deps)
	require.NoError(t, err)
	return b
}

// request makes a request of somebody; headers are name, value, …
func (b *bench) request(who, method, target string, body io.Reader, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(b.t.Context(), method, target, body)
	r.Host = "127.0.0.1:8081"
	if who != nobody {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// do sends a request and compares the answer with the description.
func (b *bench) do(r *http.Request) *httptest.ResponseRecorder {
	b.t.Helper()
	w := httptest.NewRecorder()
	b.g.ServeHTTP(w, r)
	for _, route := range b.g.engine.Routes() {
		if route.Method == r.Method && pathFits(route.Path, r.URL.EscapedPath()) {
			checkAnswer(b.t, b.g.api, route.Method, route.Path, w)
			break
		}
	}
	require.NotEmpty(b.t, w.Header().Get("X-Request-Id"))
	require.Equal(b.t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	if w.Code >= 400 && w.Header().Get("Content-Type") == "application/problem+json" {
		require.Equal(b.t, w.Header().Get("X-Request-Id"), b.problem(w).RequestID)
		require.NotEmpty(b.t, b.problem(w).Message)
		require.NotEmpty(b.t, b.problem(w).Remedy)
	}
	return w
}

// pathFits reports whether a path is one of a route; routes without parameters come first in no order, so exact ones win.
func pathFits(route, path string) bool {
	a, b := strings.Split(route, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !strings.HasPrefix(a[i], ":") {
			return false
		}
	}
	// /internal/tasks/stats is not a task, /documents/upload not a document.
	last := b[len(b)-1]
	return a[len(a)-1] == last || last != "stats" && last != "suspended" && last != "upload" && last != "upload-async"
}

func (b *bench) get(who, target string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(b.request(who, http.MethodGet, target, nil, headers...))
}

// send sends a JSON body.
func (b *bench) send(who, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	b.t.Helper()
	headers = append([]string{"Content-Type", "application/json"}, headers...)
	return b.do(b.request(who, method, target, strings.NewReader(body), headers...))
}

// part is one part of a form; a file when name is not empty.
type part struct{ field, name, body string }

func file(name, body string) part { return part{"file", name, body} }

// form renders parts.
func form(t testing.TB, parts ...part) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	for _, p := range parts {
		h := textproto.MIMEHeader{}
		disposition := fmt.Sprintf("form-data; name=%q", p.field)
		if p.name != "" {
			disposition += `; filename="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(p.name) + `"`
		}
		h.Set("Content-Disposition", disposition)
		out, err := w.CreatePart(h)
		require.NoError(t, err)
		_, err = io.WriteString(out, p.body)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return body, w.FormDataContentType()
}

const asyncPath = "/api/knowledge/documents/upload-async"

// upload sends a form.
func (b *bench) upload(who, target string, headers []string, parts ...part) *httptest.ResponseRecorder {
	b.t.Helper()
	body, kind := form(b.t, parts...)
	method := http.MethodPost
	if strings.HasPrefix(target, "PUT ") {
		method, target = http.MethodPut, strings.TrimPrefix(target, "PUT ")
	}
	return b.do(b.request(who, method, target, body, append([]string{"Content-Type", kind}, headers...)...))
}

// accept uploads one text and returns the accepted task.
func (b *bench) accept(who, name, body string) wire.AcceptedTask {
	b.t.Helper()
	w := b.upload(who, asyncPath, nil, file(name, body))
	require.Equal(b.t, http.StatusAccepted, w.Code, w.Body.String())
	return decode[wire.AcceptedTask](b.t, w)
}

func decode[T any](t testing.TB, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &v), w.Body.String())
	return v
}

func (b *bench) problem(w *httptest.ResponseRecorder) wire.Problem {
	b.t.Helper()
	require.Equal(b.t, "application/problem+json", w.Header().Get("Content-Type"), w.Body.String())
	return decode[wire.Problem](b.t, w)
}

// refused asserts an error's status and code.
func (b *bench) refused(w *httptest.ResponseRecorder, status int, code string) wire.Problem {
	b.t.Helper()
	require.Equal(b.t, status, w.Code, w.Body.String())
	p := b.problem(w)
	require.Equal(b.t, code, p.Code, w.Body.String())
	require.Equal(b.t, status, p.Status)
	return p
}

// move changes a task's status as a worker would.
func (b *bench) move(id string, to taskstate.Status) {
	b.t.Helper()
	b.work(b.t, id, to)
}

// held is how many received files are neither accepted nor discarded.
func (b *bench) held() int { return len(b.files(b.t)) - b.count(b.t, "stored_file") }

// streams is how many event streams are open.
func (b *bench) streams() float64 { return testutil.ToFloat64(b.g.metrics.Streams) }

// keyring is a KeyAdmin in memory.
type keyring struct {
	mu   sync.Mutex
	keys []auth.Key
}

func (k *keyring) Create(_ context.Context, in auth.NewKey) (string, auth.Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := time.Date(2026, 1, 2, 3, 4, len(k.keys), 0, time.UTC)
	key := auth.Key{ID: fmt.Sprintf("0190a6e0-0000-7000-8000-%012d", 900+len(k.keys)), UserID: in.UserID, Name: in.Name, Role: in.Role, Scopes: in.Scopes, Shown: "mw_live_abcd", CreatedAt: at}
	if in.TTL > 0 {
		key.ExpiresAt = at.Add(in.TTL)
	}
	k.keys = append([]auth.Key{key}, k.keys...)
	return "mw_live_secret", key, nil
}

func (k *keyring) List(_ context.Context, after *auth.Key, limit int) (out []auth.Key, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range k.keys {
		if (after == nil || key.CreatedAt.Before(after.CreatedAt)) && len(out) < limit {
			out = append(out, key)
		}
	}
	return out, nil
}

func (k *keyring) Revoke(_ context.Context, _ audit.Source, id string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, key := range k.keys {
		if key.ID == id {
			k.keys[i].RevokedAt = key.CreatedAt.Add(time.Hour)
			return nil
		}
	}
	return fmt.Errorf("revoke: %w", auth.ErrKeyNotFound)
}
