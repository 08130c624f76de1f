package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// hit is contract §4's search hit.
type hit struct {
	DocumentID   string   `json:"documentId"`
	Title        string   `json:"title"`
	FileName     string   `json:"fileName"`
	Version      int64    `json:"version"`
	SegmentIndex int      `json:"segmentIndex"`
	Page         int      `json:"page"`
	HeadingPath  []string `json:"headingPath"`
	Text         string   `json:"text"`
	Score        float64  `json:"score"`
}

// search finds segments; the words of the query may stand without quotes.
func search(ctx context.Context, std IO, args []string) error {
	f := newFlags(std, "search")
	kb := f.String("kb", "", "knowledge base")
	top := f.Int("top", 5, "most hits, 1..50")
	rest, err := f.parse(args)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return &usageError{"needs a query"}
	}
	req := map[string]any{"query": strings.Join(rest, " "), "topK": *top}
	if *kb != "" {
		req["knowledgeBase"] = *kb
	}
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("write query: %w", err)
	}
	var answer struct {
		Hits    []hit `json:"hits"`
		Partial bool  `json:"partial"`
	}
	if err := f.client().do(ctx, http.MethodPost, "/api/knowledge/search", "application/json", bytes.NewReader(body), &answer); err != nil {
		return err
	}
	if f.output == "jsonl" {
		return emit(f, answer.Hits, "", nil)
	}
	return emitOne(f, answer, func(w io.Writer) {
		for i, h := range answer.Hits {
			printHit(w, i+1, h)
		}
		if len(answer.Hits) == 0 {
			_, _ = fmt.Fprintln(w, "nothing found")
		}
		if answer.Partial {
			_, _ = fmt.Fprintln(w, "(there may be more)")
		}
	})
}

// printHit writes one hit for people.
func printHit(w io.Writer, n int, h hit) {
	place := ""
	if h.Page > 0 {
		place = fmt.Sprintf(", page %d", h.Page)
	}
	if len(h.HeadingPath) > 0 {
		place += ", " + clean(strings.Join(h.HeadingPath, " > "))
	}
	_, _ = fmt.Fprintf(w, "%d. %.3f  %s%s\n   %s\n", n, h.Score, clean(h.Title), place, short(strings.Join(strings.Fields(h.Text), " "), 300))
}
