package embedtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"github.com/millweir/millweir/pkg/ingest/embed/local"
)

func (s *Server) write(w http.ResponseWriter, fault Fault, texts []string) {
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = local.Vector(text)
	}
	body, err := s.encode(fault.spoil(vectors))
	if err != nil {
		s.problem(w, http.StatusInternalServerError, err.Error())
		return
	}
	switch fault.Kind {
	case NaN:
		body = spoilNumber(body, "NaN")
	case Null:
		body = spoilNumber(body, "null")
	case Cut:
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush() // the half must be seen, not the end alone
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (s *Server) encode(vectors [][]float32) ([]byte, error) {
	switch s.opts.Shape {
	case TEI:
		return json.Marshal(vectors)
	case Ollama:
		return json.Marshal(map[string]any{"model": "test", "embeddings": vectors})
	}
	type item struct {
		Object    string    `json:"object"`
		Index     int       `json:"index"`
		Embedding []float32 `json:"embedding"`
	}
	data := make([]item, len(vectors))
	for i, v := range vectors {
		data[i] = item{Object: "embedding", Index: i, Embedding: v}
	}
	if s.opts.Reverse {
		slices.Reverse(data)
	}
	return json.Marshal(map[string]any{"object": "list", "data": data, "model": "test"})
}

// spoilNumber replaces the first number of the last vector.
func spoilNumber(body []byte, with string) []byte {
	start := bytes.LastIndexByte(body, '[') + 1
	end := start + bytes.IndexAny(body[start:], ",]")
	return slices.Concat(body[:start], []byte(with), body[end:])
}

// readTexts reads a request of any shape: "input" or "inputs", one text or several.
func readTexts(r io.Reader) ([]string, error) {
	var body struct {
		Input  json.RawMessage `json:"input"`
		Inputs json.RawMessage `json:"inputs"`
	}
	if err := json.NewDecoder(r).Decode(&body); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	raw := body.Input
	if raw == nil {
		raw = body.Inputs
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil {
		return texts, nil
	}
	var one string
	if err := json.Unmarshal(raw, &one); err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	return []string{one}, nil
}
