package ingest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/taskstate"
	"github.com/millweir/millweir/pkg/taskstate/mutant"
)

// acceptWork is one run of the accept transaction.
type acceptWork struct {
	app *App
	tx  taskstate.Tx
	m   taskstate.Moment
	c   Caller
	u   Upload
	got *acceptance
}

// replayed looks for the task of an earlier request with the same key.
func (w *acceptWork) replayed(ctx context.Context) (bool, error) {
	if w.u.IdempotencyKey == "" {
		return false, nil
	}
	query := w.app.q.Get("TaskByKey")
	if mutant.Is("m17") {
		query = strings.Replace(query, "user_id = ?", "(user_id = ? OR 1 = 1)", 1)
	}
	var id, hash string
	err := w.tx.QueryRowContext(ctx, query, w.c.Scope.UserID, w.u.IdempotencyKey).Scan(&id, &hash)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the key's task: %w", err)
	}
	if hash != w.u.File.SHA256 {
		return false, ErrKeyReused
	}
	w.got.taskID, w.got.replayed = id, true
	return true, w.answerDocument(ctx, id)
}

// answerDocument fills the answer's document with that of a task, if it still lives.
func (w *acceptWork) answerDocument(ctx context.Context, taskID string) error {
	ids, err := column(ctx, w.tx, w.app.q.List("TaskDocuments", 1), taskID)
	if err != nil || len(ids) == 0 {
		return err
	}
	d, err := w.app.lockDocument(ctx, w.tx, ids[0])
	if errors.Is(err, ErrDocumentNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	w.got.document = d
	base, err := w.app.baseByID(ctx, w.tx, d.BaseID, d.UserID)
	w.got.baseName = base.Name
	if errors.Is(err, ErrBaseNotFound) {
		return nil
	}
	return err
}

// base finds the base that the upload goes to, makes the default one, and keeps it from being deleted meanwhile.
func (w *acceptWork) base(ctx context.Context) (Base, error) {
	user := w.c.Scope.UserID
	if w.u.DocumentID != "" {
		var id string
		err := w.tx.QueryRowContext(ctx, w.app.q.Get("DocumentBase"), w.u.DocumentID, user).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return Base{}, ErrDocumentNotFound
		}
		if err != nil {
			return Base{}, fmt.Errorf("find the document's base: %w", err)
		}
		w.u.Base = id
	}
	b, err := w.app.findBase(ctx, w.tx, user, w.u.Base)
	if errors.Is(err, ErrBaseNotFound) && w.u.Base == DefaultBase {
		b, err = w.makeDefault(ctx)
	}
	if err != nil {
		return Base{}, err
	}
	kept, err := column(ctx, w.tx, w.app.q.Get("BaseKeep"), b.ID)
	if err != nil {
		return Base{}, fmt.Errorf("keep base %s: %w", b.ID, err)
	}
	if len(kept) == 0 {
		return Base{}, ErrBaseNotFound
	}
	return b, nil
}

// makeDefault makes the user's default base; another request may do the same at once.
func (w *acceptWork) makeDefault(ctx context.Context) (Base, error) {
	user := w.c.Scope.UserID
	_, err := w.tx.ExecContext(ctx, w.app.q.Get("BaseInsert"), newID(), user, DefaultBase, DefaultBase, w.m.Now, w.m.Now)
	if err != nil {
		return Base{}, fmt.Errorf("make the default base: %w", err)
	}
	b, err := w.app.findBase(ctx, w.tx, user, DefaultBase)
	if errors.Is(err, ErrBaseNotFound) {
		return Base{}, errRaced
	}
	return b, err
}

// existing finds and locks the document that the upload is another version of.
func (w *acceptWork) existing(ctx context.Context, base string) (bool, error) {
	id := w.u.DocumentID
	if id == "" {
		same, err := column(ctx, w.tx, w.app.q.Get("DocumentSame"), base, w.u.File.SHA256)
		if err != nil {
			return false, fmt.Errorf("look for the same bytes: %w", err)
		}
		if len(same) == 0 {
			return false, nil
		}
		id = same[0]
	}
	d, err := w.app.lockDocument(ctx, w.tx, id)
	if errors.Is(err, ErrDocumentNotFound) && w.u.DocumentID == "" {
		return false, errRaced // deleted between the two statements
	}
	if err != nil {
		return false, err
	}
	if w.u.DocumentID == "" && d.SHA256 != w.u.File.SHA256 {
		return false, errRaced // a newer upload came between
	}
	w.got.document = d
	return true, nil
}

// duplicate answers with the document's last task when its newest upload has the same bytes and that task is not given up.
func (w *acceptWork) duplicate(ctx context.Context) (bool, error) {
	d := w.got.document
	var status string
	var payload sql.NullString
	err := w.tx.QueryRowContext(ctx, w.app.q.Get("TaskBrief"), d.LatestTask).Scan(&status, &payload)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the document's last task: %w", err)
	}
	w.inheritTitle(payload.String)
	given := status == string(taskstate.StatusDead) || status == string(taskstate.StatusCancelled)
	if w.u.Force || given || d.SHA256 != w.u.File.SHA256 {
		return false, nil
	}
	w.got.taskID, w.got.duplicate = d.LatestTask, true
	return true, nil
}

// inheritTitle keeps the title that the user gave the document when this upload names none.
func (w *acceptWork) inheritTitle(payload string) {
	var before taskPayload
	if w.u.Title == "" && json.Unmarshal([]byte(payload), &before) == nil {
		w.u.Title = before.Title
	}
}

// insert makes the document or its next version, links the file and answers the task.
func (w *acceptWork) insert(ctx context.Context, base string, existing bool) ([]taskstate.NewTask, error) {
	file, path, err := w.link(ctx)
	if err != nil {
		return nil, err
	}
	taskID := newID()
	if existing {
		err = w.bump(ctx, taskID)
	} else {
		err = w.create(ctx, base, taskID)
	}
	if err != nil {
		return nil, err
	}
	d := w.got.document
	_, err = w.tx.ExecContext(ctx, w.app.q.Get("VersionInsert"),
		newID(), d.ID, base, taskID, file, d.LastNo, d.LastUpload, w.u.Title, w.m.Now, w.m.Now)
	if err != nil {
		return nil, fmt.Errorf("insert version: %w", err)
	}
	w.got.taskID = taskID
	t := taskstate.Task{
		ID: taskID, UserID: w.c.Scope.UserID, DocumentID: d.ID, KnowledgeBase: base, FilePath: path,
		Type: TypeDocument, Channel: w.c.Channel, Payload: w.u.payload(w.u.Title), TraceParent: w.c.TraceParent,
		MaxAttempts: w.app.cfg.MaxAttempts,
	}
	if w.u.IdempotencyKey != "" {
		t.IdempotencyKey, t.RequestHash = w.u.IdempotencyKey, w.u.File.SHA256
	}
	return []taskstate.NewTask{{Task: t, Actor: w.c.Scope.Actor()}}, nil
}

// link answers the file row that holds the upload's bytes: one that is there, locked and linked, or its own (design D8).
func (w *acceptWork) link(ctx context.Context) (id, path string, err error) {
	same, err := column(ctx, w.tx, w.app.q.Get("FileSame"), w.c.Scope.UserID, w.u.File.SHA256)
	if err != nil {
		return "", "", fmt.Errorf("look for the stored file: %w", err)
	}
	if len(same) == 1 {
		locked, err := column(ctx, w.tx, w.app.q.Get("FileLock"), same[0])
		if err != nil {
			return "", "", fmt.Errorf("lock stored file %s: %w", same[0], err)
		}
		if len(locked) == 1 {
			return same[0], locked[0], nil
		}
	}
	f := w.u.File
	_, err = w.tx.ExecContext(ctx, w.app.q.Get("FileInsert"),
		f.ID, w.c.Scope.UserID, f.SHA256, f.Bytes, f.Name, f.MediaType, f.ID, w.m.Now)
	if err != nil {
		return "", "", fmt.Errorf("insert stored file: %w", err)
	}
	w.got.ownFile = true
	return f.ID, f.ID, nil
}

// create inserts a new document; the same bytes accepted at the same moment win by the unique index.
func (w *acceptWork) create(ctx context.Context, base, taskID string) error {
	f, id := w.u.File, newID()
	_, err := w.tx.ExecContext(ctx, w.app.q.Get("DocumentInsert"), id, w.c.Scope.UserID, base, w.title(), f.Name, f.MediaType,
		f.Bytes, f.SHA256, f.SHA256, taskID, w.m.Now, w.m.Now)
	if err != nil {
		return fmt.Errorf("insert document: %w", err)
	}
	w.got.document, err = w.app.lockDocument(ctx, w.tx, id)
	if errors.Is(err, ErrDocumentNotFound) {
		return errRaced
	}
	return err
}

// bump counts a further upload of the locked document.
func (w *acceptWork) bump(ctx context.Context, taskID string) error {
	d, f := &w.got.document, w.u.File
	same := sql.NullString{String: f.SHA256, Valid: true}
	holders, err := column(ctx, w.tx, w.app.q.Get("DocumentSame"), d.BaseID, f.SHA256)
	if err != nil {
		return fmt.Errorf("look for the same bytes: %w", err)
	}
	if len(holders) > 0 && holders[0] != d.ID {
		same = sql.NullString{} // another document is the one to find by these bytes
	}
	_, err = w.tx.ExecContext(ctx, w.app.q.Get("DocumentUpload"),
		f.Name, f.MediaType, f.Bytes, f.SHA256, same, taskID, w.m.Now, w.title(), d.ID)
	if err != nil {
		return fmt.Errorf("count upload of document %s: %w", d.ID, err)
	}
	w.got.document, err = w.app.lockDocument(ctx, w.tx, d.ID)
	return err
}

// title is what the document is called until a version of it is visible.
func (w *acceptWork) title() string {
	if w.u.Title != "" {
		return w.u.Title
	}
	return w.u.File.Name
}

// findBase finds a base of a user by id or name. ErrBaseNotFound.
func (a *App) findBase(ctx context.Context, tx taskstate.Tx, user, idOrName string) (Base, error) {
	if uuid.Validate(idOrName) == nil {
		b, err := a.baseByID(ctx, tx, idOrName, user)
		if !errors.Is(err, ErrBaseNotFound) {
			return b, err
		}
	}
	return baseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseNamed"), user, idOrName))
}

// baseByID finds a user's base by its id. ErrBaseNotFound.
func (a *App) baseByID(ctx context.Context, tx taskstate.Tx, id, user string) (Base, error) {
	return baseFrom(tx.QueryRowContext(ctx, a.q.Get("BaseOfUser"), id, user))
}
