package mq

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"github.com/millweir/millweir/pkg/streammq"
	"github.com/millweir/millweir/pkg/telemetry"
)

// NewObserver counts what streammq does on reg, and where OTel metrics are exported there too.
func NewObserver(reg prometheus.Registerer) (streammq.Observer, error) {
	figures := NewMetrics(reg)
	if !telemetry.MetricsExported() {
		return figures, nil
	}
	meter, err := NewMeter(otel.GetMeterProvider())
	if err != nil {
		return nil, err
	}
	return observers{figures, meter}, nil
}

// observers hear one after another.
type observers []streammq.Observer

// Observe implements streammq.Observer.
func (o observers) Observe(e streammq.Event) {
	for _, one := range o {
		one.Observe(e)
	}
}
