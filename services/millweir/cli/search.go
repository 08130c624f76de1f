package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

// search finds segments; the words of the query may stand without quotes.
func search(a *App) *cobra.Command {
	var kb string
	var top int
	c := Verb("search QUERY [--kb NAME] [--top N]", "find segments", NeedsSome("word"), func(ctx context.Context, words []string) error {
		var found wire.SearchAnswer
		wish := wire.SearchRequest{Query: strings.Join(words, " "), KnowledgeBase: kb, TopK: &top}
		if err := a.gateway().Post(ctx, "/api/knowledge/search", wish, &found); err != nil {
			return err
		}
		if a.output == "jsonl" {
			return Table(a, found.Hits, "", nil)
		}
		return One(a, found, func(w io.Writer) { printHits(w, found) })
	})
	c.Flags().StringVar(&kb, "kb", "", "knowledge base")
	c.Flags().IntVar(&top, "top", 5, "most hits, 1..50")
	return c
}

// printHits writes hits for people.
func printHits(w io.Writer, found wire.SearchAnswer) {
	for i, h := range found.Hits {
		place := ""
		if h.Page > 0 {
			place = fmt.Sprintf(", page %d", h.Page)
		}
		if len(h.HeadingPath) > 0 {
			place += ", " + clean(strings.Join(h.HeadingPath, " > "))
		}
		_, _ = fmt.Fprintf(w, "%d. %.3f  %s%s\n   %s\n", i+1, h.Score, clean(h.Title), place, short(strings.Join(strings.Fields(h.Text), " "), 300))
	}
	if len(found.Hits) == 0 {
		_, _ = fmt.Fprintln(w, "nothing found")
	}
	if found.Partial {
		_, _ = fmt.Fprintln(w, "(there may be more)")
	}
}
