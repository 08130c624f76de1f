package ingest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	maxSchemaValues = 100
	maxSchemaBytes  = 16 << 10
	// maxShownBytes bounds a list of names or values in an error; the first one is always there.
	maxShownBytes = 120
)

// MetadataType is the type of a field's values. Its first letter is the kind of metadataText.
type MetadataType string

// The types.
const (
	MetadataString  MetadataType = "string"
	MetadataNumber  MetadataType = "number"
	MetadataBoolean MetadataType = "boolean"
)

// MetadataSchema says which metadata documents of a base may have; nil: any. One that Check has returned is in its kept form.
type MetadataSchema struct {
	Fields     map[string]MetadataField `json:"fields"`
	Additional bool                     `json:"additional"` // keys that are no fields are allowed
}

// MetadataField is what is asked of one key.
type MetadataField struct {
	Type     MetadataType `json:"type"`
	Required bool         `json:"required,omitempty"`
	Values   []any        `json:"values,omitempty"` // the allowed ones, of the type; empty: all of it
}

// Check refuses what is no schema, and brings one into its kept form: values as documents have them, each once. field is what stands
// before the members' names in errors, such as "metadataSchema.". *TextError.
func (s MetadataSchema) Check(field string) (MetadataSchema, error) {
	field += "fields"
	if n := len(s.Fields); n > maxMetadataKeys {
		return s, &TextError{Field: field, Long: true, why: fmt.Sprintf("has %d fields, allowed are %d", n, maxMetadataKeys)}
	}
	kept := MetadataSchema{Fields: make(map[string]MetadataField, len(s.Fields)), Additional: s.Additional}
	lower := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(s.Fields)) {
		fold := strings.ToLower(key)
		if lower[fold] {
			return s, &TextError{Field: field, Form: true, why: fmt.Sprintf("has the field %.80q more than once; keys that differ in case only count as one", key)}
		}
		lower[fold] = true
		f, err := s.Fields[key].check(field, key)
		if err != nil {
			return s, err
		}
		kept.Fields[key] = f
	}
	if text, _ := json.Marshal(kept); len(text) > maxSchemaBytes { // which cannot fail
		return s, &TextError{Field: field, Long: true, why: fmt.Sprintf("has %d bytes as JSON, allowed are %d; list fewer values", len(text), maxSchemaBytes)}
	}
	return kept, nil
}

// check is Check for one field.
func (f MetadataField) check(field, key string) (MetadataField, error) {
	if _, err := metadataValue(field, key, ""); err != nil {
		return f, err
	}
	field += "." + key
	if err := oneOf(field+".type", f.Type, MetadataString, MetadataNumber, MetadataBoolean); err != nil {
		return f, err
	}
	if n := len(f.Values); n > maxSchemaValues {
		return f, &TextError{Field: field + ".values", Long: true, why: fmt.Sprintf("has %d values, allowed are %d", n, maxSchemaValues)}
	}
	var values []any
	for _, v := range f.Values {
		v, err := metadataValue(field, "values", v)
		if err != nil {
			return f, err
		}
		if typeOf(v) != f.Type {
			return f, &TextError{Field: field + ".values", Form: true, why: fmt.Sprintf("has %s, a %s; the field's type is %s", shown(v), typeOf(v), f.Type)}
		}
		if !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	f.Values = values
	return f, nil
}

// typeOf is the type of a value of metadata.
func typeOf(value any) MetadataType {
	switch value.(type) {
	case string:
		return MetadataString
	case bool:
		return MetadataBoolean
	}
	return MetadataNumber
}

// typeOfKind is the type of a kind of metadataText.
func typeOfKind(kind byte) MetadataType {
	switch kind {
	case 's':
		return MetadataString
	case 'b':
		return MetadataBoolean
	}
	return MetadataNumber
}

// Fits refuses metadata that the schema does not allow; the error is about the first key that does not fit. *TextError.
func (s *MetadataSchema) Fits(field string, m Metadata) error {
	if s == nil {
		return nil
	}
	values := m.Values()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if err := s.fits(field, key, values[key]); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Fields)) {
		if _, given := values[key]; !given && s.Fields[key].Required {
			return misfit(field, key, "is missing; the knowledge base's metadata schema asks for %s", s.Fields[key].asked())
		}
	}
	return nil
}

// fits is Fits for one key with its value.
func (s *MetadataSchema) fits(field, key string, value any) error {
	f, declared := s.Fields[key]
	switch {
	case !declared:
		for name := range s.Fields {
			if strings.EqualFold(name, key) {
				return misfit(field, key, "differs in case from %q, a field of the knowledge base's metadata schema; name it so", name)
			}
		}
		return s.undeclared(field, key)
	case typeOf(value) != f.Type:
		return misfit(field, key, "is %s, a %s; the knowledge base's metadata schema asks for %s", shown(value), typeOf(value), f.asked())
	case len(f.Values) > 0 && !slices.Contains(f.Values, value):
		return misfit(field, key, "is %s; the knowledge base's metadata schema asks for %s", shown(value), f.asked())
	}
	return nil
}

// undeclared refuses a key that is no field, unless others are allowed.
func (s *MetadataSchema) undeclared(field, key string) error {
	if s.Additional {
		return nil
	}
	return misfit(field, key, "is no field of the knowledge base's metadata schema, which has %s; leave it out", some(slices.Sorted(maps.Keys(s.Fields))))
}

// FitsRules refuses a filter that no document can pass that fits the schema, by a key or by the type of a value. *TextError.
func (s *MetadataSchema) FitsRules(field string, rules []MetadataRule) error {
	if s == nil {
		return nil
	}
	for _, r := range rules {
		f, declared := s.Fields[r.Key]
		if !declared {
			if err := s.undeclared(field, r.Key); err != nil {
				return err
			}
			continue
		}
		for _, text := range slices.Concat(r.AnyOf, []string{r.From}) {
			if text != "" && text[0] != f.Type[0] {
				return misfit(field, r.Key, "is compared with a %s; the knowledge base's metadata schema asks for %s", typeOfKind(text[0]), f.asked())
			}
		}
	}
	return nil
}

func misfit(field, key, why string, args ...any) error {
	return &TextError{Field: field + "." + key, Form: true, why: fmt.Sprintf(why, args...)}
}

// asked tells the type, and the values if they are told.
func (f MetadataField) asked() string {
	text := "a " + string(f.Type)
	if len(f.Values) == 0 {
		return text
	}
	values := make([]string, len(f.Values))
	for i, v := range f.Values {
		values[i] = shown(v)
	}
	return text + " out of " + some(values)
}

// shown is a value in an error.
func shown(value any) string {
	if text, isText := value.(string); isText {
		return fmt.Sprintf("%.80q", text)
	}
	text, _ := json.Marshal(value) // which cannot fail
	return string(text)
}

// some are the first of the names, with the number of the others.
func some(names []string) string {
	text := ""
	for i, name := range names {
		if i > 0 && len(text)+len(name) > maxShownBytes {
			return fmt.Sprintf("%s and %d others", text, len(names)-i)
		}
		if i > 0 {
			text += ", "
		}
		text += name
	}
	if text == "" {
		return "none"
	}
	return text
}

// Scan implements sql.Scanner: the JSON of a column.
func (s *MetadataSchema) Scan(from any) error {
	*s = MetadataSchema{}
	switch v := from.(type) {
	case []byte:
		return json.Unmarshal(v, s)
	case string:
		return json.Unmarshal([]byte(v), s)
	}
	return fmt.Errorf("metadata schema is %T", from)
}

// Column is the JSON for a column; nil for no schema.
func (s *MetadataSchema) Column() any {
	if s == nil {
		return nil
	}
	text, _ := json.Marshal(s) // which cannot fail
	return string(text)
}

// OrNone is the schema; nil when it allows everything.
func (s MetadataSchema) OrNone() *MetadataSchema {
	if s.Additional && len(s.Fields) == 0 {
		return nil
	}
	return &s
}
