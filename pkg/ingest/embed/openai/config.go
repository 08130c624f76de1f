package openai

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

// API is the shape of a service's requests.
type API string

// The shapes.
const (
	APIAuto   API = "auto"   // by the URL, else by asking the service
	APIOpenAI API = "openai" // POST {base}/embeddings
	APITEI    API = "tei"    // POST {base}/embed (Hugging Face text-embeddings-inference)
	APIOllama API = "ollama" // POST {base}/api/embed
)

const (
	maxBatch     = 2048 // OpenAI's own limit of inputs
	maxDimension = 16384
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
	Timeout    time.Duration // EMBEDDING_TIMEOUT: longest time of one request, 1s..1h
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
	switch c.API {
	case APIAuto, APIOpenAI, APITEI, APIOllama:
	default:
		bad("EMBEDDING_API: %q is not one of auto, openai, tei, ollama", c.API)
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
	return errors.Join(problems...)
}

// String shows the configuration without its secrets.
func (c Config) String() string {
	return fmt.Sprintf("{API:%s Model:%s BatchSize:%d Dimensions:%d Timeout:%v}", c.API, c.Model, c.BatchSize, c.Dimensions, c.Timeout)
}

// LogValue shows the configuration without its secrets.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
