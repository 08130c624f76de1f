// Package rerank judges hits anew by an HTTP service of one of three shapes: Cohere's /v2/rerank, Jina's /v1/rerank (vLLM, LiteLLM,
// llama.cpp and most others) and Hugging Face's text-embeddings-inference (/rerank).
//
// One request is made for a search, and it is not tried again: a search waits for it.
// An answer is trusted only after a check: one finite score for each text, by an index that is in range and given once.
package rerank

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/telemetry"
)

// API is the shape of a service's requests.
type API string

// The shapes.
const (
	APIAuto   API = "auto"   // by the URL's path
	APICohere API = "cohere" // POST {base}/v2/rerank
	APIJina   API = "jina"   // POST {base}/v1/rerank
	APITEI    API = "tei"    // POST {base}/rerank (Hugging Face text-embeddings-inference)
)

const (
	// maxQuery and maxText are what is sent of a query and of a text, characters; services read a few hundred tokens of each.
	maxQuery = 2000
	maxText  = 8000
	// maxReply is what an answer may have beside the texts, which some services send back, bytes.
	maxReply = 1 << 20

	endPoint = "/rerank"
)

// Config is what an operator sets about a reranking service.
type Config struct {
	BaseURL string        // RERANK_BASE_URL, e.g. https://api.cohere.com/v2
	API     API           // RERANK_API
	Model   string        // RERANK_MODEL: name of the model; TEI has one
	APIKey  string        // RERANK_API_KEY: sent as a Bearer token; empty: none
	Timeout time.Duration // RERANK_TIMEOUT: longest time of one request
}

// Validate names every setting that cannot be used.
func (c Config) Validate() error {
	var problems []error
	base, err := rest.ParseBase(c.BaseURL)
	if err != nil {
		problems = append(problems, fmt.Errorf("RERANK_BASE_URL: %w", err))
	}
	api := c.API
	if err == nil && api == APIAuto {
		if api = byPath(base.Path); api == APIAuto {
			problems = append(problems, errors.New("RERANK_API: auto, and the path of RERANK_BASE_URL is none of …/v2, …/v1, …/rerank: set cohere, jina or tei"))
		}
	}
	if c.Model == "" && (api == APICohere || api == APIJina) {
		problems = append(problems, fmt.Errorf("RERANK_MODEL: must be set, RERANK_API is %s", api))
	}
	return errors.Join(problems...)
}

// String shows the configuration without its secrets.
func (c Config) String() string {
	return fmt.Sprintf("{API:%s Model:%s Timeout:%v}", c.API, c.Model, c.Timeout)
}

// LogValue shows the configuration without its secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// byPath reads the shape from the address; APIAuto when it tells nothing.
func byPath(path string) API {
	switch {
	case strings.HasSuffix(path, "/v2"), strings.HasSuffix(path, "/v2"+endPoint):
		return APICohere
	case strings.HasSuffix(path, "/v1"), strings.HasSuffix(path, "/v1"+endPoint):
		return APIJina
	case strings.HasSuffix(path, endPoint):
		return APITEI
	}
	return APIAuto
}

// Reranker calls one service. It is safe for concurrent use.
type Reranker struct {
	cfg    Config
	api    API
	path   string // below the base URL
	client *rest.Client
	took   *prometheus.HistogramVec
}

// New returns a reranker; nothing is called yet. reg nil: its figures are kept to themselves.
// Errors: those of cfg.Validate.
func New(cfg Config, reg prometheus.Registerer) (*Reranker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := rest.NewBearer(cfg.BaseURL, cfg.APIKey)
	if err != nil {
		return nil, fmt.Errorf("RERANK_BASE_URL: %w", err)
	}
	r := &Reranker{cfg: cfg, api: cfg.API, client: client}
	if r.api == APIAuto {
		r.api = byPath(client.Path())
	}
	r.path = r.api.below(client.Path())
	r.took = telemetry.Register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "ingest_search_rerank_seconds", Help: "Time of the requests to the reranking service, by result: success, failure.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"result"}))
	for _, result := range []string{success, failure} {
		r.took.WithLabelValues(result)
	}
	return r, nil
}

// The results of one request.
const (
	success = "success"
	failure = "failure"
)

// below is the path of the end point below a base URL, which may name its version or be the end point itself.
func (a API) below(base string) string {
	version := map[API]string{APICohere: "/v2", APIJina: "/v1"}[a]
	switch {
	case strings.HasSuffix(base, endPoint):
		return ""
	case version != "" && strings.HasSuffix(base, version):
		return endPoint
	}
	return version + endPoint
}

// Rerank returns a score for each text, in their order. See ingest.Reranker.
func (r *Reranker) Rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	start := time.Now()
	scores, err := r.rerank(ctx, query, texts)
	result := success
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return nil, err // the caller left: that says nothing about the service
	case err != nil:
		result = failure
	}
	r.took.WithLabelValues(result).Observe(time.Since(start).Seconds())
	return scores, err
}

func (r *Reranker) rerank(ctx context.Context, query string, texts []string) ([]float64, error) {
	short := make([]string, len(texts))
	for i, text := range texts {
		short[i] = cut(text, maxText)
	}
	body, err := r.encode(cut(query, maxQuery), short)
	if err != nil {
		return nil, fmt.Errorf("encode texts: %w", err)
	}
	call := rest.Call{
		Method: http.MethodPost, Path: r.path, Body: body, MaxReply: maxReply + 2*int64(len(body)), Timeout: r.cfg.Timeout,
	}
	reply, err := r.client.Do(ctx, call)
	if err != nil {
		return nil, err
	}
	scores, err := r.decode(reply, len(texts))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.client.Op(call), err)
	}
	return scores, nil
}

// cut is a text's first n characters.
func cut(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// encode is the body of a request. Scores of all texts are asked for: a service that is left to itself may give the best ones only.
func (r *Reranker) encode(query string, texts []string) ([]byte, error) {
	if r.api == APITEI {
		return json.Marshal(map[string]any{"query": query, "texts": texts, "truncate": true})
	}
	body := map[string]any{"model": r.cfg.Model, "query": query, "documents": texts, "top_n": len(texts)}
	if r.api == APIJina {
		body["return_documents"] = false
	}
	return json.Marshal(body)
}

// result is the score of one text; what is missing or null is nil.
type result struct {
	Index     *int     `json:"index"`
	Relevance *float64 `json:"relevance_score"` // Cohere, Jina
	Score     *float64 `json:"score"`           // TEI
}

// decode reads the scores of n texts. JSON has no NaN and no infinity: an answer with them cannot be read.
func (r *Reranker) decode(reply []byte, n int) ([]float64, error) {
	var results []result
	var err error
	if r.api == APITEI {
		err = json.Unmarshal(reply, &results)
	} else {
		var out struct {
			Results []result `json:"results"`
		}
		err = json.Unmarshal(reply, &out)
		results = out.Results
	}
	if err != nil {
		return nil, fmt.Errorf("reply is not what it should be: %w", err)
	}
	if len(results) != n {
		return nil, fmt.Errorf("%d scores for %d texts", len(results), n)
	}
	scores, given := make([]float64, n), make([]bool, n)
	for _, one := range results {
		score := one.Relevance
		if r.api == APITEI {
			score = one.Score
		}
		if score == nil || one.Index == nil {
			return nil, errors.New("a result without index or score")
		}
		if i := *one.Index; i < 0 || i >= n || given[i] {
			return nil, fmt.Errorf("index %d is out of range or given twice", i)
		}
		scores[*one.Index], given[*one.Index] = *score, true
	}
	return scores, nil
}
