// Package openai embeds texts by an HTTP service of one of several shapes: OpenAI's /embeddings (OpenAI, vLLM, LiteLLM
// and most others), Azure's, Voyage's and Jina's forms of it, Cohere's /v2/embed, Hugging Face's text-embeddings-inference
// (/embed, limits at /info) and Ollama (/api/embed). No shape lets a service cut a text that is too long.
//
// Vectors are asked for as base64 where the shape has it. Requests keep to the shape's limits of texts and tokens, and to the
// budget of requests and tokens a minute, which all processes with the same limiter share.
// An answer is trusted only after a check: as many vectors as texts, put into order by index, all of one dimension,
// finite, not all zero. A batch that is refused is halved until the one bad text is found, and that text is named.
// What a Retry-After asks for beyond 2 s is not waited for here: it becomes a throttle of the task.
package openai

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
	"github.com/millweir/millweir/pkg/ratelimit"
)

const (
	// Reply caps, bytes: the largest model in use answers 16,384 values of at most about 25 bytes for a text.
	maxReplyBase    = 1 << 20
	maxReplyPerText = 512 << 10
	maxReplyAll     = 128 << 20
	// maxKey is the most characters of a model key (ingest.Model).
	maxKey = 190
)

// Embedder calls one embedding service. It is safe for concurrent use.
type Embedder struct {
	cfg    Config
	client *rest.Client
	now    func() time.Time // what Retry-After is measured by

	dim   atomic.Int64 // learned from the first answer unless configured
	limit atomic.Int64 // most texts of one request, as learned

	numbers atomic.Bool // ask for vectors as arrays: the service refuses base64
	served  atomic.Bool // the service has taken a request: what it refuses from then on is not the format

	mu      sync.Mutex // guards shape while it is being found out
	shape   shape
	silence silence
	budget  budget
}

// New returns an embedder; nothing is called yet. limiter has the limits of cfg.Limits; nil: this process keeps them alone.
// Errors: those of cfg.Validate.
func New(cfg Config, limiter ratelimit.Limiter) (*Embedder, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	client, err := rest.NewBearer(cfg.BaseURL, cfg.APIKey)
	if err == nil && apiOf(cfg.API, client) == APIAzure && cfg.APIKey != "" {
		client, err = rest.New(cfg.BaseURL, http.Header{"User-Agent": {"millweir"}, "Api-Key": {cfg.APIKey}}, cfg.APIKey)
	}
	if err != nil {
		return nil, fmt.Errorf("EMBEDDING_BASE_URL: %w", err)
	}
	e := &Embedder{cfg: cfg, client: client, now: time.Now, budget: newBudget(cfg, limiter)}
	e.dim.Store(int64(cfg.Dimensions))
	e.limit.Store(int64(cfg.BatchSize))
	return e, nil
}

// Model is the key (model name and asked dimensions) and the dimension, 0 before the first answer.
// The service's address is not part of the key: moving a service must not make a base unsearchable.
func (e *Embedder) Model() ingest.Model {
	return ingest.Model{Key: keyOf(e.cfg.Model, e.cfg.Dimensions), Dim: int(e.dim.Load())}
}

// keyOf keeps keys ASCII and short: what does not fit is replaced by its hash.
func keyOf(model string, dimensions int) string {
	key := "http/" + model
	if dimensions > 0 {
		key += "#" + strconv.Itoa(dimensions)
	}
	plain := len(key) <= maxKey
	for _, r := range key {
		plain = plain && r > ' ' && r < 0x7f
	}
	if plain {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "http/sha256:" + hex.EncodeToString(sum[:])
}

// BatchSize is the configured one, or less when the service turned out to take less.
func (e *Embedder) BatchSize() int { return int(e.limit.Load()) }

// Embed returns one vector per text in their order. More texts than BatchSize are sent in several requests.
// Errors: *ingest.Failure, see ingest.Embedder; the error of ctx when ctx ended.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	wait, asks := e.silence.enter(e.now())
	if wait > 0 {
		f := ingest.Transient(ingest.CodeThrottled, "the embedding service asked to wait another %v", wait.Round(time.Millisecond))
		f.Throttled, f.RetryAfter = true, wait
		return nil, f
	}
	vectors, err := e.embed(ctx, texts)
	if err != nil {
		return nil, e.failure(ctx, err, asks)
	}
	if asks {
		e.silence.end()
	}
	return vectors, nil
}

// embed sends texts in as many requests as they need.
func (e *Embedder) embed(ctx context.Context, texts []string) ([][]float32, error) {
	sh, err := e.shapeOf(ctx)
	if err != nil {
		return nil, err
	}
	vectors := make([][]float32, 0, len(texts))
	for start := 0; start < len(texts); {
		end := e.fits(sh, texts, start)
		part, err := e.span(ctx, sh, texts, start, end)
		if err != nil {
			return nil, err
		}
		vectors = append(vectors, part...)
		start = end
	}
	return vectors, nil
}

// fits returns the end of the longest request that keeps to the limits of the service and the budget of a minute; it has a text at least.
func (e *Embedder) fits(sh shape, texts []string, start int) (end int) {
	most := min(len(texts), start+int(e.limit.Load()))
	if sh.texts > 0 {
		most = min(most, start+sh.texts)
	}
	tokens := int64(sh.tokens)
	if budget := int64(e.cfg.Tokens); budget > 0 && (tokens == 0 || budget < tokens) {
		tokens = budget
	}
	weight := weigh(texts[start])
	for end = start + 1; end < most; end++ {
		if weight += weigh(texts[end]); tokens > 0 && e.budget.count.tokens(weight) > tokens {
			break
		}
	}
	return end
}

// span embeds texts[start:end]; what the service refuses is halved down to the one text.
func (e *Embedder) span(ctx context.Context, sh shape, texts []string, start, end int) ([][]float32, error) {
	vectors, err := e.request(ctx, sh, texts, start, end)
	var refused *rest.StatusError
	if err == nil || !errors.As(err, &refused) || !sh.refusal(refused) {
		return vectors, err
	}
	if vectors, ok := e.withoutFormat(ctx, sh, texts, start, end); ok {
		return vectors, nil
	}
	if end-start == 1 {
		return nil, e.refusedText(ctx, sh, texts, start, refused)
	}
	middle := start + (end-start)/2
	left, err := e.span(ctx, sh, texts, start, middle)
	if err != nil {
		return nil, err
	}
	right, err := e.span(ctx, sh, texts, middle, end)
	if err != nil {
		return nil, err
	}
	// Each half was taken and the whole was not: the batch was too large, so ask for less from now on.
	e.lowerLimit(end - middle)
	return append(left, right...), nil
}

// withoutFormat finds a service that refuses to be asked for base64: what it has never taken that way is asked for as
// arrays of numbers. If that is taken, it is asked so from now on.
func (e *Embedder) withoutFormat(ctx context.Context, sh shape, texts []string, start, end int) ([][]float32, bool) {
	if sh.format == "" || e.served.Load() || e.numbers.Load() {
		return nil, false
	}
	e.numbers.Store(true)
	vectors, err := e.request(ctx, sh, texts, start, end)
	if err != nil {
		e.numbers.Store(false)
	}
	return vectors, err == nil
}

func (e *Embedder) lowerLimit(n int) {
	for {
		limit := e.limit.Load()
		if int64(n) >= limit || e.limit.CompareAndSwap(limit, int64(n)) {
			return
		}
	}
}

// refusedText tells a bad text from a service that refuses everything (a wrong dimension asked for, a wrong model):
// the second is the operator's to mend, and must not send every document to DEAD.
func (e *Embedder) refusedText(ctx context.Context, sh shape, texts []string, i int, refused *rest.StatusError) error {
	_, err := e.request(embed.WithCall(ctx, embed.Call{}), sh, []string{"test"}, 0, 1)
	if again, ok := errors.AsType[*rest.StatusError](err); ok && sh.refusal(again) {
		return ingest.Suspended(ingest.CodeModelUnusable,
			"The embedding service refuses every text: an operator corrects EMBEDDING_MODEL, EMBEDDING_DIMENSIONS or EMBEDDING_API and resumes the task.", "%w", refused)
	}
	if err != nil {
		// Not known whether the text is to blame: let a later attempt find out.
		return err
	}
	return ingest.Permanent(ingest.CodeEmbedRejected, "The embedding service refuses a piece of this text; a smaller chunk size may help.",
		"text %d of %d (%s): %w", i, len(texts), embed.Excerpt(texts[i]), refused)
}

// request makes one request with its tries.
func (e *Embedder) request(ctx context.Context, sh shape, texts []string, start, end int) (vectors [][]float32, err error) {
	from, _ := embed.CallFrom(ctx)
	body, err := sh.encode(e.cfg, texts[start:end], e.numbers.Load(), from.Query)
	if err != nil {
		return nil, fmt.Errorf("encode texts: %w", err)
	}
	weight := 0.0
	for _, text := range texts[start:end] {
		weight += weigh(text)
	}
	tokens := e.budget.count.tokens(weight)
	if err := e.budget.spend(ctx, tokens); err != nil { // not within the time of the tries
		return nil, err
	}
	call := rest.Call{
		Method: http.MethodPost, Path: sh.path, Body: body, Header: callHeader(ctx, len(texts), start, end),
		MaxReply: min(maxReplyAll, maxReplyBase+int64(end-start)*maxReplyPerText), Timeout: e.cfg.Timeout,
	}
	paid := true
	err = rest.Retry(ctx, func() error {
		if !paid {
			if err := e.budget.spend(ctx, tokens); err != nil {
				return err
			}
		}
		paid = false
		reply, err := e.client.Do(ctx, call)
		if err != nil {
			return err
		}
		e.served.Store(true)
		var used int64
		vectors, used, err = sh.decode(e.client, call, reply, end-start)
		e.budget.correct(ctx, weight, tokens, used)
		return err
	}, e.wait)
	if err != nil {
		return nil, err
	}
	return vectors, e.check(call, vectors, texts, start, end)
}

// check proves the vectors and learns their dimension.
func (e *Embedder) check(call rest.Call, vectors [][]float32, texts []string, start, end int) error {
	err := embed.Check(vectors, end-start, 0)
	if err == nil {
		dim := int64(len(vectors[0]))
		if known := e.dim.Load(); known == dim || (known == 0 && e.dim.CompareAndSwap(0, dim)) || e.dim.Load() == dim {
			return nil
		}
		return ingest.Suspended(ingest.CodeDimension,
			"The embedding model changed: an operator gives the service its model back, or sets EMBEDDING_DIMENSIONS, starts the workers anew and resumes the task.",
			"%s: vectors of %d dimensions, not %d", e.client.Op(call), dim, e.dim.Load())
	}
	if bad, ok := errors.AsType[*embed.VectorError](err); ok {
		i := start + bad.Index
		err = fmt.Errorf("text %d of %d (%s): %w", i, len(texts), embed.Excerpt(texts[i]), bad.Err)
	}
	return ingest.Transient(ingest.CodeEmbed, "%s: %w", e.client.Op(call), err)
}

// callHeader marks the request with its claim. A part of a batch has a mark of its own,
// so that halving a refused batch does not look like paying for it twice.
func callHeader(ctx context.Context, all, start, end int) http.Header {
	c, ok := embed.CallFrom(ctx)
	if !ok || (c.TaskID == "" && c.Batch == "") {
		return nil
	}
	batch := c.Batch
	if batch != "" && end-start < all {
		batch = fmt.Sprintf("%s:%d-%d", batch, start, end)
	}
	header := http.Header{}
	for name, value := range map[string]string{
		embed.HeaderTask: c.TaskID, embed.HeaderFence: strconv.FormatInt(c.Fence, 10), embed.HeaderBatch: batch,
	} {
		if value != "" {
			header.Set(name, value)
		}
	}
	return header
}
