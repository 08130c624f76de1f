package analysis_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
)

var seeds = []string{
	"The reports of the quarter are on the server.", "Die Häuser und die Straße", "l’eau n'est pas chère", "El niño de la canción",
	"Новый документ и отчёт", "الكتاب الجديد في المدرسة", "任务失败之后会再次执行。", "東京タワーｶﾞｲﾄﾞ", "검색엔진을 쓴다", "ภาษาไทยน้ำใจ",
	"INV-2024/17 foo_bar() a.b@c.de v1.2.3 http://x/y getHTTPServer C++ C# 1,234.56", `+a -"b c" title:x* NOT y AND "z`,
	"\x00\xff\xf0\x9f \u200f👩‍👧\u0301 ـ", "' OR 1=1; -- ^(a|b)*$ \\d+", "e\u0301\u0301 ﷺ ½ ﬁ", "\u0e33\u0e33ก\u3099",
}

// text draws texts of many scripts, with signs and broken bytes between.
func text() *rapid.Generator[string] {
	piece := rapid.OneOf(rapid.SampledFrom(seeds), rapid.String(), rapid.StringMatching(`[A-Za-z0-9_./,'#+:@&\\-]{0,12}`),
		rapid.SampledFrom([]string{" ", "\n", ".", "-", "\xff", "\x00", "字", "が", "한", "ก", "é", "\u0301", "\u00ad", "İ", `"`, "*"}))
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "")
	})
}

type tester interface {
	require.TestingT
	Helper()
}

func checkTokens(t tester, text string) {
	t.Helper()
	position, start := 0, 0
	for i, k := range analysis.Tokens(text) {
		require.True(t, 0 <= k.Start && k.Start < k.End && k.End <= len(text), "%q %+v", text, k)
		require.True(t, i == 0 && k.Position == 0 || i > 0 && (k.Position == position || k.Position == position+1), "%q %+v", text, k)
		require.GreaterOrEqual(t, k.End, start)
		require.True(t, utf8.ValidString(k.Term) && k.Term != "" && k.Term != analysis.StemMark && len(k.Term) <= analysis.MaxTerm,
			"%q %+v", text, k)
		require.False(t, strings.ContainsAny(k.Term, " \x00"), "%q %+v", text, k)
		position, start = k.Position, k.Start
	}
}

// languages make the words behind them be taken for theirs.
var languages = []string{
	"the reports of the quarter are on the server ", "die Häuser und die Straße der Stadt ", "les documents sont dans le dossier ", "el niño de la canción ",
	"il documento è nella cartella ", "o documento está na pasta ", "het document is van de map ", "och det är inte en ", "og det er ikke en af ",
	"ja se on että ei ", "и это не на что ", "هذا في من على ",
}

// Whoever looks for a term finds all of it though other words are left out.
func TestNoWantedTermIsLeftOut(t *testing.T) {
	t.Parallel()
	word := rapid.OneOf(rapid.StringMatching(`[A-Za-zäöüßéèñçåøœіёйЙўа-яА-Яا-ي]{3,10}`), text())
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(languages).Draw(t, "language") + strings.Join(rapid.SliceOfN(word, 1, 6).Draw(t, "words"), " ")
		all := analysis.Tokens(text)
		wanted := all[rapid.IntRange(0, len(all)-1).Draw(t, "wanted")].Term
		var like analysis.Beginnings
		like.Add(wanted)
		of := func(tokens []analysis.Token) (at [][2]int) {
			for _, k := range tokens {
				if k.Term == wanted {
					at = append(at, [2]int{k.Start, k.End})
				}
			}
			return at
		}
		require.Equal(t, of(all), of(analysis.TokensLike(text, &like)), "%q in %q", wanted, text)
	})
}

func checkQuery(t tester, query string) {
	t.Helper()
	q := analysis.Parse(query)
	require.LessOrEqual(t, len(q.Clauses), 64)
	for _, c := range q.Clauses {
		require.NotEmpty(t, c.Words, "%q", query)
		require.True(t, c.Phrase || len(c.Words) == 1, "%q %+v", query, c)
		require.False(t, c.Phrase && c.Prefix, "%q %+v", query, c)
		for _, w := range c.Words {
			require.True(t, len(w) > 0 && len(w) <= 8, "%q %+v", query, c)
			for _, v := range w {
				require.True(t, v.Term != "" && len(v.Term) <= analysis.MaxTerm && utf8.ValidString(v.Term), "%q %+v", query, c)
				require.True(t, v.Weight > 0 && v.Weight <= 1, "%q %+v", query, c)
			}
		}
	}
}

func TestTokensOfAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkTokens(t, text().Draw(t, "text")) })
}

func TestQueriesOfAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { checkQuery(t, text().Draw(t, "query")) })
}

// finds tells whether a clause's exact terms stand in a text, one behind the other.
func finds(tokens []analysis.Token, c analysis.Clause) bool {
	at := func(position int, w []analysis.Variant) bool {
		for _, k := range tokens {
			if k.Position == position && (k.Term == w[0].Term || c.Prefix && strings.HasPrefix(k.Term, w[0].Term)) {
				return true
			}
		}
		return false
	}
	for _, k := range tokens {
		n := 0
		for n < len(c.Words) && at(k.Position+n, c.Words[n]) {
			n++
		}
		if n == len(c.Words) {
			return true
		}
	}
	return false
}

// What a query asks for by a word is in every text that has the word.
func TestWhatIsTypedIsFound(t *testing.T) {
	t.Parallel()
	words := rapid.OneOf(rapid.SampledFrom(strings.Fields(strings.Join(seeds[:11], " "))),
		rapid.StringMatching(`[a-zA-Z0-9][a-zA-Z0-9_./:@#&'-]{0,12}[a-zA-Z0-9]`),
		rapid.StringMatching(`[äéßñёйжأةक字が한กน้ำガﾞＡ]{1,6}`), rapid.StringMatching(`\pL{1,30}`))
	rapid.Check(t, func(t *rapid.T) {
		word := words.Draw(t, "word")
		tokens := analysis.Tokens(text().Draw(t, "before") + " " + word + "\n" + text().Draw(t, "behind"))
		for _, form := range []string{word, "+" + word, `"` + word + `"`, word + "*"} {
			if strings.ContainsAny(word, `"“”«»`) {
				continue
			}
			for _, c := range analysis.Parse(form).Clauses {
				require.True(t, finds(tokens, c), "%q %+v", form, c)
			}
		}
	})
}

func FuzzTokens(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { checkTokens(t, text) })
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) { checkQuery(t, query) })
}

func BenchmarkTokens(b *testing.B) {
	for name, text := range map[string]string{
		"en": "The reports of the quarter were written by several departments and are kept on the server, " +
			"with drafts (see INV-2024/17). ",
		"ru": "Новые документы и отчёты за квартал были подготовлены несколькими отделами. ",
		"zh": "任务失败之后会再次执行，并且记录在日志里。", "ko": "검색엔진을 사용하여 문서를 찾습니다. ", "th": "ภาษาไทยเป็นภาษาที่มีน้ำใจ ",
		"code": "func getHTTPServer(cfg_path string) error { return http.ListenAndServe(cfg.addr, nil) } // v1.2.3\n",
	} {
		text = strings.Repeat(text, 2048/len(text)+1)[:2048]
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				analysis.Tokens(text)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		analysis.Parse(`quarterly reports "of the" INV-2024/17 -draft 任务失败`)
	}
}
