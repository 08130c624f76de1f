package catalog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// Replayed is the version that a replay goes on from.
type Replayed struct {
	document, base, file, title string
	upload, no                  int64 // no: of the new version
}

// JudgeReplays turns replays that have no document, file or place any more into refusals, and returns the others by task.
func (a *Catalog) JudgeReplays(ctx context.Context, tx taskstate.Tx, locked []taskstate.Task, out []taskstate.Decision) (map[string]Replayed, error) {
	var tasks []string
	for _, d := range out {
		if isReplay(d) {
			tasks = append(tasks, d.TaskID)
		}
	}
	if len(tasks) == 0 {
		return nil, nil
	}
	documents, err := a.LockDocumentsOf(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	last, err := a.lastVersions(ctx, tx, tasks)
	if err != nil {
		return nil, err
	}
	next := map[string]int64{}
	for i, d := range out {
		if !isReplay(d) {
			continue
		}
		if locked[i].DocumentID == "" {
			continue // another kind's task
		}
		v := last[d.TaskID] // the zero value when nothing is left of the document
		if refusal := refuseReplay(documents, v); refusal != nil {
			out[i] = taskstate.Decision{TaskID: d.TaskID, Answer: taskstate.AnswerRefused, Err: refusal}
			delete(last, d.TaskID)
			continue
		}
		if next[v.document] == 0 {
			next[v.document] = documents[v.document].LastNo
		}
		next[v.document]++
		v.no = next[v.document]
		last[d.TaskID] = v
	}
	return last, nil
}

// isReplay reports whether a decision puts a DEAD or CANCELLED task back.
func isReplay(d taskstate.Decision) bool {
	return d.Change != nil && d.Change.Reason == taskstate.ReasonReplayed
}

// refuseReplay returns why a replay cannot be, or nil.
func refuseReplay(documents map[string]LockedDocument, v Replayed) error {
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
func (a *Catalog) lastVersions(ctx context.Context, tx taskstate.Tx, tasks []string) (map[string]Replayed, error) {
	out := map[string]Replayed{}
	return out, a.List(ctx, tx, "VersionsOfTasks", tasks, func(rows *sql.Rows) error {
		var task string
		var v Replayed
		err := rows.Scan(&task, &v.document, &v.base, &v.upload, &v.title, &v.file)
		out[task] = v // the rows come in the order of their no
		return err
	})
}

// OpenReplays makes the new version of each replayed task, with the upload's number of the one before (design D8).
func (a *Catalog) OpenReplays(ctx context.Context, tx taskstate.Tx, m taskstate.DBClock, changed []taskstate.Decision, replays map[string]Replayed) error {
	var params []any
	n := 0
	highest := map[string]int64{}
	for _, d := range changed {
		v, ok := replays[d.TaskID]
		if !ok || !isReplay(d) {
			continue
		}
		params = append(params, ingest.NewID(), v.document, v.base, d.TaskID, v.file, v.no, v.upload, string(VersionBuilding), v.title, m.Now, m.Now, Never())
		highest[v.document] = max(highest[v.document], v.no)
		n++
	}
	if n == 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, a.q.Rows("VersionsInsert", n), params...); err != nil {
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
