package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/apidoc"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

func TestDescriptionFitsRoutes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	described := map[string]bool{}
	for path, item := range apidoc.Child(b.g.api.Root, "paths") {
		for method := range apidoc.Operations(item) {
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
	for _, r := range b.g.routes {
		path, op := operationOf(b.g.api.Root, r.Method, r.Path)
		shared, _ := apidoc.Child(b.g.api.Root, "paths")[path].(apidoc.Object)["parameters"].([]any)
		own, _ := op["parameters"].([]any)
		var query, inPath, want []string
		for _, p := range slices.Concat(shared, own) {
			switch o := apidoc.Resolve(b.g.api.Root, p); o["in"] {
			case "query":
				query = append(query, apidoc.Text(o, "name"))
			case "path":
				inPath = append(inPath, apidoc.Text(o, "name"))
			}
		}
		for _, step := range strings.Split(r.Path, "/") {
			if name, ok := strings.CutPrefix(step, ":"); ok {
				want = append(want, name)
			}
		}
		require.Equal(t, want, inPath, path)
		if !slices.Contains(r.Query, web.AnyParam) {
			require.ElementsMatch(t, r.Query, query, "%s %s", r.Method, path)
		}
	}
}

// A comma in a text without quotes ends it: what follows is a key without a value, which makes the document invalid.
func TestEveryKeyHasAValue(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("1.2.3")
	require.NoError(t, err)
	eachObject("", d.Root, func(at string, o apidoc.Object) {
		for k, value := range o {
			require.True(t, value != nil || k == "example" || k == "default" || k == "const" || strings.Contains(at+"/", "/example/"), "%s/%s", at, k)
		}
	})
}

// eachObject calls f with every object below a value, and where it stands.
func eachObject(at string, v any, f func(at string, o apidoc.Object)) {
	switch o := v.(type) {
	case apidoc.Object:
		f(at, o)
		for k, c := range o {
			eachObject(at+"/"+k, c, f)
		}
	case []any:
		for _, c := range o {
			eachObject(at, c, f)
		}
	}
}

// Generators of clients forget which members of a part of allOf may be null: a schema that has several is one object of theirs.
func TestASchemaOfPartsIsOneObject(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("1.2.3")
	require.NoError(t, err)
	schemas := apidoc.Child(apidoc.Child(d.Root, "components"), "schemas")
	eachObject("", d.Root, func(at string, o apidoc.Object) {
		parts, _ := o["allOf"].([]any)
		require.LessOrEqual(t, len(parts), 1, at)
	})
	accepted := apidoc.Child(schemas, "AcceptedTask") // whose fileName is never null, as that of its part may be
	required, _ := accepted["required"].([]any)
	require.Len(t, slices.DeleteFunc(slices.Clone(required), func(name any) bool { return name != "fileName" }), 1)
	require.Equal(t, apidoc.Object{"type": "string"}, apidoc.Child(accepted, "properties")["fileName"])
	suspended := apidoc.Child(schemas, "SuspendedTask") // three: of InspectedTask, which is of Task
	for _, member := range []string{"taskId", "leaseOwner", "mirrorError"} {
		require.Contains(t, suspended["required"], member)
		require.Contains(t, suspended["properties"], member)
	}
}

func TestEveryReferenceLeadsSomewhere(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("1.2.3")
	require.NoError(t, err)
	eachObject("", d.Root, func(_ string, o apidoc.Object) {
		if ref, ok := o["$ref"].(string); ok {
			require.NotEmpty(t, apidoc.Resolve(d.Root, o), ref)
		}
	})
	require.Equal(t, "1.2.3", apidoc.Child(d.Root, "info")["version"])
	require.NotContains(t, string(d.JSON()), "x-list")
	require.NotContains(t, string(d.JSON()), "x-errors")
}

func TestEveryCodeIsListedWithItsRemedy(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("")
	require.NoError(t, err)
	listed := apidoc.Texts(apidoc.Child(apidoc.Child(apidoc.Child(d.Root, "components"), "schemas"), "ErrorCode")["enum"])
	table := apidoc.Child(d.Root, "x-error-codes")
	for _, code := range listed {
		row := apidoc.Child(table, code)
		require.Equal(t, strings.ToUpper(code), code)
		require.NotEmpty(t, row["remedy"], code)
		require.NotEmpty(t, row["message"], code)
		require.GreaterOrEqual(t, row["status"], 400, code)
	}
	for _, s := range web.Sentinels {
		require.Contains(t, listed, s.Code)
	}
}

func TestDescriptionAndPageAreServed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.get(nobody, "/openapi.json")
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "3.1.0", decode[apidoc.Object](t, w)["openapi"])
	require.Equal(t, http.StatusNotModified, b.get(nobody, "/openapi.json", "If-None-Match", w.Header().Get("ETag")).Code)
	w = b.get(nobody, "/docs")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "/api/knowledge/documents/upload-async")
	require.Contains(t, w.Body.String(), "IDEMPOTENCY_KEY_REUSED")
	require.NotContains(t, w.Body.String(), "<script")
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; style-src 'sha256-")
}
