package app

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/millweir/millweir/pkg/ingest"
	"github.com/millweir/millweir/pkg/taskstate"
)

// ErrNoCopy says that a row cannot be made of a copy: something is missing in it, or is not what it should be.
var ErrNoCopy = errors.New("the copy is not whole")

// Restore gives tasks their rows again that were lost with the database, as their copies say (design D19): the same ids and idempotency
// keys, state QUEUED, no attempts. A document gets its rows by an accept of its file, in its base by name. The tasks of one document
// have to come in their order, that of their ids; those of one call may come in any. It returns an error for each; nil: its row is there.
// Errors: ErrNoCopy, tasks.ErrKeyReused (another task has its key now), ingest.ErrUploadExpired (its file is lost too),
// taskstate.ErrUnavailable.
func (a *App) Restore(ctx context.Context, lost []taskstate.Task) []error {
	errs := make([]error, len(lost))
	missing, err := a.Missing(ctx, lost)
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	places := make(map[string]int, len(lost))
	for i, t := range lost {
		places[t.ID] = i
	}
	slices.SortFunc(missing, func(x, y taskstate.Task) int { return strings.Compare(x.ID, y.ID) })
	var plain []taskstate.Task
	var callers []ingest.Caller
	var uploads []ingest.Upload
	var plainAt, uploadAt []int
	for _, t := range missing {
		i := places[t.ID]
		switch err := whole(t); {
		case err != nil:
			errs[i] = fmt.Errorf("restore task %s: %w: %w", t.ID, ErrNoCopy, err)
		case t.Type != ingest.TypeDocument:
			plain, plainAt = append(plain, t), append(plainAt, i)
		default:
			u, err := uploadOf(t)
			if errs[i] = err; err != nil {
				errs[i] = fmt.Errorf("restore task %s: %w: %w", t.ID, ErrNoCopy, err)
				continue
			}
			uploads, uploadAt = append(uploads, u), append(uploadAt, i)
			callers = append(callers, ingest.Caller{
				Scope: taskstate.Scope{UserID: t.UserID, Role: taskstate.RoleUser}, Channel: t.Channel, TraceParent: t.TraceParent, RequestID: t.RequestID,
			})
		}
	}
	if len(plain) > 0 {
		for n, err := range a.Service.Restore(ctx, plain) {
			errs[plainAt[n]] = err
		}
	}
	if len(uploads) > 0 {
		for n, err := range a.Uploads.Restore(ctx, callers, uploads) {
			errs[uploadAt[n]] = err
		}
	}
	return errs
}

// whole says what a task lacks to be submitted.
func whole(t taskstate.Task) error {
	id, err := uuid.Parse(t.ID)
	switch {
	case err != nil || id.String() != t.ID:
		return fmt.Errorf("taskId %q is no UUID in lower case", t.ID)
	case t.UserID == "" || t.Type == "" || t.Channel == "":
		return errors.New("userId, type or channel is missing")
	case t.MaxAttempts < 1:
		return errors.New("retry.max is missing")
	}
	return nil
}

// uploadOf is the upload that a document's task is about.
func uploadOf(t taskstate.Task) (ingest.Upload, error) {
	var p ingest.Payload
	if err := json.Unmarshal(t.Payload, &p); err != nil {
		return ingest.Upload{}, fmt.Errorf("payload: %w", err)
	}
	sum, err := hex.DecodeString(p.SHA256)
	switch {
	case err != nil || len(sum) != 32:
		return ingest.Upload{}, fmt.Errorf("payload.sha256 %q is no SHA-256", p.SHA256)
	case p.Base == "":
		return ingest.Upload{}, errors.New("payload.knowledgeBase is missing: it was accepted before payloads named their base; upload it again")
	case p.FileName == "" || p.MediaType == "":
		return ingest.Upload{}, errors.New("payload.fileName or payload.mediaType is missing")
	case uuid.Validate(t.FilePath) != nil:
		return ingest.Upload{}, fmt.Errorf("filePath %q is no name of a stored file", t.FilePath)
	case uuid.Validate(t.DocumentID) != nil:
		return ingest.Upload{}, fmt.Errorf("documentId %q is no UUID", t.DocumentID)
	}
	return ingest.Upload{
		File:  ingest.ReceivedFile{ID: t.FilePath, Name: p.FileName, Bytes: p.Bytes, SHA256: p.SHA256, MediaType: p.MediaType},
		Title: p.Title, Metadata: ingest.Metadata(p.Metadata), Base: p.Base, IdempotencyKey: t.IdempotencyKey, ChatID: t.ChatID,
		Parent: ingest.Parent{ID: p.ParentID, No: p.ParentVersion},
		Lost:   &ingest.Lost{TaskID: t.ID, DocumentID: t.DocumentID, RequestHash: t.RequestHash, MaxAttempts: t.MaxAttempts},
	}, nil
}
