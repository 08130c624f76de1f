package cli

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

// documents shows what was taken in, goes back to what was there before, and shows that deleted ones are gone.
func documents(a *App) *cobra.Command {
	return Group("documents", "show documents, go back to earlier versions, see that deleted ones are gone",
		documentsList(a), documentsRollback(a), documentsDeletion(a))
}

func documentsDeletion(a *App) *cobra.Command {
	return Verb("deletion ID", "show the receipt of a deleted document", Needs("a document id"), func(ctx context.Context, args []string) error {
		return shown(ctx, a, "/api/knowledge/documents/"+url.PathEscape(args[0])+"/deletion", func(f fields, d wire.Deletion) {
			f.line("document", d.DocumentID)
			f.line("state", d.State)
			f.line("sha256", d.SHA256)
			f.line("gone", fmt.Sprintf("%d versions, %d segments, %d vectors, %d files", d.Versions, d.Segments, d.Vectors, d.Files))
			f.line("deleted", d.DeletedAt.Local().Format(time.RFC3339)+" by "+d.DeletedBy)
			for _, t := range []struct {
				name string
				at   wire.NullTime
			}{{"removed", d.RemovedAt}, {"verified", d.VerifiedAt}} {
				if !t.at.Missing() {
					f.line(t.name, t.at.Local().Format(time.RFC3339))
				}
			}
		})
	})
}

func documentsRollback(a *App) *cobra.Command {
	var version int64
	c := Verb("rollback ID [--version N]", "make a new version of the content of an earlier one", Needs("a document id"),
		func(ctx context.Context, args []string) error {
			var wish wire.Rollback
			if version != 0 {
				wish.Version = &version
			}
			return posted(ctx, a, "/api/knowledge/documents/"+url.PathEscape(args[0])+"/rollback", wish, func(f fields, t wire.AcceptedTask) {
				printTask(f, t.Task)
			})
		})
	c.Flags().Int64Var(&version, "version", 0, "its number; 0: the last one before the visible one that differs from it")
	return c
}

func documentsList(a *App) *cobra.Command {
	var l *listing
	var meta metadataFlag
	c := Verb("list [--status READY,FAILED] [--kb NAME] [--meta KEY=TEXT] [--limit N]", "list documents, the last changed first", Needs(),
		func(ctx context.Context, _ []string) error {
			q := url.Values{}
			if meta != nil {
				q.Set("metadata", meta.String())
			}
			return listed(ctx, a, "/api/knowledge/documents", l, q, "DOCUMENT\tSTATUS\tSEGMENTS\tUPDATED\tTITLE", func(d wire.Document) []any {
				return []any{clean(d.DocumentID), clean(d.Status), d.SegmentCount, d.UpdatedAt.Local().Format(time.DateTime), short(d.Title, 60)}
			})
		})
	l = newListing(c, 50, "documents")
	l.filter(c, "status", "status", "states, with commas")
	l.filter(c, "kb", "knowledgeBase", "knowledge base")
	l.filter(c, "q", "q", "text in title or file name")
	l.filter(c, "parent", "parent", "id of a message, whose attachments are listed")
	c.Flags().Var(&meta, "meta", "with that in the metadata of their visible version only, KEY=TEXT or KEY:=JSON; may be repeated")
	return c
}
