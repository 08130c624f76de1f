package openai

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/embed"
	"github.com/millweir/millweir/pkg/ingest/internal/rest"
)

const (
	probeTimeout  = 5 * time.Second
	maxProbeReply = 64 << 10
	ollamaPort    = "11434"
)

// The most of one request that services take, as they document it.
const (
	openAITokens = 300_000
	voyageTexts  = 1000
	voyageTokens = 120_000 // of their largest models; the others take more
	cohereTexts  = 96
)

// shape is how one kind of service is spoken to.
type shape struct {
	api    API
	path   string // below the base URL
	format string // the field that asks for base64; empty: vectors come as arrays
	texts  int    // most of one request; 0: no limit is known
	tokens int    // likewise
	parse  func(reply []byte, n int) (vectors [][]float32, tokens int64, err error)
}

func shapeFor(api API, base string) shape {
	s := shape{api: api, path: "/embeddings", format: "encoding_format", parse: parseOpenAI}
	switch api {
	case APITEI:
		s = shape{api: api, path: "/embed", parse: parseTEI}
	case APIOllama:
		s = shape{api: api, path: "/api/embed", parse: parseOllama}
	case APICohere:
		s = shape{api: api, path: "/v2/embed", texts: cohereTexts, parse: parseCohere}
	case APIVoyage:
		s.path, s.texts, s.tokens = "/v1/embeddings", voyageTexts, voyageTokens
	case APIJina:
		s.path, s.format = "/v1/embeddings", "embedding_type"
	case APIAzure:
		s.tokens = openAITokens
		if !strings.Contains(base, "/deployments/") {
			s.path = "/openai/v1/embeddings"
		}
	case APIOpenAI, APIAuto:
		s.api, s.tokens = APIOpenAI, openAITokens
	}
	// The base URL may hold a part of the path already, or be the end point itself.
	for i := range s.path {
		if s.path[i] == '/' && i > 0 && strings.HasSuffix(base, s.path[:i]) {
			s.path = s.path[i:]
			break
		}
	}
	if strings.HasSuffix(base, s.path) {
		s.path = ""
	}
	return s
}

// refusal tells whether a status means that the texts themselves are refused.
func (shape) refusal(e *rest.StatusError) bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return e.Status >= 500 && tooLongWords(e)
}

// decode parses a 2xx reply. Some vendors answer rate limits with 200 and an error body: found here.
// tokens are those that the service says it took, 0 if it does not.
func (s shape) decode(client *rest.Client, call rest.Call, reply []byte, n int) (vectors [][]float32, tokens int64, err error) {
	vectors, tokens, err = s.parse(reply, n)
	if err == nil {
		return vectors, tokens, nil
	}
	cause := client.Cause(reply)
	if errors.Is(err, errNoVectors) {
		err = fmt.Errorf("%s: 200 without vectors: %s", client.Op(call), cause)
		if soundsBusy(cause) {
			return nil, 0, &busyError{cause: err}
		}
		return nil, 0, ingest.Transient(ingest.CodeEmbed, "%w", err)
	}
	return nil, 0, ingest.Transient(ingest.CodeEmbed, "%s: %w", client.Op(call), err)
}

// shapeOf returns the service's shape, asking the service when neither setting nor URL tells it.
// An answer is kept; while the service cannot be reached nothing is.
func (e *Embedder) shapeOf(ctx context.Context) (shape, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.shape.parse != nil {
		return e.shape, nil
	}
	api, base := apiOf(e.cfg.API, e.client), e.client.Path()
	if api == APIAuto || api == APITEI {
		found, sure, err := e.probe(ctx, api)
		if err != nil {
			return shape{}, err
		}
		if !sure {
			return shapeFor(found, base), nil
		}
		api = found
	}
	e.shape = shapeFor(api, base)
	return e.shape, nil
}

// hosts are those of services that have only one shape, by the end of their names.
var hosts = []struct {
	name string
	api  API
}{
	{".openai.azure.com", APIAzure}, {".cognitiveservices.azure.com", APIAzure}, {".services.ai.azure.com", APIAzure},
	{"api.voyageai.com", APIVoyage}, {"ai.mongodb.com", APIVoyage}, {"api.jina.ai", APIJina}, {"api.cohere.com", APICohere}, {"api.cohere.ai", APICohere},
}

// apiOf is the shape that is set, or that the address tells; APIAuto when neither does.
func apiOf(set API, client *rest.Client) API {
	if set != APIAuto {
		return set
	}
	return byURL(client.Host(), client.Path(), client.Port())
}

// byURL reads the shape from the address; APIAuto when it tells nothing.
func byURL(host, path, port string) API {
	for _, h := range hosts {
		if strings.HasSuffix(host, h.name) && !strings.Contains(path, "/compatibility/") { // Cohere speaks OpenAI's shape there
			return h.api
		}
	}
	switch {
	case strings.HasSuffix(path, "/api/embed"):
		return APIOllama
	case strings.HasSuffix(path, "/embed"):
		return APITEI
	case strings.HasSuffix(path, "/embeddings"), strings.HasSuffix(path, "/v1"):
		return APIOpenAI
	case port == ollamaPort && path == "":
		return APIOllama
	}
	return APIAuto
}

// probe asks for what only one kind of service has. sure is false when the service did not answer at all: the
// embedding request that follows then says why, in its own words.
func (e *Embedder) probe(ctx context.Context, api API) (found API, sure bool, err error) {
	var info struct {
		ModelID  string `json:"model_id"`
		MaxBatch int    `json:"max_client_batch_size"`
	}
	reached, err := e.ask(ctx, strings.TrimSuffix(e.client.Path(), "/embed"), "/info", &info)
	if err != nil {
		return "", false, err
	}
	if !reached {
		if api == APIAuto {
			api = APIOpenAI
		}
		return api, false, nil
	}
	if info.MaxBatch > 0 {
		e.lowerLimit(info.MaxBatch)
	}
	if api == APITEI || (info.ModelID != "" && info.MaxBatch > 0) {
		return APITEI, true, nil
	}
	var version struct {
		Version string `json:"version"`
	}
	if _, err := e.ask(ctx, e.client.Path(), "/api/version", &version); err != nil {
		return "", false, err
	}
	if version.Version != "" {
		return APIOllama, true, nil
	}
	return APIOpenAI, true, nil
}

// ask makes one GET and fills out when its answer fits; reached is false when there was no answer.
// A path at the base URL's end that belongs to the end point is left out.
func (e *Embedder) ask(ctx context.Context, base, path string, out any) (reached bool, err error) {
	if base != e.client.Path() {
		return true, nil // the base URL is the end point itself: its limits are learned from refusals
	}
	reply, err := e.client.Do(ctx, rest.Call{Method: http.MethodGet, Path: path, MaxReply: maxProbeReply, Timeout: probeTimeout})
	var status *rest.StatusError
	switch {
	case err == nil:
		_ = json.Unmarshal(reply, out) // another service's answer under this path is no answer
		return true, nil
	case errors.As(err, &status):
		return status.Status < 500 && status.Status != http.StatusTooManyRequests, nil
	case ctx.Err() != nil:
		return false, err
	}
	return false, nil
}

// encode is the body of a request. Shapes that have it ask for base64 of float32 values, a third of the bytes of their decimals
// and much less work for both sides; with numbers, for the arrays that every service has. A service that knows no format
// gives arrays anyway. query says that the texts are searches and no parts of documents.
func (s shape) encode(cfg Config, texts []string, numbers, query bool) ([]byte, error) {
	as := func(document, search string) string {
		if query {
			return search
		}
		return document
	}
	body, dimensions := map[string]any{"model": cfg.Model, "input": texts}, "dimensions"
	switch s.api {
	case APITEI:
		body = map[string]any{"inputs": texts, "truncate": false, "normalize": true}
	case APIOllama:
		body["truncate"] = false
	case APICohere:
		body = map[string]any{
			"model": cfg.Model, "texts": texts, "input_type": as("search_document", "search_query"), "embedding_types": []string{"float"}, "truncate": "NONE",
		}
		dimensions = "output_dimension"
	case APIVoyage:
		body["input_type"], body["truncation"] = as("document", "query"), false
		dimensions = "output_dimension"
	case APIJina:
		body["truncate"] = false
		if jinaTasks.MatchString(cfg.Model) {
			body["task"] = as("retrieval.passage", "retrieval.query")
		}
	case APIOpenAI, APIAzure, APIAuto:
	}
	if s.format != "" && !numbers {
		body[s.format] = "base64"
	}
	if cfg.Dimensions > 0 {
		body[dimensions] = cfg.Dimensions
	}
	return json.Marshal(body)
}

// jinaTasks are Jina's models that make different vectors of documents and of searches.
var jinaTasks = regexp.MustCompile(`^jina-embeddings-v([3-9]|\d\d)`)

// errNoVectors: a reply is no embedding at all.
var errNoVectors = errors.New("no vectors")

func parseOpenAI(reply []byte, n int) (vectors [][]float32, tokens int64, err error) {
	var out struct {
		Data []struct {
			Index     *int      `json:"index"`
			Embedding embedding `json:"embedding"`
		} `json:"data"`
		Usage struct {
			Tokens count `json:"total_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(reply, &out); err != nil {
		return nil, 0, badJSON(err)
	}
	if out.Data == nil {
		return nil, 0, errNoVectors
	}
	if len(out.Data) != n {
		return nil, 0, fmt.Errorf("%w: %d for %d texts", embed.ErrCount, len(out.Data), n)
	}
	vectors = make([][]float32, n)
	for i, item := range out.Data {
		at := i // a service that gives no index answers in order
		if item.Index != nil {
			at = *item.Index
		}
		if at < 0 || at >= n || vectors[at] != nil {
			return nil, 0, fmt.Errorf("index %d is out of range or given twice", at)
		}
		vectors[at] = item.Embedding
		if vectors[at] == nil {
			vectors[at] = []float32{}
		}
	}
	return vectors, int64(out.Usage.Tokens), nil
}

// count is a number of tokens; what is none is as if it were not there: a vector must not be lost for it.
type count int64

// UnmarshalJSON never returns an error.
func (c *count) UnmarshalJSON(data []byte) error {
	n, _ := strconv.ParseFloat(string(data), 64)
	if n > 0 && n < math.MaxInt32 {
		*c = count(n)
	}
	return nil
}

func parseCohere(reply []byte, n int) (vectors [][]float32, tokens int64, err error) {
	var out struct {
		Embeddings struct {
			Float []embedding `json:"float"`
		} `json:"embeddings"`
		Meta struct {
			Billed struct {
				Tokens count `json:"input_tokens"`
			} `json:"billed_units"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(reply, &out); err != nil {
		return nil, 0, badJSON(err)
	}
	if out.Embeddings.Float == nil {
		return nil, 0, errNoVectors
	}
	vectors, err = plain(out.Embeddings.Float, n)
	return vectors, int64(out.Meta.Billed.Tokens), err
}

func parseTEI(reply []byte, n int) (vectors [][]float32, tokens int64, err error) {
	if trimmed := strings.TrimSpace(string(reply[:min(len(reply), 16)])); !strings.HasPrefix(trimmed, "[") {
		return nil, 0, errNoVectors
	}
	var out []embedding
	if err := json.Unmarshal(reply, &out); err != nil {
		return nil, 0, badJSON(err)
	}
	vectors, err = plain(out, n)
	return vectors, 0, err
}

func parseOllama(reply []byte, n int) (vectors [][]float32, tokens int64, err error) {
	var out struct {
		Embeddings []embedding `json:"embeddings"`
		Tokens     count       `json:"prompt_eval_count"`
	}
	if err := json.Unmarshal(reply, &out); err != nil {
		return nil, 0, badJSON(err)
	}
	if out.Embeddings == nil {
		return nil, 0, errNoVectors
	}
	vectors, err = plain(out.Embeddings, n)
	return vectors, int64(out.Tokens), err
}

func plain(in []embedding, n int) ([][]float32, error) {
	if len(in) != n {
		return nil, fmt.Errorf("%w: %d for %d texts", embed.ErrCount, len(in), n)
	}
	vectors := make([][]float32, n)
	for i, v := range in {
		vectors[i] = v
	}
	return vectors, nil
}

// embedding decodes a vector strictly: encoding/json alone would read null as 0.
// A base64 string of little-endian float32 is read too; some servers send it unasked.
type embedding []float32

var errNotVector = errors.New("an embedding that is not an array of numbers")

// UnmarshalJSON takes syntactically valid JSON, as encoding/json gives it.
func (v *embedding) UnmarshalJSON(data []byte) error {
	text := strings.TrimSpace(string(data))
	if strings.HasPrefix(text, `"`) {
		return v.fromBase64(strings.Trim(text, `"`))
	}
	if !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "]") {
		return errNotVector
	}
	text = strings.TrimSpace(text[1 : len(text)-1])
	out := make([]float32, 0, strings.Count(text, ",")+1)
	for text != "" {
		number, rest, more := strings.Cut(text, ",")
		number = strings.TrimSpace(number)
		value, err := strconv.ParseFloat(number, 32)
		switch {
		case errors.Is(err, strconv.ErrRange), number == "null":
			// Too large for a float32, or a NaN that a careful encoder made null: Check names the text.
			value = math.NaN()
		case err != nil:
			return fmt.Errorf("%w: %.20s", errNotVector, number)
		}
		out = append(out, float32(value))
		if !more {
			break
		}
		text = rest
	}
	*v = out
	return nil
}

func (v *embedding) fromBase64(text string) error {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return errNotVector
	}
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	*v = out
	return nil
}

// badJSON names the one syntax error that has a meaning: NaN and Infinity are not JSON, but Python writes them.
func badJSON(err error) error {
	text := err.Error()
	if strings.Contains(text, "invalid character 'N'") || strings.Contains(text, "invalid character 'I'") {
		return fmt.Errorf("%w: %w", embed.ErrNotFinite, err)
	}
	return fmt.Errorf("reply is not what it should be: %w", err)
}
