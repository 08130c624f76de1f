package analysis_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest/textindex/analysis"
)

// spell writes tokens as positions: terms of one position are joined by |, stems begin with ~.
func spell(text string) string {
	var b strings.Builder
	for i, t := range analysis.Tokens(text) {
		switch {
		case i == 0:
		case t.Position == analysis.Tokens(text)[i-1].Position:
			b.WriteString("|")
		default:
			b.WriteString(" ")
		}
		b.WriteString(strings.ReplaceAll(t.Term, analysis.StemMark, "~"))
	}
	return b.String()
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "",
		" \x00\xff ,;() 👩‍👩‍👧 \u200f":             "",
		"The Reports of the quarter":              "the reports|~report of the quarter",
		"Berichte über die Häuser und die Straße": "berichte|~bericht uber die hauser|~haus und die strasse|~strass",
		"l’eau des rivières est dans la maison":   "l'eau|l eau des rivieres|~rivi est dans la maison",
		"Документы и отчёты за год":               "документы|~документ и отчеты|~отчет за год",
		"Новый документ по-русски":                "новый|~нов документ по-русски|по русски|~русск",
		"والكتاب الجديد في المَدرسة":              "والكتاب الجديد|~جديد في المدرسه|~مدرس",
		"任务失败":                    "任务 务失 失败 败",
		"订单INV-2024/17已发。":        "订单 单 inv-2024/17|inv 2024 17 已发 发",
		"東京タワーが、":                 "東京 京タ タワ ワー ーが が",
		"ｶﾞｲﾄﾞ":                   "ガイ イド ド",
		"か\u3099い":                "がい い",
		"น้ำใจ":                   "น\u0e49\u0e4dา \u0e4dาใ ใจ จ",
		"검색엔진을 API를":              "검색엔진을|검색|색엔|엔진|진을 api 를",
		"\u1112\u1161\u11ab글":     "한글",
		"INV-2024/17":             "inv-2024/17|inv 2024 17",
		"(foo_bar());":            "foo_bar|foo bar",
		"<a.b@c.de>.":             "a.b@c.de|a b c de",
		"v1.2.3":                  "v1.2.3|v1 2 3",
		"http://x.org/y/":         "http://x.org/y|http x org y",
		"getHTTPServer":           "gethttpserver|get http server",
		"x.fooBar":                "x.foobar|x foobar|foo bar",
		"PDFs B2B utf8Decode":     "pdfs b2b utf8decode|utf8 decode",
		"C++, C# and f":           "c++|c c#|c and f",
		"don't":                   "don't|don t",
		"1,234.56 3.14 1.234,5":   "1,234.56|123456 3.14|314 1.234,5|12345",
		"1,2,3 10.5.2 24.12.2024": "1 2 3 10.5.2|10 5 2 24.12.2024|24 12 2024",
		"so--called end..":        "so called end",
		"ﬁne ＡＢＣ１ Ⅳ m²":           "fine abc1 iv m2",
		"soft\u00adhyphen İz ٣٤":  "softhyphen iz 34",
		"\u0640 ﻻ":                "لا",
	} {
		assert.Equal(t, want, spell(text), "%q", text)
	}
}

func TestLongTerms(t *testing.T) {
	t.Parallel()
	a, b := strings.Repeat("ж", 500)+"a", strings.Repeat("ж", 500)+"b"
	got := analysis.Tokens(a + " " + b)
	require.Len(t, got, 2)
	require.NotEqual(t, got[0].Term, got[1].Term)
	require.True(t, strings.HasPrefix(got[0].Term, strings.Repeat("ж", 20)))
	require.LessOrEqual(t, len(got[0].Term), analysis.MaxTerm)
	require.Equal(t, analysis.Token{Term: got[1].Term, Position: 1, Start: len(a) + 1, End: len(a) + 1 + len(b)}, got[1])
}

func TestFold(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Ärger Straße Ёлка Йод": "arger strasse елка йод", "ǾẾ": "oe", "أإآٱ ة ى": "اااا ه ي", "가がガ": "가がガ",
		"שָׁלוֹם": "שלום", "Æsir Œuvre Łódź": "aesir oeuvre lodz", "हिन्दी": "हिन्दी", "ΣΊΣΥΦΟΣ": "σισυφοσ",
	} {
		require.Equal(t, want, analysis.Fold(text))
		require.Equal(t, want, analysis.Fold(want), "what is folded stays")
	}
}

// show writes a query as text: a clause is its flags and positions, variants are joined by |.
func show(q analysis.Query) string {
	var out []string
	for _, c := range q.Clauses {
		s := map[bool]string{c.Exclude: "-", c.Must: "+"}[true] + []string{"", "title:", "heading:", "text:"}[c.Field]
		var words []string
		for _, w := range c.Words {
			var terms []string
			for _, v := range w {
				terms = append(terms, strings.ReplaceAll(v.Term, analysis.StemMark, "~"))
			}
			words = append(words, strings.Join(terms, "|"))
		}
		if text := strings.Join(words, " "); c.Phrase {
			s += `"` + text + `"`
		} else {
			s += text
		}
		if c.Prefix {
			s += "*"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"The Reports" 12`:    `"the reports" 12`,
		`“a b„ «c d»`:         `"a b" "c d"`,
		`wor* -ab +12 INV-2*`: `wor* -ab +12 inv-2*`,
		`-"a b" title:"a b" +Heading:x1 text:y1 -title:z1`: `-"a b" title:"a b" +heading:x1 text:y1 -title:z1`,
		`12 AND 13 OR 14 NOT 15`:                           `12 13 14 -15`,
		`12 AND NOT 13`:                                    `12 -13`,
		`a1 "b2 c3`:                                        `a1 b2 c3`,
		`5" 6"`:                                            `5 6`,
		`-"a1`:                                             `-a1`,
		`任务`:                                               `"任务"`,
		`任务失败`:                                             `"任务 务失 失败"`,
		`任务失败了`:                                            `任务 务失 失败 败了`,
		`+任务失败了`:                                           `+"任务 务失 失败 败了"`,
		`年`:                                                `年*`,
		`"任务 12"`:                                          `"任务 务 12"`,
		`"12 任务"`:                                          `"12 任务"`,
		`"2024年"`:                                          `"2024" 年*`,
		`책 검색엔진`:                                           `책* 검색엔진|검색|색엔|엔진`,
		`A1-2`:                                             `a1-2 a1 2`,
		`+A1-2 -b_2`:                                       `+"a1 2" -"b 2"`,
		`"A1-2"`:                                           `"a1 2"`,
		`"x1Yza"`:                                          `"x1yza"`,
		`C++`:                                              `c++ c`,
		`1,234.5`:                                          `1,234.5|12345`,
		`12 12 12`:                                         `12`,
		`(12 OR 13) AND 14.`:                               `12 13 14`,
		`^12.*34$`:                                         `12 34`,
		"12\x0013 👩‍👧 \u200f-14":                           `12 13 -14`,
		`- + * " "" ( ) -- :`:                              ``,
	} {
		got := show(analysis.Parse(text))
		assert.Equal(t, want, got, "%q", text)
	}
}

// Operators without anything to work on, fields without a word and SQL are words.
func TestWhatIsNoOperator(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"AND x1": {"and", "x1"}, "x1 NOT": {"x1", "not"}, "title: x1": {"title", "x1"}, "x1 and not x2": {"x1", "and", "not", "x2"},
		"SELECT * FROM t1 WHERE a='x1';--": {"select", "from", "t1", "where", "a", "x1"}, "x1 - x2 + x3 *": {"x1", "x2", "x3"},
	} {
		var got []string
		for _, c := range analysis.Parse(text).Clauses {
			require.False(t, c.Exclude || c.Must || c.Prefix || c.Field != analysis.AnyField)
			got = append(got, c.Words[0][0].Term)
		}
		assert.Equal(t, want, got, "%q", text)
	}
}

func TestWeights(t *testing.T) {
	t.Parallel()
	weights := func(q string, clause int) map[string]float64 {
		out := map[string]float64{}
		for _, v := range analysis.Parse(q).Clauses[clause].Words[0] {
			out[v.Term] = v.Weight
		}
		return out
	}
	for q, stem := range map[string]string{
		"running": "run", "документы": "документ", "Häuser": "haus", "المدرسة": "مدرس", "canciones": "cancion",
	} {
		got := weights(q, 0)
		require.InDelta(t, 1, got[analysis.Fold(q)], 0)
		require.InDelta(t, 0.8, got[stem], 0, q)
		require.InDelta(t, 0.8, got[analysis.StemMark+stem], 0, q)
		require.LessOrEqual(t, len(got), 8)
	}
	require.InDelta(t, 0.8, weights("run", 0)[analysis.StemMark+"run"], 0)
	require.InDelta(t, 1, weights("INV-2024", 0)["inv-2024"], 0)
	require.InDelta(t, 0.6, weights("INV-2024", 2)["2024"], 0)
}

func TestBoundsOfAQuery(t *testing.T) {
	t.Parallel()
	require.Len(t, analysis.Parse(strings.Repeat("字", 1e5)).Clauses, 1, "the same bigram once")
	var b strings.Builder
	for i := range 20000 {
		b.WriteString(string(rune(0x4E00 + i)))
	}
	require.Len(t, analysis.Parse(b.String()).Clauses, 64)
	require.Len(t, analysis.Parse(`"` + b.String()[:3000] + `"`).Clauses[0].Words, 64)
	for _, q := range []string{"", " ", "-a", `-"a b" NOT`, "\x00", "...", "👩"} {
		require.Equal(t, !strings.Contains(q, "NOT"), analysis.Parse(q).Empty(), "%q", q)
	}
}
