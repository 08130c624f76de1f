package upload

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/ingest/catalog"
	"github.com/millweir/millweir/pkg/sqldb"
	"github.com/millweir/millweir/pkg/tasks"
	"github.com/millweir/millweir/pkg/taskstate"
)

// decide says of every upload that is still open whether it is a duplicate, refused, or written now.
// An upload waits for the next transaction when an earlier one of this batch takes the same key, becomes the holder of the
// same bytes in the same base, or renews the same document: only then can it be seen what it is.
func (r *acceptRun) decide(context.Context) error {
	taken := map[sqldb.Pair]bool{}
	r.each(acceptOpen, func(w *acceptWork) {
		if w.exists && w.u.DocumentID != "" {
			if err := w.c.Allows(w.got.document.Document(w.base.Name)); err != nil {
				w.refuse(err)
				return
			}
		}
		if w.exists && w.u.Lost == nil && w.u.Kept == nil && r.duplicate(w) {
			return
		}
		if err := w.fits(); err != nil {
			w.refuse(err)
			return
		}
		if r.full != nil {
			w.refuse(r.full)
			return
		}
		var claims []sqldb.Pair
		if w.u.Parent.ID == "" {
			claims = append(claims, sqldb.Pair{"bytes " + w.base.ID, w.u.File.SHA256})
		}
		if w.u.IdempotencyKey != "" {
			claims = append(claims, sqldb.Pair{"key " + w.c.Scope.UserID, w.u.IdempotencyKey})
		}
		if id := r.documentID(w); id != "" {
			claims = append(claims, sqldb.Pair{"document", id})
		}
		if slices.ContainsFunc(claims, func(p sqldb.Pair) bool { return taken[p] }) {
			w.state = acceptPostponed
			return
		}
		for _, p := range claims {
			taken[p] = true
		}
		w.state = acceptWrites
	})
	return nil
}

// fits judges what the version will have as metadata, said or inherited, by the schema of its base. The base is locked since the schema was
// read, so that it holds when the upload is committed. What is only taken in anew is not judged: nobody can say anything else of it.
func (w *acceptWork) fits() error {
	if w.u.Lost != nil || w.u.Kept != nil || w.u.Again {
		return nil
	}
	return w.base.MetadataSchema.Fits("metadata", w.u.Metadata)
}

// duplicate returns the document's last task when its newest upload has the same bytes and that task is not given up.
func (r *acceptRun) duplicate(w *acceptWork) bool {
	d := w.got.document
	last, found := r.latest[d.LatestTask]
	if !found {
		return false
	}
	var before ingest.Payload
	if json.Unmarshal([]byte(last.payload), &before) == nil { // what the user said of the document is kept when this upload says nothing
		w.u.Title = cmp.Or(w.u.Title, before.Title)
		w.u.Metadata = cmp.Or(w.u.Metadata, ingest.Metadata(before.Metadata))
	}
	given := last.status == string(taskstate.StatusDead) || last.status == string(taskstate.StatusCancelled)
	if w.u.Force || given || d.SHA256 != w.u.File.SHA256 {
		return false
	}
	w.state, w.got.taskID, w.got.duplicate, w.got.ownFile = acceptAnswered, d.LatestTask, true, last.path == w.u.File.ID
	return true
}

// writeVersions makes the versions and their tasks.
func (r *acceptRun) writeVersions(ctx context.Context) error {
	var versions []catalog.NewVersion
	r.each(acceptWrites, func(w *acceptWork) {
		d := w.got.document
		versions = append(versions, catalog.NewVersion{
			Document: d.ID, Base: w.base.ID, Task: w.got.taskID, File: w.fileID, No: d.LastNo, Upload: d.LastUpload, Title: w.u.Title, Metadata: w.u.Metadata,
		})
		r.tasks = append(r.tasks, r.task(w))
		if ingest.CarriesFiles(w.u.File.MediaType) && w.u.Lost == nil { // a lost one has its own copy
			r.tasks = append(r.tasks, r.attachments(w))
		}
	})
	return r.app.cat.InsertVersions(ctx, r.tx, r.m, versions)
}

// insert is a multi-row INSERT, unless there is no row.
func (r *acceptRun) insert(ctx context.Context, name string, rows int, params []any) error {
	if rows == 0 {
		return nil
	}
	return sqldb.Write{Part: sqldb.Part{Text: r.app.q.Rows(name, rows), Args: params}}.Exec(ctx, r.tx)
}

// task is the task of an upload that is written.
func (r *acceptRun) task(w *acceptWork) taskstate.NewTask {
	actor, attempts := w.c.Scope.Actor(), r.app.cfg.MaxAttempts
	if w.u.Lost != nil {
		actor, attempts = tasks.Restorer(), cmp.Or(w.u.Lost.MaxAttempts, attempts)
	}
	t := taskstate.Task{
		ID: w.got.taskID, UserID: w.c.Scope.UserID, DocumentID: w.got.document.ID, KnowledgeBase: w.base.ID, FilePath: w.filePath,
		Type: ingest.TypeDocument, Channel: w.c.Channel, Payload: w.u.Payload(w.base.Name), TraceParent: w.c.TraceParent, RequestID: w.c.RequestID,
		ChatID: w.u.ChatID, MaxAttempts: attempts,
	}
	if w.u.IdempotencyKey != "" {
		t.IdempotencyKey, t.RequestHash = w.u.IdempotencyKey, w.asked
	}
	return taskstate.NewTask{Task: t, Actor: actor}
}

// attachments is the task that takes the attachments of a message in, once the version that its own task makes is visible.
func (r *acceptRun) attachments(w *acceptWork) taskstate.NewTask {
	return taskstate.NewTask{Actor: w.c.Scope.Actor(), Task: taskstate.Task{
		ID: ingest.NewID(), UserID: w.c.Scope.UserID, Type: ingest.AttachmentsType, WorkflowID: ingest.AttachmentsWorkflow, Channel: ingest.AttachmentsChannel,
		Payload: ingest.Carrying{DocumentID: w.got.document.ID, TaskID: w.got.taskID}.Request(), TraceParent: w.c.TraceParent, RequestID: w.c.RequestID, MaxAttempts: r.app.cfg.MaxAttempts,
	}}
}

// writeDocuments makes new documents with one statement and counts a further upload of each of the others.
// New rows are in the order of the unique index, in which two processes then wait for each other.
func (r *acceptRun) writeDocuments(ctx context.Context) error {
	var fresh []*acceptWork
	counts := catalog.Counts{}
	var err error
	r.each(acceptWrites, func(w *acceptWork) {
		if w.got.taskID = ingest.NewID(); w.u.Lost != nil {
			w.got.taskID = w.u.Lost.TaskID
		}
		if !w.exists {
			fresh = append(fresh, w)
		} else if err == nil {
			err = r.renew(ctx, w, counts)
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(fresh, func(x, y *acceptWork) int {
		return strings.Compare(x.base.ID+x.u.File.SHA256, y.base.ID+y.u.File.SHA256)
	})
	var params []any
	for _, w := range fresh {
		f, now := w.u.File, taskstate.DBTime{Time: r.m.Now}
		d := catalog.DocumentRow{
			ID: ingest.NewID(), UserID: w.c.Scope.UserID, BaseID: w.base.ID, Title: w.title(), Metadata: w.u.Metadata, FileName: f.Name, MediaType: f.MediaType,
			Status: ingest.DocumentQueued, Bytes: f.Bytes, SHA256: f.SHA256, LastNo: 1, LastUpload: 1, LatestTask: w.got.taskID, Parent: w.u.Parent, Created: now, Updated: now,
		}
		if w.u.Lost != nil {
			d.ID = w.u.Lost.DocumentID
		}
		params = append(params, d.ID, d.UserID, d.BaseID, d.Title, d.FileName, d.MediaType, string(d.Status), d.Bytes, d.SHA256, r.findBy(d),
			d.LastNo, d.LastUpload, d.LatestTask, r.m.Now, r.m.Now, catalog.Never(), d.Metadata.Null(),
			sql.NullString{String: d.Parent.ID, Valid: d.Parent.ID != ""}, d.Parent.No)
		w.got.document = d
		counts.Made(d)
	}
	if err := r.insert(ctx, "DocumentsInsert", len(fresh), params); err != nil {
		return fmt.Errorf("insert documents: %w", err)
	}
	return r.app.cat.Count(ctx, r.tx, counts)
}

// renew counts a further upload of the locked document; what its readers see stays until a version of it is visible.
func (r *acceptRun) renew(ctx context.Context, w *acceptWork, counts catalog.Counts) error {
	d, f, was := &w.got.document, w.u.File, w.got.document.Status
	d.SHA256, w.u.Parent = f.SHA256, d.Parent
	same := r.findBy(*d)
	upload := r.app.q.Part("DocumentUpload", f.Name, f.MediaType, f.Bytes, f.SHA256, same, w.got.taskID, r.m.Now, w.title(), w.u.Metadata.Null(), d.ID)
	if err := (sqldb.Write{Part: upload}).Exec(ctx, r.tx); err != nil {
		return fmt.Errorf("count upload of document %s: %w", d.ID, err)
	}
	d.FileName, d.MediaType, d.Bytes = f.Name, f.MediaType, f.Bytes
	d.LastNo, d.LastUpload, d.LatestTask = d.LastNo+1, d.LastUpload+1, w.got.taskID
	d.Updated.Time, d.Status = r.m.Now, ingest.DocumentReady
	if d.VisibleNo == 0 {
		d.Status, d.Title, d.Metadata = ingest.DocumentQueued, w.title(), w.u.Metadata
	}
	counts.Changed(d.BaseID, was, d.Segments, d.Status, d.Segments)
	return nil
}

// findBy is the sum that a document is found by; NULL: another one is the one to find by its bytes, or it is found by its message.
func (r *acceptRun) findBy(d catalog.DocumentRow) sql.NullString {
	holder := r.holders[sqldb.Pair{d.BaseID, d.SHA256}]
	return sql.NullString{String: d.SHA256, Valid: d.Parent.ID == "" && (holder == "" || holder == d.ID)}
}

// title is what the document is called until a version of it is visible.
func (w *acceptWork) title() string {
	return cmp.Or(w.u.Title, w.u.File.Name)
}
