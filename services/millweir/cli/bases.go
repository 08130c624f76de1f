package cli

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
)

const basesPath = "/api/knowledge/bases"

// bases shows, makes and deletes knowledge bases.
func bases(a *App) *cobra.Command {
	return Group("bases", "knowledge bases", basesList(a), basesGet(a), basesCreate(a), basesDelete(a), basesReindex(a))
}

// basePath is the address of a base, by id or name, or of a step of it.
func basePath(base, rest string) string { return basesPath + "/" + url.PathEscape(base) + rest }

// printBase writes a base for people.
func printBase(f fields, b wire.Base) {
	f.line("base", b.KnowledgeBaseID)
	f.line("name", b.Name)
	f.line("search", b.SearchMode)
	if b.Model != nil {
		f.line("model", b.Model.Key)
	}
	f.line("created", b.CreatedAt.Local().Format(time.RFC3339))
}

func basesList(a *App) *cobra.Command {
	var l *listing
	c := Verb("list [--limit N]", "list knowledge bases, newest first", Needs(), func(ctx context.Context, _ []string) error {
		return listed(ctx, a, basesPath, l, nil, "BASE\tNAME\tSEARCH\tCREATED", func(b wire.Base) []any {
			return []any{Clean(b.KnowledgeBaseID), Clean(b.Name), Clean(b.SearchMode), b.CreatedAt.Local().Format(time.DateTime)}
		})
	})
	l = newListing(c, 50, "bases")
	return c
}

func basesGet(a *App) *cobra.Command {
	return Verb("get BASE", "show a knowledge base, by id or name, in numbers", Needs("a base"), func(ctx context.Context, args []string) error {
		return shown(ctx, a, basePath(args[0], "/summary"), func(f fields, s wire.Summary) {
			printBase(f, s.Base)
			f.line("documents", reasons(s.Documents))
			f.line("tasks", reasons(s.Tasks))
			f.line("running", reasons(s.Stages))
			if s.PerMinute > 0 {
				f.line("ended", fmt.Sprintf("%.1f a minute", s.PerMinute))
			}
			if s.SecondsLeft != nil {
				f.line("left", "about "+seconds(*s.SecondsLeft))
			}
			if s.SecondsHalf != nil && s.SecondsMost != nil {
				f.line("took", fmt.Sprintf("half of the last %s at most, 95 %% %s", seconds(*s.SecondsHalf), seconds(*s.SecondsMost)))
			}
			f.line("segments", fmt.Sprint(s.Segments))
		})
	})
}

// seconds is a length of time for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}

func basesCreate(a *App) *cobra.Command {
	var wish wire.BaseRequest
	c := Verb("create NAME [--search MODE]", "make a knowledge base", Needs("a name"), func(ctx context.Context, args []string) error {
		wish.Name = args[0]
		return posted(ctx, a, basesPath, wish, printBase)
	})
	c.Flags().StringVar(&wish.SearchMode, "search", "", "what searches look into when they do not say: auto, text, vector or hybrid")
	return c
}

func basesDelete(a *App) *cobra.Command {
	var cascade bool
	c := Verb("delete BASE [--cascade] [--yes]", "delete a knowledge base", Needs("a base"), func(ctx context.Context, args []string) error {
		question := "Delete the base " + Clean(args[0])
		if cascade {
			question += " with all its documents"
		}
		if err := a.confirm(question + "?"); err != nil {
			return err
		}
		path := basePath(args[0], "")
		if cascade {
			path += "?cascade=true"
		}
		if err := a.Gateway().Delete(ctx, path); err != nil {
			return err
		}
		return Table(a, []removed{{args[0], true}}, "ID\tDELETED", removedRow)
	})
	c.Flags().BoolVar(&cascade, "cascade", false, "with the documents that are in it")
	return c
}

func basesReindex(a *App) *cobra.Command {
	var wish wire.Reindex
	c := Verb("reindex BASE [--dry-run]", "make documents anew whose reader, chunking or model has changed", Needs("a base"), func(ctx context.Context, args []string) error {
		return posted(ctx, a, basePath(args[0], "/reindex"), wish, func(f fields, got wire.WorkflowReply) { runLines(f, got.Data) })
	})
	c.Flags().BoolVar(&wish.DryRun, "dry-run", false, "only count")
	return c
}
