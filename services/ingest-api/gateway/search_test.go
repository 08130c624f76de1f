package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/ingest-api/gateway/web"
)

const searchPath = "/api/knowledge/search"

// reading is a service that only searches, in a world whose documents are ready.
type reading struct {
	ingest.Service
	world *ingesttest.ReadWorld
}

func (r reading) Search(ctx context.Context, _ ingest.Caller, q ingest.SearchRequest) (ingest.SearchResult, error) {
	return r.world.Reads.Search(ctx, r.world.Caller, q)
}

// searched are the lines of the one document of a bench whose searches are real ones.
var searched = []string{
	"The otter swims past the weir.", "Call foo_bar() before INV-2024/17.", "水車小屋のそばを川獺が泳ぐ。", "Выдра плывёт мимо плотины.",
	"ثعلب الماء يسبح قرب السد.", "A whale 🐳 and a family 👩‍👧 stay.", "Robert'); DROP TABLE knowledge_segment; --", "to be or not to be",
}

// searchBench is a bench over each database.
func searchBench(t *testing.T, test func(t *testing.T, b *bench, w *ingesttest.World)) {
	t.Helper()
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		w.Process(w.Upload(strings.Join(searched, "\n")).Task.ID)
		test(t, newBench(t, func(_ *Config, d *Deps) { d.Service = reading{world: ingesttest.NewReadWorld(t, w)} }), w)
	})
}

// searchBody is a search as JSON.
func searchBody(t *testing.T, query, mode string) string {
	t.Helper()
	b, err := json.Marshal(wire.SearchRequest{Query: query, Mode: mode})
	require.NoError(t, err)
	return string(b)
}

// What nobody means is found or refused by name, with its limit, in every mode and on every database; it is never our fault.
func TestHostileSearches(t *testing.T) {
	t.Parallel()
	const no = -1
	// line is what the words find first; no: nothing.
	found := map[string]struct {
		query string
		line  int
	}{
		"punctuation":      {`!?.,;:()[]{}<>/\|~^=+-*&%$#@'"` + "`", no},
		"stop words":       {"to be or not to be", 7},
		"unpaired quote":   {`"otter swims`, 0},
		"quotes":           {`"""" otter "" "`, 0},
		"operators":        {"AND otter NOT OR", 0},
		"only out":         {"-otter NOT weir", no},
		"signs":            {"+ - +- otter title: text:", 0},
		"mixed":            {"otter川獺выдра", 3},
		"mixed words":      {"川獺 unknownword", 2},
		"right to left":    {"\u202eثعلب\u202c \u200f", 4},
		"override":         {"\u202eotter\u202c", 0},
		"emoji":            {"🐳 whale 👩‍👧 🏳️‍🌈 1️⃣", 5},
		"regex":            {`^(a+)+$ .* [^]] otter \d{1,999999} (?=x)`, 0},
		"SQL":              {`'; DROP TABLE knowledge_segment; -- ' OR '1'='1`, 6},
		"LIKE":             {"%_%\\ otter", 0},
		"FTS5":             {`otter NEAR/3 weir col:x {a b}: otter*`, 0},
		"tsquery":          {"otter & !whale | weir:* <-> x:A", 0},
		"boolean mode":     {`+otter -whale >weir <x ~y "otter swims" @5`, 0},
		"Lucene":           {`otter^4 AND (swims OR [a TO z]) && ||! /x/ weir~2`, 0},
		"code":             {"INV-2024/17", 1},
		"call":             {"foo_bar()", 1},
		"JSON":             {`{"$where":"1"}`, no},
		"template":         {"{{.}} ${jndi:otter} %s%n%d", 0},
		"lines":            {"otter\r\n\tweir\n", 0},
		"as long as it is": {strings.Repeat("otter ", 1333) + "x", 0},
		"one long word":    {strings.Repeat("x", 8000), no},
		"8,000 of 4 bytes": {strings.Repeat("🐳", 8000), no},
		"stars":            {"* ** otter** *x", 0},
		"private":          {"\ue000\U000f0000\uffff", no},
		"surrogate":        {"\xed\xa0\x80 otter", 0}, // JSON has U+FFFD in its place
	}
	refused := map[string]struct {
		body   string
		status int
		code   string
		says   string
	}{
		"empty":         {`{"query":""}`, 422, web.CodeInvalidField, "query is empty"},
		"white space":   {`{"query":" \t\r\n\u3000"}`, 422, web.CodeInvalidField, "query is empty"},
		"nothing":       {`{}`, 422, web.CodeInvalidField, "query is empty"},
		"NUL":           {`{"query":"otter\u0000"}`, 422, web.CodeInvalidText, "query has the control character U+0000"},
		"escape":        {`{"query":"\u001b[2J"}`, 422, web.CodeInvalidText, "query has the control character U+001B"},
		"100 KB":        {`{"query":"` + strings.Repeat("otter ", 17_000) + `"}`, 422, web.CodeFieldTooLong, "query has 101999 characters, allowed are 8000"},
		"not UTF-8":     {"{\"query\":\"\xff\"}", 400, web.CodeBadJSON, "not valid UTF-8"},
		"above the MiB": {`{"query":"` + strings.Repeat("x", web.MaxJSONBytes) + `"}`, 413, web.CodeTooLarge, "larger than 1048576 bytes"},
	}
	searchBench(t, func(t *testing.T, b *bench, _ *ingesttest.World) {
		for name, c := range found {
			for _, mode := range []string{"text", "vector", "hybrid"} {
				w := b.send(ada, http.MethodPost, searchPath, searchBody(t, c.query, mode))
				require.Equal(t, http.StatusOK, w.Code, "%s %s: %s", name, mode, w.Body)
				got := decode[wire.SearchAnswer](t, w)
				require.Equal(t, mode, got.Mode)
				for _, h := range got.Hits {
					require.Contains(t, searched, h.Text)
					require.NotEmpty(t, h.Sentence.Text)
				}
				switch {
				case mode != "text":
				case c.line == no:
					require.Empty(t, got.Hits, name)
				default:
					require.NotEmpty(t, got.Hits, name)
					require.Equal(t, searched[c.line], got.Hits[0].Text, name)
				}
			}
		}
		for name, c := range refused {
			p := b.refused(b.send(ada, http.MethodPost, searchPath, c.body), c.status, c.code)
			require.Contains(t, p.Message, c.says, name)
			require.NotEmpty(t, p.Remedy, name)
		}
	})
}

// Without its vectors a hybrid search is partial, and one for vectors alone is 503; a search for words does not notice.
func TestSearchesWithoutVectors(t *testing.T) {
	t.Parallel()
	searchBench(t, func(t *testing.T, b *bench, w *ingesttest.World) {
		away := func(string) error {
			return ingest.Transient(ingest.CodeVector, "POST http://10.0.0.1: %w", errors.New("refused"))
		}
		for _, part := range []string{string(ingest.CodeVector), string(ingest.CodeEmbed)} {
			w.Vectors.Fail, w.Embed.Fail = away, nil
			if part == string(ingest.CodeEmbed) {
				w.Vectors.Fail = nil
				w.Embed.Fail = func([]string) error {
					return ingest.Transient(ingest.CodeEmbed, "POST http://10.0.0.1: %w", errors.New("refused"))
				}
			}
			for _, mode := range []string{"auto", "hybrid", "text"} {
				answer := b.send(ada, http.MethodPost, searchPath, searchBody(t, "otter", mode))
				require.Equal(t, http.StatusOK, answer.Code, answer.Body)
				got := decode[wire.SearchAnswer](t, answer)
				require.Equal(t, searched[0], got.Hits[0].Text)
				require.Equal(t, mode != "text", got.Partial, "%s without %s", mode, part)
			}
			answer := b.send(ada, http.MethodPost, searchPath, searchBody(t, "otter", "vector"))
			p := b.refused(answer, http.StatusServiceUnavailable, part)
			require.NotEmpty(t, p.Remedy)
			require.NotContains(t, answer.Body.String(), "10.0.0.1")
		}
	})
}
