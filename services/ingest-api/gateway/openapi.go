package gateway

import (
	"embed"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/goccy/go-yaml"
)

//go:embed openapi/*.yaml
var openAPIFiles embed.FS

// object is a JSON object of the description.
type object = map[string]any

// document is the API's description, ready to be sent.
type document struct {
	root object
	json []byte
	etag string
	page []byte // /docs
}

// loadDocument merges the files and fills in what the code knows better: error codes, answers, lists, the version.
func loadDocument(version string) (*document, error) {
	root := object{}
	files, err := openAPIFiles.ReadDir("openapi")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := openAPIFiles.ReadFile("openapi/" + f.Name())
		if err != nil {
			return nil, err
		}
		part := object{}
		if err := yaml.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if err := merge(root, part); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	if version == "" {
		version = "dev"
	}
	child(root, "info")["version"] = version
	root, ok := expandLists(root).(object)
	if !ok {
		return nil, errors.New("the document is no object")
	}
	describeErrors(root)
	if err := describeAnswers(root); err != nil {
		return nil, err
	}
	d := &document{root: root, json: render(root), etag: etagOf(root)}
	d.page = docsPage(root)
	return d, nil
}

// merge adds part to root; objects are joined, anything else may stand only once.
func merge(root, part object) error {
	for key, value := range part {
		there, exists := root[key]
		if !exists {
			root[key] = value
			continue
		}
		a, aOK := there.(object)
		b, bOK := value.(object)
		if !aOK || !bOK {
			return fmt.Errorf("%s stands twice", key)
		}
		if err := merge(a, b); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// child is the object under key; it is made when it is missing.
func child(o object, key string) object {
	if c, ok := o[key].(object); ok {
		return c
	}
	c := object{}
	o[key] = c
	return c
}

// expandLists replaces {$ref: "#/x-list/Task"} by the form of every list.
func expandLists(v any) any {
	switch t := v.(type) {
	case object:
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

func listSchema(item string) object {
	return object{
		"type": "object", "required": []any{"items", "nextCursor", "hasMore"},
		"properties": object{
			"items":      object{"type": "array", "items": object{"$ref": item}},
			"nextCursor": object{"$ref": "#/components/schemas/Cursor"},
			"hasMore":    object{"type": "boolean"},
		},
	}
}

// describeErrors lists every code with its status, message and remedy.
func describeErrors(root object) {
	codes := slices.Sorted(maps.Keys(kinds))
	enum, table := make([]any, 0, len(codes)), object{}
	var text strings.Builder
	text.WriteString("Every code with its status and remedy:\n")
	for _, code := range codes {
		kind := kinds[code]
		enum = append(enum, code)
		table[code] = object{"status": kind.Status, "message": kind.Message, "remedy": kind.Remedy}
		fmt.Fprintf(&text, "\n- `%s` (%d): %s %s", code, kind.Status, kind.Message, kind.Remedy)
	}
	child(child(root, "components"), "schemas")["ErrorCode"] = object{"type": "string", "enum": enum, "description": text.String()}
	root["x-error-codes"] = table
}

// describeAnswers turns each operation's x-errors into answers by status, and adds what every operation can say.
func describeAnswers(root object) error {
	for path, item := range child(root, "paths") {
		for method, op := range operations(item) {
			codes, err := errorCodes(path, method, op)
			if err != nil {
				return fmt.Errorf("%s %s: %w", method, path, err)
			}
			delete(op, "x-errors")
			responses := maps.Clone(child(op, "responses")) // YAML anchors share them
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

// operations are the methods of a path.
func operations(item any) map[string]object {
	out := map[string]object{}
	o, _ := item.(object)
	for _, method := range []string{"get", "post", "put", "delete"} {
		if op, ok := o[method].(object); ok {
			out[method] = op
		}
	}
	return out
}

// errorCodes are the codes that an operation can answer with.
func errorCodes(path, method string, op object) ([]string, error) {
	var codes []string
	named, _ := op["x-errors"].([]any)
	for _, code := range named {
		codes = append(codes, fmt.Sprint(code))
	}
	open, _ := op["security"].([]any)
	if _, isOpen := op["security"]; isOpen && len(open) == 0 {
		return codes, nil
	}
	codes = append(codes, codeUnauthenticated, codeLoginLimited, codeScope, codeInternal, codeUnavailable, codeTimeout, codeHostNotAllowed)
	if strings.HasPrefix(path, "/api/") || strings.HasPrefix(path, "/internal/") {
		codes = append(codes, codeUnknownParameter, codeInvalidParameter)
	}
	if !strings.HasPrefix(path, "/api/") {
		codes = append(codes, codeForbidden)
	}
	if method != "get" {
		codes = append(codes, codeCrossOrigin)
	}
	slices.Sort(codes)
	codes = slices.Compact(codes)
	for _, code := range codes {
		if _, known := kinds[code]; !known {
			return nil, fmt.Errorf("unknown error code %s", code)
		}
	}
	return codes, nil
}

// byStatus groups codes by their status as text.
func byStatus(codes []string) map[string][]string {
	out := map[string][]string{}
	for _, code := range codes {
		status := strconv.Itoa(kinds[code].Status)
		out[status] = append(out[status], code)
	}
	return out
}

// problemAnswer is the answer of some codes.
func problemAnswer(codes []string) object {
	return object{
		"description": strings.Join(codes, ", "),
		"content":     object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
	}
}

// send sends the description.
func (d *document) send(c *gin.Context) error {
	h := c.Writer.Header()
	h.Set("ETag", d.etag)
	h.Set("Cache-Control", "public, no-cache")
	if matches(c.Request.Header.Values("If-None-Match"), d.etag, true) {
		c.Writer.WriteHeader(http.StatusNotModified)
		c.Writer.WriteHeaderNow()
		return nil
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(d.json)))
	allowWrite(c)
	c.Writer.WriteHeader(http.StatusOK)
	_, _ = c.Writer.Write(d.json)
	return nil
}
