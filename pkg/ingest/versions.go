package ingest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/millweir/millweir/pkg/taskstate"
)

// versionState is the state of a document version (design D8).
type versionState string

// The states of a version.
const (
	versionBuilding   versionState = "BUILDING"
	versionVisible    versionState = "VISIBLE"
	versionSuperseded versionState = "SUPERSEDED"
	versionAbandoned  versionState = "ABANDONED"
)

// documentRow is a row of knowledge_document as a writer locks it.
type documentRow struct {
	ID, UserID, BaseID          string
	Title, FileName, MediaType  string
	Status                      DocumentStatus
	Segments, Pages             int
	Bytes                       int64
	SHA256                      string
	VisibleID                   string // of the visible version; empty: none
	VisibleNo, VisibleUpload    int64
	LastNo, LastUpload          int64
	LatestTask                  string
	Created, Updated, DeletedAt taskstate.DBTime
}

// lockDocument reads a live document and locks its row. ErrDocumentNotFound for unknown ones and tombstones.
func (a *App) lockDocument(ctx context.Context, tx taskstate.Tx, id string) (documentRow, error) {
	d, err := scanWholeDocument(tx.QueryRowContext(ctx, a.q.Get("DocumentLock"), id))
	if errors.Is(err, sql.ErrNoRows) {
		return documentRow{}, ErrDocumentNotFound
	}
	if err != nil {
		return documentRow{}, fmt.Errorf("lock document %s: %w", id, err)
	}
	if !d.DeletedAt.IsZero() {
		return documentRow{}, ErrDocumentNotFound
	}
	return d, nil
}

// scanWholeDocument reads a row of DocumentLock's columns.
func scanWholeDocument(row scanner) (d documentRow, err error) {
	err = row.Scan(
		&d.ID, &d.UserID, &d.BaseID, &d.Title, &d.FileName, &d.MediaType, &d.Status, &d.Segments, &d.Pages, &d.Bytes, &d.SHA256,
		&d.VisibleID, &d.VisibleNo, &d.VisibleUpload, &d.LastNo, &d.LastUpload, &d.LatestTask,
		&d.Created, &d.Updated, &d.DeletedAt)
	d.VisibleID = strings.TrimSpace(d.VisibleID)
	return d, err
}

// document is the row as clients see it; the zero row gives the zero Document.
func (d documentRow) document(baseName string) Document {
	return Document{
		ID: d.ID, UserID: d.UserID, BaseID: d.BaseID, BaseName: baseName,
		Title: d.Title, FileName: d.FileName, MediaType: d.MediaType, Status: d.Status, Bytes: d.Bytes, SHA256: d.SHA256,
		VisibleVersion: d.VisibleNo, SegmentCount: d.Segments, Pages: d.Pages, LatestTaskID: d.LatestTask,
		CreatedAt: d.Created.Time, UpdatedAt: d.Updated.Time,
	}
}
