package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescriptionFitsRoutes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	described := map[string]bool{}
	for path, item := range child(b.g.api.root, "paths") {
		for method := range operations(item) {
			described[strings.ToUpper(method)+" "+path] = false
		}
	}
	for _, r := range b.g.engine.Routes() {
		key := r.Method + " " + templated(r.Path)
		_, known := described[key]
		require.True(t, known, "%s is not described", key)
		described[key] = true
	}
	for key, exists := range described {
		require.True(t, exists, "%s is described and does not exist", key)
	}
}

func TestDescriptionFitsParameters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, r := range b.g.routes() {
		path, op := operationOf(b.g.api.root, r.method, r.path)
		shared, _ := child(b.g.api.root, "paths")[path].(object)["parameters"].([]any)
		own, _ := op["parameters"].([]any)
		var query, inPath, want []string
		for _, p := range slices.Concat(shared, own) {
			switch o := resolve(b.g.api.root, p); o["in"] {
			case "query":
				query = append(query, text(o, "name"))
			case "path":
				inPath = append(inPath, text(o, "name"))
			}
		}
		for _, step := range strings.Split(r.path, "/") {
			if name, ok := strings.CutPrefix(step, ":"); ok {
				want = append(want, name)
			}
		}
		require.Equal(t, want, inPath, path)
		if !slices.Contains(r.query, anyParam) {
			require.ElementsMatch(t, r.query, query, "%s %s", r.method, path)
		}
	}
}

func TestEveryReferenceLeadsSomewhere(t *testing.T) {
	t.Parallel()
	d, err := loadDocument("1.2.3")
	require.NoError(t, err)
	var walk func(v any)
	walk = func(v any) {
		switch o := v.(type) {
		case object:
			if ref, ok := o["$ref"].(string); ok {
				require.NotEmpty(t, resolve(d.root, o), ref)
			}
			for _, c := range o {
				walk(c)
			}
		case []any:
			for _, c := range o {
				walk(c)
			}
		}
	}
	walk(d.root)
	require.Equal(t, "1.2.3", child(d.root, "info")["version"])
	require.NotContains(t, string(d.json), "x-list")
	require.NotContains(t, string(d.json), "x-errors")
}

func TestEveryCodeIsListedWithItsRemedy(t *testing.T) {
	t.Parallel()
	d, err := loadDocument("")
	require.NoError(t, err)
	listed := texts(child(child(child(d.root, "components"), "schemas"), "ErrorCode")["enum"])
	table := child(d.root, "x-error-codes")
	for _, code := range listed {
		row := child(table, code)
		require.Equal(t, strings.ToUpper(code), code)
		require.NotEmpty(t, row["remedy"], code)
		require.NotEmpty(t, row["message"], code)
		require.GreaterOrEqual(t, row["status"], 400, code)
	}
	for _, s := range sentinels() {
		require.Contains(t, listed, s.code)
	}
}

func TestDescriptionAndPageAreServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.get(nobody, "/openapi.json")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "3.1.0", decode[object](t, w)["openapi"])
	require.Equal(t, http.StatusNotModified, b.get(nobody, "/openapi.json", "If-None-Match", w.Header().Get("ETag")).Code)
	w = b.get(nobody, "/docs")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "/api/knowledge/documents/upload-async")
	require.Contains(t, w.Body.String(), "IDEMPOTENCY_KEY_REUSED")
	require.NotContains(t, w.Body.String(), "<script")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
}
