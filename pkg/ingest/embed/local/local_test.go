package local_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/embed/local"
)

var _ ingest.Embedder = (*local.Embedder)(nil)

func cosine(a, b []float32) float64 {
	var dot float64
	for i := range a {
		dot += float64(a[i]) * float64(b[i])
	}
	return dot
}

func length(v []float32) float64 { return math.Sqrt(cosine(v, v)) }

// corpus makes n paragraphs of eight sentences. Words are drawn from one vocabulary by Zipf's law, so that
// neighbours share many words, as the paragraphs of one handbook do; function words stand between them.
func corpus(n int, words []string, join, stop string, filler []string) (paragraphs []string, sentences [][]string) {
	r := rand.New(rand.NewPCG(42, uint64(len(words))))
	zipf := rand.NewZipf(r, 1.2, 12, uint64(len(words)-1))
	for range n {
		own := make([]string, 8)
		for s := range own {
			parts := make([]string, 0, 24)
			for range 10 {
				parts = append(parts, filler[r.IntN(len(filler))], words[zipf.Uint64()])
			}
			own[s] = strings.Join(parts, join)
		}
		sentences = append(sentences, own)
		paragraphs = append(paragraphs, strings.Join(own, stop))
	}
	return paragraphs, sentences
}

func englishWords() []string {
	onset := []string{"b", "c", "d", "f", "g", "l", "m", "n", "p", "r", "s", "t", "st", "tr", "pl"}
	nucleus := []string{"a", "e", "i", "o", "u", "ea", "ou"}
	coda := []string{"n", "r", "t", "l", "st", "nd", "m"}
	r := rand.New(rand.NewPCG(1, 1))
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	words := make([]string, 4000)
	for i := range words {
		for range 1 + r.IntN(3) {
			words[i] += pick(onset) + pick(nucleus)
		}
		words[i] += pick(coda)
	}
	return words
}

func chineseWords() []string {
	r := rand.New(rand.NewPCG(2, 2))
	words := make([]string, 4000)
	for i := range words {
		// The 1,500 characters from here on stand for the common ones.
		words[i] = string([]rune{rune(0x4e00 + r.IntN(1500)), rune(0x4e00 + r.IntN(1500))})
	}
	return words
}

func TestSentenceFindsItsParagraphAmongAThousand(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		words, filler []string
		join, stop    string
	}{
		"English": {englishWords(), []string{"the", "of", "and", "to", "in", "is", "that", "for"}, " ", ". "},
		"Chinese": {chineseWords(), []string{"的", "了", "是", "在", "和", "与", "也", "就"}, "", "。"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paragraphs, sentences := corpus(1001, c.words, c.join, c.stop, c.filler)
			vectors := make([][]float32, len(paragraphs))
			for i, p := range paragraphs {
				vectors[i] = local.Vector(p)
			}
			asked, found := 0, 0
			for i := 0; i < len(paragraphs); i += 3 {
				query := local.Vector(strings.ToUpper(sentences[i][i%8]) + "？")
				best, at := -1.0, -1
				for j, v := range vectors {
					if score := cosine(query, v); score > best {
						best, at = score, j
					}
				}
				asked++
				if i == at {
					found++
				}
			}
			t.Logf("%d of %d", found, asked)
			// The words are drawn so that some sentences hold nothing but the most common ones.
			require.GreaterOrEqual(t, 100*found, 99*asked)
		})
	}
}

// Real words: the answer shares words with the question, the others are about the same subject.
func TestQuestionFindsItsAnswer(t *testing.T) {
	t.Parallel()
	answers := []string{
		"A lease is renewed by the worker while the task makes progress; when it expires another worker takes over.",
		"Uploads are written to a temporary file, synced and renamed before the database row is committed.",
		"The dead letter queue keeps every task whose attempts are used up, together with the last error.",
		"任务失败后会按照指数退避重新排队，直到达到最大尝试次数。",
		"上传的文件先写入临时文件，同步到磁盘之后再重命名。",
		"死信队列保存所有已经用完重试次数的任务以及最后的错误信息。",
		"Der Arbeiter verlängert die Pacht, solange die Aufgabe vorankommt.",
		"Очередь недоставленных сообщений хранит задачи, попытки которых исчерпаны.",
	}
	for query, want := range map[string]int{
		"who renews the lease of a task?":                0,
		"when is the temporary file of an upload synced": 1,
		"what does the dead-letter queue keep":           2,
		"失败的任务如何重新排队？":                                   3,
		"临时文件什么时候重命名":                                    4,
		"死信队列里有什么":                                       5,
		"wer verlaengert die PACHT der AUFGABE":          6,
		"где хранятся недоставленные сообщения":          7,
	} {
		best, at := -1.0, -1
		for i, answer := range answers {
			if score := cosine(local.Vector(query), local.Vector(answer)); score > best {
				best, at = score, i
			}
		}
		require.Equal(t, want, at, "%s: found %s", query, answers[at])
	}
}

func TestFolding(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"Crème Brûlée", "creme brulee"},
		{"ＦＵＬＬ　ｗｉｄｔｈ", "full width"},
		{"STRASSE", "straße"},
		{"re\u0301sume\u0301", "résumé"},
		{"ﬁle", "file"},
		{"ｶﾞｲﾄﾞ", "ガイド"},
		{"한국어", "한국어"},
		{"word,word;word", "word word word"},
	} {
		require.InDelta(t, 1, cosine(local.Vector(pair[0]), local.Vector(pair[1])), 1e-6, "%q and %q", pair[0], pair[1])
	}
}

func TestVectorsAreUnitFiniteAndStable(t *testing.T) {
	t.Parallel()
	texts := []string{"", " ", "!!! ???", "🙂🙂", "a", "的", "\x00\xff broken", strings.Repeat("x", 100_000), "ordinary text", "٣٤٥", "न म स्ते"}
	e := local.New()
	vectors, err := e.Embed(t.Context(), texts)
	require.NoError(t, err)
	require.NoError(t, embed.Check(vectors, len(texts), e.Model().Dim))
	for i, v := range vectors {
		require.InDelta(t, 1, length(v), 1e-5, "%.20q", texts[i])
		require.Equal(t, v, local.Vector(texts[i]), "the same text, the same vector")
	}
	require.NotEqual(t, local.Vector("!!!"), local.Vector("???"))
	// Written down: a change of the algorithm must change ModelKey too.
	golden := local.Vector("Millweir keeps the document 知识库")
	require.Equal(t, goldenPlaces, placesOf(golden))
}

const goldenPlaces = "2:0.243 7:0.243 8:0.243 25:-0.268 48:0.243 94:-0.243 110:0.243 124:0.243 146:0.243 163:-0.243 229:0.207 230:0.243 279:0.243 340:0.243 355:-0.243 365:-0.272"

// placesOf names the places of a vector that are not small, with their values.
func placesOf(v []float32) string {
	var out []string
	for i, x := range v {
		if x > 0.15 || x < -0.15 {
			out = append(out, fmt.Sprintf("%d:%.3f", i, x))
		}
	}
	return strings.Join(out, " ")
}

func TestEmbedStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := local.New().Embed(ctx, []string{"a"})
	require.ErrorIs(t, err, context.Canceled)
}

func FuzzVector(f *testing.F) {
	f.Add("plain words")
	f.Add("知识库 mixed テキスト")
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text[:min(len(text), 1<<16)], "")
		require.NoError(t, embed.CheckValues(local.Vector(text)))
	})
}

func BenchmarkVector(b *testing.B) {
	paragraphs, _ := corpus(1, englishWords(), " ", ". ", []string{"the"})
	b.SetBytes(int64(len(paragraphs[0])))
	for b.Loop() {
		local.Vector(paragraphs[0])
	}
}
