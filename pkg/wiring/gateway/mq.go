package gateway

import (
	"fmt"

	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/telemetry/mq"
	"github.com/millweir/millweir/pkg/wiring/documents"
	"github.com/millweir/millweir/pkg/wiring/redis"
)

// MQ opens streammq on the process's Redis for an operator's looks and steps, and shows what all topics hold among the figures;
// nil without REDIS_URL. It is no member of any group.
func MQ(p *documents.Parts) (*streammq.MQ, error) {
	r := redis.Of(p.Transports)
	if r == nil {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	cfg := streammq.NewDefaultConfig()
	cfg.Log, cfg.Layout = p.Env.Log, streamq.Layout(r.Client)
	topics, err := streammq.New(r.Client, cfg)
	if err != nil {
		return nil, fmt.Errorf("open streammq: %w", err)
	}
	p.Watch(mq.NewCollector(topics, p.Env.Log))
	return topics, nil
}
