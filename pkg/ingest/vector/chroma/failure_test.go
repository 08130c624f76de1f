package chroma_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/vector"
	"github.com/millweir/millweir/pkg/ingest/vector/chroma"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

func newStore(t *testing.T, base string, change func(*chroma.Config)) *chroma.Store {
	t.Helper()
	cfg := chroma.NewDefaultConfig()
	cfg.BaseURL = base
	if change != nil {
		change(&cfg)
	}
	store, err := chroma.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// fakeServer returns every request for a collection's id with "c1" and the rest by handle.
func fakeServer(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/collections") || r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/collections/kb-") {
			_, _ = w.Write([]byte(`{"id":"c1","name":"x"}`))
			return
		}
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

// writeServer is a fakeServer that holds nothing: a writer asks that before it adds.
func writeServer(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	return fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/get") {
			answer(w, http.StatusOK, `{}`)
			return
		}
		handle(w, r)
	})
}

func answer(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// A "not found" of a proxy says nothing about a collection, and its page is no receipt: neither may end a deletion, empty a search or
// pass for a write. A real server's "not found" is in
// TestCollectionDroppedByAnotherProcess.
func TestWhatAProxyReturnsIsNotChromas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
	}{"not found": {404, "default backend - 404"}, "a page": {200, "<html>log in</html>"}, "nothing": {404, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var strange atomic.Bool
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strange.Load() {
					answer(w, c.status, c.body)
					return
				}
				answer(w, http.StatusOK, `{"id":"c1","name":"x"}`)
			}))
			t.Cleanup(server.Close)
			rows := vectortest.RandomRows(0, 1, 4, "v")
			for _, known := range []bool{false, true} { // the collection's id
				store := newStore(t, server.URL, nil)
				strange.Store(false)
				if known {
					require.NoError(t, store.Upsert(t.Context(), "base1", rows))
				}
				strange.Store(true)
				_, queryErr := store.Query(t.Context(), "base1", rows[0].Values, 1, nil)
				_, getErr := store.Get(t.Context(), "base1", []string{"a"}, false)
				_, listErr := store.List(t.Context(), "base1", 0, 1)
				for operation, err := range map[string]error{
					"upsert": store.Upsert(t.Context(), "base1", rows), "delete": store.Delete(t.Context(), "base1", []string{"a"}),
					"query": queryErr, "get": getErr, "list": listErr, "drop": store.Drop(t.Context(), "base1"),
				} {
					var f *ingest.Failure
					require.ErrorAs(t, err, &f, "%s, known: %v", operation, known)
					require.False(t, f.Permanent, operation)
				}
			}
		})
	}
}

// undisturbed repeats what took long: tries within one attempt end after 2 s (design D16), and a machine that stalls uses
// them up. What is not held up takes less than half a second.
func undisturbed(try func()) {
	for took := time.Hour; took > time.Second; {
		start := time.Now()
		try()
		took = time.Since(start)
	}
}

// What Chroma says decides whether a later attempt may cure it.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status    int
		header    [2]string
		body      string
		code      ingest.Code
		permanent bool
		after     time.Duration
		calls     int64
	}{
		"bad request":   {status: 400, body: `{"error":"InvalidArgumentError","message":"no"}`, code: ingest.CodeVectorRejected, permanent: true, calls: 1},
		"conflict":      {status: 409, code: ingest.CodeVectorRejected, permanent: true, calls: 1},
		"too large":     {status: 413, body: "length limit exceeded", code: ingest.CodeVectorRejected, permanent: true, calls: 1},
		"unprocessable": {status: 422, code: ingest.CodeVectorRejected, permanent: true, calls: 1},
		"dimension": {status: 400, body: `{"error":"InvalidArgumentError","message":"Collection expecting embedding with dimension of 3, got 4"}`,
			code: ingest.CodeDimension, permanent: true, calls: 1},
		"variables": {status: 500, body: `{"error":"InternalError","message":"error returned from database: (code: 1) too many SQL variables"}`,
			code: ingest.CodeVectorRejected, permanent: true, calls: 1},
		"broken":         {status: 500, body: `{"error":"InternalError","message":"disk"}`, code: ingest.CodeVector, calls: 3},
		"gateway":        {status: 502, body: "<html>bad gateway</html>", code: ingest.CodeVector, calls: 3},
		"unavailable":    {status: 503, code: ingest.CodeVector, calls: 3},
		"overloaded":     {status: 503, header: [2]string{"Retry-After", "40"}, code: ingest.CodeThrottled, after: 40 * time.Second, calls: 1},
		"rate limit":     {status: 429, header: [2]string{"Retry-After", "7"}, code: ingest.CodeThrottled, after: 7 * time.Second, calls: 1},
		"rate, no time":  {status: 429, code: ingest.CodeThrottled, calls: 3},
		"unauthorised":   {status: 401, code: ingest.CodeVector, calls: 1},
		"redirect":       {status: 302, header: [2]string{"Location", "http://redirected.invalid/"}, code: ingest.CodeVector, calls: 1},
		"gone and again": {status: 404, body: `{"error":"NotFoundError","message":"Collection [c1] does not exist."}`, code: ingest.CodeVector, calls: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			server := writeServer(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				if c.header[0] != "" {
					w.Header().Set(c.header[0], c.header[1])
				}
				answer(w, c.status, c.body)
			})
			store := newStore(t, server.URL, nil)
			var err error
			undisturbed(func() {
				calls.Store(0)
				err = store.Upsert(t.Context(), "base1", vectortest.RandomRows(0, 1, 4, "v"))
			})
			var f *ingest.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, c.code, f.Code, f.Error())
			require.Equal(t, c.permanent, f.Permanent)
			require.Equal(t, c.code == ingest.CodeThrottled, f.Throttled)
			require.Equal(t, c.after, f.RetryAfter)
			require.Equal(t, c.calls, calls.Load())
			if c.code != ingest.CodeDimension {
				require.Contains(t, f.Error(), fmt.Sprintf("/collections/c1/add: %d ", c.status))
			}
		})
	}
}

// The reproduction of contract §7 needs the refused connection in lastError.
func TestRefusedConnectionIsNamed(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // nobody listens there; of a port that was free a moment ago that is not known
	store := newStore(t, "http://user:p4ss@"+addr+"?key=s3cret", func(c *chroma.Config) { c.Token = "tok3n" })
	start := time.Now()
	for name, call := range map[string]func() error{
		"upsert": func() error {
			return store.Upsert(t.Context(), "base1", vectortest.RandomRows(0, 1, 4, "v"))
		},
		"delete": func() error { return store.Delete(t.Context(), "base1", []string{"a"}) },
		"query":  func() error { _, err := store.Query(t.Context(), "base1", []float32{1}, 1, nil); return err },
		"list":   func() error { _, err := store.List(t.Context(), "base1", 0, 1); return err },
		"drop":   func() error { return store.Drop(t.Context(), "base1") },
		"ping":   func() error { return store.Ping(t.Context()) },
	} {
		err := call()
		f := ingest.AsFailure(err)
		require.Equal(t, ingest.CodeVector, f.Code, name)
		require.False(t, f.Permanent)
		require.Regexp(t, `^(POST|GET|DELETE) http://`+addr+`/api/v2/[^?@ ]*: dial tcp `+addr+`: connect: connection refused$`, err.Error())
	}
	require.Less(t, time.Since(start), time.Minute)
}

func TestOneFailureIsCuredInsideTheAttempt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := writeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) < 3 {
			answer(w, http.StatusInternalServerError, "")
			return
		}
		answer(w, http.StatusOK, "{}")
	})
	store := newStore(t, server.URL, nil)
	var err error
	undisturbed(func() {
		calls.Store(0)
		err = store.Upsert(t.Context(), "b", vectortest.RandomRows(0, 1, 4, "v"))
	})
	require.NoError(t, err)
	require.EqualValues(t, 3, calls.Load())
}

func TestTooLargeIsSplit(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	written := map[string]int{}
	server := writeServer(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			IDs       []string            `json:"ids"`
			Metadatas []map[string]string `json:"metadatas"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		if len(body.IDs) > 30 {
			answer(w, http.StatusRequestEntityTooLarge, "length limit exceeded")
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i, id := range body.IDs {
			if len(body.Metadatas[i]) == 2 {
				written[id]++
			}
		}
		answer(w, http.StatusOK, "{}")
	})
	rows := vectortest.RandomRows(0, 450, 4, "v")
	require.NoError(t, newStore(t, server.URL, nil).Upsert(t.Context(), "b", rows))
	require.Len(t, written, 450)
	for id, n := range written {
		require.Equal(t, 1, n, id)
	}
}

// Four writers on one collection are slower than one (114 rows/s against 287, measured), so there is one; other collections do not wait.
func TestOneWriterPerCollection(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = http.MaxBytesReader(w, r.Body, 1<<20).Read(make([]byte, 1))
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		answer(w, http.StatusOK, "{}")
	})
	store := newStore(t, server.URL, nil)
	var group sync.WaitGroup
	for n := range 20 {
		group.Go(func() {
			if err := store.Upsert(t.Context(), "one", vectortest.RandomRows(n, n+1, 4, "v")); err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	require.EqualValues(t, 1, most.Load())

	// While one collection's writer hangs, another collection's goes through, and a waiter can leave.
	reached, release := make(chan struct{}), make(chan struct{})
	hanging := writeServer(t, func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			IDs []string `json:"ids"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		if body.IDs[0] == vectortest.ID(1) {
			close(reached)
			<-release
		}
		answer(w, http.StatusOK, "{}")
	})
	store = newStore(t, hanging.URL, nil)
	group.Go(func() { _ = store.Upsert(t.Context(), "slow", vectortest.RandomRows(1, 2, 4, "v")) })
	<-reached
	require.NoError(t, store.Upsert(t.Context(), "other", vectortest.RandomRows(2, 3, 4, "v")))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, store.Upsert(ctx, "slow", vectortest.RandomRows(3, 4, 4, "v")), context.DeadlineExceeded)
	close(release)
	group.Wait()
}

func TestDeleteIsVerified(t *testing.T) {
	t.Parallel()
	var deletes atomic.Int64
	var stubborn atomic.Bool
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/delete"):
			deletes.Add(1)
			answer(w, http.StatusOK, `{"deleted":2}`) // which cannot be relied on
		case stubborn.Load() || deletes.Load() < 2:
			answer(w, http.StatusOK, `{"ids":["b"]}`)
		default:
			answer(w, http.StatusOK, `{"ids":[]}`)
		}
	})
	store := newStore(t, server.URL, nil)
	require.NoError(t, store.Delete(t.Context(), "base1", []string{"a", "b"}))
	require.EqualValues(t, 2, deletes.Load())
	stubborn.Store(true)
	err := store.Delete(t.Context(), "base1", []string{"a", "b"})
	require.ErrorContains(t, err, "still there")
	require.Equal(t, ingest.CodeVector, ingest.AsFailure(err).Code)
}

// Chroma 1.0.0 to 1.5.8 runs code of unauthenticated callers (CVE-2026-45829).
func TestPingRefusesVersions(t *testing.T) {
	t.Parallel()
	for version, c := range map[string]struct{ base64, good bool }{
		"1.0.0":        {base64: true, good: true}, // what the Rust server of any release says
		"1.0.0 ":       {base64: false, good: false},
		"1.0.20":       {base64: true, good: false},
		"1.4.9":        {base64: true, good: false},
		"1.5.8":        {base64: true, good: false},
		"1.5.9":        {good: true},
		"1.5.10":       {good: true},
		"1.6.0-beta.1": {good: true},
		"2.0.0":        {good: true},
		"0.6.3":        {good: false},
		"nonsense":     {good: false},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/version") {
					_ = json.NewEncoder(w).Encode(strings.TrimSpace(version))
					return
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"max_batch_size": 5461, "supports_base64_encoding": c.base64})
			}))
			defer server.Close()
			store := newStore(t, server.URL, nil)
			_, told, err := store.Version(t.Context())
			require.NoError(t, err)
			if version == "1.0.0" {
				require.Empty(t, told, "every release of the Rust server says so")
			} else {
				require.Equal(t, strings.TrimSpace(version), told)
			}
			err = store.Ping(t.Context())
			if c.good {
				require.NoError(t, err)
				return
			}
			require.Equal(t, ingest.CodeVector, ingest.AsFailure(err).Code)
			require.False(t, ingest.AsFailure(err).Permanent)
		})
	}
}

func TestTokenIsSentAndHidden(t *testing.T) {
	t.Parallel()
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusForbidden, r.Header.Get("Authorization")+" "+r.Header.Get("X-Chroma-Token"))
	})
	err := newStore(t, server.URL, func(c *chroma.Config) { c.Token = "tok3n-secret" }).
		Upsert(t.Context(), "b", vectortest.RandomRows(0, 1, 4, "v"))
	require.ErrorContains(t, err, "Bearer *** ***")
	require.Contains(t, ingest.AsFailure(err).Remedy, "CHROMA_TOKEN")
	require.NotContains(t, fmt.Sprintf("%+v", chroma.Config{Token: "tok3n-secret"}), "tok3n-secret")
}

func TestValidateNamesEverySetting(t *testing.T) {
	t.Parallel()
	err := chroma.Config{BaseURL: "127.0.0.1:8000", Tenant: "x", Database: "../../x", Timeout: time.Second}.Validate()
	for _, name := range []string{"CHROMA_BASE_URL", "CHROMA_TENANT", "CHROMA_DATABASE", "CHROMA_TIMEOUT"} {
		require.ErrorContains(t, err, name+":")
	}
}

// From here on: a real server.

func TestCollectionDroppedByAnotherProcess(t *testing.T) {
	t.Parallel()
	url := labserver.Chroma(t).URL("")
	one, other, base := newStore(t, url, nil), newStore(t, url, nil), vectortest.Base(t)
	require.NoError(t, one.Upsert(t.Context(), base, vectortest.RandomRows(0, 3, 4, "v")))
	require.NoError(t, other.Drop(t.Context(), base))
	hits, err := one.Query(t.Context(), base, []float32{1, 0, 0, 0}, 3, nil)
	require.NoError(t, err)
	require.Empty(t, hits)
	require.NoError(t, one.Upsert(t.Context(), base, vectortest.RandomRows(0, 3, 4, "v")))
	require.NoError(t, other.Drop(t.Context(), base))
	require.NoError(t, other.Upsert(t.Context(), base, vectortest.RandomRows(5, 6, 4, "v")))
	require.NoError(t, one.Upsert(t.Context(), base, vectortest.RandomRows(6, 7, 4, "v")), "the id is resolved anew")
	ids, err := one.List(t.Context(), base, 0, 10)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{vectortest.ID(5), vectortest.ID(6)}, ids)
}

func TestTenantAndDatabaseAreMade(t *testing.T) {
	t.Parallel()
	url := labserver.Chroma(t).URL("")
	set := func(c *chroma.Config) { c.Tenant, c.Database = "millweir-test", "knowledge" }
	base := vectortest.Base(t)
	require.NoError(t, newStore(t, url, set).Upsert(t.Context(), base, vectortest.RandomRows(0, 3, 4, "v")))
	ids, err := newStore(t, url, nil).List(t.Context(), base, 0, 10)
	require.NoError(t, err)
	require.Empty(t, ids, "another database")
	ids, err = newStore(t, url, set).List(t.Context(), base, 0, 10)
	require.NoError(t, err)
	require.Len(t, ids, 3)
}

func TestSpaceIsCosineAndMetadataIsWhole(t *testing.T) {
	t.Parallel()
	url, base := labserver.Chroma(t).URL(""), vectortest.Base(t)
	require.NoError(t, newStore(t, url, nil).Upsert(t.Context(), base, []ingest.Vector{vectortest.Row(1, "v1", 3, 4)}))
	reply, err := http.Get(url + "/api/v2/tenants/default_tenant/databases/default_database/collections/" + vector.CollectionName(base))
	require.NoError(t, err)
	defer func() { _ = reply.Body.Close() }()
	var collection struct {
		ID            string `json:"id"`
		Configuration struct {
			HNSW struct {
				Space     string `json:"space"`
				Neighbors int    `json:"max_neighbors"`
				Search    int    `json:"ef_search"`
			} `json:"hnsw"`
		} `json:"configuration_json"`
	}
	require.NoError(t, json.NewDecoder(reply.Body).Decode(&collection))
	require.Equal(t, "cosine", collection.Configuration.HNSW.Space)
	require.Equal(t, [2]int{32, 400}, [2]int{collection.Configuration.HNSW.Neighbors, collection.Configuration.HNSW.Search})
	got, err := http.Post(url+"/api/v2/tenants/default_tenant/databases/default_database/collections/"+collection.ID+"/get",
		"application/json", strings.NewReader(`{"include":["metadatas"]}`))
	require.NoError(t, err)
	defer func() { _ = got.Body.Close() }()
	var rows struct {
		Metadatas []map[string]string `json:"metadatas"`
	}
	require.NoError(t, json.NewDecoder(got.Body).Decode(&rows))
	require.Equal(t, []map[string]string{{"document_id": "doc-v1", "birth": "v1"}}, rows.Metadatas)
}

// A base that was made by an older release keeps its collection, whatever index that has.
func TestACollectionWithAnotherIndexIsUsed(t *testing.T) {
	t.Parallel()
	url, base := labserver.Chroma(t).URL(""), vectortest.Base(t)
	made, err := http.Post(url+"/api/v2/tenants/default_tenant/databases/default_database/collections", "application/json",
		strings.NewReader(`{"name":"`+vector.CollectionName(base)+`","configuration":{"hnsw":{"space":"cosine"}}}`))
	require.NoError(t, err)
	require.NoError(t, made.Body.Close())
	require.Equal(t, http.StatusOK, made.StatusCode)
	store := newStore(t, url, nil)
	require.NoError(t, store.Upsert(t.Context(), base, []ingest.Vector{vectortest.Row(1, "v1", 3, 4)}))
	hits, err := store.Query(t.Context(), base, []float32{3, 4}, 1, nil)
	require.NoError(t, err)
	require.Len(t, hits, 1)
}

func TestManyBirths(t *testing.T) {
	t.Parallel()
	store, base := newStore(t, labserver.Chroma(t).URL(""), nil), vectortest.Base(t)
	births := make([]string, 40_000) // more than one request takes: Chroma returned 500
	for i := range births {
		births[i] = fmt.Sprintf("version-%d", i)
	}
	rows := append(vectortest.RandomRows(0, 3, 4, births[0]), vectortest.RandomRows(3, 6, 4, births[39_999])...)
	require.NoError(t, store.Upsert(t.Context(), base, append(rows, vectortest.RandomRows(6, 9, 4, "other")...)))
	hits, err := store.Query(t.Context(), base, rows[0].Values, 10, births)
	require.NoError(t, err)
	require.Len(t, hits, 6)
	require.Equal(t, rows[0].ID, hits[0].ID)
}
