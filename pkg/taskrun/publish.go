package taskrun

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/pkg/ingestq"
	"github.com/millweir/millweir/pkg/taskstate"
	pb "github.com/millweir/millweir/proto"
)

// Publish adds one delivery per task: the fast path after a commit.
// An error loses nothing: the promise in each row covers what was not added (design D5).
func Publish(ctx context.Context, p ingestq.Publisher, tasks []taskstate.Task) error {
	return publish(ctx, trace.SpanFromContext(ctx).TracerProvider().Tracer(tracerName), p, tasks)
}

// publish is Publish with a tracer of its own, for loops that serve no request.
func publish(ctx context.Context, tracer trace.Tracer, p ingestq.Publisher, tasks []taskstate.Task) error {
	if len(tasks) == 0 {
		return nil
	}
	envelopes := make([]*pb.TaskEnvelope, len(tasks))
	for i, t := range tasks {
		envelopes[i] = ingestq.EnvelopeOf(t)
	}
	err := traced(ctx, tracer, p, envelopes, func(ctx context.Context) ([]string, error) { return p.Publish(ctx, envelopes) })
	if err != nil {
		return fmt.Errorf("publish %d tasks: %w", len(tasks), err)
	}
	return nil
}
