package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// Formats of log lines.
const (
	FormatAuto = "auto" // text on a terminal, JSON elsewhere
	FormatJSON = "json"
	FormatText = "text"
)

// Keys of the attributes that the handler adds from the context.
const (
	KeyTraceID = "trace_id"
	KeySpanID  = "span_id"
	KeyTaskID  = "task_id"
	// KeyRequestID is the request that made the task.
	KeyRequestID = "request_id"
)

// ErrSetting is wrapped by errors about LOG_LEVEL and LOG_FORMAT.
var ErrSetting = errors.New("log setting")

type taskKey struct{}

// WithTask returns a context whose log lines carry task_id.
func WithTask(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, taskKey{}, id)
}

// TaskID returns the id that WithTask put there, or "".
func TaskID(ctx context.Context) string {
	id, _ := ctx.Value(taskKey{}).(string)
	return id
}

type requestKey struct{}

// WithRequest returns a context whose log lines carry request_id, that of the request which made the work; empty: none.
func WithRequest(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, requestKey{}, id)
}

// ParseLevel reads LOG_LEVEL: debug, info, warn or error, in any case.
func ParseLevel(s string) (slog.Level, error) {
	switch strings.ToLower(s) {
	case "debug":
		return slog.LevelDebug, nil
	case "info", "":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	default:
		return 0, fmt.Errorf("%w: LOG_LEVEL=%q: allowed are debug, info, warn, error", ErrSetting, s)
	}
}

// NewLogger returns a logger that writes to w in the given format (FormatAuto, FormatJSON, FormatText).
// Lines of a …Context call carry trace_id, span_id, task_id and request_id; text values pass through Redact.
// level may be changed while the process runs if it is a *slog.LevelVar.
func NewLogger(w io.Writer, format string, level slog.Leveler) (*slog.Logger, error) {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: redactAttr}
	switch format {
	case FormatJSON:
	case FormatText:
		return slog.New(&handler{slog.NewTextHandler(w, opts)}), nil
	case FormatAuto, "":
		if terminal(w) {
			return slog.New(&handler{slog.NewTextHandler(w, opts)}), nil
		}
	default:
		return nil, fmt.Errorf("%w: LOG_FORMAT=%q: allowed are auto, json, text", ErrSetting, format)
	}
	return slog.New(&handler{slog.NewJSONHandler(w, opts)}), nil
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}

// redactAttr cleans what may hold foreign text: the message, strings and errors.
func redactAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Redact(a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(Redact(v.Error()))
		case fmt.Stringer:
			a.Value = slog.StringValue(Redact(v.String()))
		case []string:
			a.Value = slog.StringValue(Redact(strings.Join(v, ",")))
		}
	default: // numbers, times; groups come one by one
	}
	return a
}

// handler adds the ids of the context to each record.
type handler struct{ slog.Handler }

// Handle adds trace_id, span_id, task_id and request_id.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String(KeyTraceID, sc.TraceID().String()), slog.String(KeySpanID, sc.SpanID().String()))
	}
	if id := TaskID(ctx); id != "" && !has(r, KeyTaskID) {
		r.AddAttrs(slog.String(KeyTaskID, id))
	}
	if id, _ := ctx.Value(requestKey{}).(string); id != "" && !has(r, KeyRequestID) {
		r.AddAttrs(slog.String(KeyRequestID, id))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the wrapping.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the wrapping.
func (h *handler) WithGroup(name string) slog.Handler { return &handler{h.Handler.WithGroup(name)} }

func has(r slog.Record, key string) bool {
	found := false
	r.Attrs(func(a slog.Attr) bool {
		found = a.Key == key
		return !found
	})
	return found
}
