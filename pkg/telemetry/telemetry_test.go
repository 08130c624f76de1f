package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func logged(t *testing.T, do func(*slog.Logger)) map[string]any {
	t.Helper()
	var b bytes.Buffer
	log, err := NewLogger(&b, FormatJSON, slog.LevelDebug)
	require.NoError(t, err)
	do(log)
	line := map[string]any{}
	require.NoError(t, json.Unmarshal(b.Bytes(), &line), b.String())
	return line
}

func TestLinesCarryIDs(t *testing.T) {
	t.Parallel()
	ctx := WithRequest(WithTask(WithTraceparent(t.Context(), parent), "task-1"), "req-1")
	line := logged(t, func(l *slog.Logger) { l.With("a", 1).InfoContext(ctx, "worker: claimed") })
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", line[KeyTraceID])
	require.Equal(t, "b7ad6b7169203331", line[KeySpanID])
	require.Equal(t, "task-1", line[KeyTaskID])
	require.Equal(t, "req-1", line[KeyRequestID])
	require.InDelta(t, 1, line["a"], 0)

	line = logged(t, func(l *slog.Logger) { l.InfoContext(ctx, "x", KeyTaskID, "task-2") })
	require.Equal(t, "task-2", line[KeyTaskID], "the line's own id wins")

	line = logged(t, func(l *slog.Logger) { l.InfoContext(WithRequest(t.Context(), ""), "x") })
	require.NotContains(t, line, KeyRequestID)
	require.NotContains(t, line, KeyTraceID)
	require.NotContains(t, line, KeyTaskID)
}

func TestLinesHideSecrets(t *testing.T) {
	t.Parallel()
	line := logged(t, func(l *slog.Logger) {
		l.Warn("dial redis://:"+canary+"@h", "error", errors.New("password="+canary), "dsn", "u:"+canary+"@tcp(h)/d",
			slog.Group("g", "url", "http://u:"+canary+"@h"), "list", []string{"token=" + canary})
	})
	require.NotContains(t, fmt.Sprint(line), canary)
	require.Equal(t, "password=***", line["error"])
}

func TestLoggerSettings(t *testing.T) {
	t.Parallel()
	_, err := NewLogger(io.Discard, "xml", slog.LevelInfo)
	require.ErrorIs(t, err, ErrSetting)
	require.ErrorContains(t, err, "LOG_FORMAT")
	_, err = ParseLevel("loud")
	require.ErrorIs(t, err, ErrSetting)
	require.ErrorContains(t, err, "LOG_LEVEL")
	for in, want := range map[string]slog.Level{"": slog.LevelInfo, "DEBUG": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "Error": slog.LevelError} {
		got, err := ParseLevel(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	var b bytes.Buffer
	log, err := NewLogger(&b, FormatText, slog.LevelInfo)
	require.NoError(t, err)
	log.WithGroup("g").Info("hello", "k", "v")
	require.Contains(t, b.String(), "msg=hello g.k=v")
	b.Reset()
	log, err = NewLogger(&b, FormatAuto, slog.LevelInfo)
	require.NoError(t, err)
	log.Info("hello")
	require.True(t, json.Valid(b.Bytes()), "not a terminal: JSON")
}

func TestRepeated(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log, err := NewLogger(&b, FormatJSON, slog.LevelInfo)
	require.NoError(t, err)
	now := time.Unix(0, 0)
	r := NewRepeated(log, time.Minute, func() time.Time { return now })
	write := func(key string) bool { return r.Log(t.Context(), slog.LevelWarn, key, "m") }
	require.True(t, write("a"))
	require.False(t, write("a"))
	require.False(t, write("a"))
	require.True(t, write("b"), "keys are apart")
	now = now.Add(time.Minute)
	require.True(t, write("a"))
	require.Contains(t, b.String(), `"suppressed":2`)
	require.True(t, r.Reset("a"))
	require.False(t, r.Reset("a"))
	require.True(t, write("a"), "after a recovery at once")
	for i := range 3 * repeatedKeys {
		write(fmt.Sprint(i))
	}
	require.LessOrEqual(t, len(r.seen), repeatedKeys)
}

func TestTraceparentGoesThroughAMap(t *testing.T) {
	t.Parallel()
	ctx := WithTraceparent(t.Context(), parent)
	carrier := map[string]string{}
	Inject(ctx, carrier)
	require.Equal(t, parent, carrier[KeyTraceparent])
	require.Equal(t, parent, Traceparent(WithTraceparent(t.Context(), carrier[KeyTraceparent])))
	require.Empty(t, Traceparent(WithTraceparent(t.Context(), "nonsense")))
	require.Empty(t, Traceparent(t.Context()))

	linked := trace.NewSpanStartConfig(LinkTo(parent))
	require.Len(t, linked.Links(), 1)
	require.Equal(t, "b7ad6b7169203331", linked.Links()[0].SpanContext.SpanID().String())
	none := trace.NewSpanStartConfig(LinkTo(""))
	require.Empty(t, none.Links())
}

// The tests of Setup are not parallel: OpenTelemetry's provider is the process's.
func TestSetupWithoutEndpointStillMakesIDs(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	shutdown, err := Setup(t.Context(), SetupOptions{Service: "s", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, span := otel.Tracer("x").Start(t.Context(), "op")
	require.True(t, span.SpanContext().IsValid())
	require.False(t, span.IsRecording(), "nothing to pay for")
	require.NotEmpty(t, Traceparent(ctx))
	span.End()
	require.NoError(t, shutdown(t.Context()))
}

func TestSetupExports(t *testing.T) {
	got := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	t.Setenv("OTEL_SERVICE_NAME", "")
	shutdown, err := Setup(t.Context(), SetupOptions{Service: "stream-worker", Version: "v9", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx := WithTraceparent(t.Context(), parent)
	_, span := otel.Tracer("x").Start(ctx, "my-operation")
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", span.SpanContext().TraceID().String())
	span.End()
	require.NoError(t, shutdown(context.WithoutCancel(t.Context())))
	sent := <-got
	require.Contains(t, sent, "/v1/traces")
	require.Contains(t, sent, "my-operation")
	require.Contains(t, sent, "stream-worker")
	require.Contains(t, sent, "v9")
}

// Who asks for a protocol that is not spoken is told so, and what to set.
func TestSetupNamesAProtocolThatItDoesNotSpeak(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/x-protobuf") }))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	for _, c := range []struct {
		all, traces string
		told        []string
	}{
		{"", "", nil},
		{"http/protobuf", "", nil},
		{"grpc", "", []string{"traces", "metrics"}},
		{"grpc", "http/protobuf", []string{"metrics"}},
		{"", "http/json", []string{"traces"}},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", c.all)
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", c.traces)
		var log strings.Builder
		shutdown, err := Setup(t.Context(), SetupOptions{Service: "s", Log: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		var told []string
		for line := range strings.Lines(log.String()) {
			require.Contains(t, line, "port 4318")
			_, after, _ := strings.Cut(line, "signal=")
			signal, _, _ := strings.Cut(after, " ")
			told = append(told, signal)
		}
		require.Equal(t, c.told, told, c)
		require.NoError(t, shutdown(t.Context()))
	}
}

func TestSetupCanBeSwitchedOff(t *testing.T) {
	for _, signal := range []string{"TRACES", "METRICS"} {
		require.False(t, exportWanted(signal))
		t.Setenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT", "http://127.0.0.1:1")
		require.True(t, exportWanted(signal))
		t.Setenv("OTEL_"+signal+"_EXPORTER", "none")
		require.False(t, exportWanted(signal))
		t.Setenv("OTEL_"+signal+"_EXPORTER", "")
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	require.False(t, exportWanted("TRACES"))
	require.False(t, MetricsExported())
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	r := NewRegistry("stream-worker", "v1")
	n, err := testutil.GatherAndCount(r, "millweir_build_info", "go_goroutines", "process_open_fds")
	require.NoError(t, err)
	require.Equal(t, 3, n)
}
