package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/embedtest"
	"github.com/millweir/millweir/pkg/ingest/embed/local"
	"github.com/millweir/millweir/pkg/ingest/embed/openai"
)

func newEmbedder(t *testing.T, base string, change func(*openai.Config)) *openai.Embedder {
	t.Helper()
	cfg := openai.NewDefaultConfig()
	cfg.BaseURL, cfg.Model = base, "test-model"
	if change != nil {
		change(&cfg)
	}
	e, err := openai.New(cfg, nil)
	require.NoError(t, err)
	return e
}

func textsOf(n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = fmt.Sprintf("text number %d about topic %d", i, i*i)
	}
	return texts
}

func requireVectors(t *testing.T, texts []string, vectors [][]float32) {
	t.Helper()
	require.Len(t, vectors, len(texts))
	for i, text := range texts {
		require.Equal(t, local.Vector(text), vectors[i], "text %d", i)
	}
}

func requireFailure(t *testing.T, err error, code ingest.Code, permanent bool) *ingest.Failure {
	t.Helper()
	var f *ingest.Failure
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Error())
	require.Equal(t, permanent, f.Permanent, f.Error())
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

func TestShapesAreFoundAndSpoken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shape embedtest.Shape
		path  string
		api   openai.API
	}{
		"openai by asking":        {embedtest.OpenAI, "", openai.APIAuto},
		"openai by /v1":           {embedtest.OpenAI, "/v1", openai.APIAuto},
		"openai by end point":     {embedtest.OpenAI, "/v1/embeddings", openai.APIAuto},
		"openai by setting":       {embedtest.OpenAI, "/", openai.APIOpenAI},
		"tei by asking":           {embedtest.TEI, "", openai.APIAuto},
		"tei by end point":        {embedtest.TEI, "/embed", openai.APIAuto},
		"tei by setting":          {embedtest.TEI, "", openai.APITEI},
		"ollama by asking":        {embedtest.Ollama, "", openai.APIAuto},
		"ollama by end point":     {embedtest.Ollama, "/api/embed", openai.APIAuto},
		"ollama by setting":       {embedtest.Ollama, "/", openai.APIOllama},
		"openai in reverse order": {embedtest.OpenAI, "/v1", openai.APIOpenAI},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := embedtest.Start(t, embedtest.Options{Shape: c.shape, Reverse: true})
			e := newEmbedder(t, server.URL+c.path, func(cfg *openai.Config) { cfg.API = c.api })
			require.Zero(t, e.Model().Dim)
			texts := textsOf(5)
			vectors, err := e.Embed(t.Context(), texts)
			require.NoError(t, err)
			requireVectors(t, texts, vectors)
			require.Equal(t, ingest.Model{Key: "http/test-model", Dim: local.Dim}, e.Model())
			require.Len(t, server.Effects(), 1)
		})
	}
}

// What a service is asked for is what its kind knows, to the name: one that is not known is refused or, worse, ignored.
func TestBodiesAreWhatEachServiceKnows(t *testing.T) {
	t.Parallel()
	for api, want := range map[openai.API]string{
		openai.APIOpenAI: `{"model":"test-model","input":["one","two"],"dimensions":8,"encoding_format":"base64"}`,
		openai.APITEI:    `{"inputs":["one","two"],"truncate":false,"normalize":true,"dimensions":8}`,
		openai.APIOllama: `{"model":"test-model","input":["one","two"],"truncate":false,"dimensions":8}`,
		openai.APIAzure:  `{"model":"test-model","input":["one","two"],"dimensions":8,"encoding_format":"base64"}`,
		openai.APIVoyage: `{"model":"test-model","input":["one","two"],"output_dimension":8,"encoding_format":"base64","input_type":"document","truncation":false}`,
		openai.APIJina:   `{"model":"test-model","input":["one","two"],"dimensions":8,"embedding_type":"base64","truncate":false}`,
		openai.APICohere: `{"model":"test-model","texts":["one","two"],"output_dimension":8,"embedding_types":["float"],"input_type":"search_document","truncate":"NONE"}`,
	} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			bodies := make(chan string, 8)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if body, err := io.ReadAll(r.Body); err == nil && r.Method == http.MethodPost {
					bodies <- string(body)
				}
				w.Header().Set("X-Should-Retry", "false")
				http.Error(w, "no", http.StatusInternalServerError)
			}))
			t.Cleanup(server.Close)
			for _, dimensions := range []int{8, 0} {
				e := newEmbedder(t, server.URL, func(cfg *openai.Config) { cfg.API, cfg.Dimensions = api, dimensions })
				_, err := e.Embed(t.Context(), []string{"one", "two"})
				requireFailure(t, err, ingest.CodeEmbed, false)
			}
			require.JSONEq(t, want, <-bodies)
			require.JSONEq(t, strings.NewReplacer(`,"dimensions":8`, "", `,"output_dimension":8`, "").Replace(want), <-bodies)
			require.Empty(t, bodies)
		})
	}
}

func TestTEILimitComesFromInfo(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{Shape: embedtest.TEI, MaxInputs: 32})
	e := newEmbedder(t, server.URL, nil)
	texts := textsOf(64)
	vectors, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	requireVectors(t, texts, vectors)
	require.Equal(t, 32, e.BatchSize())
	for _, effect := range server.Effects() {
		require.Equal(t, http.StatusOK, effect.Status, "no request may be refused when the limit is known")
	}
}

func TestUnknownLimitIsLearnedFromRefusals(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{MaxInputs: 10})
	e := newEmbedder(t, server.URL+"/v1", nil)
	texts := textsOf(64)
	vectors, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	requireVectors(t, texts, vectors)
	require.Equal(t, 8, e.BatchSize())
	before := len(server.Effects())
	_, err = e.Embed(t.Context(), texts[:16])
	require.NoError(t, err)
	require.Len(t, server.Effects(), before+2, "what was learned is used")
}

func TestOneBadTextIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	for _, shape := range []embedtest.Shape{embedtest.OpenAI, embedtest.TEI, embedtest.Ollama} {
		t.Run(string(shape), func(t *testing.T) {
			t.Parallel()
			server := embedtest.Start(t, embedtest.Options{Shape: shape, Reject: func(s string) bool { return strings.HasPrefix(s, "too long") }})
			e := newEmbedder(t, server.URL, nil)
			texts := textsOf(32)
			texts[17] = "too long " + strings.Repeat("x", 500)
			_, err := e.Embed(t.Context(), texts)
			f := requireFailure(t, err, ingest.CodeEmbedRejected, true)
			require.Contains(t, f.Error(), `text 17 of 32 ("too long `+strings.Repeat("x", 51)+`"…)`)
			require.Contains(t, f.Error(), "maximum context length")
			require.LessOrEqual(t, len(server.Effects()), 2+2*5, "found by halving")
			require.Equal(t, 64, e.BatchSize(), "a bad text is not a limit")
		})
	}
}

// A service that refuses everything is the operator's to mend: no document may go to DEAD for it.
func TestServiceThatRefusesEverythingIsNotTheTextsFault(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{Reject: func(string) bool { return true }})
	_, err := newEmbedder(t, server.URL, nil).Embed(t.Context(), textsOf(4))
	f := requireFailure(t, err, ingest.CodeModelUnusable, false)
	require.True(t, f.Suspend)
	require.Contains(t, f.Remedy, "EMBEDDING_MODEL")
}

// What a service says of the key or the model is about the settings, and no later try alone cures it. What may be said by something in
// front of a service that is not there yet is tried again.
func TestTheKeyAndTheModelAreTheOperators(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		body    string
		suspend bool
		remedy  string
	}{
		"no key":                {401, `{"error":{"message":"Incorrect API key provided"}}`, true, "EMBEDDING_API_KEY"},
		"key without rights":    {403, `{"error":{"message":"Project has no access to model m"}}`, true, "EMBEDDING_API_KEY"},
		"OpenAI's model":        {404, `{"error":{"message":"The model m does not exist or you do not have access to it.","code":"model_not_found"}}`, true, "EMBEDDING_MODEL"},
		"Ollama's model":        {404, `{"error":"model \"m\" not found, try pulling it first"}`, true, "EMBEDDING_MODEL"},
		"Azure's deployment":    {404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment for this resource does not exist."}}`, true, "EMBEDDING_MODEL"},
		"an address":            {404, `404 page not found`, false, "EMBEDDING_BASE_URL"},
		"OpenAI's address":      {404, `{"error":{"message":"Invalid URL (POST /v2/embeddings)"}}`, false, "EMBEDDING_BASE_URL"},
		"a method":              {405, `{"detail":"Method Not Allowed"}`, false, "EMBEDDING_BASE_URL"},
		"an account":            {402, `{"error":{"message":"pay first"}}`, false, "quota"},
		"a crash":               {500, `{"error":{"message":"the model has crashed"}}`, false, "embedding service failed"},
		"a server without it":   {502, ``, false, "embedding service failed"},
		"a key that is too old": {401, ``, true, "EMBEDDING_API_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Should-Retry", "false")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(server.Close)
			_, err := newEmbedder(t, server.URL+"/v1", nil).Embed(t.Context(), textsOf(2))
			code := ingest.CodeEmbed
			if c.suspend {
				code = ingest.CodeModelUnusable
			}
			f := requireFailure(t, err, code, false)
			require.Equal(t, c.suspend, f.Suspend)
			require.Contains(t, f.Remedy, c.remedy)
			require.Contains(t, f.Error(), fmt.Sprint(c.status))
		})
	}
}

func TestBadAnswersAreRefused(t *testing.T) {
	t.Parallel()
	for kind, want := range map[embedtest.Kind]string{
		embedtest.Miscount: "wrong number of vectors: 2 for 3 texts",
		embedtest.NaN:      "not finite",
		embedtest.Null:     `text 2 of 3 ("text number 2 about topic 4"): vector with a value that is not finite`,
		embedtest.Zero:     `text 2 of 3 ("text number 2 about topic 4"): vector of zeros only`,
		embedtest.NoValues: "without values",
		embedtest.Fail:     "500 Internal Server Error: the model has crashed",
		embedtest.Cut:      "unexpected EOF",
		embedtest.Redirect: "redirects are not followed",
		embedtest.Huge:     "larger than allowed",
	} {
		for _, shape := range []embedtest.Shape{embedtest.OpenAI, embedtest.TEI, embedtest.Ollama} {
			t.Run(string(kind)+" "+string(shape), func(t *testing.T) {
				t.Parallel()
				server := embedtest.Start(t, embedtest.Options{Shape: shape})
				server.Set(embedtest.Fault{Kind: kind})
				e := newEmbedder(t, server.URL, nil)
				vectors, err := e.Embed(t.Context(), textsOf(3))
				require.Nil(t, vectors)
				f := requireFailure(t, err, ingest.CodeEmbed, false)
				require.Contains(t, f.Error(), want)
				require.Contains(t, f.Error(), "POST "+server.URL+"/")
				require.LessOrEqual(t, len(server.Effects()), 3)
			})
		}
	}
}

func TestOneFaultIsCuredInsideTheAttempt(t *testing.T) {
	t.Parallel()
	for _, kind := range []embedtest.Kind{embedtest.Fail, embedtest.Cut, embedtest.OKError, embedtest.Throttle, embedtest.Busy} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			texts := textsOf(3)
			var vectors [][]float32
			var calls int
			var err error
			undisturbed(func() {
				server := embedtest.Start(t, embedtest.Options{})
				server.Set(embedtest.Fault{Kind: kind, Times: 2})
				vectors, err = newEmbedder(t, server.URL, nil).Embed(t.Context(), texts)
				calls = len(server.Effects())
			})
			require.NoError(t, err)
			requireVectors(t, texts, vectors)
			require.Equal(t, 3, calls)
		})
	}
}

func TestAnotherDimensionWaitsForAPerson(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	e := newEmbedder(t, server.URL, nil)
	_, err := e.Embed(t.Context(), textsOf(1))
	require.NoError(t, err)
	server.Set(embedtest.Fault{Kind: embedtest.Dimension})
	_, err = e.Embed(t.Context(), textsOf(2))
	f := requireFailure(t, err, ingest.CodeDimension, false)
	require.True(t, f.Suspend)
	require.Contains(t, f.Error(), "383 dimensions, not 384")

	insisting := newEmbedder(t, server.URL, func(cfg *openai.Config) { cfg.Dimensions = 384 })
	require.Equal(t, ingest.Model{Key: "http/test-model#384", Dim: 384}, insisting.Model())
	_, err = insisting.Embed(t.Context(), textsOf(2))
	require.True(t, requireFailure(t, err, ingest.CodeDimension, false).Suspend)
}

// A throttle is no failure of the task, and what the service names becomes nextRetryAt.
func TestThrottleNamesRetryAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault embedtest.Fault
		want  time.Duration
		calls int
	}{
		"429 with seconds":        {embedtest.Fault{Kind: embedtest.Throttle, For: 17 * time.Second}, 17 * time.Second, 1},
		"429 with retry-after-ms": {embedtest.Fault{Kind: embedtest.ThrottleM, For: 4500 * time.Millisecond}, 4500 * time.Millisecond, 1},
		"429 without":             {embedtest.Fault{Kind: embedtest.Throttle}, 0, 3},
		"503 with seconds":        {embedtest.Fault{Kind: embedtest.Busy, For: 30 * time.Second}, 30 * time.Second, 1},
		"200 with an error":       {embedtest.Fault{Kind: embedtest.OKError}, 0, 3},
		"capped at an hour":       {embedtest.Fault{Kind: embedtest.Throttle, For: 48 * time.Hour}, time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := embedtest.Start(t, embedtest.Options{})
			server.Set(c.fault)
			var calls int
			var err error
			undisturbed(func() {
				before := len(server.Effects())
				_, err = newEmbedder(t, server.URL+"/v1", nil).Embed(t.Context(), textsOf(2))
				calls = len(server.Effects()) - before
			})
			f := requireFailure(t, err, ingest.CodeThrottled, false)
			require.True(t, f.Throttled)
			require.Equal(t, c.want, f.RetryAfter)
			require.Contains(t, f.Error(), "POST "+server.URL+"/v1/embeddings")
			require.Equal(t, c.calls, calls)
		})
	}
}

func TestShortRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel()
	var err error
	var took time.Duration
	undisturbed(func() {
		server := embedtest.Start(t, embedtest.Options{})
		server.Set(embedtest.Fault{Kind: embedtest.ThrottleM, For: 300 * time.Millisecond, Times: 1})
		start := time.Now()
		_, err = newEmbedder(t, server.URL, nil).Embed(t.Context(), textsOf(1))
		took = time.Since(start)
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, took, 300*time.Millisecond)
}

// One budget: while a service has asked for silence, no other call of this process disturbs it, except one now and then
// that asks whether the wait still stands: what an operator has mended takes effect before an hour is over.
func TestThrottleHoldsBackOtherCallers(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	server.Set(embedtest.Fault{Kind: embedtest.Throttle, For: time.Hour, Times: 1}, embedtest.Fault{Kind: embedtest.Throttle, For: 20 * time.Minute, Times: 1})
	var now atomic.Int64
	cfg := openai.NewDefaultConfig()
	cfg.BaseURL, cfg.Model = server.URL+"/v1", "m"
	e, err := openai.New(cfg, nil)
	require.NoError(t, err)
	e.SetClock(func() time.Time { return time.Unix(1_800_000_000, now.Load()) })
	throttled := func(at, want time.Duration, calls int) {
		t.Helper()
		now.Store(int64(at))
		_, err := e.Embed(t.Context(), textsOf(1))
		require.Equal(t, want, requireFailure(t, err, ingest.CodeThrottled, false).RetryAfter)
		require.Len(t, server.Effects(), calls)
	}
	throttled(0, time.Hour, 1)
	throttled(5*time.Second, time.Hour-5*time.Second, 1)
	throttled(10*time.Second, 20*time.Minute, 2) // one asks, and hears of a shorter wait
	throttled(19*time.Second, 20*time.Minute-9*time.Second, 2)
	now.Store(int64(20 * time.Second))
	for range 3 {
		_, err = e.Embed(t.Context(), textsOf(1)) // one asks and is served: all may call
		require.NoError(t, err)
	}
	require.Len(t, server.Effects(), 5)
}

func TestQuotaIsNoThrottle(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"error":{"message":"You exceeded your current quota, please check your plan","code":"insufficient_quota"}}`))
	}))
	defer server.Close()
	_, err := newEmbedder(t, server.URL+"/v1", nil).Embed(t.Context(), textsOf(1))
	f := requireFailure(t, err, ingest.CodeEmbed, false)
	require.False(t, f.Throttled)
	require.EqualValues(t, 1, calls.Load())
}

func TestHangEndsByTimeOutAndByContext(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{})
	server.Set(embedtest.Fault{Kind: embedtest.Hang})
	e := newEmbedder(t, server.URL, func(cfg *openai.Config) { cfg.Timeout = time.Second })
	_, err := e.Embed(t.Context(), textsOf(1))
	f := requireFailure(t, err, ingest.CodeEmbed, false)
	require.Contains(t, f.Error(), "no whole answer within 1s")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancel(t.Context())
	begun := server.Wait(len(server.Effects()) + 1)
	go func() { <-begun; cancel() }()
	_, err = e.Embed(ctx, textsOf(1))
	require.ErrorIs(t, err, context.Canceled)
}

func TestRefusedConnectionIsNamed(t *testing.T) {
	t.Parallel()
	const addr = "127.0.0.1:1" // nobody listens there; of a port that was free a moment ago that is not known
	for _, path := range []string{"", "/v1"} {
		start := time.Now()
		_, err := newEmbedder(t, "http://user:p4ss@"+addr+path+"?key=s3cret", nil).Embed(t.Context(), textsOf(1))
		f := requireFailure(t, err, ingest.CodeEmbed, false)
		require.Equal(t, "POST http://"+addr+path+"/embeddings: dial tcp "+addr+": connect: connection refused", f.Error())
		require.Less(t, time.Since(start), time.Minute)
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{APIKey: "right"})
	e := newEmbedder(t, server.URL+"/v1", func(cfg *openai.Config) { cfg.APIKey = "sk-very-secret" })
	_, err := e.Embed(t.Context(), textsOf(1))
	f := requireFailure(t, err, ingest.CodeModelUnusable, false)
	require.Contains(t, f.Error(), "401")
	require.NotContains(t, f.Error(), "sk-very-secret")
	require.Contains(t, f.Remedy, "EMBEDDING_API_KEY")
	cfg := openai.Config{APIKey: "sk-very-secret", BaseURL: "http://u:sk-very-secret@h"}
	require.NotContains(t, fmt.Sprintf("%v %+v %s", cfg, cfg, cfg), "sk-very-secret")
	require.NotContains(t, cfg.Validate().Error(), "sk-very-secret")
}

func TestCallIsMarkedAndTraced(t *testing.T) {
	t.Parallel()
	server := embedtest.Start(t, embedtest.Options{MaxInputs: 2})
	texts := textsOf(2)
	ctx := embed.WithCall(t.Context(), embed.Call{TaskID: "task-1", Fence: 7, Batch: embed.BatchHash(texts)})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx = trace.ContextWithSpanContext(ctx, span)
	_, err := newEmbedder(t, server.URL+"/v1", nil).Embed(ctx, texts)
	require.NoError(t, err)
	require.Equal(t, 1, server.Paid("task-1", embed.BatchHash(texts)))
	effect := server.Effects()[0]
	require.EqualValues(t, 7, effect.Fence)
	require.Equal(t, embed.BatchHash(texts), effect.TextsHash)
	require.Contains(t, effect.TraceParent, span.TraceID().String())
}

func TestRequestBodies(t *testing.T) {
	t.Parallel()
	var seen map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = map[string]any{}
		_ = json.NewDecoder(r.Body).Decode(&seen)
		w.WriteHeader(http.StatusPaymentRequired)
	}))
	defer server.Close()
	for path, want := range map[string]map[string]any{
		"/v1":        {"model": "test-model", "input": []any{"a"}, "dimensions": 8.0, "encoding_format": "base64"},
		"/embed":     {"inputs": []any{"a"}, "truncate": false, "normalize": true, "dimensions": 8.0},
		"/api/embed": {"model": "test-model", "input": []any{"a"}, "truncate": false, "dimensions": 8.0},
	} {
		_, err := newEmbedder(t, server.URL+path, func(cfg *openai.Config) { cfg.Dimensions = 8 }).Embed(t.Context(), []string{"a"})
		require.Error(t, err)
		require.Equal(t, want, seen, path)
	}
}

// A service may know base64, know of no format, or refuse to be asked for one; whatever it is, it is asked right from then on.
func TestFormatIsFound(t *testing.T) {
	t.Parallel()
	const numbers, base64 = `{"data":[{"embedding":[1,-2.5]}]}`, `{"data":[{"embedding":"AACAPwAAIMA="}]}`
	for name, c := range map[string]struct {
		answer string // to a request for base64; empty: refused
		asked  []any  // the formats of three calls, nil: none
	}{
		"knows it":   {base64, []any{"base64", "base64", "base64"}},
		"ignores it": {numbers, []any{"base64", "base64", "base64"}},
		"refuses it": {"", []any{"base64", nil, nil, nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []any
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body map[string]any
				_ = json.NewDecoder(r.Body).Decode(&body)
				asked = append(asked, body["encoding_format"])
				switch {
				case body["encoding_format"] == nil:
					_, _ = w.Write([]byte(numbers))
				case c.answer == "":
					w.WriteHeader(http.StatusUnprocessableEntity)
				default:
					_, _ = w.Write([]byte(c.answer))
				}
			}))
			defer server.Close()
			e := newEmbedder(t, server.URL+"/v1", nil)
			for range 3 {
				vectors, err := e.Embed(t.Context(), []string{"a"})
				require.NoError(t, err)
				require.Equal(t, [][]float32{{1, -2.5}}, vectors)
			}
			require.Equal(t, c.asked, asked)
		})
	}
}

func TestValidateNamesEverySetting(t *testing.T) {
	t.Parallel()
	err := openai.Config{BaseURL: "ftp://x", API: "grpc", BatchSize: 0, Dimensions: -1, Timeout: time.Millisecond, Requests: -1, Tokens: 60_000_001}.Validate()
	for _, name := range []string{
		"EMBEDDING_REQUESTS_PER_MINUTE", "EMBEDDING_TOKENS_PER_MINUTE",
		"EMBEDDING_BASE_URL", "EMBEDDING_MODEL", "EMBEDDING_API", "EMBEDDING_BATCH_SIZE", "EMBEDDING_DIMENSIONS", "EMBEDDING_TIMEOUT",
	} {
		require.ErrorContains(t, err, name+":")
	}
	cfg := openai.NewDefaultConfig()
	cfg.BaseURL, cfg.Model = "https://h/v1", "m"
	require.NoError(t, cfg.Validate())
}

func TestModelKeyIsShortASCII(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"bge-m3", "模型", strings.Repeat("m", 400), "with space"} {
		key := newEmbedder(t, "http://h", func(cfg *openai.Config) { cfg.Model = model }).Model().Key
		require.LessOrEqual(t, len(key), 190)
		require.Regexp(t, `^[!-~]+$`, key)
	}
}
