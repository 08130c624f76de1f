package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

// library takes documents in, shows and finds them; who works on their tasks is the test.
type library struct {
	ingest.Service
	world *ingesttest.ReadWorld
}

func (l library) Admit(ctx context.Context) error { return l.world.App.Admit(ctx) }

func (l library) Receive(ctx context.Context, r io.Reader, name string) (ingest.ReceivedFile, error) {
	return l.world.App.Receive(ctx, r, name)
}

func (l library) Discard(f ingest.ReceivedFile) { l.world.App.Discard(f) }

func (l library) BeginKey(ctx context.Context, c ingest.Caller, key string) (func(), error) {
	return l.world.App.BeginKey(ctx, c, key)
}

func (l library) AcceptAll(ctx context.Context, c ingest.Caller, uploads []ingest.Upload) ([]ingest.Accepted, []error) {
	return l.world.App.AcceptAll(ctx, c, uploads)
}

func (l library) Document(ctx context.Context, c ingest.Caller, id string) (ingest.Document, error) {
	return l.world.Reads.Document(ctx, c, id)
}

func (l library) Base(ctx context.Context, c ingest.Caller, idOrName string) (ingest.Base, error) {
	return l.world.App.Catalog.Base(ctx, c, idOrName)
}

func (l library) Documents(ctx context.Context, c ingest.Caller, q ingest.ListQuery) ([]ingest.Document, error) {
	return l.world.Reads.Documents(ctx, c, q)
}

func (l library) Search(ctx context.Context, c ingest.Caller, r ingest.SearchRequest) (ingest.SearchResult, error) {
	return l.world.Reads.Search(ctx, c, r)
}

// libraryBench is a bench over a library on each database.
func libraryBench(t *testing.T, test func(t *testing.T, b *bench, w *ingesttest.World)) {
	t.Helper()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		test(t, newBench(t, func(_ *Config, d *Deps) { d.Service = library{world: ingesttest.NewReadWorld(t, w)} }), w)
	})
}

// found are the texts that a search with a filter of metadata finds.
func (b *bench) found(who, filter string) (texts []string) {
	b.t.Helper()
	w := b.send(who, http.MethodPost, searchPath, `{"query":"otter","metadata":`+filter+`}`)
	require.Equal(b.t, http.StatusOK, w.Code, "%s: %s", filter, w.Body)
	for _, h := range decode[wire.SearchAnswer](b.t, w).Hits {
		texts = append(texts, h.Text)
	}
	return texts
}

// listed are the titles of the documents that lists with a filter of metadata show, of all bases and of one alike.
func (b *bench) listed(who, filter string) []string {
	b.t.Helper()
	titles := b.titles(who, "metadata="+url.QueryEscape(filter))
	require.Equal(b.t, titles, b.titles(who, "knowledgeBase=default&metadata="+url.QueryEscape(filter)), filter)
	return titles
}

// titles are those of the documents of a list, gathered from pages of one.
func (b *bench) titles(who, filter string) (titles []string) {
	b.t.Helper()
	cursor := ""
	for {
		w := b.get(who, "/api/knowledge/documents?limit=1&"+filter+cursor)
		require.Equal(b.t, http.StatusOK, w.Code, "%s: %s", filter, w.Body)
		page := decode[wire.List[wire.Document]](b.t, w)
		for _, d := range page.Items {
			titles = append(titles, d.Title)
		}
		if !page.HasMore {
			slices.Sort(titles)
			return titles
		}
		cursor = "&cursor=" + string(page.NextCursor)
	}
}

// What an upload says of its document is shown of it and of its hits, finds it, and is nobody else's.
func TestMetadataGoesThrough(t *testing.T) {
	t.Parallel()
	const said = `{"year":2024,"lang":"de","final":true,"note":"'); DROP TABLE document_metadata; --\nä🐳 \"\\u0041","ratio":-0.125,"big":9007199254740991}`
	var want map[string]any
	require.NoError(t, json.Unmarshal([]byte(said), &want))
	libraryBench(t, func(t *testing.T, b *bench, w *ingesttest.World) {
		key := []string{"Idempotency-Key", "k"}
		answer := b.upload(ada, asyncPath, key, part{field: "metadata", body: said}, file("a.txt", "an otter"), file("b.txt", "an otter too"))
		require.Equal(t, http.StatusAccepted, answer.Code, answer.Body)
		items := decode[struct{ Items []wire.AcceptedTask }](t, answer).Items
		require.Len(t, items, 2)
		for _, a := range items {
			require.Equal(t, want, a.Document.Metadata)
			w.Process(a.TaskID)
		}
		plain := b.accept(ada, "c.txt", "a plain otter")
		require.Equal(t, map[string]any{}, plain.Document.Metadata)
		w.Process(plain.TaskID)
		foreign := decode[wire.AcceptedTask](t, b.upload(bob, asyncPath+"?metadata="+url.QueryEscape(`{"lang":"de"}`), nil, file("a.txt", "bob's otter")))
		w.Process(foreign.TaskID)

		d := decode[wire.Document](t, b.get(ada, "/api/knowledge/documents/"+items[0].Document.DocumentID))
		require.Equal(t, want, d.Metadata)
		require.Len(t, b.found(ada, `{"lang":"de","year":{"gte":2020,"lte":2024},"final":[true,false]}`), 2)
		require.Equal(t, []string{"a.txt", "b.txt"}, b.listed(ada, `{"lang":"de","year":{"gte":2020,"lte":2024},"final":[true,false]}`))
		require.Equal(t, []string{"a.txt", "b.txt"}, b.listed(ada, `{"note":`+mustJSON(t, want["note"])+`}`))
		require.Equal(t, []string{"a.txt", "b.txt", "c.txt"}, b.listed(ada, `{}`))
		require.Equal(t, []string{"a.txt", "b.txt", "c.txt"}, b.listed(ada, ``))
		require.Equal(t, []string{"a.txt"}, b.listed(bob, `{"lang":"de"}`))
		require.Empty(t, b.listed(ada, `{"year":"2024"}`), "a text is no number")
		require.Equal(t, []string{"bob's otter"}, b.found(bob, `{"lang":"de"}`))
		require.Empty(t, b.found(ada, `{"lang":"fr"}`))
		require.Len(t, b.found(ada, `{"note":`+mustJSON(t, want["note"])+`}`), 2)
		require.Len(t, b.found(ada, `{}`), 3)
		hit := decode[wire.SearchAnswer](t, b.send(ada, http.MethodPost, searchPath, `{"query":"otter","metadata":{"year":2024},"topK":1}`)).Hits[0]
		require.Equal(t, want, hit.Metadata)

		// The same request again is the same; with other metadata it is another one.
		again := b.upload(ada, asyncPath, key, file("a.txt", "an otter"), file("b.txt", "an otter too"), part{field: "metadata", body: " " + said})
		require.Equal(t, "true", again.Header().Get("Idempotency-Replayed"), again.Body)
		for _, other := range []string{`{"year":2025}`, ""} {
			parts := []part{file("a.txt", "an otter"), file("b.txt", "an otter too"), {field: "metadata", body: other}}
			for _, f := range decode[struct{ Items []wire.RefusedFile }](t, b.upload(ada, asyncPath, key, parts...)).Items {
				require.Equal(t, web.CodeKeyReused, f.Error.Code)
			}
		}
		// A new version brings its own, whose visibility is its own.
		next := decode[wire.AcceptedTask](t, b.upload(ada, "PUT /api/knowledge/documents/"+plain.Document.DocumentID, nil, file("c.txt", "a new otter"), part{field: "metadata", body: `{"lang":"ja"}`}))
		require.Empty(t, b.found(ada, `{"lang":"ja"}`))
		require.Empty(t, b.listed(ada, `{"lang":"ja"}`))
		w.Process(next.TaskID)
		require.Equal(t, []string{"a new otter"}, b.found(ada, `{"lang":"ja"}`))
		require.Equal(t, []string{"c.txt"}, b.listed(ada, `{"lang":"ja"}`))
		require.Equal(t, []string{"a.txt", "b.txt", "c.txt"}, b.listed(ada, `{"lang":["ja","de"]}`))
		require.Empty(t, b.found(bob, `{"lang":"ja"}`))
		b.refused(b.get(bob, "/api/knowledge/documents/"+plain.Document.DocumentID), http.StatusNotFound, web.CodeDocumentNotFound)
	})
}

func mustJSON(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// What cannot be metadata, or a filter by it, is refused with the name, the limit and a remedy, and nothing is taken in.
func TestHostileMetadata(t *testing.T) {
	t.Parallel()
	object := func(n int, key, value string) string {
		var pairs []string
		for i := range n {
			pairs = append(pairs, fmt.Sprintf(`"%s%d":%s`, key, i, value))
		}
		return "{" + strings.Join(pairs, ",") + "}"
	}
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	long := strings.Repeat("ä", 513)
	type refusal struct{ body, code, about, says string }
	// both are wrong in an upload and in a filter.
	both := map[string]refusal{
		"null":          {`{"a":null}`, web.CodeInvalidField, "metadata.a", "neither a text nor a number"},
		"NUL":           {`{"a":"x\u0000"}`, web.CodeInvalidText, "metadata.a", "U+0000"},
		"long value":    {`{"a":"` + long + `"}`, web.CodeFieldTooLong, "metadata.a", "has 513 characters, allowed are 512"},
		"long key":      {`{"` + strings.Repeat("k", 65) + `":1}`, web.CodeInvalidField, "metadata", "allowed are 1 to 64 of A-Z"},
		"empty key":     {`{"":1}`, web.CodeInvalidField, "metadata", "allowed are 1 to 64 of A-Z"},
		"SQL as a key":  {`{"a' OR 1=1 --":1}`, web.CodeInvalidField, "metadata", "a' OR 1=1 --"},
		"path as a key": {`{"$.a":1}`, web.CodeInvalidField, "metadata", "allowed are 1 to 64 of A-Z"},
		"key with NUL":  {`{"a\u0000":1}`, web.CodeInvalidField, "metadata", `a\x00`},
		"large number":  {`{"a":9007199254740992}`, web.CodeInvalidField, "metadata.a", "beyond ±9007199254740991; send it as a text"},
		"small number":  {`{"a":-1e300}`, web.CodeInvalidField, "metadata.a", "beyond ±9007199254740991"},
		"deep":          {`{"a":` + deep + `}`, "", "", ""},
		"many keys":     {object(10_000, "k", "1"), web.CodeFieldTooLong, "metadata", ""},
	}
	uploads := map[string]refusal{
		"1e400":       {`{"a":1e400}`, web.CodeInvalidField, "metadata.a", "beyond ±9007199254740991"},
		"list":        {`{"a":["b"]}`, web.CodeInvalidField, "metadata.a", "neither a text nor a number"},
		"nested":      {`{"a":{"b":1}}`, web.CodeInvalidField, "metadata.a", "neither a text nor a number"},
		"no object":   {`["a"]`, web.CodeInvalidField, "metadata", "is not a JSON object"},
		"text":        {`lang=de`, web.CodeInvalidField, "metadata", "is not a JSON object"},
		"null alone":  {`null`, web.CodeInvalidField, "metadata", "is not a JSON object"},
		"twice":       {`{"a":1,"b":2,"a":1}`, web.CodeInvalidField, "metadata", `the key "a" more than once`},
		"twice, case": {`{"a":1,"A":2}`, web.CodeInvalidField, "metadata", `the key "A" more than once`},
		"more":        {`{"a":1} {}`, web.CodeInvalidField, "metadata", "more behind the JSON object"},
		"cut off":     {`{"a":1`, web.CodeInvalidField, "metadata", "is not JSON"},
		"not UTF-8":   {"{\"a\":\"\xff\"}", web.CodeInvalidText, "metadata", "not valid UTF-8"},
		"33 keys":     {object(33, "k", "1"), web.CodeFieldTooLong, "metadata", "more than 32 keys"},
		"5 KiB":       {object(10, "k", `"`+strings.Repeat("x", 500)+`"`), web.CodeFieldTooLong, "metadata", "bytes as JSON, allowed are 4096"},
		"100 KiB":     {`{"a":"` + strings.Repeat("x", 100<<10) + `"}`, web.CodeFieldTooLong, "metadata", "longer than 65536 bytes"},
	}
	filters := map[string]refusal{
		"1e400":       {`{"a":1e400}`, web.CodeBadJSON, "", "number 1e400"},
		"empty list":  {`{"a":[]}`, web.CodeInvalidField, "metadata", "has 0 values of \"a\", allowed are 1 to 20"},
		"long list":   {`{"a":[` + strings.Repeat("1,", 20) + `1]}`, web.CodeInvalidField, "metadata", "has 21 values"},
		"nested list": {`{"a":[["b"]]}`, web.CodeInvalidField, "metadata.a", "neither a text nor a number"},
		"operator":    {`{"a":{"$ne":1}}`, web.CodeInvalidField, "metadata", `allowed are "gte" and "lte"`},
		"no limits":   {`{"a":{}}`, web.CodeInvalidField, "metadata", `allowed are "gte" and "lte"`},
		"two kinds":   {`{"a":{"gte":1,"lte":"2"}}`, web.CodeInvalidField, "metadata", "both numbers or both texts"},
		"boolean":     {`{"a":{"gte":true}}`, web.CodeInvalidField, "metadata", "both numbers or both texts"},
		"9 keys":      {object(9, "k", "1"), web.CodeFieldTooLong, "metadata", "has 9 keys, allowed are 8"},
		"list":        {`["a"]`, web.CodeBadJSON, "metadata", "field metadata is a array, expected is an object"},
		"text":        {`"a"`, web.CodeBadJSON, "metadata", "field metadata is a string"},
		"twice":       {`{"a":1,"a":2}`, web.CodeBadJSON, "a", "stands more than once"},
		"not UTF-8":   {"{\"a\":\"\xff\"}", web.CodeBadJSON, "", "not valid UTF-8"},
	}
	check := func(t *testing.T, b *bench, name string, r refusal, answer func(body string) (status int, p wire.Problem)) {
		t.Helper()
		status, p := answer(r.body)
		require.GreaterOrEqual(t, status, 400, name)
		require.Less(t, status, 500, name)
		require.NotEmpty(t, p.Remedy, name)
		require.Contains(t, p.Message, r.says, name)
		if r.code != "" {
			require.Equal(t, r.code, p.Code, "%s: %s", name, p.Message)
		}
		if r.about != "" {
			require.Equal(t, r.about, p.Parameter, name)
		}
		require.Less(t, len(p.Message), 400, name)
	}
	libraryBench(t, func(t *testing.T, b *bench, w *ingesttest.World) {
		upload := func(body string) (int, wire.Problem) {
			answer := b.upload(ada, asyncPath, nil, file("a.txt", "an otter"), part{field: "metadata", body: body})
			return answer.Code, b.problem(answer)
		}
		search := func(body string) (int, wire.Problem) {
			answer := b.send(ada, http.MethodPost, searchPath, `{"query":"otter","metadata":`+body+`}`)
			return answer.Code, b.problem(answer)
		}
		list := func(body string) (int, wire.Problem) {
			answer := b.get(ada, "/api/knowledge/documents?metadata="+url.QueryEscape(body))
			return answer.Code, b.problem(answer)
		}
		for name, r := range both {
			if r.code != "" { // what is larger than a query may be is refused as such
				check(t, b, "list: "+name, r, list)
			}
			check(t, b, "upload: "+name, r, upload)
			check(t, b, "search: "+name, r, search)
		}
		for name, r := range uploads {
			check(t, b, "upload: "+name, r, upload)
		}
		for name, r := range filters {
			check(t, b, "search: "+name, r, search)
			if r.code == web.CodeBadJSON {
				r.about = "metadata"
				r.says = strings.TrimPrefix(r.says, "field metadata ")
			}
			check(t, b, "list: "+name, r, list)
		}
		require.Zero(t, w.Number("SELECT COUNT(*) FROM knowledge_document"))
		require.Empty(t, w.Stored())

		// What is just inside of the limits is kept and found as it is.
		odd := []string{
			`{"` + strings.Repeat("k", 64) + `":"` + strings.Repeat("🐳", 512) + `"}`, object(32, "key.A_-", `"`+strings.Repeat("x", 100)+`"`), `{"a":-9007199254740991}`,
			`{"a":1e-400}`, `{"a":-0}`, `{"a":0.1}`, `{"a":""}`, `{"a":" "}`, `{"a":"%_'\"\\;--/*"}`, `{"a":"\ud800"}`, `{"a":"\u202e\ufeff\uffff"}`, `{"a":"\t\r\n"}`,
		}
		for i, said := range odd {
			answer := b.upload(ada, asyncPath, nil, file("a.txt", fmt.Sprintf("an otter %d", i)), part{field: "metadata", body: said})
			require.Equal(t, http.StatusAccepted, answer.Code, answer.Body)
			got := decode[wire.AcceptedTask](t, answer)
			w.Process(got.TaskID)
			filter := got.Document.Metadata
			for key := range filter {
				if len(filter) > 8 {
					delete(filter, key)
				}
			}
			require.Equal(t, []string{fmt.Sprintf("an otter %d", i)}, b.found(ada, mustJSON(t, filter)), said)
			require.NoError(t, w.App.DeleteDocument(t.Context(), ingest.Caller{Scope: taskstate.System()}, got.Document.DocumentID), "another may say the same")
		}
	})
}
