package catalog

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// switchRest is how long the sweeper leaves a version alone after it was superseded:
// searches that began before still join its rows (design D12), and a burst of uploads is swept once.
const switchRest = 60 * time.Second

// LockedDocument is what decisions need to know of a document; its row is locked.
type LockedDocument struct {
	ID, Base                 string
	Status                   ingest.DocumentStatus
	Segments                 int
	LatestTask               string // of the newest upload
	Visible                  string // id of the visible version; empty: none
	VisibleNo, VisibleUpload int64
	LastNo                   int64
	Deleted                  bool
}

// OpenVersion is a BUILDING version of a locked document.
type OpenVersion struct {
	ID, Document string
	No, Upload   int64
	Built        int // segments, as the last row transaction counted them
	// Elsewhere says that its vectors do not lie where the base's are searched; until ClosedUntil none of the base becomes visible.
	Elsewhere   bool
	ClosedUntil time.Time
}

// SegmentCount is what the rows of a version really are.
type SegmentCount struct{ N, Lowest, Highest int }

// LockDocumentsOf locks the documents of tasks, in id order, and returns them by id.
func (a *Catalog) LockDocumentsOf(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]LockedDocument, error) {
	ids, err := a.Column(ctx, tx, "TaskDocuments", tasks)
	if err != nil {
		return nil, err
	}
	return a.LockDocuments(ctx, tx, ids)
}

// LockDocuments locks documents in id order and returns them by id, tombstones too.
func (a *Catalog) LockDocuments(ctx context.Context, tx taskstate.Tx, ids []string) (map[string]LockedDocument, error) {
	slices.Sort(ids)
	out := make(map[string]LockedDocument, len(ids))
	return out, a.List(ctx, tx, "DocumentsLock", slices.Compact(ids), func(rows *sql.Rows) error {
		var d LockedDocument
		var deleted taskstate.DBTime
		err := rows.Scan(&d.ID, &d.Base, &d.Status, &d.Segments, &d.LatestTask, &d.Visible, &d.VisibleNo, &d.VisibleUpload, &d.LastNo, &deleted)
		d.Visible, d.Deleted = strings.TrimSpace(d.Visible), !deleted.IsZero()
		out[d.ID] = d
		return err
	})
}

// OpenVersions returns the BUILDING version of each task that has one, by task.
func (a *Catalog) OpenVersions(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]OpenVersion, error) {
	out := make(map[string]OpenVersion, len(tasks))
	return out, a.List(ctx, tx, "VersionsOpen", tasks, func(rows *sql.Rows) error {
		var v OpenVersion
		var task string
		var closing taskstate.DBTime
		err := rows.Scan(&v.ID, &task, &v.Document, &v.No, &v.Upload, &v.Built, &v.Elsewhere, &closing)
		v.ClosedUntil = closing.Time
		out[task] = v
		return err
	})
}

// CountSegments counts the rows of versions, by version.
func (a *Catalog) CountSegments(ctx context.Context, tx taskstate.Tx, open map[string]OpenVersion) (map[string]SegmentCount, error) {
	ids := make([]string, 0, len(open))
	for _, v := range open {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	out := make(map[string]SegmentCount, len(open))
	return out, a.List(ctx, tx, "VersionCounts", ids, func(rows *sql.Rows) error {
		var id string
		var c SegmentCount
		err := rows.Scan(&id, &c.N, &c.Lowest, &c.Highest)
		out[id] = c
		return err
	})
}

// Never is the fixed date that stands for "none" in sweep columns.
func Never() time.Time { return time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC) }
