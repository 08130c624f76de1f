package gateway

import (
	"time"

	"github.com/millweir/millweir/pkg/ingest/rerank"
	"github.com/millweir/millweir/pkg/process"
)

// Search says how hits are ordered.
type Search struct {
	TextWeight    float64        `envconfig:"SEARCH_TEXT_WEIGHT" default:"0.8" allowed:"0.05..1" desc:"how much a hit's words count in a hybrid search; its vector counts the rest of 1"`
	RerankURL     process.DSN    `envconfig:"RERANK_BASE_URL" desc:"Cohere, Jina or TEI service that orders the first hits of a search; not set: none"`
	RerankAPI     string         `envconfig:"RERANK_API" default:"auto" allowed:"auto|cohere|jina|tei" desc:"the service's way of speaking; auto: by the path, …/v2, …/v1 or …/rerank"`
	RerankModel   string         `envconfig:"RERANK_MODEL" desc:"model name; TEI has one"`
	RerankKey     process.Secret `envconfig:"RERANK_API_KEY" desc:"sent as a Bearer token"`
	RerankTimeout time.Duration  `envconfig:"RERANK_TIMEOUT" default:"2s" allowed:"50ms..5s" desc:"longest time of one request; then the hits keep their order"`
	RerankTop     int            `envconfig:"RERANK_TOP_N" default:"32" allowed:"1..50" desc:"how many hits of a search it orders; TEI takes 32 unless it is told otherwise"`
}

// rerank is the configuration of the reranking service; ok is false when none is set.
func (s Search) rerank() (cfg rerank.Config, ok bool) {
	return rerank.Config{
		BaseURL: s.RerankURL.Reveal(), API: rerank.API(s.RerankAPI), Model: s.RerankModel, APIKey: s.RerankKey.Reveal(), Timeout: s.RerankTimeout,
	}, !s.RerankURL.Empty()
}

// Validate names what the reranking service needs and does not have.
func (s Search) Validate() error {
	if cfg, ok := s.rerank(); ok {
		return cfg.Validate()
	}
	return nil
}
