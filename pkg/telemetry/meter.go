package telemetry

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// MetricsExported tells whether OTel metrics go out over OTLP/HTTP: OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set, and OTEL_METRICS_EXPORTER is not none.
func MetricsExported() bool { return exportWanted("METRICS") }

// setupMetrics installs the global meter provider where metrics are exported; end sends what is left.
func setupMetrics(ctx context.Context, o SetupOptions) (end func(context.Context) error, err error) {
	if !MetricsExported() {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return nil, err
	}
	res, err := whoReports(ctx, o)
	if err != nil {
		return nil, err
	}
	// The interval is the SDK's: OTEL_METRIC_EXPORT_INTERVAL, else a minute.
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)), sdkmetric.WithResource(res))
	otel.SetMeterProvider(provider)
	return provider.Shutdown, nil
}
