package query

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/internal/dbq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Document reads one live document. ErrDocumentNotFound.
func (r *Reads) Document(ctx context.Context, c ingest.Caller, id string) (ingest.Document, error) {
	query, args := r.q.Get("DocumentList")+"\n"+r.q.Get("DocumentID"), []any{id}
	if !c.Scope.All() {
		query, args = query+"\n"+r.q.Get("DocumentOwner"), append(args, c.Scope.UserID)
	}
	d, err := dbq.ReadRow(ctx, r.store, scanDocument, query, args...)
	if errors.Is(err, sql.ErrNoRows) {
		return ingest.Document{}, ingest.ErrDocumentNotFound
	}
	if err != nil {
		return ingest.Document{}, fmt.Errorf("read document: %w", err)
	}
	return d, nil
}

// Documents reads a page of live documents, by default the last changed first.
func (r *Reads) Documents(ctx context.Context, c ingest.Caller, q ingest.DocumentQuery) ([]ingest.Document, error) {
	l := r.list("Document")
	if !c.Scope.All() {
		l.add(r.q.Get("DocumentOwner"), c.Scope.UserID)
	}
	if q.Base != "" {
		base, err := r.cat.Base(ctx, c, q.Base)
		if err != nil {
			return nil, err
		}
		l.add(r.q.Get("DocumentBase"), base.ID)
	}
	l.documents(q.Statuses, q.Stage)
	if q.Text != "" {
		l.add(r.q.Get("DocumentText"), likeText(q.Text), likeText(q.Text))
	}
	l.times(q.Times)
	l.page(cmp.Or(q.Sort, taskstate.SortUpdatedDesc), q.After, q.Limit)
	return dbq.Collect(ctx, r.store, "list documents", l.text.String(), l.args, func(rows *sql.Rows) (ingest.Document, error) { return scanDocument(rows) })
}

// listStatement is a list's statement as it is put together from the fragments of one kind of row.
type listStatement struct {
	r       *Reads
	handler string // Document, Base: the fragments' first word
	text    strings.Builder
	args    []any
}

// list begins a list's statement.
func (r *Reads) list(kind string) *listStatement {
	l := &listStatement{r: r, handler: kind}
	l.text.WriteString(r.q.Get(kind + "List"))
	return l
}

// add appends a fragment with its arguments.
func (l *listStatement) add(fragment string, values ...any) {
	l.text.WriteString("\n" + fragment)
	l.args = append(l.args, values...)
}

// documents appends what is asked of the documents, if anything is.
func (l *listStatement) documents(statuses []ingest.DocumentStatus, stage taskstate.Stage) {
	if len(statuses) > 0 {
		values := make([]any, len(statuses))
		for i, s := range statuses {
			values[i] = string(s)
		}
		l.add(l.r.q.List(l.handler+"Statuses", len(values)), values...)
	}
	if stage != "" {
		l.add(l.r.q.Get(l.handler+"Stage"), string(stage))
	}
}

// times appends the limits that are set.
func (l *listStatement) times(t ingest.Times) {
	for _, limit := range []struct {
		name string
		at   time.Time
	}{{"MadeAfter", t.CreatedAfter}, {"MadeBefore", t.CreatedBefore}, {"ChangedAfter", t.UpdatedAfter}, {"ChangedBefore", t.UpdatedBefore}} {
		if !limit.at.IsZero() {
			l.add(l.r.q.Get(l.handler+limit.name), limit.at)
		}
	}
}

// page appends the place to go on after, the order and the limit.
func (l *listStatement) page(sort taskstate.Sort, after *taskstate.Cursor, limit int) {
	order := listOrder(sort)
	if after != nil {
		l.add(l.r.q.Get(l.handler+"After"+order), after.At, after.At, after.ID)
	}
	l.add(l.r.q.Get(l.handler+"Order"+order), limit)
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
	return dbq.Collect(ctx, r.store, "list segments", r.q.Get("SegmentPage"), []any{documentID, after, limit}, func(rows *sql.Rows) (ingest.Segment, error) {
		var s ingest.Segment
		var path string
		err := rows.Scan(&s.Index, &s.Text, &s.Page, &path, &s.ByteStart, &s.ByteEnd, &s.Tokens)
		s.HeadingPath = headings(path)
		return s, err
	})
}

// scanDocument reads DocumentList's columns.
func scanDocument(row dbq.Scanner) (ingest.Document, error) {
	var d ingest.Document
	var created, updated taskstate.DBTime
	err := row.Scan(&d.ID, &d.UserID, &d.BaseID, &d.BaseName, &d.Title, &d.FileName, &d.MediaType, &d.Status, &d.Bytes,
		&d.SHA256, &d.VisibleVersion, &d.SegmentCount, &d.Pages, &d.LatestTaskID, &created, &updated)
	d.CreatedAt, d.UpdatedAt = created.Time, updated.Time
	return d, err
}
