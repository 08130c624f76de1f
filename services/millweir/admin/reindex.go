package admin

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/ingest/textindex"
	"github.com/millweir/millweir/pkg/taskstore"
	"github.com/millweir/millweir/services/millweir/cli"
)

// reindex adds what the full-text index lacks of visible documents, and replaces damaged parts of it. Searches and uploads go on; it may be stopped and run again.
func reindex(a *cli.App) *cobra.Command {
	var base string
	c := storeVerb("reindex [--base ID] [--env-file FILE]", "add what the full-text index lacks of visible documents", cli.Needs(),
		func(ctx context.Context, s *taskstore.Store, _ []string) error {
			out := struct {
				Versions int `json:"versions"`
				Segments int `json:"segments"`
				Parts    int `json:"parts"` // that were replaced
			}{}
			err := textindex.New(s).Reindex(ctx, base, func(g textindex.Gap) {
				if g.Part != "" {
					out.Parts++
					return
				}
				out.Versions++
				out.Segments += len(g.Missing)
			})
			if err != nil {
				return err
			}
			return cli.One(a, out, func(w io.Writer) {
				_, _ = fmt.Fprintf(w, "%d segments of %d documents were added to the index, %d damaged parts removed\n", out.Segments, out.Versions, out.Parts)
			})
		})
	c.Flags().StringVar(&base, "base", "", "id of the one knowledge base to look at")
	return c
}
