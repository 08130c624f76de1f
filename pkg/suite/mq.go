package suite

import (
	"fmt"

	"github.com/millweir/millweir/pkg/ingestq/streamq"
	"github.com/millweir/millweir/pkg/streammq"
	telemetrymq "github.com/millweir/millweir/pkg/telemetry/mq"
)

// MQ opens streammq on the process's Redis for an operator's looks and steps, and shows what all topics hold among the figures;
// nil without REDIS_URL. It is no member of any group.
func (p *Parts) MQ() (*streammq.MQ, error) {
	if p.Redis == nil {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	cfg := streammq.NewDefaultConfig()
	cfg.Log, cfg.Layout = p.Env.Log, streamq.Layout(p.Redis)
	mq, err := streammq.New(p.Redis, cfg)
	if err != nil {
		return nil, fmt.Errorf("open streammq: %w", err)
	}
	p.watch(telemetrymq.NewCollector(mq, p.Env.Log))
	return mq, nil
}
