package openai_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/openai"
)

// recorded are answers in the form that the services' own references show; the vectors are those of "a" and "b".
var recorded = map[openai.API]string{
	openai.APIAzure: `{"object":"list","data":[{"object":"embedding","index":1,"embedding":"AABAQAAAgEA="},{"object":"embedding","index":0,"embedding":"AACAPwAAAEA="}],` +
		`"model":"text-embedding-3-small","usage":{"prompt_tokens":2,"total_tokens":2}}`,
	openai.APIVoyage: `{"object":"list","data":[{"object":"embedding","embedding":"AACAPwAAAEA=","index":0},{"object":"embedding","embedding":"AABAQAAAgEA=","index":1}],` +
		`"model":"voyage-3.5","usage":{"total_tokens":2}}`,
	openai.APIJina: `{"model":"jina-embeddings-v3","object":"list","usage":{"total_tokens":2,"prompt_tokens":2},` +
		`"data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAEA="},{"object":"embedding","index":1,"embedding":"AABAQAAAgEA="}]}`,
	openai.APICohere: `{"id":"da6e531f","embeddings":{"float":[[1,2],[3,4]]},"texts":["a","b"],"meta":{"api_version":{"version":"2"},"billed_units":{"input_tokens":2}},` +
		`"response_type":"embeddings_by_type"}`,
}

// provider is a service that gives its recorded answer, and keeps what it was asked.
type provider struct {
	*httptest.Server
	asked  []map[string]any
	paths  []string
	header http.Header
	status int
	answer string
}

func newProvider(t *testing.T, answer string) *provider {
	p := &provider{status: http.StatusOK, answer: answer}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		p.asked, p.paths, p.header = append(p.asked, body), append(p.paths, r.URL.RequestURI()), r.Header
		w.WriteHeader(p.status)
		_, _ = io.WriteString(w, p.answer)
	}))
	t.Cleanup(p.Close)
	return p
}

func TestEachProviderIsSpokenTo(t *testing.T) {
	t.Parallel()
	for api, c := range map[openai.API]struct {
		model    string
		bases    map[string]string // path and query of EMBEDDING_BASE_URL → what is asked for
		auth     string            // header that holds the key
		document map[string]any    // of the body
		search   map[string]any
	}{
		openai.APIAzure: {"small", map[string]string{
			"": "/openai/v1/embeddings", "/openai/v1/": "/openai/v1/embeddings", "/openai/v1/embeddings": "/openai/v1/embeddings",
			"/openai/deployments/small?api-version=2024-10-21":            "/openai/deployments/small/embeddings?api-version=2024-10-21",
			"/openai/deployments/small/embeddings?api-version=2024-10-21": "/openai/deployments/small/embeddings?api-version=2024-10-21",
		}, "Api-Key", map[string]any{"encoding_format": "base64"}, nil},
		openai.APIVoyage: {"voyage-3.5", map[string]string{"": "/v1/embeddings", "/v1": "/v1/embeddings", "/v1/embeddings": "/v1/embeddings"},
			"Authorization", map[string]any{"input_type": "document", "truncation": false}, map[string]any{"input_type": "query"}},
		openai.APIJina: {"jina-embeddings-v3", map[string]string{"": "/v1/embeddings", "/v1": "/v1/embeddings"},
			"Authorization", map[string]any{"task": "retrieval.passage", "truncate": false}, map[string]any{"task": "retrieval.query"}},
		openai.APICohere: {"embed-v4.0", map[string]string{"": "/v2/embed", "/v2": "/v2/embed", "/v2/embed": "/v2/embed"},
			"Authorization", map[string]any{"input_type": "search_document", "truncate": "NONE"}, map[string]any{"input_type": "search_query"}},
	} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			for base, asked := range c.bases {
				p := newProvider(t, recorded[api])
				e := newEmbedder(t, p.URL+base, func(cfg *openai.Config) { cfg.API, cfg.Model, cfg.APIKey = api, c.model, "the-key" })
				for _, e := range []ingest.Embedder{e, embed.ForQueries(e)} {
					vectors, err := e.Embed(t.Context(), []string{"a", "b"})
					require.NoError(t, err)
					require.Equal(t, [][]float32{{1, 2}, {3, 4}}, vectors)
				}
				require.Equal(t, []string{asked, asked}, p.paths)
				require.Contains(t, p.header.Get(c.auth), "the-key")
				for field, want := range c.document {
					require.Equal(t, want, p.asked[0][field], field)
				}
				for field, want := range c.search {
					require.Equal(t, want, p.asked[1][field], field)
				}
			}
		})
	}
}

func TestProvidersAreKnownByTheirHosts(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]openai.API{
		"https://me.openai.azure.com/openai/deployments/x?api-version=1": openai.APIAzure,
		"https://Me.OpenAI.Azure.com":                                    openai.APIAzure,
		"https://me.services.ai.azure.com/openai/v1":                     openai.APIAzure,
		"https://api.voyageai.com/v1":                                    openai.APIVoyage,
		"https://api.jina.ai/v1":                                         openai.APIJina,
		"https://api.cohere.com":                                         openai.APICohere,
		"https://api.cohere.ai/compatibility/v1":                         openai.APIOpenAI,
		"https://api.openai.com/v1":                                      openai.APIOpenAI,
		"http://cohere.example:11434":                                    openai.APIOllama,
		"http://api.cohere.com.example":                                  openai.APIAuto,
	} {
		e := newEmbedder(t, base, nil)
		require.Equal(t, want, e.KnownAPI(), base)
	}
}

// The request is cut where the service says that its limit is, before it has to refuse anything.
func TestRequestsKeepToTheLimitsOfTheService(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("word ", 24_000) // about 30,000 tokens
	for name, c := range map[string]struct {
		api   openai.API
		texts []string
		want  []int // texts of each request
	}{
		"cohere's texts":  {openai.APICohere, textsOf(200), []int{96, 96, 8}},
		"voyage's tokens": {openai.APIVoyage, []string{long, long, long, long, "a", "b"}, []int{3, 3}},
		"one large text":  {openai.APIVoyage, []string{long + long + long + long + long, "a"}, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []int
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var body struct{ Input, Texts []string }
				_ = json.NewDecoder(r.Body).Decode(&body)
				n := len(body.Input) + len(body.Texts)
				asked = append(asked, n)
				vectors := make([][]float32, n)
				type item struct {
					Embedding []float32 `json:"embedding"`
				}
				data := make([]item, n)
				for i := range n {
					vectors[i] = []float32{1}
					data[i].Embedding = vectors[i]
				}
				_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "embeddings": map[string]any{"float": vectors}})
			}))
			defer server.Close()
			e := newEmbedder(t, server.URL, func(cfg *openai.Config) { cfg.API, cfg.BatchSize = c.api, 2048 })
			vectors, err := e.Embed(t.Context(), c.texts)
			require.NoError(t, err)
			require.Len(t, vectors, len(c.texts))
			require.Equal(t, c.want, asked)
		})
	}
}
