package qdrant_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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
	"github.com/millweir/millweir/pkg/ingest/vector/qdrant"
	"github.com/millweir/millweir/pkg/ingest/vector/vectortest"
	"github.com/millweir/millweir/pkg/labserver"
)

const (
	held      = `{"result":{"config":{"params":{"vectors":{"size":4,"distance":"Cosine"}}},"payload_schema":{"birth":{}}},"status":"ok"}`
	completed = `{"result":{"operation_id":1,"status":"completed"},"status":"ok"}`
)

// fakeServer has every collection, with four values and its index; all else goes to handle.
func fakeServer(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.Count(r.URL.Path, "/") == 2 {
			reply(w, http.StatusOK, held)
			return
		}
		handle(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func reply(w http.ResponseWriter, status int, body string) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func one() []ingest.Vector { return vectortest.RandomRows(0, 1, 4, "v") }

// calls are one of each kind on a base of four values.
func calls(ctx context.Context, s *qdrant.Store, base string) map[string]func() error {
	return map[string]func() error{
		"upsert": func() error { return s.Upsert(ctx, base, one()) },
		"delete": func() error { return s.Delete(ctx, base, []string{vectortest.ID(2)}) },
		"query":  func() error { _, err := s.Query(ctx, base, []float32{1, 0, 0, 0}, 1, nil); return err },
		"get":    func() error { _, err := s.Get(ctx, base, []string{vectortest.ID(1)}, true); return err },
		"list":   func() error { _, err := s.List(ctx, base, 0, 1); return err },
		"drop":   func() error { return s.Drop(ctx, base+"-other") },
		"ping":   func() error { return s.Ping(ctx) },
	}
}

// requireTransient wants a failure that a later attempt may cure, and its remedy.
func requireTransient(t *testing.T, err error, remedy string) *ingest.Failure {
	t.Helper()
	var f *ingest.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, ingest.CodeVector, f.Code, f.Error())
	require.False(t, f.Permanent || f.Suspend || f.Throttled)
	require.Contains(t, f.Remedy, remedy, f.Error())
	return f
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

// What Qdrant says decides whether a later attempt may cure it.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	says := func(words string) string { return `{"status":{"error":"` + words + `"},"time":0.1}` }
	for name, c := range map[string]struct {
		status    int
		after     string
		body      string
		code      ingest.Code
		permanent bool
		wait      time.Duration
		calls     int64
		remedy    string
	}{
		"bad request":    {status: 400, body: says("Wrong input: no"), code: ingest.CodeVectorRejected, permanent: true, calls: 1, remedy: "refuses"},
		"bad format":     {status: 400, body: says("Format error in JSON body: x"), code: ingest.CodeVectorRejected, permanent: true, calls: 1, remedy: "refuses"},
		"validation":     {status: 422, body: says("Validation error in JSON body: [limit]"), code: ingest.CodeVectorRejected, permanent: true, calls: 1, remedy: "refuses"},
		"too large":      {status: 413, body: "too large", code: ingest.CodeVectorRejected, permanent: true, calls: 1, remedy: "refuses"},
		"dimension":      {status: 400, body: says("Wrong input: Vector dimension error: expected dim: 3, got 4"), code: ingest.CodeDimension, permanent: true, calls: 2, remedy: "make a new base"},
		"no key":         {status: 401, body: "Must provide an API key or an Authorization bearer token", code: ingest.CodeVector, calls: 1, remedy: "QDRANT_API_KEY"},
		"key of readers": {status: 403, body: says("Forbidden: Global write access is required"), code: ingest.CodeVector, calls: 1, remedy: "QDRANT_API_KEY"},
		"gone and again": {status: 404, body: says("Not found: Collection `kb-b` doesn't exist!"), code: ingest.CodeVector, calls: 2, remedy: "QDRANT_URL"},
		"other address":  {status: 404, body: "404 page not found", code: ingest.CodeVector, calls: 1, remedy: "QDRANT_URL"},
		"redirect":       {status: 302, code: ingest.CodeVector, calls: 1},
		"slow inside":    {status: 408, body: says("Timeout: search"), code: ingest.CodeVector, calls: 3},
		"broken":         {status: 500, body: says("Service internal error: disk"), code: ingest.CodeVector, calls: 3},
		"gateway":        {status: 502, body: "<html>bad gateway</html>", code: ingest.CodeVector, calls: 3},
		"unavailable":    {status: 503, body: says("Shard temporarily unavailable"), code: ingest.CodeVector, calls: 3},
		"overloaded":     {status: 503, after: "40", code: ingest.CodeThrottled, wait: 40 * time.Second, calls: 1},
		"disk full":      {status: 507, body: says("Insufficient storage"), code: ingest.CodeVector, calls: 1, remedy: "disk space"},
		"rate limit":     {status: 429, after: "7", body: says("Rate limiting exceeded: Write rate limit exceeded"), code: ingest.CodeThrottled, wait: 7 * time.Second, calls: 1},
		"rate, no time":  {status: 429, code: ingest.CodeThrottled, calls: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			server := fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
				reply(w, c.status, c.body)
			})
			store := newStore(t, server.URL, nil)
			var err error
			undisturbed(func() {
				calls.Store(0)
				err = store.Upsert(t.Context(), "base1", one())
			})
			var f *ingest.Failure
			require.ErrorAs(t, err, &f)
			require.Equal(t, c.code, f.Code, f.Error())
			require.Equal(t, c.permanent, f.Permanent)
			require.Equal(t, c.code == ingest.CodeThrottled, f.Throttled)
			require.Equal(t, c.wait, f.RetryAfter)
			require.Equal(t, c.calls, calls.Load())
			require.Contains(t, f.Remedy, c.remedy)
			if c.code != ingest.CodeDimension {
				require.Contains(t, f.Error(), fmt.Sprintf("PUT %s/collections/kb-base1/points: %d ", server.URL, c.status))
			}
		})
	}
}

// lastError names the refused connection, and no secret.
func TestRefusedConnectionIsNamed(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // nobody listens there
	store := newStore(t, "http://user:p4ss@"+addr+"?key=s3cret", func(c *qdrant.Config) { c.APIKey = "k3y" })
	for name, call := range calls(t.Context(), store, "base1") {
		f := requireTransient(t, call(), "could not be reached")
		require.Regexp(t, `^(PUT|POST|GET|DELETE) http://`+addr+`/[^?@ ]*: dial tcp `+addr+`: connect: connection refused$`, f.Error(), name)
	}
}

func TestOneFailureIsCuredInsideTheAttempt(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1:
			reply(w, http.StatusInternalServerError, "")
		case 2: // the connection is cut in the middle of the reply
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"result\":")
				_ = conn.Close()
			}
		default:
			reply(w, http.StatusOK, completed)
		}
	})
	store := newStore(t, server.URL, nil)
	var err error
	undisturbed(func() {
		calls.Store(0)
		err = store.Upsert(t.Context(), "b", one())
	})
	require.NoError(t, err)
	require.EqualValues(t, 3, calls.Load())
}

// A server that does not reply keeps nobody waiting for longer than the longest time of a request.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	server := fakeServer(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	defer close(end)
	store := newStore(t, server.URL, func(c *qdrant.Config) { c.Timeout = time.Second })
	for _, name := range []string{"upsert", "query"} {
		f := requireTransient(t, calls(t.Context(), store, "b")[name](), "could not be reached")
		require.ErrorContains(t, f, "no whole answer within 1s")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- store.Upsert(ctx, "b", one()) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// What is not Qdrant's reply is never taken for success.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ call, body, words string }{
		"not JSON":            {"upsert", "<html>welcome</html>", "not what it should be"},
		"no result":           {"upsert", `{"status":"ok"}`, "no result"},
		"null":                {"query", `{"result":null,"status":"ok"}`, "no result"},
		"only taken":          {"upsert", `{"result":{"operation_id":1,"status":"acknowledged"},"status":"ok"}`, "acknowledged"},
		"another kind":        {"get", `{"result":{"points":[]},"status":"ok"}`, "not what it should be"},
		"a row without score": {"query", `{"result":{"points":[{"id":"` + qdrant.PointID("a") + `","payload":{"id":"a"}}]}}`, "without a score"},
		"a row, no values":    {"get", `{"result":[{"id":"` + qdrant.PointID("a") + `","payload":{"id":"a"}}]}`, "without its vector"},
		"delete, not done":    {"delete", `{"result":{"operation_id":1,"status":"wait_timeout"}}`, "wait_timeout"},
		"drop, no result":     {"drop", `{}`, "no result"},
		"ping":                {"ping", `{"title":"nginx","version":"1.20"}`, "not Qdrant's API"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := fakeServer(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, c.body) })
			f := requireTransient(t, calls(t.Context(), newStore(t, server.URL, nil), "b")[c.call](), "")
			require.ErrorContains(t, f, c.words)
		})
	}
}

// A body over the server's max_request_size_mb is a 400 of Qdrant, a 413 of a proxy, and strict mode bounds the points of a write:
// what is too large is sent in halves.
func TestTooLargeIsSplit(t *testing.T) {
	t.Parallel()
	for words, status := range map[string]int{
		`{"status":{"error":"Payload error: JSON payload (33600110 bytes) is larger than allowed (limit: 33554432 bytes)."}}`: http.StatusBadRequest,
		`{"status":{"error":"Bad request: Limit exceeded 400 > 30 for \"upsert limit\". Help: Reduce it."}}`:                  http.StatusBadRequest,
		"too large": http.StatusRequestEntityTooLarge,
	} {
		var mu sync.Mutex
		written := map[string]int{}
		server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Points []struct {
					Payload map[string]string `json:"payload"`
				} `json:"points"`
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			if len(body.Points) > 30 {
				reply(w, status, words)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range body.Points {
				written[p.Payload["id"]]++
			}
			reply(w, http.StatusOK, completed)
		})
		require.NoError(t, newStore(t, server.URL, nil).Upsert(t.Context(), "b", vectortest.RandomRows(0, 450, 4, "v")))
		require.Len(t, written, 450)
		for id, n := range written {
			require.Equal(t, 1, n, id)
		}
	}
}

// A full request stays below the server's 32 MiB, whatever is in it.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	for _, dim := range []int{4, 3072, 65536} {
		var most, requests atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				reply(w, http.StatusOK, strings.Replace(held, `"size":4`, fmt.Sprintf(`"size":%d`, dim), 1))
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			most.Store(max(most.Load(), n))
			requests.Add(1)
			reply(w, http.StatusOK, completed)
		}))
		values := make([]float32, dim)
		for i := range values {
			values[i] = -1.1754944e-37 * (1 + rand.Float32())
		}
		values[0] = 1
		rows := make([]ingest.Vector, qdrant.RowsPerBody(dim)+1)
		for i := range rows {
			rows[i] = ingest.Vector{ID: strings.Repeat("\x01", 506) + fmt.Sprintf("%06d", i), DocumentID: strings.Repeat("\x01", 512), Birth: strings.Repeat("<", 512), Values: values}
		}
		require.NoError(t, newStore(t, server.URL, nil).Upsert(t.Context(), "b", rows))
		require.EqualValues(t, 2, requests.Load())
		require.Less(t, most.Load(), int64(30<<20))
		server.Close()
	}
}

func TestDeleteIsVerified(t *testing.T) {
	t.Parallel()
	var deletes atomic.Int64
	var stubborn atomic.Bool
	server := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/delete"):
			if r.URL.RawQuery == "wait=true&ordering=medium" {
				deletes.Add(1)
			}
			reply(w, http.StatusOK, completed)
		case stubborn.Load() || deletes.Load() < 2:
			reply(w, http.StatusOK, `{"result":[{"id":"`+qdrant.PointID("b")+`"}]}`)
		default:
			reply(w, http.StatusOK, `{"result":[]}`)
		}
	})
	store := newStore(t, server.URL, nil)
	require.NoError(t, store.Delete(t.Context(), "base1", []string{"a", "b"}))
	require.EqualValues(t, 2, deletes.Load())
	stubborn.Store(true)
	err := store.Delete(t.Context(), "base1", []string{"a", "b"})
	requireTransient(t, err, "")
	require.ErrorContains(t, err, "still there")
}

func TestPingRefusesVersions(t *testing.T) {
	t.Parallel()
	for version, good := range map[string]bool{"1.9.7": false, "1.10.0": true, "1.20.0": true, "1.18.0-dev": true, "2.0.0": true, "0.11.0": false, "nonsense": false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				reply(w, http.StatusOK, `{"title":"qdrant - vector search engine","version":"`+version+`"}`)
				return
			}
			reply(w, http.StatusOK, `{"result":{"exists":false},"status":"ok"}`)
		}))
		t.Cleanup(server.Close)
		if err := newStore(t, server.URL, nil).Ping(t.Context()); good {
			require.NoError(t, err, version)
		} else {
			requireTransient(t, err, "Upgrade Qdrant")
		}
	}
}

func TestValidateNamesEverySetting(t *testing.T) {
	t.Parallel()
	err := qdrant.Config{URL: "127.0.0.1:6333", Timeout: time.Millisecond}.Validate()
	require.ErrorContains(t, err, "QDRANT_URL: ")
	require.ErrorContains(t, err, "QDRANT_TIMEOUT: ")
	_, err = qdrant.New(qdrant.Config{})
	require.Error(t, err)
	require.NotContains(t, fmt.Sprintf("%+v", qdrant.Config{URL: "http://u:s3cret@h", APIKey: "s3cret"}), "s3cret")
	require.NotContains(t, qdrant.Config{APIKey: "s3cret"}.LogValue().String(), "s3cret")
}

// A collection that another program made is not written to.
func TestForeignCollection(t *testing.T) {
	t.Parallel()
	for _, vectors := range []string{`{"size":4,"distance":"Dot"}`, `{"text":{"size":4,"distance":"Cosine"}}`, `{}`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, http.MethodGet, r.Method)
			reply(w, http.StatusOK, `{"result":{"config":{"params":{"vectors":`+vectors+`}},"payload_schema":{}}}`)
		}))
		t.Cleanup(server.Close)
		requireTransient(t, newStore(t, server.URL, nil).Upsert(t.Context(), "b", one()), "Another program")
	}
}

// From here on: a server.

func TestKeyIsSentAndHidden(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindQdrant, labserver.Options{Args: []string{"--api-key", "s3cret-k3y"}})
	good := newStore(t, server.URL(""), func(c *qdrant.Config) { c.APIKey = "s3cret-k3y" })
	for name, call := range calls(t.Context(), good, "base") {
		require.NoError(t, call(), name)
	}
	for _, key := range []string{"", "wr0ng-k3y"} {
		bad := newStore(t, server.URL(""), func(c *qdrant.Config) { c.APIKey = key })
		for name, call := range calls(t.Context(), bad, "base") {
			f := requireTransient(t, call(), "QDRANT_API_KEY")
			require.ErrorContains(t, f, "API key", name)
			require.NotContains(t, f.Error(), "k3y")
		}
	}
	echo := fakeServer(t, func(w http.ResponseWriter, r *http.Request) { reply(w, http.StatusForbidden, r.Header.Get("api-key")) })
	err := newStore(t, echo.URL, func(c *qdrant.Config) { c.APIKey = "s3cret-k3y" }).Upsert(t.Context(), "b", one())
	require.ErrorContains(t, err, "***")
	require.NotContains(t, err.Error(), "k3y")
}

// Writers go on while the server is killed and started again; what was acknowledged is there, and all is written in the end.
func TestServerKilledUnderWriters(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindQdrant, labserver.Options{})
	store, base, ctx := newStore(t, server.URL(""), nil), vectortest.Base(t), t.Context()
	const writers, each = 4, 25
	var group sync.WaitGroup
	var mu sync.Mutex
	kept := map[string]bool{}
	begun, again := make(chan struct{}, writers*each), make(chan struct{})
	for w := range writers {
		group.Go(func() {
			for n := range each {
				rows := vectortest.RandomRows(1000*w+n, 1000*w+n+1, 32, "v")
				begun <- struct{}{}
				for store.Upsert(ctx, base, rows) != nil {
					<-again // the server is back
				}
				mu.Lock()
				kept[rows[0].ID] = true
				mu.Unlock()
				if n == each/2 {
					<-again // so that the server goes away under writers that are not done
				}
			}
		})
	}
	for range writers * each / 2 {
		<-begun
	}
	require.NoError(t, server.Kill(ctx))
	mu.Lock()
	acknowledged := len(kept)
	mu.Unlock()
	require.Less(t, acknowledged, writers*each)
	requireTransient(t, store.Upsert(ctx, base, vectortest.RandomRows(99, 100, 32, "v")), "could not be reached")
	require.NoError(t, server.Restart(ctx))
	close(again)
	group.Wait()
	ids, err := store.List(ctx, base, 0, writers*each+1)
	require.NoError(t, err)
	require.Len(t, ids, writers*each)
	for _, id := range ids {
		require.True(t, kept[id])
	}
}

func TestPausedServer(t *testing.T) {
	t.Parallel()
	server := labserver.Private(t, labserver.KindQdrant, labserver.Options{})
	store, base, ctx := newStore(t, server.URL(""), func(c *qdrant.Config) { c.Timeout = time.Second }), vectortest.Base(t), t.Context()
	require.NoError(t, store.Upsert(ctx, base, one()))
	require.NoError(t, server.Pause())
	for name, call := range calls(ctx, store, base) {
		if name != "ping" { // which has a limit of its own
			require.ErrorIs(t, requireTransient(t, call(), ""), context.DeadlineExceeded, name)
		}
	}
	require.NoError(t, server.Continue())
	for name, call := range calls(ctx, store, base) {
		require.Eventually(t, func() bool { return call() == nil }, time.Minute, 10*time.Millisecond, name) // it works off what was given up
	}
}

func TestCollectionDroppedByAnotherProcess(t *testing.T) {
	t.Parallel()
	url := labserver.Qdrant(t).URL("")
	vectortest.Dropped(t, newStore(t, url, nil), newStore(t, url, nil))
}

// Workers that begin together make collection and index once.
func TestWorkersThatBeginTogether(t *testing.T) {
	t.Parallel()
	url, base := labserver.Qdrant(t).URL(""), vectortest.Base(t)
	var group sync.WaitGroup
	errs := make([]error, 12)
	for n := range errs {
		store := newStore(t, url, nil)
		group.Go(func() { errs[n] = store.Upsert(t.Context(), base, vectortest.RandomRows(n, n+1, 4, "v")) })
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	ids, err := newStore(t, url, nil).List(t.Context(), base, 0, 100)
	require.NoError(t, err)
	require.Len(t, ids, len(errs))
}

// Who made the collection may have died before its index: the next writer makes that.
func TestMissingIndexIsMade(t *testing.T) {
	t.Parallel()
	url, base, ctx := labserver.Qdrant(t).URL(""), vectortest.Base(t), t.Context()
	address := url + "/collections/" + vector.CollectionName(base)
	made, err := http.NewRequestWithContext(ctx, http.MethodPut, address, strings.NewReader(`{"vectors":{"size":4,"distance":"Cosine"}}`))
	require.NoError(t, err)
	done, err := http.DefaultTransport.RoundTrip(made)
	require.NoError(t, err)
	require.NoError(t, done.Body.Close())
	schema := func() map[string]any {
		got, err := http.Get(address)
		require.NoError(t, err)
		defer func() { _ = got.Body.Close() }()
		var info struct {
			Result struct {
				Schema map[string]any `json:"payload_schema"`
			} `json:"result"`
		}
		require.NoError(t, json.NewDecoder(got.Body).Decode(&info))
		return info.Result.Schema
	}
	store := newStore(t, url, nil)
	_, err = store.Query(ctx, base, []float32{1, 0, 0, 0}, 1, []string{"v"})
	require.NoError(t, err)
	require.Empty(t, schema(), "a search makes nothing")
	require.NoError(t, store.Upsert(ctx, base, one()))
	require.Contains(t, schema(), "birth")
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
}

// More births than one request takes.
func TestManyBirths(t *testing.T) {
	t.Parallel()
	store, base := newStore(t, labserver.Qdrant(t).URL(""), nil), vectortest.Base(t)
	births := make([]string, 12_000)
	for i := range births {
		births[i] = fmt.Sprintf("version-%d", i)
	}
	rows := append(vectortest.RandomRows(0, 3, 4, births[0]), vectortest.RandomRows(3, 6, 4, births[11_999])...)
	require.NoError(t, store.Upsert(t.Context(), base, append(rows, vectortest.RandomRows(6, 9, 4, "other")...)))
	hits, err := store.Query(t.Context(), base, rows[0].Values, 10, births)
	require.NoError(t, err)
	require.Len(t, hits, 6)
	require.Equal(t, rows[0].ID, hits[0].ID)
}

// Points of another program are neither found, nor listed, nor in the way.
func TestForeignPoints(t *testing.T) {
	t.Parallel()
	url, base, ctx := labserver.Qdrant(t).URL(""), vectortest.Base(t), t.Context()
	store := newStore(t, url, nil)
	rows := vectortest.RandomRows(0, 30, 4, "v")
	require.NoError(t, store.Upsert(ctx, base, rows))
	foreign := make([]string, 0, 200)
	for n := range 100 {
		foreign = append(foreign, fmt.Sprintf(`{"id":%d,"vector":[1,0,0,0],"payload":{"id":"%s"}}`, n, vectortest.ID(n)),
			fmt.Sprintf(`{"id":"%s","vector":[1,0,0,0],"payload":{"id":7}}`, qdrant.PointID(fmt.Sprint("foreign", n))))
	}
	put, err := http.NewRequestWithContext(ctx, http.MethodPut, url+"/collections/"+vector.CollectionName(base)+"/points?wait=true",
		strings.NewReader(`{"points":[`+strings.Join(foreign, ",")+`]}`))
	require.NoError(t, err)
	done, err := http.DefaultTransport.RoundTrip(put)
	require.NoError(t, err)
	require.NoError(t, done.Body.Close())
	require.Equal(t, http.StatusOK, done.StatusCode)
	var listed []string
	for {
		page, err := store.List(ctx, base, len(listed), 7)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		listed = append(listed, page...)
	}
	require.Len(t, listed, len(rows))
	tail, err := newStore(t, url, nil).List(ctx, base, 21, 100)
	require.NoError(t, err)
	require.Equal(t, listed[21:], tail, "a store that has no place to go on from counts from the first")
	hits, err := store.Query(ctx, base, []float32{1, 0, 0, 0}, 300, nil)
	require.NoError(t, err)
	require.Len(t, hits, len(rows))
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
}

// Each dimension is stored and found, also far out of the range of its own square; what Qdrant cannot keep is refused.
func TestDimensions(t *testing.T) {
	t.Parallel()
	store, ctx := newStore(t, labserver.Qdrant(t).URL(""), nil), t.Context()
	for _, dim := range []int{1, 2, 4096, 65536} {
		base := vectortest.Base(t)
		rows := vectortest.RandomRows(0, 3, dim, "v")
		for i := range rows[1].Values {
			rows[1].Values[i] *= 1e30
			rows[2].Values[i] *= 1e-30
		}
		require.NoError(t, store.Upsert(ctx, base, rows))
		for _, row := range rows {
			hits, err := store.Query(ctx, base, row.Values, 1, []string{"v"})
			require.NoError(t, err)
			require.Len(t, hits, 1)
			require.InDelta(t, 1, hits[0].Score, 1e-4)
			if dim > 1 {
				require.Equal(t, row.ID, hits[0].ID)
			}
		}
	}
	err := store.Upsert(ctx, vectortest.Base(t), vectortest.RandomRows(0, 1, 65537, "v"))
	require.Equal(t, ingest.CodeVectorRejected, ingest.AsFailure(err).Code)
	require.Contains(t, ingest.AsFailure(err).Remedy, "EMBEDDING_DIMENSIONS")
}

// A connection that is cut before a byte is tried again, and named in the end.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var cut atomic.Int64
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			cut.Add(1)
			_ = conn.Close()
		}
	})
	store := newStore(t, "http://"+listener.Addr().String(), nil)
	undisturbed(func() {
		cut.Store(0)
		requireTransient(t, store.Delete(t.Context(), "b", []string{"a"}), "could not be reached")
	})
	require.GreaterOrEqual(t, cut.Load(), int64(3))
	require.NoError(t, listener.Close())
	group.Wait()
}
