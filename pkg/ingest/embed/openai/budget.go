package openai

import (
	"context"
	"math"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/pause"
	"github.com/millweir/millweir/pkg/ratelimit"
)

// budget is what may be asked of the model in a minute; whoever has the same limiter shares it. It is safe for concurrent use.
type budget struct {
	limiter          ratelimit.Limiter // nil: there is no limit
	key              string
	requests, tokens bool // which of both are limited
	longest          time.Duration
	count            counter
}

func newBudget(cfg Config, limiter ratelimit.Limiter) budget {
	limits := cfg.Limits()
	switch {
	case len(limits) == 0:
		limiter = nil
	case limiter == nil:
		limiter = ratelimit.NewLocal(time.Now, limits...)
	}
	return budget{
		limiter: limiter, key: keyOf(cfg.Model, cfg.Dimensions), requests: cfg.Requests > 0, tokens: cfg.Tokens > 0, longest: cfg.Timeout,
	}
}

// spend takes a request with so many tokens and waits until it may be sent. A search does not wait: somebody else does, and what it
// took makes the documents after it wait longer. A wait that is too long to keep a worker is one for the task, which counts no attempt.
func (b *budget) spend(ctx context.Context, tokens int64) error {
	if b.limiter == nil {
		return nil
	}
	call, _ := embed.CallFrom(ctx)
	most := b.longest
	if call.Query {
		most = ratelimit.Always
	}
	wait, err := b.limiter.Spend(ctx, b.key, most, b.costs(1, tokens)...)
	switch {
	case err != nil:
		return err
	case call.Query || wait == 0:
		return nil
	case wait > most:
		f := ingest.Transient(ingest.CodeThrottled, "the budget of the embedding model is used up for another %v", wait.Round(time.Second))
		f.Throttled, f.RetryAfter = true, wait
		f.Remedy = "More is waiting than EMBEDDING_REQUESTS_PER_MINUTE or EMBEDDING_TOKENS_PER_MINUTE allow; no attempt is counted."
		return f
	case !pause.For(ctx, wait):
		return ctx.Err()
	}
	return nil
}

// correct changes what was taken for a request by what the service says that it was, and counts better from then on.
func (b *budget) correct(ctx context.Context, weight float64, taken, used int64) {
	if used <= 0 {
		return // it did not say
	}
	b.count.learn(weight, used)
	if b.limiter != nil && b.tokens && used != taken {
		_, _ = b.limiter.Spend(ctx, b.key, ratelimit.Always, b.costs(0, used-taken)...) // an error loses the correction, not the budget
	}
}

// costs are those of the limits that there are.
func (b *budget) costs(requests, tokens int64) (costs []int64) {
	if b.requests {
		costs = append(costs, requests)
	}
	if b.tokens {
		costs = append(costs, tokens)
	}
	return costs
}

// counter estimates how many tokens a model makes of texts, without its vocabulary: from the texts' weight, and what the service said of
// earlier ones. It is safe for concurrent use.
type counter struct {
	ratio atomic.Uint64 // bits of the tokens of a unit of weight; 0: nothing is known yet
}

const (
	asciiWeight = 0.25 // of a byte: English text has about four characters a token
	// learning is the part that one request has in the ratio. Ratios beyond least and most are a service's that counts something else.
	learning              = 0.2
	leastRatio, mostRatio = 0.2, 5
)

// weigh is what a text counts before it is known how the model counts: its ASCII characters by four, others singly.
func weigh(text string) float64 {
	ascii := 0
	for i := range len(text) {
		if text[i] < utf8.RuneSelf {
			ascii++
		}
	}
	others := 0
	if ascii < len(text) {
		others = utf8.RuneCountInString(text) - ascii
	}
	return 1 + asciiWeight*float64(ascii) + float64(others)
}

// tokens are those of a weight.
func (c *counter) tokens(weight float64) int64 { return int64(math.Ceil(weight * c.known())) }

func (c *counter) known() float64 {
	if bits := c.ratio.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	return 1
}

// learn notes how many tokens a request had. Of two at once one may be lost.
func (c *counter) learn(weight float64, used int64) {
	ratio := min(max(float64(used)/weight, leastRatio), mostRatio)
	if c.ratio.Load() != 0 {
		ratio = (1-learning)*c.known() + learning*ratio
	}
	c.ratio.Store(math.Float64bits(ratio))
}
