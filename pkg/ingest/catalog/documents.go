package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/taskstate"
)

// VersionState is the state of a document version (design D8).
type VersionState string

// The states of a version.
const (
	VersionBuilding   VersionState = "BUILDING"
	versionVisible    VersionState = "VISIBLE"
	VersionSuperseded VersionState = "SUPERSEDED"
	VersionAbandoned  VersionState = "ABANDONED"
)

// DocumentRow is a row of knowledge_document as a writer locks it.
type DocumentRow struct {
	ID, UserID, BaseID          string
	Title, FileName, MediaType  string
	Metadata                    ingest.Metadata
	Status                      ingest.DocumentStatus
	Segments, Pages             int
	Bytes                       int64
	SHA256                      string
	VisibleID                   string // of the visible version; empty: none
	VisibleNo, VisibleUpload    int64
	LastNo, LastUpload          int64
	LatestTask                  string
	Parent                      ingest.Parent
	Created, Updated, DeletedAt taskstate.DBTime
}

// LockDocument reads a live document and locks its row. ErrDocumentNotFound for unknown ones and tombstones.
func (a *Catalog) LockDocument(ctx context.Context, tx taskstate.Tx, id string) (DocumentRow, error) {
	d, err := ScanWholeDocument(tx.QueryRowContext(ctx, a.q.Get("DocumentLock"), id))
	if errors.Is(err, sql.ErrNoRows) {
		return DocumentRow{}, ingest.ErrDocumentNotFound
	}
	if err != nil {
		return DocumentRow{}, fmt.Errorf("lock document %s: %w", id, err)
	}
	if !d.DeletedAt.IsZero() {
		return DocumentRow{}, ingest.ErrDocumentNotFound
	}
	return d, nil
}

// ScanWholeDocument reads a row of DocumentLock's columns.
func ScanWholeDocument(row sqldb.Scanner) (d DocumentRow, err error) {
	err = row.Scan(
		&d.ID, &d.UserID, &d.BaseID, &d.Title, &d.FileName, &d.MediaType, &d.Status, &d.Segments, &d.Pages, &d.Bytes, &d.SHA256,
		&d.VisibleID, &d.VisibleNo, &d.VisibleUpload, &d.LastNo, &d.LastUpload, &d.LatestTask,
		&d.Created, &d.Updated, &d.DeletedAt, &d.Metadata, &d.Parent.ID, &d.Parent.No)
	d.VisibleID, d.Parent.ID = strings.TrimSpace(d.VisibleID), strings.TrimSpace(d.Parent.ID)
	return d, err
}

// Document is the row as clients see it; the zero row gives the zero Document.
func (d DocumentRow) Document(baseName string) ingest.Document {
	return ingest.Document{
		ID: d.ID, UserID: d.UserID, BaseID: d.BaseID, BaseName: baseName,
		Title: d.Title, Metadata: d.Metadata, FileName: d.FileName, MediaType: d.MediaType, Status: d.Status, Bytes: d.Bytes, SHA256: d.SHA256,
		VisibleVersion: d.VisibleNo, SegmentCount: d.Segments, Pages: d.Pages, LatestTaskID: d.LatestTask, Parent: d.Parent,
		CreatedAt: d.Created.Time, UpdatedAt: d.Updated.Time,
	}
}

// NewVersion is a version to be made.
type NewVersion struct {
	Document, Base, Task, File, Title string
	No, Upload                        int64
	Metadata                          ingest.Metadata
}

// InsertVersions makes versions, with the rows by which filters find their metadata.
func (a *Catalog) InsertVersions(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, all []NewVersion) error {
	var versions, metadata []any
	for _, v := range all {
		id := ingest.NewID()
		versions = append(versions, id, v.Document, v.Base, v.Task, v.File, v.No, v.Upload, string(VersionBuilding), v.Title, m.Now, m.Now, Never(), v.Metadata.Null())
		for _, pair := range v.Metadata.Pairs() {
			metadata = append(metadata, id, pair[0], pair[1], v.Document, v.Base)
		}
	}
	for _, rows := range []struct {
		statement string
		columns   int
		params    []any
	}{{"VersionsInsert", 13, versions}, {"MetadataInsert", 5, metadata}} {
		for some := range slices.Chunk(rows.params, PageSize*rows.columns) {
			insert := sqldb.Part{Text: a.q.Rows(rows.statement, len(some)/rows.columns), Args: some}
			if err := (sqldb.Write{Part: insert}).Exec(ctx, tx); err != nil {
				return fmt.Errorf("%s: %w", rows.statement, err)
			}
		}
	}
	return nil
}
