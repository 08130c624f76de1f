package gateway

import (
	"archive/zip"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// archived is a ZIP file with one text.
func archived(t *testing.T, text string) part {
	t.Helper()
	var b strings.Builder
	z := zip.NewWriter(&b)
	f, err := z.Create("inner.txt")
	require.NoError(t, err)
	_, err = f.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return file("all.zip", b.String())
}

// A base says which metadata its documents may have: at each door what does not fit is refused with the key, what was given and what is
// asked, and no row or file is left of it.
func TestABaseDeclaresItsMetadata(t *testing.T) {
	t.Parallel()
	everyWorld(t, func(t *testing.T, s *site) {
		who, path := s.secrets["owner"], "/api/knowledge/bases"
		const declared = `{"fields":{"lang":{"type":"string","required":true,"values":["de","en"]},"year":{"type":"number"}},"additional":false}`
		w := s.send(who, http.MethodPost, path, `{"name":"books","metadataSchema":`+declared+`}`)
		require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
		books := decode[wire.Base](t, w)
		require.JSONEq(t, declared, jsonOf(t, books.MetadataSchema))
		one, seen := path+"/"+books.KnowledgeBaseID, w.Header().Get("ETag")
		require.JSONEq(t, declared, jsonOf(t, decode[wire.Base](t, s.get(who, one)).MetadataSchema))
		for _, b := range decode[wire.List[wire.Base]](t, s.get(who, path)).Items {
			require.Equal(t, b.Name == "books", b.MetadataSchema != nil)
		}

		in := part{"knowledgeBase", "", "books"}
		said := func(text string) part { return part{"metadata", "", text} }
		fine := decode[wire.AcceptedTask](t, s.upload(who, asyncPath, nil, file("a.txt", "one"), in, said(`{"lang":"de","year":2024}`)))
		document := "/api/knowledge/documents/" + fine.Document.DocumentID
		before := s.rows()
		for name, door := range map[string]struct {
			target string
			parts  []part
			about  string
			says   string
		}{
			"nothing is said":     {asyncPath, []part{file("b.txt", "two"), in}, "metadata.lang", "is missing; the knowledge base's metadata schema asks for a string out of"},
			"another type":        {asyncPath, []part{file("b.txt", "two"), in, said(`{"lang":"de","year":"2024"}`)}, "metadata.year", `is "2024", a string; the knowledge base's metadata schema asks for a number`},
			"said before":         {asyncPath, []part{said(`{"lang":"fr"}`), in, file("b.txt", "two")}, "metadata.lang", `is "fr"; `},
			"in the query":        {asyncPath + "?knowledgeBase=books&metadata=" + url.QueryEscape(`{"lang":"de","color":1}`), []part{file("b.txt", "two")}, "metadata.color", "is no field"},
			"that waits":          {"/api/knowledge/documents/upload", []part{file("b.txt", "two"), in, said(`{"Lang":"de"}`)}, "metadata.Lang", `differs in case from "lang"`},
			"by the base's id":    {asyncPath, []part{file("b.txt", "two"), {"knowledgeBase", "", books.KnowledgeBaseID}}, "metadata.lang", "is missing"},
			"a new version":       {"PUT " + document, []part{file("a.txt", "one b"), said(`{"lang":1}`)}, "metadata.lang", "is 1, a number"},
			"that says nothing":   {"PUT " + document, []part{file("a.txt", "one b"), said(`{}`)}, "metadata.lang", "is missing"},
			"the same anew":       {asyncPath, []part{file("a.txt", "one"), in, said(`{"lang":"fr"}`), {"force", "", "true"}}, "metadata.lang", `is "fr"`},
			"an archive":          {asyncPath, []part{archived(t, "two"), in, said(`{"lang":"fr"}`)}, "metadata.lang", `is "fr"`},
			"an archive of books": {asyncPath, []part{archived(t, "two"), in}, "metadata.lang", "is missing"},
		} {
			p := s.refused(s.upload(who, door.target, []string{"Idempotency-Key", "k " + name}, door.parts...), http.StatusUnprocessableEntity, web.CodeInvalidField)
			require.Equal(t, door.about, p.Parameter, name)
			require.Contains(t, p.Message, door.about+" "+door.says, name)
			require.NotEmpty(t, p.Remedy)
		}
		require.Equal(t, before, s.rows())
		w = s.upload(who, asyncPath, nil, file("b.txt", "two"), archived(t, "three"), in)
		for _, refused := range decode[struct{ Items []wire.RefusedFile }](t, w).Items {
			require.Equal(t, "metadata.lang", refused.Error.Parameter)
		}
		require.Equal(t, before, s.rows())
		require.Equal(t, http.StatusAccepted, s.upload(who, asyncPath, nil, archived(t, "two"), in, said(`{"lang":"en"}`)).Code)
		require.Equal(t, http.StatusAccepted, s.upload(who, "PUT "+document, nil, file("a.txt", "one b")).Code, "it keeps what fits")
		require.Equal(t, http.StatusAccepted, s.upload(who, asyncPath, nil, file("b.txt", "two"), said(`{"lang":7}`)).Code, "in another base")

		// Filters of one base are judged too.
		for filter, says := range map[string]string{
			`{"color":"red"}`:         "metadata.color is no field of the knowledge base's metadata schema, which has lang, year; leave it out",
			`{"year":"2024"}`:         "metadata.year is compared with a string; the knowledge base's metadata schema asks for a number",
			`{"year":{"gte":"2024"}}`: "metadata.year is compared with a string; ",
			`{"lang":["de",true]}`:    "metadata.lang is compared with a boolean; ",
		} {
			p := s.refused(s.send(who, http.MethodPost, searchPath, `{"query":"x","knowledgeBase":"books","metadata":`+filter+`}`), http.StatusUnprocessableEntity, web.CodeInvalidField)
			require.Contains(t, p.Message, says)
			p = s.refused(s.get(who, "/api/knowledge/documents?knowledgeBase=books&metadata="+url.QueryEscape(filter)), http.StatusUnprocessableEntity, web.CodeInvalidField)
			require.Contains(t, p.Message, says)
			require.Equal(t, http.StatusOK, s.send(who, http.MethodPost, searchPath, `{"query":"x","metadata":`+filter+`}`).Code)
			require.Equal(t, http.StatusOK, s.get(who, "/api/knowledge/documents?metadata="+url.QueryEscape(filter)).Code, "of all bases")
		}
		require.Equal(t, http.StatusOK, s.send(who, http.MethodPost, searchPath, `{"query":"x","knowledgeBase":"books","metadata":{"year":{"gte":1},"lang":"fr"}}`).Code)

		// A change counts from then on; what is not named stays.
		w = s.send(who, http.MethodPatch, one, `{"metadataSchema":{"fields":{"year":{"type":"number","required":true}}}}`, "If-Match", seen)
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
		require.JSONEq(t, `{"fields":{"year":{"type":"number","required":true}},"additional":true}`, jsonOf(t, decode[wire.Base](t, w).MetadataSchema))
		s.refused(s.send(who, http.MethodPatch, one, `{"metadataSchema":null}`, "If-Match", seen), http.StatusPreconditionFailed, web.CodePrecondition)
		w = s.send(who, http.MethodPatch, one, `{"searchMode":"text"}`)
		require.NotNil(t, decode[wire.Base](t, w).MetadataSchema)
		require.Equal(t, http.StatusOK, s.get(who, document).Code)
		s.refused(s.upload(who, asyncPath, nil, file("c.txt", "four"), in, said(`{"lang":"de"}`)), http.StatusUnprocessableEntity, web.CodeInvalidField)
		require.Equal(t, http.StatusAccepted, s.upload(who, asyncPath, nil, file("c.txt", "four"), in, said(`{"color":"red","year":1}`)).Code)
		for _, none := range []string{`null`, `{}`, `{"fields":{},"additional":true}`} {
			w = s.send(who, http.MethodPatch, one, `{"metadataSchema":`+none+`}`)
			require.Nil(t, decode[wire.Base](t, w).MetadataSchema, none)
		}
		require.Equal(t, http.StatusAccepted, s.upload(who, asyncPath, nil, file("d.txt", "five"), in).Code)
	})
}

// What is no schema is refused with the place, in both requests that take one.
func TestHostileMetadataSchemas(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const path = "/api/knowledge/bases"
	made := decode[wire.Base](t, b.send(ada, http.MethodPost, path, `{"name":"n"}`))
	one := path + "/" + made.KnowledgeBaseID
	for body, want := range map[string]struct {
		status      int
		code, about string
	}{
		`{"fields":{"a":{"type":"date"}}}`:                                                     {http.StatusUnprocessableEntity, web.CodeInvalidField, "metadataSchema.fields.a.type"},
		`{"fields":{"a":{}}}`:                                                                  {http.StatusUnprocessableEntity, web.CodeInvalidField, "metadataSchema.fields.a.type"},
		`{"fields":{"a":null}}`:                                                                {http.StatusUnprocessableEntity, web.CodeInvalidField, "metadataSchema.fields.a.type"},
		`{"fields":{"$.a' --":{"type":"string"}}}`:                                             {http.StatusUnprocessableEntity, web.CodeInvalidField, "metadataSchema.fields"},
		`{"fields":{"a":{"type":"number","values":["1"]}}}`:                                    {http.StatusUnprocessableEntity, web.CodeInvalidField, "metadataSchema.fields.a.values"},
		`{"fields":{"a":{"type":"string","values":["\u0000"]}}}`:                               {http.StatusUnprocessableEntity, web.CodeInvalidText, "metadataSchema.fields.a.values"},
		`{"fields":{"a":{"type":"string","values":[` + strings.Repeat(`"a",`, 100) + `"a"]}}}`: {http.StatusUnprocessableEntity, web.CodeFieldTooLong, "metadataSchema.fields.a.values"},
		`{"fields":{"a":{"type":"number","values":[1e400]}}}`:                                  {http.StatusBadRequest, web.CodeBadJSON, ""},
		`{"fields":{"a":{"type":"string"},"A":{"type":"string"}}}`:                             {http.StatusBadRequest, web.CodeBadJSON, "A"},
		`{"fields":{"a":{"type":"string","minLength":3}}}`:                                     {http.StatusBadRequest, web.CodeBadJSON, ""},
		`{"$schema":"x"}`:                      {http.StatusBadRequest, web.CodeBadJSON, ""},
		`{"fields":["a"]}`:                     {http.StatusBadRequest, web.CodeBadJSON, ""},
		`{"additional":"no"}`:                  {http.StatusBadRequest, web.CodeBadJSON, ""},
		`{"fields":{"a":{"type":["string"]}}}`: {http.StatusBadRequest, web.CodeBadJSON, ""},
		`"any"`:                                {http.StatusBadRequest, web.CodeBadJSON, ""},
		`[]`:                                   {http.StatusBadRequest, web.CodeBadJSON, ""},
		`{"fields":` + strings.Repeat(`{"a":`, 20_000) + `1` + strings.Repeat("}", 20_001): {http.StatusBadRequest, web.CodeBadJSON, ""},
	} {
		for _, answer := range []*struct{ method, target, body string }{
			{http.MethodPatch, one, `{"metadataSchema":` + body + `}`}, {http.MethodPost, path, `{"name":"m","metadataSchema":` + body + `}`},
		} {
			p := b.refused(b.send(ada, answer.method, answer.target, answer.body), want.status, want.code)
			if want.about != "" {
				require.Equal(t, want.about, p.Parameter, body[:min(len(body), 200)])
			}
			require.Less(t, len(p.Message), 400)
		}
	}
	require.Nil(t, decode[wire.Base](t, b.get(ada, one)).MetadataSchema)
}
