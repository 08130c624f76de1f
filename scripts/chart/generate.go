package chart

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// schemaBase is the part of values.schema.json that is written by hand.
//
//go:embed values.schema.base.json
var schemaBase []byte

// byChart are settings that the chart sets itself, from other values or because a pod leaves no choice.
var byChart = map[string]string{
	"OPERATOR_ADDR": "services.<name>.operatorPort",
	"HTTP_ADDR":     "the Service leads there",
	"INGEST_QUEUE":  "queue, and a worker's own road",
	"UPLOAD_DIR":    "uploads",
	"VECTOR_STORE":  "vectorStore: the embedded store serves one process",
}

// unfit are settings that mean nothing in a cluster.
var unfit = map[string]string{
	"EXTRACT_CACHE_DIR": "of the image, which names it itself",
	"VECTOR_DIR":        "of the embedded store",
	"VECTOR_MAX_BYTES":  "of the embedded store",
	"AUTH_MODE":         "keys is its default, and none is for loopback addresses",
}

// settable tells whether values may give a setting below env.
func settable(s Setting) bool {
	return byChart[s.Name] == "" && unfit[s.Name] == "" && s.Kind() != KindSecret
}

// settingsFile is files/settings.yaml of the chart: which service reads what.
func settingsFile(known map[string][]Setting) ([]byte, error) {
	byKind := map[string]map[Kind][]string{}
	for service, settings := range known {
		kinds := map[Kind][]string{KindPlain: {}, KindAddress: {}, KindSecret: {}} // templates ask for all three
		for _, s := range settings {
			if unfit[s.Name] == "" {
				kinds[s.Kind()] = append(kinds[s.Kind()], s.Name)
			}
		}
		byKind[service] = kinds
	}
	text, err := yaml.Marshal(byKind)
	if err != nil {
		return nil, err
	}
	return append([]byte("# Made by `make chart-settings` out of each service's --help-env; do not edit it by hand.\n"), text...), nil
}

// schemaFile is values.schema.json of the chart: the hand-written base with every setting by name.
func schemaFile(known map[string][]Setting) ([]byte, error) {
	var schema map[string]any
	if err := json.Unmarshal(schemaBase, &schema); err != nil {
		return nil, fmt.Errorf("values.schema.base.json: %w", err)
	}
	defs, properties := object(schema, "$defs"), object(schema, "properties")
	shared, secrets := map[string]any{}, map[string]any{}
	serviceProperties := object(object(properties, "services"), "properties")
	for _, service := range slices.Sorted(maps.Keys(known)) {
		own := map[string]any{}
		for _, s := range known[service] {
			if settable(s) {
				ref := map[string]any{"$ref": "#/$defs/" + s.Name} // the same in every service: .env.example's test says so
				own[s.Name], shared[s.Name], defs[s.Name] = ref, ref, valueSchema(s)
			}
			if s.Kind() != KindPlain {
				secrets[s.Name] = map[string]any{"type": "string", "description": s.Meaning}
			}
		}
		defs["env-"+service] = envSchema(own)
		one := maps.Clone(object(defs, "service"))
		one["properties"] = maps.Clone(object(one, "properties"))
		object(one, "properties")["env"] = map[string]any{"$ref": "#/$defs/env-" + service}
		if slices.ContainsFunc(known[service], func(s Setting) bool { return s.Name == "HTTP_ADDR" }) {
			object(one, "properties")["service"] = map[string]any{"$ref": "#/$defs/network"}
		}
		serviceProperties[service] = one
	}
	delete(defs, "service")
	properties["env"] = envSchema(shared)
	object(object(properties, "secret"), "properties")["values"] = map[string]any{
		"type": "object", "additionalProperties": false, "properties": secrets,
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(schema)
	return out.Bytes(), err
}

// object is a member of a schema that is an object itself; a base without it is a mistake of this package.
func object(parent map[string]any, key string) map[string]any {
	child, ok := parent[key].(map[string]any)
	if !ok {
		panic("values.schema.base.json has no object " + key)
	}
	return child
}

// envSchema allows these names and the standard ones of OpenTelemetry.
func envSchema(properties map[string]any) map[string]any {
	return map[string]any{
		"type": "object", "additionalProperties": false, "properties": properties,
		"patternProperties": map[string]any{"^OTEL_[A-Z0-9_]+$": map[string]any{"type": []string{"string", "number", "boolean"}}},
	}
}

var duration = regexp.MustCompile(`^[0-9.]+(ns|us|ms|s|m|h)`)

// valueSchema says what --help-env allows as far as a schema can; the service judges the rest at its start.
func valueSchema(s Setting) map[string]any {
	out := map[string]any{"description": s.Meaning}
	low, high, isRange := strings.Cut(s.Allowed, "..")
	_, err := strconv.ParseInt(low, 10, 64)
	switch {
	case s.Name == "SHUTDOWN_GRACE": // the chart adds to it, and templates know no durations
		out["type"], out["pattern"] = "string", "^[0-9]+s$"
	case isRange && err == nil:
		out["type"], out["pattern"] = []string{"integer", "string"}, "^-?[0-9]+$"
		out["minimum"] = json.Number(low)
		if high != "" {
			out["maximum"] = json.Number(high)
		}
	case isRange && duration.MatchString(low), strings.HasPrefix(s.Allowed, "a duration"):
		out["type"], out["pattern"] = "string", "^([0-9.]+(ns|us|ms|s|m|h))+$"
	case strings.HasPrefix(s.Allowed, "a whole number"):
		out["type"], out["pattern"] = []string{"integer", "string"}, "^-?[0-9]+$"
	case s.Allowed == "true or false":
		out["enum"] = []any{true, false, "true", "false"}
	case strings.Contains(s.Allowed, "|"):
		out["enum"] = anyOf(strings.Split(s.Allowed, "|"))
	default:
		out["type"] = []string{"string", "number", "boolean"}
	}
	return out
}

// anyOf lists the values of an enum.
func anyOf(values []string) []any {
	all := make([]any, 0, len(values))
	for _, v := range values {
		all = append(all, v)
	}
	return all
}
