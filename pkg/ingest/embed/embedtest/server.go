// Package embedtest holds fakes of an embedding service for tests and drills: a Server that speaks HTTP in the shape
// of OpenAI, TEI or Ollama, and a Fake in the process. Their vectors are those of the local embedder, so the same
// text always has the same vector. Both can be told to go wrong, and both keep a log of what was asked of them, which
// is how a drill proves that no batch was paid for twice.
package embedtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millweir/millweir/pkg/ingest/embed"
)

// Shape is the API that a Server speaks.
type Shape string

// The shapes.
const (
	OpenAI Shape = "openai" // POST /embeddings and /v1/embeddings
	TEI    Shape = "tei"    // POST /embed, GET /info
	Ollama Shape = "ollama" // POST /api/embed, GET /api/version
)

// maxRequest is the largest body that is read, bytes.
const maxRequest = 64 << 20

// Options of a Server; the zero value is usable.
type Options struct {
	Addr      string            // listen address; empty: a free port of 127.0.0.1
	Shape     Shape             // empty: OpenAI
	APIKey    string            // not empty: anything else as Bearer token is 401
	MaxInputs int               // more texts in a request are refused (OpenAI 400, TEI 422, Ollama 400); 0: no limit
	Reject    func(string) bool // texts that are refused as too long (OpenAI 400, TEI 413, Ollama 400)
	Reverse   bool              // OpenAI: answers in reverse order, with right indexes
	Log       io.Writer         // every Effect as a JSON line; nil: none
}

// Effect is one request that came in, with its answer.
type Effect struct {
	At          time.Time `json:"at"`
	Task        string    `json:"task"`
	Fence       int64     `json:"fence"`
	Batch       string    `json:"batch"`     // as the caller named it
	TextsHash   string    `json:"textsHash"` // embed.BatchHash of the texts
	Texts       int       `json:"texts"`
	Status      int       `json:"status"`            // 0: no answer was given
	Paid        bool      `json:"paid"`              // vectors were computed, whether or not they arrived
	Spoiled     bool      `json:"spoiled,omitempty"` // the vectors that were sent are of no use
	TraceParent string    `json:"traceparent,omitempty"`
}

// Server is a fake embedding service. It is safe for concurrent use.
type Server struct {
	URL string // base URL, without a path

	opts    Options
	http    *http.Server
	closing chan struct{}
	clear   chan struct{} // closed by the next Clear
	done    chan struct{}

	mu      sync.Mutex
	faults  []Fault
	effects []Effect
	waiters []waiter
}

type waiter struct {
	n  int
	ch chan struct{}
}

// NewServer starts a server; the caller closes it.
func NewServer(opts Options) (*Server, error) {
	if opts.Shape == "" {
		opts.Shape = OpenAI
	}
	if opts.Addr == "" {
		opts.Addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("fake embedding service: %w", err)
	}
	s := &Server{
		URL: "http://" + listener.Addr().String(), opts: opts, closing: make(chan struct{}), clear: make(chan struct{}), done: make(chan struct{}),
	}
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.http.Serve(listener) // always ErrServerClosed after Close
	}()
	return s, nil
}

// TB is the part of testing.TB that Start needs.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start is NewServer for tests: it is closed when the test ends.
func Start(t TB, opts Options) *Server {
	t.Helper()
	s, err := NewServer(opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Close ends the server and every request that hangs in it.
func (s *Server) Close() {
	close(s.closing)
	_ = s.http.Close()
	<-s.done
}

// Set adds faults; a request meets the first one that matches it and is not used up.
func (s *Server) Set(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if f.Times == 0 {
			f.Times = -1
		}
		s.faults = append(s.faults, f)
	}
}

// Clear ends all faults, also for the requests that hang in one.
func (s *Server) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
	close(s.clear)
	s.clear = make(chan struct{})
}

// Effects returns the log so far, in the order in which requests were answered; hanging ones are not in it.
func (s *Server) Effects() []Effect {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.effects)
}

// Calls counts the requests that named task and batch; an empty batch counts all of the task.
func (s *Server) Calls(task, batch string) int { return len(s.matching(task, batch, false)) }

// Paid counts those of Calls that computed vectors.
func (s *Server) Paid(task, batch string) int { return len(s.matching(task, batch, true)) }

func (s *Server) matching(task, batch string, paid bool) []Effect {
	return slices.DeleteFunc(s.Effects(), func(e Effect) bool {
		return e.Task != task || (batch != "" && e.Batch != batch) || (paid && !e.Paid)
	})
}

// Wait returns a channel that is closed once n requests have been answered or have begun to hang.
func (s *Server) Wait(n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	if len(s.effects) >= n {
		close(ch)
	} else {
		s.waiters = append(s.waiters, waiter{n: n, ch: ch})
	}
	return ch
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	switch s.opts.Shape {
	case TEI:
		mux.HandleFunc("POST /embed", s.embed)
		mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
			limit := s.opts.MaxInputs
			if limit == 0 {
				limit = 1 << 20
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"model_id": "test/model", "max_client_batch_size": limit, "max_input_length": 512})
		})
	case Ollama:
		mux.HandleFunc("POST /api/embed", s.embed)
		mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"version":"0.12.0"}`)
		})
	default:
		mux.HandleFunc("POST /embeddings", s.embed)
		mux.HandleFunc("POST /v1/embeddings", s.embed)
	}
	return mux
}

// embed returns one request and logs it.
func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	effect := Effect{
		At: time.Now().UTC(), Task: r.Header.Get(embed.HeaderTask), Batch: r.Header.Get(embed.HeaderBatch),
		TraceParent: r.Header.Get("Traceparent"),
	}
	effect.Fence, _ = strconv.ParseInt(r.Header.Get(embed.HeaderFence), 10, 64)
	texts, err := readTexts(http.MaxBytesReader(w, r.Body, maxRequest))
	effect.Texts, effect.TextsHash = len(texts), embed.BatchHash(texts)
	if err != nil {
		effect.Status = s.problem(w, http.StatusBadRequest, err.Error())
		s.record(effect)
		return
	}
	if s.opts.APIKey != "" && r.Header.Get("Authorization") != "Bearer "+s.opts.APIKey {
		effect.Status = s.problem(w, http.StatusUnauthorized, "Incorrect API key provided: "+r.Header.Get("Authorization"))
		s.record(effect)
		return
	}
	s.answer(w, r, effect, texts)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, effect Effect, texts []string) {
	fault := s.fault(effect)
	if fault.Kind == Delay {
		timer := time.NewTimer(fault.For)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.closing:
		case <-r.Context().Done():
		}
	}
	effect.Paid = fault.paid()
	effect.Spoiled = effect.Paid && fault.Kind != "" && fault.Kind != Delay
	if fault.Kind == Hang {
		s.record(effect) // before the hang: a drill waits for it
	}
	if status, done := s.refuse(w, r, fault); done {
		effect.Status = status
		s.record(effect)
		return
	}
	if status, message := s.limit(texts); status != 0 {
		effect.Paid = false
		effect.Status = s.problem(w, status, message)
		s.record(effect)
		return
	}
	effect.Status = http.StatusOK
	if fault.Kind == Cut {
		effect.Status = 0
	}
	s.record(effect)
	s.write(w, fault, texts)
}

// limit is the refusal of what the service cannot take.
func (s *Server) limit(texts []string) (status int, message string) {
	if s.opts.MaxInputs > 0 && len(texts) > s.opts.MaxInputs {
		status = http.StatusBadRequest
		if s.opts.Shape == TEI {
			status = http.StatusUnprocessableEntity
		}
		return status, fmt.Sprintf("batch size %d > maximum allowed batch size %d", len(texts), s.opts.MaxInputs)
	}
	if s.opts.Reject != nil && slices.ContainsFunc(texts, s.opts.Reject) {
		status = http.StatusBadRequest
		if s.opts.Shape == TEI {
			status = http.StatusRequestEntityTooLarge
		}
		return status, "input length exceeds maximum context length"
	}
	return 0, ""
}

// fault finds and uses up the fault that an effect meets.
func (s *Server) fault(effect Effect) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.faults {
		f := &s.faults[i]
		if f.Times != 0 && (f.Match == nil || f.Match(effect)) {
			if f.Times > 0 {
				f.Times--
			}
			met := *f
			met.cleared = s.clear // this one's end, whenever it comes
			return met
		}
	}
	return Fault{}
}

func (s *Server) record(effect Effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects = append(s.effects, effect)
	if s.opts.Log != nil {
		line, _ := json.Marshal(effect)
		_, _ = s.opts.Log.Write(append(line, '\n'))
	}
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		if len(s.effects) < w.n {
			return false
		}
		close(w.ch)
		return true
	})
}
