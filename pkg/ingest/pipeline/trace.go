package pipeline

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/taskstate"
)

const tracerName = "github.com/millweir/millweir/pkg/ingest"

// staged runs a stage in a span below the attempt's. Without a name, and where nobody records the attempt, it only calls f.
func (r *run) staged(ctx context.Context, name string, f func(context.Context) error) error {
	parent := trace.SpanFromContext(ctx)
	if name == "" || !parent.IsRecording() {
		return f(ctx)
	}
	ctx, span := parent.TracerProvider().Tracer(tracerName).Start(ctx, name)
	defer span.End()
	err := f(ctx)
	if r.spool != nil {
		span.SetAttributes(attribute.Int("millweir.segments", len(r.spool.items)))
	}
	if u := unwanted(""); err != nil && !errors.As(err, &u) {
		span.SetStatus(codes.Error, taskstate.Shorten(r.w.d.Redact(err.Error())))
	}
	return err
}
