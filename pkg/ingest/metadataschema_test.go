package ingest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// schemaOf reads a schema as a client sends it.
func schemaOf(t testing.TB, text string) (MetadataSchema, error) {
	t.Helper()
	s := MetadataSchema{Additional: true}
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	return s.Check("metadataSchema.")
}

const bookSchema = `{"fields":{"lang":{"type":"string","required":true,"values":["de","en","de"]},"year":{"type":"number"},"final":{"type":"boolean"},"part":{"type":"number","values":[1,2.5,-0]}},"additional":false}`

// What does not fit is refused with the key, what was given and what is asked.
func TestMetadataIsJudgedByASchema(t *testing.T) {
	t.Parallel()
	closed, err := schemaOf(t, bookSchema)
	require.NoError(t, err)
	require.Equal(t, []any{"de", "en"}, closed.Fields["lang"].Values)
	open := closed
	open.Additional = true
	for said, want := range map[string]struct{ closed, open string }{
		`{"lang":"de"}`: {},
		`{"lang":"en","year":-3,"final":false,"part":0}`: {},
		``:                            {"metadata.lang is missing; the knowledge base's metadata schema asks for a string out of \"de\", \"en\"", "="},
		`{}`:                          {"metadata.lang is missing; ", "="},
		`{"year":2024}`:               {"metadata.lang is missing; ", "="},
		`{"lang":"fr"}`:               {`metadata.lang is "fr"; the knowledge base's metadata schema asks for a string out of "de", "en"`, "="},
		`{"lang":"DE"}`:               {`metadata.lang is "DE"; `, "="},
		`{"lang":1}`:                  {`metadata.lang is 1, a number; the knowledge base's metadata schema asks for a string out of "de", "en"`, "="},
		`{"lang":"de","year":"2024"}`: {`metadata.year is "2024", a string; the knowledge base's metadata schema asks for a number`, "="},
		`{"lang":"de","year":true}`:   {`metadata.year is true, a boolean; the knowledge base's metadata schema asks for a number`, "="},
		`{"lang":"de","final":0}`:     {`metadata.final is 0, a number; the knowledge base's metadata schema asks for a boolean`, "="},
		`{"lang":"de","part":3}`:      {`metadata.part is 3; the knowledge base's metadata schema asks for a number out of 1, 2.5, 0`, "="},
		`{"Lang":"de"}`:               {`metadata.Lang differs in case from "lang", a field of the knowledge base's metadata schema; name it so`, "="},
		`{"lang":"de","color":"red"}`: {`metadata.color is no field of the knowledge base's metadata schema, which has final, lang, part, year; leave it out`, ""},
	} {
		m, err := ParseMetadata("metadata", said)
		require.NoError(t, err)
		for s, message := range map[*MetadataSchema]string{&closed: want.closed, &open: strings.Replace(want.open, "=", want.closed, 1)} {
			err := s.Fits("metadata", m)
			if message == "" {
				require.NoError(t, err, said)
				continue
			}
			require.ErrorContains(t, err, message, said)
			var text *TextError
			require.ErrorAs(t, err, &text)
			require.True(t, text.Form)
			require.Equal(t, strings.SplitN(message, " ", 2)[0], text.Field)
		}
	}
	require.NoError(t, (*MetadataSchema)(nil).Fits("metadata", ""))
	many, err := schemaOf(t, `{"additional":false}`)
	require.NoError(t, err)
	require.ErrorContains(t, many.Fits("metadata", `{"a":1}`), "which has none; leave it out")
	for i := range 32 {
		many.Fields[fmt.Sprintf("%s%02d", strings.Repeat("k", 62), i)] = MetadataField{Type: MetadataString, Values: []any{strings.Repeat("ä", 500), strings.Repeat("ö", 500)}}
	}
	err = many.Fits("metadata", `{"a":1}`)
	require.ErrorContains(t, err, " and 31 others; leave it out")
	require.Less(t, len(err.Error()), 400)
	err = many.Fits("metadata", Metadata(`{"`+strings.Repeat("k", 62)+`00":"`+strings.Repeat("ü", 512)+`"}`))
	require.ErrorContains(t, err, " and 1 others")
	require.Less(t, len(err.Error()), 700)
}

// A filter that no document can pass that fits is refused; what is left open is not.
func TestFiltersAreJudgedByASchema(t *testing.T) {
	t.Parallel()
	closed, err := schemaOf(t, bookSchema)
	require.NoError(t, err)
	open := closed
	open.Additional = true
	for wanted, message := range map[string]string{
		`{}`: "", `{"lang":"fr","year":{"gte":1},"final":[true,false],"part":[7]}`: "", `{"lang":{"lte":"e"}}`: "", `{"lang":{"gte":"a"}}`: "",
		`{"lang":1}`:                "metadata.lang is compared with a number; the knowledge base's metadata schema asks for a string out of",
		`{"year":[2024,"2024"]}`:    "metadata.year is compared with a string; the knowledge base's metadata schema asks for a number",
		`{"year":{"gte":"2024"}}`:   "metadata.year is compared with a string; ",
		`{"year":{"lte":"2024"}}`:   "metadata.year is compared with a string; ",
		`{"final":"true"}`:          "metadata.final is compared with a string; the knowledge base's metadata schema asks for a boolean",
		`{"color":"red"}`:           "metadata.color is no field of the knowledge base's metadata schema, which has final, lang, part, year; leave it out",
		`{"year":2024,"Lang":"de"}`: "metadata.Lang is no field",
	} {
		var values map[string]any
		require.NoError(t, json.Unmarshal([]byte(wanted), &values))
		rules, err := ParseMetadataRules("metadata", values)
		require.NoError(t, err)
		for s, isOpen := range map[*MetadataSchema]bool{&closed: false, &open: true} {
			err := s.FitsRules("metadata", rules)
			if message == "" || isOpen && strings.Contains(message, "is no field") {
				require.NoError(t, err, wanted)
			} else {
				require.ErrorContains(t, err, message, wanted)
			}
		}
		require.NoError(t, (*MetadataSchema)(nil).FitsRules("metadata", rules))
	}
}

// What is no schema is refused with the place and the limit.
func TestSchemasThatAreNone(t *testing.T) {
	t.Parallel()
	list := func(n int, value string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(value, i))
		}
		return strings.Join(all, ",")
	}
	for text, message := range map[string]string{
		`{"fields":{"a":{}}}`:                                                                                `metadataSchema.fields.a.type is "", allowed are string, number, boolean`,
		`{"fields":{"a":{"type":"date"}}}`:                                                                   `metadataSchema.fields.a.type is "date", allowed are`,
		`{"fields":{"a":{"type":"String"}}}`:                                                                 `metadataSchema.fields.a.type is "String", allowed are`,
		`{"fields":{"":{"type":"string"}}}`:                                                                  "metadataSchema.fields has the key \"\", allowed are 1 to 64 of A-Z",
		`{"fields":{"a b":{"type":"string"}}}`:                                                               `metadataSchema.fields has the key "a b"`,
		`{"fields":{"a' OR 1=1":{"type":"string"}}}`:                                                         `metadataSchema.fields has the key "a' OR 1=1"`,
		`{"fields":{"a\u0000":{"type":"string"}}}`:                                                           `metadataSchema.fields has the key "a\x00"`,
		`{"fields":{"` + strings.Repeat("k", 65) + `":{"type":"string"}}}`:                                   "allowed are 1 to 64",
		`{"fields":{"a":{"type":"string"},"A":{"type":"string"}}}`:                                           `metadataSchema.fields has the field "a" more than once; keys that differ in case only count as one`,
		`{"fields":{` + list(33, `"k%d":{"type":"string"}`) + `}}`:                                           "metadataSchema.fields has 33 fields, allowed are 32",
		`{"fields":{"a":{"type":"number","values":[1,"2"]}}}`:                                                `metadataSchema.fields.a.values has "2", a string; the field's type is number`,
		`{"fields":{"a":{"type":"string","values":[true]}}}`:                                                 `metadataSchema.fields.a.values has true, a boolean; the field's type is string`,
		`{"fields":{"a":{"type":"string","values":[null]}}}`:                                                 "metadataSchema.fields.a.values is neither a text nor a number",
		`{"fields":{"a":{"type":"string","values":[["x"]]}}}`:                                                "metadataSchema.fields.a.values is neither a text nor a number",
		`{"fields":{"a":{"type":"string","values":["` + strings.Repeat("ä", 513) + `"]}}}`:                   "metadataSchema.fields.a.values has 513 characters, allowed are 512",
		`{"fields":{"a":{"type":"string","values":["\u0000"]}}}`:                                             "metadataSchema.fields.a.values has the control character U+0000",
		`{"fields":{"a":{"type":"number","values":[1e300]}}}`:                                                "metadataSchema.fields.a.values is a number beyond",
		`{"fields":{"a":{"type":"number","values":[` + list(101, "%d") + `]}}}`:                              "metadataSchema.fields.a.values has 101 values, allowed are 100",
		`{"fields":{"a":{"type":"string","values":[` + list(99, `"%d`+strings.Repeat("x", 500)+`"`) + `]}}}`: "bytes as JSON, allowed are 16384; list fewer values",
	} {
		_, err := schemaOf(t, text)
		require.ErrorContains(t, err, message)
		var named *TextError
		require.ErrorAs(t, err, &named)
		require.Less(t, len(err.Error()), 400)
	}
	for _, text := range []string{`{}`, `{"fields":{}}`, `{"fields":null,"additional":true}`} {
		s, err := schemaOf(t, text)
		require.NoError(t, err)
		require.Nil(t, s.OrNone(), text)
	}
	s, err := schemaOf(t, `{"additional":false}`)
	require.NoError(t, err)
	require.NotNil(t, s.OrNone())
	require.Error(t, s.Scan(7))
	require.Error(t, s.Scan("{"))
}

// Whatever is sent: a schema that is taken is its own kept form, comes back from its column, and lets through what it names alone.
func FuzzMetadataSchema(f *testing.F) {
	for _, text := range []string{
		bookSchema, `{}`, `null`, `{"additional":false}`, `{"fields":{"a":{"type":"number","values":[-0,1e-400,0.1]}}}`, `{"fields":{"a":{"type":"string","values":["\u2028<&>"]},"A":{}}}`,
		`{"fields":{"k":{"type":"boolean","required":true,"values":[true]},"\u212a":{"type":"string"}}}`, `{"fields":{"a":{"type":"s"}}}`, `{"fields":[]}`,
	} {
		f.Add(text, `{"lang":"de","year":2024,"final":true}`)
		f.Add(text, `{"a":"\u2028<&>","Lang":0}`)
	}
	f.Fuzz(func(t *testing.T, text, said string) {
		s := MetadataSchema{Additional: true}
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		s, err := s.Check("metadataSchema.")
		if err != nil {
			require.ErrorAs(t, err, new(*TextError))
			return
		}
		again, err := s.Check("metadataSchema.")
		require.NoError(t, err)
		require.Equal(t, s, again)
		var back MetadataSchema
		require.NoError(t, back.Scan(s.Column()))
		require.Equal(t, s, back)

		m, err := ParseMetadata("metadata", said)
		if err != nil {
			return
		}
		values := m.Values()
		fits := true
		for key, value := range values {
			field, declared := s.Fields[key]
			if declared {
				fits = fits && typeOf(value) == field.Type
				listed := len(field.Values) == 0
				for _, v := range field.Values {
					listed = listed || v == value
				}
				fits = fits && listed
				continue
			}
			fits = fits && s.Additional
			for name := range s.Fields {
				fits = fits && !strings.EqualFold(name, key)
			}
		}
		for key, field := range s.Fields {
			_, given := values[key]
			fits = fits && (given || !field.Required)
		}
		err = s.Fits("metadata", m)
		require.Equal(t, fits, err == nil, "%v", err)
		if err != nil {
			require.ErrorAs(t, err, new(*TextError))
			return
		}
		for key, value := range values {
			rules, err := ParseMetadataRules("metadata", map[string]any{key: value})
			require.NoError(t, err)
			require.NoError(t, s.FitsRules("metadata", rules), "what fits can be looked for")
		}
	})
}
