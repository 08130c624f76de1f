package sqldb

import (
	"context"
	"database/sql"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// tracer is that of this package; asked for anew, since a test may change who provides it.
func tracer() trace.Tracer { return otel.Tracer("github.com/millweir/millweir/pkg/sqldb") }

// systems are db.system.name by dialect (OTel semantic conventions for databases); MariaDB is told as MySQL, whose protocol it is.
var systems = map[string]string{"mysql": "mysql", "postgres": "postgresql", "sqlite": "sqlite"}

// traced begins the span of an operation below the context's, if that is recorded somewhere; end takes its result.
// Loops that serve no trace make no spans.
func (d *Database) traced(ctx context.Context, c Call) (_ context.Context, end func(error)) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ctx, func(error) {}
	}
	ctx, span := tracer().Start(ctx, c.Name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", systems[d.Dialect()]), attribute.String("db.operation.name", c.Name)))
	if c.Batch > 0 {
		span.SetAttributes(attribute.Int("db.operation.batch.size", c.Batch))
	}
	return ctx, func(err error) { endSpan(span, err) }
}

// statement begins the span of one statement below its operation's; nil: nobody records that.
func (t *session) statement(ctx context.Context, query string) trace.Span {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	verb, table := summary(query)
	name := strings.TrimSpace(verb + " " + table)
	_, span := tracer().Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("db.system.name", systems[t.db.Dialect()]), attribute.String("db.operation.name", verb),
		attribute.String("db.query.summary", name)))
	if table != "" {
		span.SetAttributes(attribute.String("db.collection.name", table))
	}
	return span
}

// together begins a span for each statement of one text; how long each took of it nobody knows.
func (t *session) together(ctx context.Context, all []Part) (end func(error)) {
	var spans []trace.Span
	for _, p := range all {
		if span := t.statement(ctx, p.Text); span != nil {
			if len(all) > 1 {
				span.SetAttributes(attribute.Int("db.operation.batch.size", len(all)))
			}
			spans = append(spans, span)
		}
	}
	return func(err error) {
		for _, span := range spans {
			endSpan(span, err)
		}
	}
}

// rowsWritten ends the span of a statement that returns no rows.
func rowsWritten(span trace.Span, res sql.Result, err error) {
	if err == nil {
		if n, cause := res.RowsAffected(); cause == nil {
			span.SetAttributes(attribute.Int64("millweir.db.rows_affected", n))
		}
	}
	endSpan(span, err)
}

// endSpan ends a span with its result. The error's words, which may hold an address with a login, are the caller's to redact.
func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// summary is a statement's verb and the first table that it names; values never stand in it.
func summary(query string) (verb, table string) {
	words := strings.FieldsFunc(query, func(r rune) bool { return strings.ContainsRune(" \n\t(),;", r) })
	if len(words) == 0 {
		return "", ""
	}
	verb = strings.ToUpper(words[0])
	before := map[string]string{"INSERT": "INTO", "UPDATE": "UPDATE"}[verb]
	if before == "" {
		before = "FROM"
	}
	for i, w := range words[:len(words)-1] {
		if next := strings.ToLower(words[i+1]); strings.EqualFold(w, before) && next != "select" { // of a subquery
			return verb, next
		}
	}
	return verb, ""
}
