package catalog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskrun"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// TaskType is what the door for tasks knows of a document's task. It implements tasks.Replayer.
type TaskType struct{ *Catalog }

var _ tasks.Replayer = TaskType{}

// Describe implements tasks.Type.
func (TaskType) Describe() taskrun.Description { return ingest.Describe() }

// OnTransition implements tasks.Type: versions and documents follow, and a replay opens a new version.
func (t TaskType) OnTransition(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error {
	if err := t.Catalog.OnTransition(ctx, tx, m, changed); err != nil {
		return err
	}
	return t.openReplays(ctx, tx, m, changed, payloads)
}

// replayed is the version that a replay goes on from.
type replayed struct {
	document, base, file, title string
	metadata                    ingest.Metadata
	upload, no                  int64 // no: of the new version
}

// JudgeReplays implements tasks.Replayer: a replay needs its document, its file and its place.
func (t TaskType) JudgeReplays(ctx context.Context, tx taskstate.Tx, replays []taskstate.Task) (map[string]error, map[string]any, error) {
	ids := make([]string, len(replays))
	for i, task := range replays {
		ids[i] = task.ID
	}
	documents, err := t.LockDocumentsOf(ctx, tx, ids)
	if err != nil {
		return nil, nil, err
	}
	last, err := t.lastVersions(ctx, tx, ids)
	if err != nil {
		return nil, nil, err
	}
	refused, payloads, next := map[string]error{}, map[string]any{}, map[string]int64{}
	for _, id := range ids {
		v := last[id] // the zero value when nothing is left of the document
		if err := refuseReplay(documents, v); err != nil {
			refused[id] = err
			continue
		}
		if next[v.document] == 0 {
			next[v.document] = documents[v.document].LastNo
		}
		next[v.document]++
		v.no = next[v.document]
		payloads[id] = v
	}
	return refused, payloads, nil
}

// refuseReplay returns why a replay cannot be, or nil.
func refuseReplay(documents map[string]LockedDocument, v replayed) error {
	d, found := documents[v.document]
	switch {
	case !found || d.Deleted:
		return ingest.ErrDocumentDeleted
	case d.VisibleUpload > v.upload:
		return ingest.ErrReplaySuperseded
	case v.file == "":
		return ingest.ErrDocumentDeleted
	}
	return nil
}

// lastVersions reads the newest version of each task, by task.
func (a *Catalog) lastVersions(ctx context.Context, tx taskstate.Tx, ids []string) (map[string]replayed, error) {
	out := map[string]replayed{}
	return out, a.List(ctx, tx, "VersionsOfTasks", ids, func(rows *sql.Rows) error {
		var task string
		var v replayed
		err := rows.Scan(&task, &v.document, &v.base, &v.upload, &v.title, &v.metadata, &v.file)
		out[task] = v // the rows come in the order of their no
		return err
	})
}

// openReplays makes the new version of each replayed task, with the upload's number of the one before (design D8).
func (a *Catalog) openReplays(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, payloads map[string]any) error {
	var versions []NewVersion
	highest := map[string]int64{}
	for _, d := range changed {
		v, ok := payloads[d.TaskID].(replayed)
		if !ok {
			continue
		}
		versions = append(versions, NewVersion{
			Document: v.document, Base: v.base, Task: d.TaskID, File: v.file, No: v.no, Upload: v.upload, Title: v.title, Metadata: v.metadata,
		})
		highest[v.document] = max(highest[v.document], v.no)
	}
	if err := a.InsertVersions(ctx, tx, m, versions); err != nil {
		return fmt.Errorf("open versions for replays: %w", err)
	}
	documents := make([]string, 0, len(highest))
	for id := range highest {
		documents = append(documents, id)
	}
	slices.Sort(documents)
	for _, id := range documents {
		if _, err := tx.ExecContext(ctx, a.q.Get("DocumentNext"), highest[id], id); err != nil {
			return fmt.Errorf("count versions of document %s: %w", id, err)
		}
	}
	return nil
}
