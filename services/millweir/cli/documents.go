package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millweir/millweir/pkg/wire"
	"github.com/millweir/millweir/services/millweir/client"
)

// documents shows what was taken in, goes back to what was there before, and shows that deleted ones are gone.
func documents(a *App) *cobra.Command {
	return Group("documents", "show documents, go back to earlier versions, see that deleted ones are gone",
		documentsList(a), documentsGet(a), documentsFile(a), documentsSegments(a), documentsVersions(a), documentsDelete(a), documentsRollback(a), documentsDeletion(a))
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

func documentsGet(a *App) *cobra.Command {
	return Verb("get ID", "show a document", Needs("a document id"), func(ctx context.Context, args []string) error {
		return shown(ctx, a, client.DocumentPath(args[0]), func(f fields, d wire.Document) {
			f.line("document", d.DocumentID)
			f.line("base", d.KnowledgeBase)
			f.line("title", d.Title)
			f.line("file", d.FileName)
			f.line("status", d.Status)
			f.line("segments", fmt.Sprint(d.SegmentCount))
			f.line("updated", d.UpdatedAt.Local().Format(time.RFC3339))
		})
	})
}

func documentsFile(a *App) *cobra.Command {
	var version int64
	var to string
	c := Verb("file ID [--version N] [--to FILE]", "write the file of a document as it was uploaded", Needs("a document id"),
		func(ctx context.Context, args []string) error {
			path := client.DocumentPath(args[0], "file")
			if version != 0 {
				path += "?version=" + strconv.FormatInt(version, 10)
			}
			if to == "" {
				return a.file(ctx, path, a.Out)
			}
			return ReplaceFile(to, func(w io.Writer) error { return a.file(ctx, path, w) })
		})
	c.Flags().Int64Var(&version, "version", 0, "its number; 0: the visible one, or the newest when none is visible")
	c.Flags().StringVar(&to, "to", "", "where to write it; without it: standard output")
	return c
}

// file copies what path names to w, and compares it with the SHA-256 that the gateway says of it; what stands between may take that away.
func (a *App) file(ctx context.Context, path string, w io.Writer) error {
	body, header, err := a.Gateway().Open(ctx, path)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, sum), body); err != nil {
		return fmt.Errorf("copy the file: %w", err)
	}
	want, got := strings.Trim(strings.TrimPrefix(header.Get("ETag"), "W/"), `"`), hex.EncodeToString(sum.Sum(nil))
	if len(want) == len(got) && got != want {
		return fmt.Errorf("the file that came has the SHA-256 %s, the one that was uploaded has %s: the stored file is damaged; upload it again", got, Clean(want))
	}
	return nil
}

func documentsSegments(a *App) *cobra.Command {
	var l *listing
	c := Verb("segments ID [--limit N]", "list the segments of the visible version", Needs("a document id"), func(ctx context.Context, args []string) error {
		return listed(ctx, a, client.DocumentPath(args[0], "segments"), l, nil, "SEGMENT\tPAGE\tTOKENS\tTEXT", func(s wire.Segment) []any {
			page := "-"
			if s.Page > 0 {
				page = fmt.Sprint(s.Page)
			}
			return []any{s.Index, page, s.Tokens, Long(strings.Join(strings.Fields(s.Text), " "), 100)}
		})
	})
	l = newListing(c, 50, "segments")
	return c
}

func documentsVersions(a *App) *cobra.Command {
	var l *listing
	c := Verb("versions ID [--limit N]", "list a document's versions, the newest first", Needs("a document id"), func(ctx context.Context, args []string) error {
		return listed(ctx, a, client.DocumentPath(args[0], "versions"), l, nil, "VERSION\tSTATE\tSEGMENTS\tCREATED\tBACK\tTITLE", func(v wire.Version) []any {
			back := "no" // rollback goes to a SUPERSEDED one whose file is kept
			if v.ContentKept && v.State == "SUPERSEDED" {
				back = "yes"
			}
			return []any{v.Version, Clean(v.State), v.SegmentCount, v.CreatedAt.Local().Format(time.DateTime), back, Long(v.Title, 60)}
		})
	})
	l = newListing(c, 20, "versions")
	return c
}

func documentsDelete(a *App) *cobra.Command {
	return Verb("delete ID… [--yes]", "delete documents, with their attachments", NeedsSome("document id"), func(ctx context.Context, ids []string) error {
		if err := a.confirm(fmt.Sprintf("Delete %d document(s)?", len(ids))); err != nil {
			return err
		}
		gone, failed := forEach(ids, "delete", func(id string) (removed, error) {
			return removed{id, true}, a.Gateway().Delete(ctx, client.DocumentPath(id))
		})
		return cmp.Or(failed, Table(a, gone, "ID\tDELETED", removedRow))
	})
}

// removed is what was deleted.
type removed struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// removedRow is what was deleted, in a table.
func removedRow(r removed) []any { return []any{Clean(r.ID), "yes"} }

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
	var meta MetadataFlag
	c := Verb("list [--status READY,FAILED] [--kb NAME] [--meta KEY=TEXT] [--limit N]", "list documents, the last changed first", Needs(),
		func(ctx context.Context, _ []string) error {
			q := url.Values{}
			if meta != nil {
				q.Set("metadata", meta.String())
			}
			return listed(ctx, a, "/api/knowledge/documents", l, q, "DOCUMENT\tSTATUS\tSEGMENTS\tUPDATED\tTITLE", func(d wire.Document) []any {
				return []any{Clean(d.DocumentID), Clean(d.Status), d.SegmentCount, d.UpdatedAt.Local().Format(time.DateTime), Long(d.Title, 60)}
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

// MetadataFlag are pairs KEY=TEXT, or KEY:=JSON for what is no text; nil: none was given.
type MetadataFlag map[string]any

// Set implements pflag.Value.
func (m *MetadataFlag) Set(pair string) error {
	key, text, ok := strings.Cut(pair, "=")
	if !ok {
		return errors.New("KEY=TEXT or KEY:=JSON is expected")
	}
	var value any = text
	if name, isJSON := strings.CutSuffix(key, ":"); isJSON {
		key = name
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return fmt.Errorf("%s is no JSON: %w", text, err)
		}
	}
	if *m == nil {
		*m = MetadataFlag{}
	}
	if _, twice := (*m)[key]; twice {
		return fmt.Errorf("%s stands more than once", key)
	}
	(*m)[key] = value
	return nil
}

// String implements pflag.Value: JSON.
func (m *MetadataFlag) String() string {
	if *m == nil {
		return ""
	}
	text, _ := json.Marshal(*m) // what was JSON is JSON
	return string(text)
}

// Type implements pflag.Value.
func (*MetadataFlag) Type() string { return "pair" }
