// Package apidoc is the OpenAPI document of the gateway and the page that shows it.
package apidoc

import (
	"cmp"
	"embed"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/goccy/go-yaml"

	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

//go:embed openapi/*.yaml
var openAPIFiles embed.FS

// Object is a JSON object of the description.
type Object = map[string]any

// Document is the API's description. What is sent of it is rendered when it is first asked for.
type Document struct {
	Root Object
	JSON func() []byte
	etag func() string
	page func() []byte // /docs
}

// Load is the description with the program's version in it.
func Load(version string) (*Document, error) {
	whole, err := described()
	if err != nil {
		return nil, err
	}
	root, info := maps.Clone(whole), maps.Clone(Child(whole, "info"))
	root["info"], info["version"] = info, cmp.Or(version, "dev")
	d := &Document{Root: root}
	d.JSON = sync.OnceValue(func() []byte { return web.Render(root) })
	d.etag = sync.OnceValue(func() string { return web.ETagOf(d.JSON()) })
	d.page = sync.OnceValue(func() []byte { return docsPage(root) })
	return d, nil
}

// described merges the files and fills in what the code knows better: error codes, responses, lists. All documents share the objects:
// nobody may change them.
var described = sync.OnceValues(func() (Object, error) {
	root := Object{}
	files, err := openAPIFiles.ReadDir("openapi")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := openAPIFiles.ReadFile("openapi/" + f.Name())
		if err != nil {
			return nil, err
		}
		part := Object{}
		if err := yaml.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := merge(root, part); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	expandLists(root) // in place
	joinParts(root)
	describeErrors(root)
	if err := describeAnswers(root); err != nil {
		return nil, err
	}
	return root, nil
})

// merge adds part to root; objects are joined, anything else may stand only once.
func merge(root, part Object) error {
	for key, value := range part {
		there, exists := root[key]
		if !exists {
			root[key] = value
			continue
		}
		a, aOK := there.(Object)
		b, bOK := value.(Object)
		if !aOK || !bOK {
			return fmt.Errorf("%s stands twice", key)
		}
		if err := merge(a, b); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// Child is the object under key; an empty one when there is none.
func Child(o Object, key string) Object {
	if c, ok := o[key].(Object); ok {
		return c
	}
	return Object{}
}

// expandLists replaces {$ref: "#/x-list/Task"} by the form of every list.
func expandLists(v any) any {
	switch t := v.(type) {
	case Object:
		if ref, ok := t["$ref"].(string); ok {
			if item, isList := strings.CutPrefix(ref, "#/x-list/"); isList {
				return listSchema("#/components/schemas/" + item)
			}
		}
		for key, value := range t {
			t[key] = expandLists(value)
		}
	case []any:
		for i, value := range t {
			t[i] = expandLists(value)
		}
	}
	return v
}

// joinParts makes one object of a schema that is several (allOf): generators of clients forget which members of a part may be null.
func joinParts(root Object) {
	schemas := Child(Child(root, "components"), "schemas")
	for name, schema := range schemas {
		schemas[name] = joined(root, schema)
	}
}

// joined is a schema, or one object of its parts.
func joined(root Object, schema any) any {
	s, _ := schema.(Object)
	parts, _ := s["allOf"].([]any)
	if len(parts) < 2 {
		return schema
	}
	required, properties := []any{}, Object{}
	for _, part := range parts {
		p, _ := joined(root, Resolve(root, part)).(Object)
		more, _ := p["required"].([]any)
		required = append(required, slices.DeleteFunc(slices.Clone(more), func(name any) bool { return slices.Contains(required, name) })...)
		maps.Copy(properties, Child(p, "properties"))
	}
	return Object{"type": "object", "required": required, "properties": properties}
}

func listSchema(item string) Object {
	return Object{
		"type": "object", "required": []any{"items", "nextCursor", "hasMore"},
		"properties": Object{
			"items":      Object{"type": "array", "items": Object{"$ref": item}},
			"nextCursor": Object{"$ref": "#/components/schemas/Cursor"},
			"hasMore":    Object{"type": "boolean"},
		},
	}
}

// describeErrors lists every code with its status, message and remedy.
func describeErrors(root Object) {
	codes := slices.Sorted(maps.Keys(web.Kinds))
	enum, table := make([]any, 0, len(codes)), Object{}
	var text strings.Builder
	text.WriteString("Every code with its status and remedy:\n")
	for _, code := range codes {
		kind := web.Kinds[code]
		enum = append(enum, code)
		table[code] = Object{"status": kind.Status, "message": kind.Message, "remedy": kind.Remedy}
		fmt.Fprintf(&text, "\n- `%s` (%d): %s %s", code, kind.Status, kind.Message, kind.Remedy)
	}
	Child(Child(root, "components"), "schemas")["ErrorCode"] = Object{"type": "string", "enum": enum, "description": text.String()}
	root["x-error-codes"] = table
}

// describeAnswers turns each operation's x-errors into answers by status, and adds what every operation can say.
func describeAnswers(root Object) error {
	for path, item := range Child(root, "paths") {
		for method, op := range Operations(item) {
			codes, err := errorCodes(path, method, op)
			if err != nil {
				return fmt.Errorf("%s %s: %w", method, path, err)
			}
			delete(op, "x-errors")
			responses := maps.Clone(Child(op, "responses")) // YAML anchors share them
			for status, list := range byStatus(codes) {
				if _, taken := responses[status]; taken {
					return fmt.Errorf("%s %s: status %s stands twice", method, path, status)
				}
				responses[status] = problemAnswer(list)
			}
			op["responses"] = responses
		}
	}
	return nil
}

// methods are those that routes have, in the order of the page.
var methods = []string{"get", "post", "put", "patch", "delete"}

// Operations are the methods of a path.
func Operations(item any) map[string]Object {
	out := map[string]Object{}
	o, _ := item.(Object)
	for _, method := range methods {
		if op, ok := o[method].(Object); ok {
			out[method] = op
		}
	}
	return out
}

// errorCodes are the codes that an operation can answer with.
func errorCodes(path, method string, op Object) ([]string, error) {
	var codes []string
	named, _ := op["x-errors"].([]any)
	for _, code := range named {
		codes = append(codes, fmt.Sprint(code))
	}
	open, _ := op["security"].([]any)
	if _, isOpen := op["security"]; isOpen && len(open) == 0 {
		return codes, nil
	}
	codes = append(codes, web.CodeUnauthenticated, web.CodeLoginLimited, web.CodeScope, web.CodeInternal, web.CodeUnavailable, web.CodeTimeout, web.CodeHostNotAllowed)
	if strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/internal/") {
		codes = append(codes, web.CodeUnknownParameter, web.CodeInvalidParameter)
	}
	if !strings.HasPrefix(path, "/api/") {
		codes = append(codes, web.CodeForbidden)
	}
	if method != "get" {
		codes = append(codes, web.CodeCrossOrigin)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	for _, code := range codes {
		if _, known := web.Kinds[code]; !known {
			return nil, fmt.Errorf("unknown error code %s", code)
		}
	}
	return codes, nil
}

// byStatus groups codes by their status as text.
func byStatus(codes []string) map[string][]string {
	out := map[string][]string{}
	for _, code := range codes {
		status := strconv.Itoa(web.Kinds[code].Status)
		out[status] = append(out[status], code)
	}
	return out
}

// problemAnswer is the answer of some codes.
func problemAnswer(codes []string) Object {
	return Object{
		"description": strings.Join(codes, ", "),
		"content":     Object{"application/problem+json": Object{"schema": Object{"$ref": "#/components/schemas/Problem"}}},
	}
}

// Send sends the description.
func (d *Document) Send(c *gin.Context) error {
	if !web.NotModified(c, d.etag(), "public, no-cache") {
		web.Write(c, "application/json", http.StatusOK, d.JSON())
	}
	return nil
}
