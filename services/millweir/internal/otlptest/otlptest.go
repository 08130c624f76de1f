// Package otlptest receives the spans that processes export over OTLP/HTTP, for tests.
package otlptest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span with the name of the service that exported it.
type Span struct {
	*tracepb.Span

	Service string
}

// Collector keeps what it is sent. It is safe for concurrent use.
type Collector struct {
	URL string // for OTEL_EXPORTER_OTLP_ENDPOINT

	mu    sync.Mutex
	spans []Span
	errs  []error
}

// Start runs a collector until the test ends.
func Start(t *testing.T) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// ServeHTTP takes one export; its body is wire-compatible with TracesData. Other signals are taken and forgotten.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-protobuf")
	body, err := io.ReadAll(r.Body)
	if r.URL.Path != "/v1/traces" {
		return
	}
	var data tracepb.TracesData
	if err == nil {
		err = proto.Unmarshal(body, &data)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs = append(c.errs, err)
	}
	for _, resource := range data.GetResourceSpans() {
		service := ""
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				service = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{s, service})
			}
		}
	}
}

// Spans returns what came so far, and what could not be read.
func (c *Collector) Spans() ([]Span, []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...), append([]error(nil), c.errs...)
}

// Below returns the spans of a name whose parent is the given one.
func (c *Collector) Below(parent Span, name string) (out []Span) {
	all, _ := c.Spans()
	for _, s := range all {
		if s.GetName() == name && string(s.GetParentSpanId()) == string(parent.GetSpanId()) {
			out = append(out, s)
		}
	}
	return out
}
