package ingest

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	maxMetadataKeys  = 32
	maxMetadataChars = 512
	maxMetadataBytes = 4 << 10
	// maxMetadataNumber is the largest whole number that every reader of JSON keeps as it is.
	maxMetadataNumber = 1<<53 - 1
	// maxMetadataRules and maxRuleValues bound a filter.
	maxMetadataRules = 8
	maxRuleValues    = 20
)

var metadataKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Metadata is what a user says of a document: a flat JSON object of texts, numbers and booleans in its kept form, keys in
// order. Empty: nothing was said.
type Metadata string

// ParseMetadata brings a JSON object into its kept form; an empty text says nothing. *TextError when it cannot be metadata.
func ParseMetadata(field, text string) (Metadata, error) {
	if text == "" {
		return "", nil
	}
	values, err := readMetadata(field, text)
	if err != nil {
		return "", err
	}
	kept, err := json.Marshal(values)
	if err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	if len(kept) > maxMetadataBytes {
		return "", &TextError{Field: field, Long: true, why: fmt.Sprintf("has %d bytes as JSON, allowed are %d", len(kept), maxMetadataBytes)}
	}
	return Metadata(kept), nil
}

// readMetadata reads a JSON object key by key: a key that stands twice is refused, whatever its case.
func readMetadata(field, text string) (map[string]any, error) {
	bad := func(format string, args ...any) error {
		return &TextError{Field: field, Form: true, why: fmt.Sprintf(format, args...)}
	}
	if !utf8.ValidString(text) {
		return nil, &TextError{Field: field, why: "is not valid UTF-8"}
	}
	dec := json.NewDecoder(strings.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, bad(`is not a JSON object such as {"lang":"de","year":2024}`)
	}
	out, seen := map[string]any{}, map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		key, _ := token.(string)
		var value any
		if err == nil {
			err = dec.Decode(&value)
		}
		var number *json.UnmarshalTypeError
		switch lower := strings.ToLower(key); {
		case errors.As(err, &number):
			value = math.Inf(1) // beyond a double
		case err != nil:
			return nil, bad("is not JSON: %v", err)
		case seen[lower]:
			return nil, bad("has the key %.80q more than once; keys that differ in case only count as one", key)
		default:
			seen[lower] = true
		}
		if len(out) == maxMetadataKeys {
			return nil, &TextError{Field: field, Long: true, why: fmt.Sprintf("has more than %d keys, which are allowed", maxMetadataKeys)}
		}
		if out[key], err = metadataValue(field, key, value); err != nil {
			return nil, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return nil, bad("is not JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bad("has more behind the JSON object")
	}
	return out, nil
}

// metadataValue checks a value with its key.
func metadataValue(field, key string, value any) (any, error) {
	if !metadataKey.MatchString(key) {
		return nil, &TextError{Field: field, Form: true, why: fmt.Sprintf("has the key %.80q, allowed are 1 to 64 of A-Z, a-z, 0-9, _, . and -", key)}
	}
	field += "." + key
	switch v := value.(type) {
	case string:
		return v, CheckText(field, v, maxMetadataChars)
	case bool:
		return v, nil
	case float64:
		if math.Abs(v) > maxMetadataNumber {
			return nil, &TextError{Field: field, Form: true, why: fmt.Sprintf("is a number beyond ±%d; send it as a text", int64(maxMetadataNumber))}
		}
		return v + 0, nil // -0 is 0
	}
	return nil, &TextError{Field: field, Form: true, why: "is neither a text nor a number, true or false; leave it out, or send it as a text"}
}

// Null is the column's value: NULL when nothing was said.
func (m Metadata) Null() sql.NullString { return sql.NullString{String: string(m), Valid: m != ""} }

// Values are the keys with their values: string, float64 or bool.
func (m Metadata) Values() map[string]any {
	out := map[string]any{}
	_ = json.Unmarshal([]byte(m), &out) // its own form, or empty
	return out
}

// Pairs are the keys, in order, each with its value as MetadataText.
func (m Metadata) Pairs() (pairs [][2]string) {
	values := m.Values()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		pairs = append(pairs, [2]string{key, metadataText(values[key])})
	}
	return pairs
}

// metadataText is a value as a text: its kind, then what orders texts of the kind as the values are ordered.
func metadataText(value any) string {
	switch v := value.(type) {
	case string:
		return "s" + v
	case float64:
		bits := math.Float64bits(v)
		if bits>>63 == 1 {
			bits = ^bits
		} else {
			bits |= 1 << 63
		}
		return fmt.Sprintf("n%016x", bits)
	case bool:
		if v {
			return "b1"
		}
	}
	return "b0"
}

// MetadataRule is what a filter asks of one key. Texts are metadataText's.
type MetadataRule struct {
	Key      string
	AnyOf    []string // one of these; nil: a range
	From, To string   // both included
}

// ParseMetadataRules reads a filter: for each key a value, a list of values, or a range {"gte": …, "lte": …}; a document has to
// fit all of them. *TextError when it cannot be one.
func ParseMetadataRules(field string, wanted map[string]any) (rules []MetadataRule, err error) {
	if len(wanted) > maxMetadataRules {
		return nil, &TextError{Field: field, Long: true, why: fmt.Sprintf("has %d keys, allowed are %d", len(wanted), maxMetadataRules)}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		r := MetadataRule{Key: key}
		switch v := wanted[key].(type) {
		case map[string]any:
			err = r.between(field, v)
		case []any:
			err = r.anyOf(field, v)
		default:
			err = r.anyOf(field, []any{v})
		}
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	return rules, nil
}

// anyOf makes it the rule of a list.
func (r *MetadataRule) anyOf(field string, values []any) error {
	if n := len(values); n == 0 || n > maxRuleValues {
		return &TextError{Field: field, Form: true, why: fmt.Sprintf("has %d values of %.80q, allowed are 1 to %d", n, r.Key, maxRuleValues)}
	}
	for _, v := range values {
		v, err := metadataValue(field, r.Key, v)
		if err != nil {
			return err
		}
		r.AnyOf = append(r.AnyOf, metadataText(v))
	}
	slices.Sort(r.AnyOf)
	r.AnyOf = slices.Compact(r.AnyOf)
	return nil
}

// between makes it the rule of a range of numbers, or of texts in the order of their characters.
func (r *MetadataRule) between(field string, limits map[string]any) error {
	bad := &TextError{Field: field, Form: true, why: fmt.Sprintf(`has a range of %.80q, allowed are "gte" and "lte", both numbers or both texts`, r.Key)}
	for name, v := range limits {
		v, err := metadataValue(field, r.Key, v)
		if err != nil {
			return err
		}
		text := metadataText(v)
		switch {
		case text[0] == 'b':
			return bad
		case name == "gte":
			r.From = text
		case name == "lte":
			r.To = text
		default:
			return bad
		}
	}
	switch {
	case r.From == "" && r.To == "" || r.From != "" && r.To != "" && r.From[0] != r.To[0]:
		return bad
	case r.From == "":
		r.From = r.To[:1]
	case r.To == "":
		r.To = string(r.From[0] + 1) // behind all of the kind
	}
	return nil
}
