package gateway

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/services/ingest-api/gateway/apidoc"
)

// checkAnswer compares an answer with the description: its status must be announced for the operation,
// its body must fit the schema, and may have no field that the schema does not name.
func checkAnswer(t testing.TB, d *apidoc.Document, method, route string, w *httptest.ResponseRecorder) {
	t.Helper()
	path, op := operationOf(d.Root, method, route)
	require.NotNil(t, op, "%s %s is not described", method, route)
	answer, ok := apidoc.Child(op, "responses")[strconv.Itoa(w.Code)].(apidoc.Object)
	require.True(t, ok, "%s %s answered %d, which is not described: %s", method, path, w.Code, w.Body)
	content, _ := answer["content"].(apidoc.Object)
	kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	if len(content) == 0 {
		require.Empty(t, w.Body.String(), "%s %s %d has a body", method, path, w.Code)
		return
	}
	if _, any := content["*/*"]; any {
		return
	}
	media, ok := content[kind].(apidoc.Object)
	require.True(t, ok, "%s %s %d came as %s", method, path, w.Code, kind)
	if !strings.HasSuffix(kind, "json") {
		return
	}
	var body any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
	require.NoError(t, fits(d.Root, media["schema"], body, "body"), "%s %s %d: %s", method, path, w.Code, w.Body)
	if kind == "application/problem+json" {
		code := body.(apidoc.Object)["code"].(string)
		require.Contains(t, answer["description"], code, "%s %s %d: the code %s is not described", method, path, w.Code, code)
	}
}

// operationOf finds gin's route in the description.
func operationOf(root apidoc.Object, method, route string) (string, apidoc.Object) {
	path := templated(route)
	return path, apidoc.Operations(apidoc.Child(root, "paths")[path])[strings.ToLower(method)]
}

// templated is gin's path as OpenAPI writes it.
func templated(route string) string {
	parts := strings.Split(route, "/")
	for i, p := range parts {
		if name, isParam := strings.CutPrefix(p, ":"); isParam {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

// fits is the part of JSON Schema that the description uses; objects are closed unless additionalProperties says otherwise.
func fits(root apidoc.Object, schema, value any, at string) error {
	s := flat(root, schema)
	if choices, ok := s["oneOf"].([]any); ok {
		var errs []string
		for _, c := range choices {
			err := fits(root, c, value, at)
			if err == nil {
				return nil
			}
			errs = append(errs, err.Error())
		}
		return fmt.Errorf("%s fits none of: %s", at, strings.Join(errs, "; "))
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, value) {
		return fmt.Errorf("%s is %v, which is not listed", at, value)
	}
	if s["format"] == "date-time" && value != nil {
		text, _ := value.(string)
		if _, err := time.Parse("2006-01-02T15:04:05.000000Z", text); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	if err := typed(s["type"], value, at); err != nil {
		return err
	}
	switch v := value.(type) {
	case []any:
		for i, item := range v {
			if err := fits(root, s["items"], item, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case apidoc.Object:
		return objectFits(root, s, v, at)
	}
	return nil
}

func objectFits(root, s, v apidoc.Object, at string) error {
	properties, _ := s["properties"].(apidoc.Object)
	for _, name := range apidoc.Texts(s["required"]) {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("%s.%s is missing", at, name)
		}
	}
	for name, field := range v {
		sub, ok := properties[name]
		if !ok {
			if sub, ok = s["additionalProperties"]; !ok {
				return fmt.Errorf("%s.%s is not described", at, name)
			}
		}
		if err := fits(root, sub, field, at+"."+name); err != nil {
			return err
		}
	}
	return nil
}

// flat follows references, also those that stand in allOf beside a default or a description.
func flat(root apidoc.Object, schema any) apidoc.Object {
	s, ok := schema.(apidoc.Object)
	if !ok {
		return apidoc.Object{"additionalProperties": true} // true: anything
	}
	if _, isRef := s["$ref"]; isRef {
		return flat(root, apidoc.Resolve(root, s))
	}
	if parts, ok := s["allOf"].([]any); ok {
		return flat(root, parts[0])
	}
	return s
}

func typed(kind, value any, at string) error {
	kinds, many := kind.([]any)
	if !many {
		if kind == nil {
			return nil
		}
		kinds = []any{kind}
	}
	got := "object"
	switch v := value.(type) {
	case nil:
		got = "null"
	case string:
		got = "string"
	case bool:
		got = "boolean"
	case []any:
		got = "array"
	case float64:
		got = "number"
		if v == float64(int64(v)) && slices.Contains(kinds, any("integer")) {
			got = "integer"
		}
	}
	if !slices.Contains(kinds, any(got)) {
		return fmt.Errorf("%s is %s, described is %v", at, got, kind)
	}
	return nil
}

func TestSchemaCheckerFindsFaults(t *testing.T) {
	t.Parallel()
	d, err := apidoc.Load("")
	require.NoError(t, err)
	ref := apidoc.Object{"$ref": "#/components/schemas/Waiting"}
	require.NoError(t, fits(d.Root, ref, apidoc.Object{"reason": "QUEUED", "until": nil}, "b"))
	for name, bad := range map[string]any{
		"missing": apidoc.Object{"reason": "QUEUED"}, "extra": apidoc.Object{"reason": "QUEUED", "until": nil, "x": 1.0},
		"enum": apidoc.Object{"reason": "queued", "until": nil}, "type": apidoc.Object{"reason": 1.0, "until": nil},
		"time": apidoc.Object{"reason": "QUEUED", "until": "2026-01-01"}, "no object": "x",
	} {
		require.Error(t, fits(d.Root, ref, bad, "b"), name)
	}
	inspected := apidoc.Object{"$ref": "#/components/schemas/InspectedTask"}
	require.ErrorContains(t, fits(d.Root, inspected, apidoc.Object{"taskId": "x"}, "b"), "is missing")
}
