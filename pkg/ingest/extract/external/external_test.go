package external_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/extract/detect"
	"github.com/millweir/millweir/pkg/ingest/extract/external"
	"github.com/millweir/millweir/pkg/ingest/extract/extracttest"
)

const msword = "application/msword"

// convert sends "the file" to a service.
func convert(t *testing.T, kind detect.Kind, timeout time.Duration, service http.HandlerFunc) (page, warning string, err error) {
	t.Helper()
	server := httptest.NewServer(service)
	t.Cleanup(server.Close)
	c, err := external.New(kind, strings.Replace(server.URL, "http://", "http://user:pass-word@", 1), "the-key", 1000)
	require.NoError(t, err)
	body, warning, err := c.Convert(t.Context(), strings.NewReader("the file"), 8, msword, timeout)
	return string(body), warning, err
}

func TestTikaIsSentTheFileAsItIs(t *testing.T) {
	t.Parallel()
	page, warning, err := convert(t, detect.Tika, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPut || r.URL.Path != "/tika" || string(body) != "the file" || r.ContentLength != 8 || r.Header.Get("Accept") != "text/html" ||
			r.Header.Get("Content-Type") != msword || r.Header.Get("Authorization") != "Bearer the-key" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, `<html><meta name="X-TIKA:Parsed-By"><p>text`)
	})
	require.NoError(t, err)
	require.Equal(t, `<html><meta name="X-TIKA:Parsed-By"><p>text`, page)
	require.Empty(t, warning)
}

func TestDoclingIsSentAForm(t *testing.T) {
	t.Parallel()
	reply := func(said map[string]any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			file, head, err := r.FormFile("files")
			if err != nil || r.URL.Path != "/v1/convert/file" || r.FormValue("to_formats") != "html" || head.Filename != "document.doc" || r.Header.Get("X-Api-Key") != "the-key" {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			if body, _ := io.ReadAll(file); string(body) != "the file" {
				w.WriteHeader(http.StatusTeapot)
			}
			_ = json.NewEncoder(w).Encode(said)
		}
	}
	page := map[string]any{"html_content": "<p>text"}
	failed := []map[string]any{{"component_type": "document_backend", "error_message": "page 3 the-key\x00 is broken"}}
	got, warning, err := convert(t, detect.Docling, time.Minute, reply(map[string]any{"document": page, "status": "success", "errors": []any{}}))
	require.NoError(t, err)
	require.Equal(t, "<p>text", got)
	require.Empty(t, warning)
	got, warning, err = convert(t, detect.Docling, time.Minute, reply(map[string]any{"document": page, "status": "partial_success", "errors": failed}))
	require.NoError(t, err)
	require.Equal(t, "<p>text", got)
	require.Equal(t, "a part of the document was not converted: page 3 *** is broken", warning)
	_, _, err = convert(t, detect.Docling, time.Minute, reply(map[string]any{"status": "failure", "errors": failed}))
	extracttest.RequirePermanent(t, err, ingest.CodeCorrupt)
	require.ErrorContains(t, err, "page 3 *** is broken")
	_, _, err = convert(t, detect.Docling, time.Minute, reply(map[string]any{"status": "started"}))
	require.ErrorContains(t, err, "started")
	require.False(t, ingest.AsFailure(err).Permanent)
	_, _, err = convert(t, detect.Docling, time.Minute, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "no JSON") })
	require.Error(t, err)
	require.False(t, ingest.AsFailure(err).Permanent)
}

// A page that Tika did not make is no text of the document: a proxy's, say, that wants a log-in.
func TestAPageOfAnotherIsNoDocument(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"<html><title>Log in</title><body>the-key</body></html>", "", `{"status":"success","document":{"html_content":"x"}}`} {
		_, _, err := convert(t, detect.Tika, time.Minute, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
		require.Error(t, err, page)
		f := ingest.AsFailure(err)
		require.False(t, f.Permanent)
		require.Contains(t, f.Remedy, "EXTRACT_URL")
		require.NotContains(t, f.Error(), "the-key")
	}
}

func TestWhatAServiceRefuses(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]ingest.Code{
		http.StatusUnprocessableEntity: ingest.CodeCorrupt, http.StatusBadRequest: ingest.CodeCorrupt, http.StatusUnsupportedMediaType: ingest.CodeUnsupportedType,
		http.StatusRequestEntityTooLarge: ingest.CodeLimitExceeded, http.StatusTooManyRequests: "", http.StatusUnauthorized: "", http.StatusNotFound: "",
		http.StatusInternalServerError: "", http.StatusServiceUnavailable: "", http.StatusMovedPermanently: "",
	} {
		_, _, err := convert(t, detect.Tika, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "said: the-key pass-word "+strings.Repeat("x", 5000))
		})
		require.ErrorContains(t, err, "said: *** ***", status)
		require.NotContains(t, err.Error(), "pass-word")
		require.Less(t, len(err.Error()), 600, "the service's words are cut")
		if code == "" {
			require.False(t, ingest.AsFailure(err).Permanent, "%d: %v", status, err)
			continue
		}
		extracttest.RequirePermanent(t, err, code)
	}
}

func TestServicesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	_, _, err := convert(t, detect.Tika, 100*time.Millisecond, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	})
	require.ErrorContains(t, err, "no whole answer within 100ms")
	require.False(t, ingest.AsFailure(err).Permanent)
	_, _, err = convert(t, detect.Tika, time.Minute, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), 1001)) })
	extracttest.RequirePermanent(t, err, ingest.CodeLimitExceeded)
	c, err := external.New(detect.Tika, "http://127.0.0.1:1", "", 10)
	require.NoError(t, err)
	_, _, err = c.Convert(t.Context(), strings.NewReader("x"), 1, msword, time.Minute)
	require.Error(t, err)
	require.False(t, ingest.AsFailure(err).Permanent)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = c.Convert(ctx, strings.NewReader("x"), 1, msword, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	_, err = external.New(detect.Tika, "ftp://user:pass-word@x", "", 10)
	require.ErrorContains(t, err, "EXTRACT_URL")
	require.NotContains(t, err.Error(), "pass-word")
}
