package textindex_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/ingesttest"
	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/ingest/textindex/part"
	"github.com/millweir/millweir/pkg/taskstate"
)

// script is how a generated language writes: words of syllables, or a run of signs without spaces.
type script struct {
	syllables []string
	space     string
}

var scripts = []script{
	{strings.Fields("ba re mi to ku len dor vas pi sha qui nor tel gam os"), " "},
	{strings.Fields("пра вод не сто ли ко ру бер дом за три ще мой ют"), " "},
	{strings.Fields("كت با مد رس ية سل ام نو رق وم حر يد"), " "},
	{strings.Fields("fü gräß öl straß bach heim schön wör ter ung"), " "},
	{strings.Fields("山 水 城 市 文 件 系 统 服 务 器 数 据 库 查 询 引 擎 连 接 失 败"), ""},
	{strings.Fields("カ タ ナ の は ひ 東 京 駅 前 で す ま し た 会 議 資 料"), ""},
	{strings.Fields("검 색 문 서 시 스 템 은 는 이 가 자 료 보 고"), " "},
}

// word makes a word of a script.
func (s script) word(r *rand.Rand, syllables int) string {
	var out strings.Builder
	for range syllables {
		out.WriteString(s.syllables[r.IntN(len(s.syllables))])
	}
	return out.String()
}

// generated are segments and words that each stand in exactly one of them.
func generated(segments, words int) (texts []textindex.Text, rare map[string]int) {
	r := rand.New(rand.NewPCG(17, 200)) //nolint:gosec // the same texts each time
	common := make([][]string, len(scripts))
	for i, s := range scripts {
		for range 120 {
			common[i] = append(common[i], s.word(r, 1+r.IntN(3)))
		}
	}
	of := func(n int) int { return n % len(scripts) }
	body := make([][]string, segments)
	for i := range body {
		for range 60 + r.IntN(120) {
			body[i] = append(body[i], common[of(i)][min(r.IntN(120), r.IntN(120))])
		}
	}
	rare = map[string]int{}
	all := func() string {
		var b strings.Builder
		for _, words := range body {
			b.WriteString(strings.Join(words, " ") + "\n")
		}
		return b.String()
	}()
	for len(rare) < words {
		at := r.IntN(segments)
		w := scripts[of(at)].word(r, 4+r.IntN(2))
		if _, known := rare[w]; known || strings.Contains(strings.ReplaceAll(all, " ", ""), w) {
			continue
		}
		rare[w] = at
		body[at] = slices.Insert(body[at], r.IntN(len(body[at])), w)
	}
	for i, words := range body {
		texts = append(texts, textindex.Text{
			Version: fmt.Sprintf("00000000-0000-7000-8000-%012d", i/20), Index: i % 20, TextHash: fmt.Sprintf("%064x", i),
			Title: "Document " + common[of(i)][0], Heading: []string{common[of(i)][1]},
			Text: strings.Join(words, scripts[of(i)].space) + ".",
		})
	}
	return texts, rare
}

const base = "00000000-0000-7000-8000-0000000000ba"

// indexed is the index of a world with texts, in several parts.
func indexed(t *testing.T, w *ingesttest.World, texts []textindex.Text) *textindex.Index {
	t.Helper()
	x := textindex.New(w.Store)
	var batches []*textindex.Batch // made before the transaction, as runs do: a server ends one that is idle for long
	for some := range slices.Chunk(texts, 100) {
		batches = append(batches, textindex.Build(base, some))
	}
	require.NoError(t, w.Store.InTx(t.Context(), func(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock) error {
		return x.Add(ctx, tx, m.Now, batches...)
	}))
	return x
}

// A word that stands in exactly one segment of several hundred is found among the first ten: 200 of 200, in seven scripts.
func TestARareWordIsFound(t *testing.T) {
	t.Parallel()
	const segments, words = 420, 200
	texts, rare := generated(segments, words)
	x := indexed(t, ingesttest.NewWorld(t, ingesttest.Options{}), texts)
	found := 0
	for word, at := range rare {
		got, err := x.Search(t.Context(), base, word, 10, nil)
		require.NoError(t, err)
		if slices.ContainsFunc(got.Found, func(f textindex.Found) bool {
			return f.Version == texts[at].Version && f.Index == texts[at].Index
		}) {
			found++
		} else {
			t.Errorf("%q is not found in %q", word, texts[at].Text)
		}
	}
	require.Equal(t, words, found)
}

// hostile are queries that nobody should have to fear.
var hostile = map[string]string{
	"empty":                "",
	"spaces":               " \t\r\n\u3000",
	"punctuation":          `!?.,;:()[]{}<>/\|~^=+-*&%$#@'"` + "`",
	"long":                 strings.Repeat("waterfall reservoir ", 400),
	"one long word":        strings.Repeat("x", 8000),
	"long run":             strings.Repeat("山水城市", 2000),
	"stop words":           "the of and to in is it",
	"stop words of others": "der die das и в не 的 了 の は",
	"nul":                  "a\x00b\x00",
	"nul alone":            "\x00",
	"broken utf-8":         "\xff\xfe\xf0\x9f ba\xc3",
	"unpaired quote":       `"bare mito`,
	"quotes":               `"""" "" "`,
	"guillemets":           "«ba „re “mi",
	"operators":            "AND OR NOT",
	"more operators":       "NOT NOT ba AND OR -",
	"only out":             "-ba -re NOT mi",
	"signs":                "+ - +- -+ +\"\" -\"\" title: text:",
	"fields":               "title: heading:\" text:* title:title:ba",
	"stars":                "* ** ba** *ba a*",
	"one letter":           "b*",
	"rtl":                  "\u202eabc\u202c مدرسة שלום \u200f\u200e",
	"emoji":                "👩‍👧 🏳️‍🌈 ☃️ 1️⃣",
	"zalgo":                "b\u0301\u0327\u0489" + strings.Repeat("\u0301", 500),
	"regex":                `^(a+)+$ .* [^]] \d{1,999999} (?=x)`,
	"sql":                  `'; DROP TABLE knowledge_text_part; -- ' OR '1'='1 % _ \' UNION SELECT 1`,
	"fts5":                 `ba NEAR/3 re col:ba ^mi {a b}: c ba* "x" + "y" OR`,
	"tsquery":              "ba & !re | mi:* <-> ku:A",
	"boolean mode":         "+ba -re >mi <ku ~lend @distance \"a b\" @5",
	"lucene":               `ba^4 AND (re OR +[a TO z]) && ||! \: /x/ ba~2`,
	"json":                 `{"$where":"1"}`,
	"template":             "{{.}} ${jndi:x} %s%n%d",
	"path":                 "../../etc/passwd C:\\x\\y",
	"mixed":                "ba山水カタكت검색пра-fü",
	"surrogates":           "\xed\xa0\x80\xed\xb0\x80",
	"private":              "\ue000\U000f0000\uffff",
	"many":                 strings.Repeat("-a +b \"c d\" e* ", 300),
	"number":               strings.Repeat("9", 500) + " 1,2,3.4.5 -1 1e999",
	"thousand quotes":      strings.Repeat(`"ba`, 1000),
}

// No query is an error, on no database, and none takes long.
func TestHostileQueriesAreAnswered(t *testing.T) {
	t.Parallel()
	texts, _ := generated(140, 10)
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		x := indexed(t, w, texts)
		for name, query := range hostile {
			began := time.Now()
			got, err := x.Search(t.Context(), base, query, 10, nil)
			require.NoError(t, err, name)
			require.LessOrEqual(t, len(got.Found), 10, name)
			require.Less(t, time.Since(began), 20*time.Second, name)
			mark := got.Highlighter(query)
			for _, f := range got.Found {
				require.Positive(t, f.Score, name)
				mark.Mark(texts[0].Text, nil)
			}
		}
		for _, name := range []string{"empty", "spaces", "punctuation", "nul alone", "operators", "only out", "emoji"} {
			got, err := x.Search(t.Context(), base, hostile[name], 10, nil)
			require.NoError(t, err)
			if name != "operators" && name != "emoji" { // words too, when nothing is beside them
				require.Empty(t, got.Found, name)
			}
		}
	})
}

// Each database returns the same segments in the same order with the same scores as the parts in memory do, and so as the others.
func TestDatabasesRankAlike(t *testing.T) {
	t.Parallel()
	texts, rare := generated(420, 40)
	queries := slices.Collect(maps.Values(hostile))
	for word, at := range rare {
		fields := strings.Fields(texts[at].Text)
		queries = append(queries, word, word[:len(word)-1]+"*", `"`+strings.Join(fields[:min(3, len(fields))], " ")+`" `+fields[len(fields)/2], "title:"+texts[at].Title)
	}
	var parts []*part.Part
	for some := range slices.Chunk(texts, 100) {
		raw := textindex.Build(base, some).Bytes()
		p, err := part.Open(t.Context(), raw, int64(len(raw)))
		require.NoError(t, err)
		parts = append(parts, p)
	}
	want := make([][]textindex.Found, len(queries))
	some := 0
	for i, query := range queries {
		got, err := textindex.SearchParts(t.Context(), parts, query, 10, nil)
		require.NoError(t, err)
		want[i] = got.Found
		some += len(got.Found)
	}
	require.Greater(t, some, 5*len(rare))
	ingesttest.OnEachDatabase(t, func(t *testing.T, w *ingesttest.World) {
		x := indexed(t, w, texts)
		for i, query := range queries {
			got, err := x.Search(t.Context(), base, query, 10, nil)
			require.NoError(t, err)
			require.Equal(t, want[i], got.Found, query)
		}
	})
}

// A search that nobody waits for any more ends, although all of its bytes are at hand.
func TestASearchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	texts, _ := generated(10, 10)
	bytes := textindex.Build(base, texts).Bytes()
	p, err := part.Open(t.Context(), bytes, int64(len(bytes)))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = textindex.SearchParts(ctx, []*part.Part{p}, texts[0].Text, 10, nil)
	require.ErrorIs(t, err, context.Canceled)
}
