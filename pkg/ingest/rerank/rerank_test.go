package rerank_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/rerank"
)

var _ ingest.Reranker = (*rerank.Reranker)(nil)

// shapes are the three ways to speak, with where each is asked and the name of its scores.
var shapes = map[rerank.API]struct{ path, score string }{
	rerank.APICohere: {"/v2/rerank", "relevance_score"},
	rerank.APIJina:   {"/v1/rerank", "relevance_score"},
	rerank.APITEI:    {"/rerank", "score"},
}

// service is a reranking service of one shape that answers as it is told.
func service(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s.URL
}

func newReranker(t *testing.T, base string, api rerank.API, reg prometheus.Registerer) *rerank.Reranker {
	t.Helper()
	r, err := rerank.New(rerank.Config{BaseURL: base, API: api, Model: "test-model", APIKey: "sk-very-secret", Timeout: time.Minute}, reg)
	require.NoError(t, err)
	return r
}

// results are an answer's scores in the shape's words; one that begins with a brace stands as it is.
func results(api rerank.API, each ...string) string {
	for i, one := range each {
		if !strings.HasPrefix(one, "{") {
			each[i] = fmt.Sprintf(`{"index":%d,"%s":%s}`, i, shapes[api].score, one)
		}
	}
	list := "[" + strings.Join(each, ",") + "]"
	if api == rerank.APITEI {
		return list
	}
	return `{"id":"1","model":"test-model","results":` + list + `,"meta":{"billed_units":{"search_units":1}}}`
}

// What a service is asked for is what its kind knows, to the name; scores come in any order, and with more than was asked for.
func TestShapes(t *testing.T) {
	t.Parallel()
	for api, want := range map[rerank.API]string{
		rerank.APICohere: `{"model":"test-model","query":"otter","documents":["one","two","three"],"top_n":3}`,
		rerank.APIJina:   `{"model":"test-model","query":"otter","documents":["one","two","three"],"top_n":3,"return_documents":false}`,
		rerank.APITEI:    `{"query":"otter","texts":["one","two","three"],"truncate":true}`,
	} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			type request struct{ path, key, body string }
			asked := make(chan request, 1)
			url := service(t, func(w http.ResponseWriter, r *http.Request) {
				var body bytes.Buffer
				_, _ = body.ReadFrom(r.Body)
				asked <- request{r.Method + " " + r.URL.Path, r.Header.Get("Authorization"), body.String()}
				score := shapes[api].score
				_, _ = fmt.Fprint(w, results(api,
					fmt.Sprintf(`{"index":2,"%s":0.5,"document":{"text":"three"}}`, score),
					fmt.Sprintf(`{"index":0,"%s":-3,"text":"one"}`, score), fmt.Sprintf(`{"index":1,"%s":2e-3,"document":null}`, score)))
			})
			scores, err := newReranker(t, url+"/models", api, nil).Rerank(t.Context(), "otter", []string{"one", "two", "three"})
			require.NoError(t, err)
			require.Equal(t, []float64{-3, 0.002, 0.5}, scores)
			got := <-asked
			require.Equal(t, "POST /models"+shapes[api].path, got.path)
			require.Equal(t, "Bearer sk-very-secret", got.key)
			require.JSONEq(t, want, got.body)
		})
	}
}

// The path tells the shape, and may be that of the end point, of the version, or of what is above both.
func TestShapeByPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		path   string
		api    rerank.API
		want   string
		answer rerank.API
	}{
		{"/v2", rerank.APIAuto, "/v2/rerank", rerank.APICohere},
		{"/v2/rerank", rerank.APIAuto, "/v2/rerank", rerank.APICohere},
		{"/v1/", rerank.APIAuto, "/v1/rerank", rerank.APIJina},
		{"/a/v1/rerank", rerank.APIAuto, "/a/v1/rerank", rerank.APIJina},
		{"/rerank", rerank.APIAuto, "/rerank", rerank.APITEI},
		{"", rerank.APITEI, "/rerank", rerank.APITEI},
		{"", rerank.APIJina, "/v1/rerank", rerank.APIJina},
		{"/rerank", rerank.APIJina, "/rerank", rerank.APIJina},
		{"/v1", rerank.APICohere, "/v1/v2/rerank", rerank.APICohere},
	} {
		t.Run(c.path+" "+string(c.api), func(t *testing.T) {
			t.Parallel()
			paths := make(chan string, 1)
			url := service(t, func(w http.ResponseWriter, r *http.Request) {
				paths <- r.URL.Path
				_, _ = fmt.Fprint(w, results(c.answer, "1"))
			})
			scores, err := newReranker(t, url+c.path, c.api, nil).Rerank(t.Context(), "q", []string{"one"})
			require.NoError(t, err)
			require.Equal(t, []float64{1}, scores)
			require.Equal(t, c.want, <-paths)
		})
	}
}

// Whatever a service answers, it is an error that names the call, and no score.
func TestBadAnswersAreRefused(t *testing.T) {
	t.Parallel()
	type answer struct {
		say  func(api rerank.API, w http.ResponseWriter)
		want string
	}
	text := func(each ...string) func(rerank.API, http.ResponseWriter) {
		return func(api rerank.API, w http.ResponseWriter) {
			_, _ = fmt.Fprint(w, results(api, append([]string{}, each...)...))
		}
	}
	status := func(code int, body string) func(rerank.API, http.ResponseWriter) {
		return func(_ rerank.API, w http.ResponseWriter) {
			w.WriteHeader(code)
			_, _ = fmt.Fprint(w, body)
		}
	}
	for name, c := range map[string]answer{
		"too few":       {text("1", "2"), "2 scores for 3 texts"},
		"too many":      {text("1", "2", "3", "4"), "4 scores for 3 texts"},
		"none":          {text(), "0 scores for 3 texts"},
		"null":          {text("1", "null", "3"), "without index or score"},
		"no index":      {text("1", `{"relevance_score":2,"score":2}`, "3"), "without index or score"},
		"twice":         {text("1", "2", `{"index":1,"relevance_score":3,"score":3}`), "index 1 is out of range or given twice"},
		"out of range":  {text("1", "2", `{"index":3,"relevance_score":3,"score":3}`), "index 3 is out of range"},
		"negative":      {text("1", "2", `{"index":-1,"relevance_score":3,"score":3}`), "index -1 is out of range"},
		"half an index": {text("1", "2", `{"index":1.5,"relevance_score":3,"score":3}`), "not what it should be"},
		"NaN":           {text("1", "NaN", "3"), "not what it should be"},
		"infinity":      {text("1", "1e999", "3"), "not what it should be"},
		"words":         {text("1", `"high"`, "3"), "not what it should be"},
		"no JSON":       {status(http.StatusOK, "<html>sign in</html>"), "not what it should be"},
		"nothing":       {status(http.StatusOK, ""), "not what it should be"},
		"error in 200":  {status(http.StatusOK, `{"error":{"message":"slow down"}}`), "rerank: "},
		"500":           {status(http.StatusInternalServerError, `{"error":"the model has crashed sk-very-secret"}`), "500 Internal Server Error: the model has crashed ***"},
		"429":           {status(http.StatusTooManyRequests, `{"message":"too fast"}`), "429 Too Many Requests: too fast"},
		"redirect": {func(_ rerank.API, w http.ResponseWriter) {
			w.Header().Set("Location", "http://169.254.169.254/latest/meta-data")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "redirects are not followed"},
		"huge": {func(_ rerank.API, w http.ResponseWriter) {
			for block := bytes.Repeat([]byte{' '}, 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "larger than allowed"},
		"cut": {func(_ rerank.API, w http.ResponseWriter) {
			w.Header().Set("Content-Length", "100")
			_, _ = fmt.Fprint(w, `{"results":[`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, "unexpected EOF"},
	} {
		for api := range shapes {
			t.Run(name+" "+string(api), func(t *testing.T) {
				t.Parallel()
				url := service(t, func(w http.ResponseWriter, _ *http.Request) { c.say(api, w) })
				scores, err := newReranker(t, url, api, nil).Rerank(t.Context(), "q", []string{"one", "two", "three"})
				require.Nil(t, scores)
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, "POST "+url+shapes[api].path)
				require.NotContains(t, err.Error(), "sk-very-secret")
			})
		}
	}
}

// A body that drips is ended by the time limit as one that never comes is, and a search that its caller gave up at once.
func TestSlowServiceIsLeft(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{"nothing": "", "half": `{"results":[{"index":0,`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{}, 1) // the second call; the first may be over before it gets here
			url := service(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // until it is read the server does not see the caller leave
				if begin != "" {
					_, _ = fmt.Fprint(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				if bytes.Contains(body, []byte("second")) {
					begun <- struct{}{}
				}
				<-r.Context().Done()
			})
			cfg := rerank.Config{BaseURL: url, API: rerank.APIJina, Model: "m", Timeout: 50 * time.Millisecond}
			reg := prometheus.NewRegistry()
			r, err := rerank.New(cfg, reg)
			require.NoError(t, err)
			_, err = r.Rerank(t.Context(), "first", []string{"one"})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "no whole answer within 50ms")
			require.Equal(t, map[string]uint64{"success": 0, "failure": 1}, counts(t, reg))

			cfg.Timeout = time.Minute
			r, err = rerank.New(cfg, reg)
			require.NoError(t, err)
			ctx, leave := context.WithCancel(t.Context())
			go func() { <-begun; leave() }()
			_, err = r.Rerank(ctx, "second", []string{"one"})
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, map[string]uint64{"success": 0, "failure": 1}, counts(t, reg), "a caller who leaves is no failure of the service")
		})
	}
}

// counts are how many requests had each result.
func counts(t *testing.T, reg *prometheus.Registry) map[string]uint64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]uint64{}
	for _, f := range families {
		require.Equal(t, "ingest_search_rerank_seconds", f.GetName())
		for _, m := range f.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
		}
	}
	return out
}

// What is sent of a query and of a text is bounded, and cut between characters.
func TestWhatIsSentIsBounded(t *testing.T) {
	t.Parallel()
	var sent struct {
		Query string
		Texts []string
	}
	url := service(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&sent)
		_, _ = fmt.Fprint(w, results(rerank.APITEI, "1", "2"))
	})
	reg := prometheus.NewRegistry()
	_, err := newReranker(t, url, rerank.APITEI, reg).Rerank(t.Context(), strings.Repeat("水", 100_000), []string{strings.Repeat("é", 100_000), "short"})
	require.NoError(t, err)
	require.Equal(t, 2000, utf8.RuneCountInString(sent.Query))
	require.Equal(t, 8000, utf8.RuneCountInString(sent.Texts[0]))
	require.Equal(t, strings.Repeat("é", 8000), sent.Texts[0])
	require.Equal(t, "short", sent.Texts[1])
	require.Equal(t, map[string]uint64{"success": 1, "failure": 0}, counts(t, reg))
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  rerank.Config
		want string
	}{
		{rerank.Config{BaseURL: "http://h:8080", API: rerank.APIAuto}, "RERANK_API: auto, and the path of RERANK_BASE_URL is none of"},
		{rerank.Config{BaseURL: "http://h/v2", API: rerank.APIAuto}, "RERANK_MODEL: must be set, RERANK_API is cohere"},
		{rerank.Config{BaseURL: "http://h", API: rerank.APIJina}, "RERANK_MODEL: must be set, RERANK_API is jina"},
		{rerank.Config{BaseURL: "ftp://u:sk-very-secret@h/v1", API: rerank.APIAuto}, "RERANK_BASE_URL: not an absolute http or https URL"},
		{rerank.Config{BaseURL: "http://h/rerank", API: rerank.APIAuto, APIKey: "sk-very-secret"}, ""},
	} {
		_, err := rerank.New(c.cfg, nil)
		require.NotContains(t, fmt.Sprintf("%v %+v %v", c.cfg, c.cfg, err), "sk-very-secret")
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.want)
		}
	}
}
