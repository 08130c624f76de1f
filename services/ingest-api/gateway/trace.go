package gateway

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// startSpan continues the caller's W3C trace with a server span, or passes its context on when nothing records.
// Baggage is not read: nobody here needs it, and its size is the caller's choice (A35).
func (g *Gateway) startSpan(c *gin.Context, r *web.Request) (end func(status int)) {
	w3c := propagation.TraceContext{}
	ctx := w3c.Extract(c.Request.Context(), propagation.HeaderCarrier(c.Request.Header))
	method, route := web.CleanMethod(c.Request.Method), c.FullPath() // no route: nothing is at this address
	ctx, span := g.tracer.Start(ctx, strings.TrimSpace(method+" "+route), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(
			attribute.String("http.request.method", method),
			attribute.String("http.route", route),
			attribute.String("millweir.request_id", r.ID)))
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	r.Parent = carrier.Get("traceparent")
	c.Request = c.Request.WithContext(ctx)
	return func(status int) {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, http.StatusText(status))
		}
		span.End()
	}
}
