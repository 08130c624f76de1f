package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millweir/millweir/pkg/ingest/internal/dbq"
	"github.com/millweir/millweir/pkg/taskstate"
)

// switchRest is how long the sweeper leaves a version alone after it was superseded:
// searches that began before still join its rows (design D12), and a burst of uploads is swept once.
const switchRest = 60 * time.Second

// LockedDocument is what decisions need to know of a document; its row is locked.
type LockedDocument struct {
	ID, Visible              string // visible: id of the visible version; empty: none
	VisibleNo, VisibleUpload int64
	LastNo                   int64
	Deleted                  bool
}

// OpenVersion is a BUILDING version of a locked document.
type OpenVersion struct {
	ID, task, Document, base string
	No, Upload               int64
	Built                    int // segments, as the last row transaction counted them
}

// SegmentCount is what the rows of a version really are.
type SegmentCount struct{ N, Lowest, Highest int }

// LockDocumentsOf locks the documents of tasks, in id order, and returns them by id.
func (a *Catalog) LockDocumentsOf(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]LockedDocument, error) {
	if len(tasks) == 0 {
		return map[string]LockedDocument{}, nil
	}
	ids, err := dbq.Column(ctx, tx, a.q.List("TaskDocuments", len(tasks)), dbq.Args(tasks)...)
	if err != nil {
		return nil, fmt.Errorf("find the tasks' documents: %w", err)
	}
	return a.LockDocuments(ctx, tx, ids)
}

// LockDocuments locks documents in id order and returns them by id, tombstones too.
func (a *Catalog) LockDocuments(ctx context.Context, tx taskstate.Tx, ids []string) (map[string]LockedDocument, error) {
	out := make(map[string]LockedDocument, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	rows, err := tx.QueryContext(ctx, a.q.List("DocumentsLock", len(ids)), dbq.Args(ids)...)
	if err != nil {
		return nil, fmt.Errorf("lock documents: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var d LockedDocument
		var deleted taskstate.DBTime
		if err := rows.Scan(&d.ID, &d.Visible, &d.VisibleNo, &d.VisibleUpload, &d.LastNo, &deleted); err != nil {
			return nil, fmt.Errorf("lock documents: %w", err)
		}
		d.Visible = strings.TrimSpace(d.Visible)
		d.Deleted = !deleted.IsZero()
		out[d.ID] = d
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("lock documents: %w", err)
	}
	return out, nil
}

// OpenVersions returns the BUILDING version of each task that has one, by task.
func (a *Catalog) OpenVersions(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]OpenVersion, error) {
	out := make(map[string]OpenVersion, len(tasks))
	if len(tasks) == 0 {
		return out, nil
	}
	rows, err := tx.QueryContext(ctx, a.q.List("VersionsOpen", len(tasks)), dbq.Args(tasks)...)
	if err != nil {
		return nil, fmt.Errorf("read open versions: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v OpenVersion
		if err := rows.Scan(&v.ID, &v.task, &v.Document, &v.base, &v.No, &v.Upload, &v.Built); err != nil {
			return nil, fmt.Errorf("read open versions: %w", err)
		}
		out[v.task] = v
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read open versions: %w", err)
	}
	return out, nil
}

// CountSegments counts the rows of versions, by version.
func (a *Catalog) CountSegments(ctx context.Context, tx taskstate.Tx, open map[string]OpenVersion) (map[string]SegmentCount, error) {
	out := make(map[string]SegmentCount, len(open))
	if len(open) == 0 {
		return out, nil
	}
	ids := make([]string, 0, len(open))
	for _, v := range open {
		ids = append(ids, v.ID)
	}
	slices.Sort(ids)
	rows, err := tx.QueryContext(ctx, a.q.List("VersionCounts", len(ids)), dbq.Args(ids)...)
	if err != nil {
		return nil, fmt.Errorf("count segments: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		var c SegmentCount
		if err := rows.Scan(&id, &c.N, &c.Lowest, &c.Highest); err != nil {
			return nil, fmt.Errorf("count segments: %w", err)
		}
		out[id] = c
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("count segments: %w", err)
	}
	return out, nil
}

// Never is the fixed date that stands for "none" in sweep columns.
func Never() time.Time { return time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC) }
