package ingest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
)

// Document reads one live document. ErrDocumentNotFound.
func (r *Reads) Document(ctx context.Context, c Caller, id string) (Document, error) {
	query, args := r.q.Get("DocumentList")+"\n"+r.q.Get("DocumentID"), []any{id}
	if !c.Scope.All() {
		query, args = query+"\n"+r.q.Get("DocumentOwner"), append(args, c.Scope.UserID)
	}
	d, err := readRow(ctx, r.store, scanDocument, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return Document{}, ErrDocumentNotFound
	}
	if err != nil {
		return Document{}, fmt.Errorf("read document: %w", err)
	}
	return d, nil
}

// Documents reads a page of live documents, by default the last changed first.
func (r *Reads) Documents(ctx context.Context, c Caller, q DocumentQuery) ([]Document, error) {
	var b strings.Builder
	var args []any
	add := func(fragment string, values ...any) {
		b.WriteString("\n" + fragment)
		args = append(args, values...)
	}
	b.WriteString(r.q.Get("DocumentList"))
	if !c.Scope.All() {
		add(r.q.Get("DocumentOwner"), c.Scope.UserID)
	}
	if q.Base != "" {
		base, err := r.Base(ctx, c, q.Base)
		if err != nil {
			return nil, err
		}
		add(r.q.Get("DocumentBase"), base.ID)
	}
	if len(q.Statuses) > 0 {
		values := make([]any, len(q.Statuses))
		for i, s := range q.Statuses {
			values[i] = string(s)
		}
		add(r.q.List("DocumentStatuses", len(values)), values...)
	}
	if q.Text != "" {
		like := "%" + escapeLike(strings.ToLower(q.Text)) + "%"
		add(r.q.Get("DocumentText"), like, like)
	}
	order := documentOrder(q.Sort)
	if q.After != nil {
		add(r.q.Get("DocumentAfter"+order), q.After.At, q.After.At, q.After.ID)
	}
	add(r.q.Get("DocumentOrder"+order), q.Limit)
	return collect(ctx, r.store, "list documents", b.String(), args, func(rows *sql.Rows) (Document, error) { return scanDocument(rows) })
}

// documentOrder names the statements of an order.
func documentOrder(s taskstate.Sort) string {
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

// escapeLike makes text literal inside a LIKE pattern with ESCAPE '!'.
func escapeLike(text string) string {
	return strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(text)
}

// Segments pages through the visible version of a document.
func (r *Reads) Segments(ctx context.Context, c Caller, documentID string, after, limit int) ([]Segment, error) {
	if _, err := r.Document(ctx, c, documentID); err != nil {
		return nil, err
	}
	return collect(ctx, r.store, "list segments", r.q.Get("SegmentPage"), []any{documentID, after, limit}, func(rows *sql.Rows) (Segment, error) {
		var s Segment
		var path string
		err := rows.Scan(&s.Index, &s.Text, &s.Page, &path, &s.ByteStart, &s.ByteEnd, &s.Tokens)
		s.HeadingPath = headings(path)
		return s, err
	})
}

// scanDocument reads DocumentList's columns.
func scanDocument(row scanner) (Document, error) {
	var d Document
	var created, updated taskstate.Stamp
	err := row.Scan(&d.ID, &d.UserID, &d.BaseID, &d.BaseName, &d.Title, &d.FileName, &d.MediaType, &d.Status, &d.Bytes,
		&d.SHA256, &d.VisibleVersion, &d.SegmentCount, &d.Pages, &d.LatestTaskID, &created, &updated)
	d.CreatedAt, d.UpdatedAt = created.Time, updated.Time
	return d, err
}
