package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// KeyTraceparent is the key of the W3C context in rows, deliveries and headers.
	KeyTraceparent = "traceparent"

	exportErrorInterval = time.Minute // a collector that is down is told once a minute
)

// W3C trace context only: baggage would carry text of strangers into every queue and log.
var propagator = propagation.TraceContext{}

// SetupOptions say who reports.
type SetupOptions struct {
	Service string
	Version string
	Log     *slog.Logger // hears of export errors, rarely
}

// Setup installs the global tracer provider and W3C propagation, and where metrics are exported (MetricsExported) the global
// meter provider.
// A protocol that OTEL_EXPORTER_OTLP_PROTOCOL names and that is not spoken is logged.
// Spans are exported over OTLP/HTTP only when OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set
// (the other OTEL_* variables then apply too); without it trace ids are made and passed on all the same,
// so that log lines of one upload can be found by its id.
// shutdown sends what is left; it must be called once.
func Setup(ctx context.Context, o SetupOptions) (shutdown func(context.Context) error, err error) {
	otel.SetTextMapPropagator(propagator)
	repeated := NewRepeated(o.Log, exportErrorInterval, time.Now)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		repeated.Log(context.Background(), slog.LevelWarn, "otel", "telemetry: export", slog.String("protocol", protocol), slog.Any("error", err))
	}))
	for _, signal := range []string{"TRACES", "METRICS"} {
		if asked := protocolAsked(signal); asked != protocol && exportWanted(signal) {
			o.Log.WarnContext(ctx, "telemetry: this protocol is not spoken; the endpoint must be the collector's for OTLP over HTTP (port 4318 by default)",
				slog.String("signal", strings.ToLower(signal)), slog.String("asked", asked), slog.String("spoken", protocol))
		}
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))}
	if TracesExported() {
		if opts, err = exportOptions(ctx, o); err != nil {
			return nil, fmt.Errorf("set up traces: %w", err)
		}
	}
	endMetrics, err := setupMetrics(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	provider := sdktrace.NewTracerProvider(opts...)
	otel.SetTracerProvider(provider)
	return func(ctx context.Context) error { return errors.Join(endMetrics(ctx), provider.Shutdown(ctx)) }, nil
}

// TracesExported tells whether spans go out over OTLP/HTTP (Setup): where they do not, what makes many need not begin them.
func TracesExported() bool { return exportWanted("TRACES") }

// protocol is the only value of OTEL_EXPORTER_OTLP_PROTOCOL that is heeded.
const protocol = "http/protobuf"

// protocolAsked is what the environment names for a signal.
func protocolAsked(signal string) string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), protocol)
}

// exportWanted tells whether the environment names where a signal goes: TRACES or METRICS.
func exportWanted(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_"+signal+"_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

func exportOptions(ctx context.Context, o SetupOptions) ([]sdktrace.TracerProviderOption, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	res, err := whoReports(ctx, o)
	if err != nil {
		return nil, err
	}
	// The sampler is the SDK's default: OTEL_TRACES_SAMPLER, else everything whose parent is not unsampled.
	return []sdktrace.TracerProviderOption{sdktrace.WithBatcher(exporter), sdktrace.WithResource(res)}, nil
}

// whoReports is the resource of all signals.
func whoReports(ctx context.Context, o SetupOptions) (*resource.Resource, error) {
	// What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say comes last and wins.
	res, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(
			attribute.String("service.name", o.Service), attribute.String("service.namespace", "millweir"),
			attribute.String("service.version", o.Version), attribute.String("service.instance.id", rand.Text()),
		), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	return res, nil
}

// Inject writes the context's traceparent (and tracestate) into carrier, which must not be nil.
// A context without a span writes nothing.
func Inject(ctx context.Context, carrier map[string]string) {
	propagator.Inject(ctx, propagation.MapCarrier(carrier))
}

// Traceparent is the context's span as one string for a column or a field; "" without a span.
func Traceparent(ctx context.Context) string {
	carrier := map[string]string{}
	Inject(ctx, carrier)
	return carrier[KeyTraceparent]
}

// WithTraceparent returns ctx with the remote span that the string names; "" or nonsense leaves ctx as it is.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return propagator.Extract(ctx, propagation.MapCarrier{KeyTraceparent: traceparent})
}

// SpanContext is the remote span that the string names; "" or nonsense gives one that is not valid.
func SpanContext(traceparent string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(WithTraceparent(context.Background(), traceparent))
}

// LinkTo is the start option that links a new span to the one that the string names: a retry to the attempt before it.
// "" or nonsense links to nothing.
func LinkTo(traceparent string) trace.SpanStartOption {
	sc := SpanContext(traceparent)
	if !sc.IsValid() {
		return trace.WithLinks()
	}
	return trace.WithLinks(trace.Link{SpanContext: sc})
}
