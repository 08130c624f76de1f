package openai

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ratelimit"
)

// API is the shape of a service's requests.
type API string

// The shapes.
const (
	APIAuto   API = "auto"   // by the URL, else by asking the service
	APIOpenAI API = "openai" // POST {base}/embeddings
	APITEI    API = "tei"    // POST {base}/embed (Hugging Face text-embeddings-inference)
	APIOllama API = "ollama" // POST {base}/api/embed
	APIAzure  API = "azure"  // OpenAI's with the header api-key: {base}/embeddings below a deployment or /openai/v1, else {base}/openai/v1/embeddings
	APICohere API = "cohere" // POST {base}/v2/embed
	APIVoyage API = "voyage" // POST {base}/v1/embeddings
	APIJina   API = "jina"   // POST {base}/v1/embeddings
)

// APIs are all of them, as EMBEDDING_API names them.
var APIs = []API{APIAuto, APIOpenAI, APITEI, APIOllama, APIAzure, APICohere, APIVoyage, APIJina}

const (
	maxBatch     = 2048 // OpenAI's own limit of inputs
	maxDimension = 16384
	// MaxPerMinute bounds both budgets: one event a microsecond.
	MaxPerMinute = 60_000_000
	// maxModel leaves room for the rest of the model key (at most 190 characters, see keyOf).
	maxModel       = 512
	defaultBatch   = 64
	defaultTimeout = 2 * time.Minute
)

// Config is what an operator sets about an embedding service.
type Config struct {
	BaseURL    string        // EMBEDDING_BASE_URL, e.g. https://api.openai.com/v1
	Model      string        // EMBEDDING_MODEL: name of the model; also the identity of its vectors
	APIKey     string        // EMBEDDING_API_KEY: sent as a Bearer token; empty: none
	API        API           // EMBEDDING_API
	BatchSize  int           // EMBEDDING_BATCH_SIZE: most texts of one request, 1..2048; a lower limit of the service is learned
	Dimensions int           // EMBEDDING_DIMENSIONS: to ask for and to insist on, 0..16384; 0: the model's own
	Timeout    time.Duration // EMBEDDING_TIMEOUT: longest time of one request, and of a wait for the budget before it, 1s..1h
	// EMBEDDING_REQUESTS_PER_MINUTE and EMBEDDING_TOKENS_PER_MINUTE: the model's budget, 0..MaxPerMinute; 0: no limit.
	Requests, Tokens int
}

// Limits are those of the budget, the requests' before the tokens'; none: there is no budget.
func (c Config) Limits() (limits []ratelimit.Limit) {
	for _, n := range []int{c.Requests, c.Tokens} {
		if n > 0 {
			limits = append(limits, ratelimit.PerMinute(n))
		}
	}
	return limits
}

// NewDefaultConfig returns the defaults; BaseURL and Model have none.
func NewDefaultConfig() Config {
	return Config{API: APIAuto, BatchSize: defaultBatch, Timeout: defaultTimeout}
}

// Validate names every setting that cannot be used, and its range.
func (c Config) Validate() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if _, err := rest.ParseBase(c.BaseURL); err != nil {
		bad("EMBEDDING_BASE_URL: %w", err)
	}
	if c.Model == "" || len(c.Model) > maxModel {
		bad("EMBEDDING_MODEL: must be set, 1..%d bytes", maxModel)
	}
	if !slices.Contains(APIs, c.API) {
		bad("EMBEDDING_API: %q is not one of %v", c.API, APIs)
	}
	if c.BatchSize < 1 || c.BatchSize > maxBatch {
		bad("EMBEDDING_BATCH_SIZE: %d is not within 1..%d", c.BatchSize, maxBatch)
	}
	if c.Dimensions < 0 || c.Dimensions > maxDimension {
		bad("EMBEDDING_DIMENSIONS: %d is not within 0..%d", c.Dimensions, maxDimension)
	}
	if c.Timeout < time.Second || c.Timeout > time.Hour {
		bad("EMBEDDING_TIMEOUT: %v is not within 1s..1h", c.Timeout)
	}
	if c.Requests < 0 || c.Requests > MaxPerMinute {
		bad("EMBEDDING_REQUESTS_PER_MINUTE: %d is not within 0..%d", c.Requests, MaxPerMinute)
	}
	if c.Tokens < 0 || c.Tokens > MaxPerMinute {
		bad("EMBEDDING_TOKENS_PER_MINUTE: %d is not within 0..%d", c.Tokens, MaxPerMinute)
	}
	return errors.Join(problems...)
}

// String shows the configuration without its secrets.
func (c Config) String() string {
	return fmt.Sprintf("{API:%s Model:%s BatchSize:%d Dimensions:%d Timeout:%v}", c.API, c.Model, c.BatchSize, c.Dimensions, c.Timeout)
}

// LogValue shows the configuration without its secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
