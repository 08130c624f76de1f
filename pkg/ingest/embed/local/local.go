// Package local is the built-in embedder: deterministic, offline, and lexical.
//
// It finds text that shares words (or Chinese, Japanese and Korean character pairs, or spellings) with the query.
// It does NOT understand meaning: a synonym, a paraphrase or a translation is not found. It exists so that Millweir
// works on a laptop with nothing installed and so that tests are exact; for semantic search set EMBEDDING_BASE_URL.
//
// How: the text is folded (compatibility form, no case, no diacritics) and cut into features: words, pairs of
// neighbouring words, trigrams of the characters of longer words, and runs of two and three CJK characters. Each feature counts 1+ln(tf) times a
// weight that is small for what is in every text (short words, function words), is hashed with a sign to two of
// 384 places, and the sum is scaled to length 1.
package local

import (
	"context"
	"math"

	"github.com/millweir/millweir/pkg/ingest"
)

const (
	// Dim is the dimension of the vectors.
	Dim = 384
	// ModelKey names the algorithm; any change to the vectors must change it.
	ModelKey = "local-lexical/1"
	// batchSize is how many texts one call takes: small enough that progress is seen, large enough for few commits.
	batchSize = 64
)

// Embedder makes lexical vectors. It holds no state and is safe for concurrent use.
type Embedder struct{}

// New returns the built-in embedder.
func New() *Embedder { return &Embedder{} }

// Model is the key "local-lexical/1" and dimension 384.
func (*Embedder) Model() ingest.Model { return ingest.Model{Key: ModelKey, Dim: Dim, Lexical: true} }

// BatchSize is 64.
func (*Embedder) BatchSize() int { return batchSize }

// Embed returns one vector of length 1 per text; equal texts give equal vectors (on another processor, up to rounding).
// Its only error is that of ctx.
func (*Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		vectors[i] = Vector(text)
	}
	return vectors, nil
}

// Vector is the vector of one text: 384 values, length 1.
func Vector(text string) []float32 {
	counts := featuresOf(text)
	var sum [Dim]float64
	for _, f := range counts.order {
		count := counts.seen[f]
		add(&sum, f, count.weight*(1+math.Log(float64(count.n))))
	}
	return normalised(&sum)
}

// add puts a feature on two places with signs of their own: one collision then costs half of its weight.
func add(sum *[Dim]float64, feature uint64, weight float64) {
	first, second := mix(feature), mix(feature^0x9e3779b97f4a7c15)
	for _, h := range [2]uint64{first, second} {
		signed := weight
		if h>>63 == 1 {
			signed = -weight
		}
		sum[(h&(1<<62-1))%Dim] += signed
	}
}

func normalised(sum *[Dim]float64) []float32 {
	var square float64
	for _, v := range sum {
		square += v * v
	}
	out := make([]float32, Dim)
	if square == 0 {
		// Features that cancel out exactly: no text is known to do it, but a zero vector must never leave here.
		out[0] = 1
		return out
	}
	scale := 1 / math.Sqrt(square)
	for i, v := range sum {
		out[i] = float32(v * scale)
	}
	return out
}

// mix is the finaliser of MurmurHash3: every bit of the input reaches every bit of the output.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}
