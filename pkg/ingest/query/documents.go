package query

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Document reads one live document. ErrDocumentNotFound.
func (r *Reads) Document(ctx context.Context, c ingest.Caller, id string) (ingest.Document, error) {
	query, args := r.q.Get("DocumentList")+"\n"+r.q.Get("DocumentID"), []any{id}
	if !c.Scope.All() {
		query, args = query+"\n"+r.q.Get("DocumentOwner"), append(args, c.Scope.UserID)
	}
	d, err := sqldb.ReadRow(ctx, r.store, scanDocument, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return ingest.Document{}, ingest.ErrDocumentNotFound
	}
	if err != nil {
		return ingest.Document{}, fmt.Errorf("read document: %w", err)
	}
	return d, nil
}

// Documents reads a page of live documents, by default the last changed first.
func (r *Reads) Documents(ctx context.Context, c ingest.Caller, q ingest.ListQuery) ([]ingest.Document, error) {
	q.Sort = cmp.Or(q.Sort, taskstate.SortUpdatedDesc)
	first := "DocumentList"
	narrowed := !c.Scope.All() || q.Base != "" || q.Parent != "" || len(q.Statuses) > 0 || q.Times != ingest.Times{}
	if !narrowed && (q.Text != "" || q.Stage != "" || len(q.Metadata) > 0) { // what no index knows
		first = "DocumentScan"
	}
	l, err := r.list(ctx, c, "Document", first, 2, q)
	if err != nil {
		return nil, err
	}
	return sqldb.ReadAll(ctx, r.store, "list documents", l.text.String(), l.args, func(rows *sql.Rows) (ingest.Document, error) {
		return scanDocument(rows)
	})
}

// listStatement is a list's statement as it is put together from the fragments of one kind of row.
type listStatement struct {
	q    sqldb.Queries
	kind string // Document, Base: the fragments' first word
	text strings.Builder
	args []any
}

// list makes a list's statement, which begins with the one named first; a text is looked for in so many columns.
func (r *Reads) list(ctx context.Context, c ingest.Caller, kind, first string, texts int, q ingest.ListQuery) (*listStatement, error) {
	l := &listStatement{q: r.q, kind: kind}
	l.text.WriteString(r.q.Get(first))
	if !c.Scope.All() {
		l.add("Owner", c.Scope.UserID)
	}
	if q.Base != "" {
		base, err := r.cat.Base(ctx, c, q.Base)
		if err != nil {
			return nil, err
		}
		if err := base.MetadataSchema.FitsRules("metadata", q.Metadata); err != nil {
			return nil, err
		}
		l.add("InBase", base.ID)
		q.Base = base.ID
	}
	if q.Parent != "" {
		l.add("Parent", q.Parent)
	}
	if len(q.Metadata) > 0 {
		said := r.byMetadata(q.Base, q.Metadata)
		l.fragment(said.Text, said.Args...)
	}
	if n := len(q.Statuses); n > 0 {
		l.fragment(r.q.List(kind+"Statuses", n), sqldb.Args(q.Statuses)...)
	}
	if q.Stage != "" {
		l.add("Stage", string(q.Stage))
	}
	if q.Text != "" {
		l.add("Text", slices.Repeat([]any{likeText(q.Text)}, texts)...)
	}
	l.times(q.Times)
	order := listOrder(q.Sort)
	if q.After != nil {
		l.add("After"+order, q.After.At, q.After.At, q.After.ID)
	}
	l.add("Order"+order, q.Limit)
	return l, nil
}

// add appends the fragment of that name with its arguments.
func (l *listStatement) add(name string, values ...any) { l.fragment(l.q.Get(l.kind+name), values...) }

// fragment appends SQL with its arguments.
func (l *listStatement) fragment(text string, values ...any) {
	l.text.WriteString("\n" + text)
	l.args = append(l.args, values...)
}

// times appends the limits that are set.
func (l *listStatement) times(t ingest.Times) {
	for _, limit := range []struct {
		name string
		at   time.Time
	}{{"MadeAfter", t.CreatedAfter}, {"MadeBefore", t.CreatedBefore}, {"ChangedAfter", t.UpdatedAfter}, {"ChangedBefore", t.UpdatedBefore}} {
		if !limit.at.IsZero() {
			l.add(limit.name, limit.at)
		}
	}
}

// listOrder names the statements of an order.
func listOrder(s taskstate.Sort) string {
	switch s {
	case taskstate.SortCreated:
		return "Created"
	case taskstate.SortCreatedDesc:
		return "CreatedDesc"
	case taskstate.SortUpdated:
		return "Updated"
	case taskstate.SortUpdatedDesc:
	}
	return "UpdatedDesc"
}

// likeText is the pattern that finds a text anywhere, in lower case.
func likeText(text string) string { return "%" + escapeLike(strings.ToLower(text)) + "%" }

// escapeLike makes text literal inside a LIKE pattern with ESCAPE '!'.
func escapeLike(text string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text)
}

// Segments pages through the visible version of a document.
func (r *Reads) Segments(ctx context.Context, c ingest.Caller, documentID string, after, limit int) ([]ingest.Segment, error) {
	if _, err := r.Document(ctx, c, documentID); err != nil {
		return nil, err
	}
	return sqldb.ReadAll(ctx, r.store, "list segments", r.q.Get("SegmentPage"), []any{documentID, after, limit}, func(rows *sql.Rows) (ingest.Segment, error) {
		var s ingest.Segment
		var path string
		var breaks sql.NullString
		err := rows.Scan(&s.Index, &s.Text, &s.Page, &breaks, &path, &s.ByteStart, &s.ByteEnd, &s.Tokens)
		s.HeadingPath, s.PageBreaks = headings(path), pageBreaks(breaks)
		return s, err
	})
}

// Versions pages through a live document's versions below a number, the newest first. ErrDocumentNotFound.
func (r *Reads) Versions(ctx context.Context, c ingest.Caller, documentID string, below int64, limit int) ([]ingest.Version, error) {
	if _, err := r.Document(ctx, c, documentID); err != nil {
		return nil, err
	}
	return sqldb.ReadAll(ctx, r.store, "list versions", r.q.Get("VersionPage"), []any{documentID, below, limit}, func(rows *sql.Rows) (ingest.Version, error) {
		var v ingest.Version
		var kept int
		var created, closed taskstate.DBTime
		err := rows.Scan(&v.No, &v.State, &v.Title, &v.TaskID, &v.Model, &v.Reader, &v.Chunker, &v.Segments, &v.Pages, &kept, &created, &closed)
		v.TaskID, v.Kept, v.CreatedAt, v.ClosedAt = strings.TrimSpace(v.TaskID), kept > 0, created.Time, closed.Time
		return v, err
	})
}

// Original implements ingest.Service. A file that lies there with another size than was uploaded is not given away.
func (r *Reads) Original(ctx context.Context, c ingest.Caller, documentID string, version int64) (ingest.Original, error) {
	d, err := r.Document(ctx, c, documentID)
	if err != nil {
		return ingest.Original{}, err
	}
	if version = cmp.Or(version, d.VisibleVersion); version == 0 {
		newest, err := r.Versions(ctx, c, documentID, math.MaxInt64, 1)
		if err != nil {
			return ingest.Original{}, err
		}
		if len(newest) == 0 {
			return ingest.Original{}, fmt.Errorf("%w: the document has none yet", ingest.ErrVersionNotFound)
		}
		version = newest[0].No
	}
	kept := func() (ingest.ReceivedFile, error) {
		return sqldb.Read(ctx, r.store, func(ctx context.Context, tx taskstate.Tx) (ingest.ReceivedFile, error) {
			_, u, err := r.cat.Content(ctx, tx, documentID, version)
			if err == nil && u.File.ID == "" {
				err = fmt.Errorf("version %d: %w", version, ingest.ErrVersionGone)
			}
			return u.File, err
		})
	}
	stored, err := kept()
	if err != nil {
		return ingest.Original{}, err
	}
	f, err := r.open(stored.ID)
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := kept(); gone != nil { // the sweeper was faster
			return ingest.Original{}, gone
		}
	}
	if err != nil {
		return ingest.Original{}, fmt.Errorf("open the file of version %d of document %s: %w", version, documentID, err)
	}
	info, err := f.Stat()
	if err == nil && info.Size() != stored.Bytes {
		err = fmt.Errorf("%d bytes are there, %d were uploaded", info.Size(), stored.Bytes)
	}
	if err != nil {
		return ingest.Original{}, errors.Join(fmt.Errorf("file of version %d of document %s: %w", version, documentID, err), f.Close())
	}
	return ingest.Original{File: f, Name: stored.Name, MediaType: stored.MediaType, SHA256: stored.SHA256, Bytes: stored.Bytes, Version: version}, nil
}

// scanDocument reads DocumentList's columns.
func scanDocument(row sqldb.Scanner) (ingest.Document, error) {
	var d ingest.Document
	var created, updated taskstate.DBTime
	err := row.Scan(&d.ID, &d.UserID, &d.BaseID, &d.BaseName, &d.Title, &d.FileName, &d.MediaType, &d.Status, &d.Bytes,
		&d.SHA256, &d.VisibleVersion, &d.SegmentCount, &d.Pages, &d.LatestTaskID, &created, &updated, &d.Metadata, &d.Parent.ID, &d.Parent.No)
	d.Parent.ID = strings.TrimSpace(d.Parent.ID)
	d.CreatedAt, d.UpdatedAt = created.Time, updated.Time
	return d, err
}
